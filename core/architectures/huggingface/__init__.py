"""Hugging Face's `config.json` as a description, and a description as `config.json`.

What transformers can express is what comes back: a description has a configuration if reading that configuration gives
the same description. So one table of fields, the readers, decides both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.huggingface.fields import Fields
from edgefront.core.architectures.huggingface.types import READERS, nearest_configurations, unloadable
from edgefront.core.common.errors import ArchitectureError, InvalidInput, NotFound
from edgefront.core.common.hugging_face import CONFIG, refuse_pointer
from edgefront.core.common.validation import short

# Fields of a `config.json` that do not change what a model computes, by its type in transformers.  Collected from the
# configuration classes of transformers 4 and 5 and from published files; a field that is neither here nor read is
# refused by its name.


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_GENERATION = _names("""
    assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty do_sample
    early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens
    min_length min_new_tokens min_p no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule
    num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty
    return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p typical_p use_cache
""")
"""Settings of sampling, which older files keep in `config.json`."""
_OF_ALL = _names("""
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash _flash_attn_2_enabled
    _name_or_path attention_dropout attn_implementation bos_token_id chunk_size_feed_forward decoder_start_token_id
    eos_token_id experts_implementation finetuning_task gradient_checkpointing id2label initializer_range is_decoder
    label2id model_type name_or_path neftune_noise_alpha num_labels output_attentions output_hidden_states output_past
    pad_token_id prefix problem_type return_dict sep_token_id task_specific_params tf_legacy_loss tie_encoder_decoder
    tie_last_hidden_states tokenizer_class torchscript transformers.js_config transformers_version unk_token_id
    unsloth_fixed unsloth_version use_bfloat16
""")
_OF_TYPE: Mapping[str, frozenset[str]] = {
    "gpt2": _names("""
        attn_pdrop embd_pdrop predict_special_tokens reorder_and_upcast_attn resid_pdrop summary_activation
        summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    """),
    "opt": _names("activation_dropout dropout init_std layerdrop"),
    "llama": _names("is_llama_config pretraining_tp"),
    "mobilellm": _names("pretraining_tp"),
    "smollm3": _names("max_window_layers pretraining_tp"),
    "gpt_neox": _names("classifier_dropout hidden_dropout"),
    "stablelm": _names("hidden_dropout"),
    "phi": _names("embd_pdrop resid_pdrop"),
    "granite": _names("pretraining_tp"),
    "gemma3_text": _names("_sliding_window_pattern cache_implementation"),
    "lfm2": _names("block_mlp_init_scale block_out_init_scale block_use_xavier_init conv_use_xavier_init"),
}


def ignored(model_type: str) -> frozenset[str]:
    """The fields that say nothing of a model of this type."""
    return _OF_ALL | _OF_GENERATION | _OF_TYPE.get(model_type, frozenset())


__all__ = ["CONFIG", "from_config", "parse_config", "read_config", "to_config"]

MAX_CONFIG_BYTES = 1 << 20
_CLASSES = ("ForCausalLM", "LMHeadModel")
"""Ends of the names of the classes that can be expressed."""
_BARE = (
    "GPT2", "OPT", "Llama", "Mistral", "Qwen2", "Qwen3", "Lfm2", "GPTNeoX", "StableLm", "Phi", "SmolLM3", "Olmo2",
    "Granite", "Gemma3Text",
)  # fmt: skip
_WITHOUT_OUTPUT = frozenset(f"{name}Model" for name in _BARE)
"""And those that are saved without their output."""


def parse_config(text: str | bytes) -> dict[str, Any]:
    """The object of a `config.json`; `InvalidInput` where it is none."""
    refuse_pointer(text, CONFIG)
    try:
        config = json.loads(text, parse_constant=_no_number, object_pairs_hook=_said_once)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"config.json is not JSON: {error}", allowed="a JSON object") from None
    if not isinstance(config, dict):
        raise InvalidInput(f"config.json is {short(config)}, not a JSON object", allowed="a JSON object")
    return config


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if fields.setdefault(name, value) != value:
            raise ValueError(f"it has {name} twice, {short(fields[name])} and {short(value)}")
    return fields


def read_config(path: Path) -> Architecture:
    """The description of a `config.json`, or of the folder that has one. Errors as in `from_config`; `NotFound`."""
    path = path / CONFIG if path.is_dir() else path
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise InvalidInput(f"{path} has more than {MAX_CONFIG_BYTES} bytes: that is no {CONFIG}", field="path")
        return from_config(parse_config(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {path}; a Hugging Face folder has a {CONFIG}") from None


def from_config(config: Mapping[str, Any]) -> Architecture:
    """The description of a causal language model of transformers.

    Raises `InvalidInput` that names every field which is missing, wrong or not expressible: `errors` has one mapping
    each with field, value, allowed and detail.
    """
    fields = Fields(config)
    kind = fields.one_of("model_type", tuple(READERS))
    if "auto_map" in config:
        fields.ignore("auto_map")
    if "auto_map" in config and kind != "mobilellm":
        fields.fault("auto_map", config["auto_map"], "it brings code of its own, which a description cannot", "omit it")
    if kind not in READERS:
        fields.ignore(*config)  # what its fields mean is not known
    _check_quantisation(fields)
    # The model that a file is of: one that scores tokens, or that without its output.
    names: list[Any] = fields.get("architectures", (list,), "a list", [])
    for name in names:
        if not str(name).endswith(_CLASSES) and str(name) not in _WITHOUT_OUTPUT:
            fields.fault("architectures", name, "only language models can be expressed", " or ".join(_CLASSES))
    fields.either("dtype", "torch_dtype")
    fields.fixed("is_encoder_decoder", False)
    fields.fixed("add_cross_attention", False)
    fields.fixed("pruned_heads", {})
    fields.ignore(*ignored(kind))
    description = READERS[kind](fields) if kind in READERS else {}
    fields.finish()
    try:
        return Architecture.parse(description)
    except ArchitectureError as error:
        raise InvalidInput(
            f"config.json describes no model: {error.detail}", value=error.value, allowed=error.allowed
        ) from None


def _check_quantisation(fields: Fields) -> None:
    for field in ("quantization_config", "quantization", "compression_config"):
        given = fields.value(field)
        if given is not None:
            method = given.get("quant_method") if isinstance(given, Mapping) else given
            what = f"its weights are quantised{f' ({short(method)})' if method else ''}"
            allowed = "the model that it was made from, with weights in float32, float16 or bfloat16"
            fields.fault(field, None, f"{what}: take {allowed}", allowed)


def to_config(architecture: Architecture) -> dict[str, Any]:
    """The `config.json` with which transformers makes this model.

    Raises `InvalidInput` naming the fields by which the model differs from the nearest that transformers has.
    """
    nearest: tuple[str, list[tuple[str, Any, Any]]] | None = None
    refused: list[str] = []
    for kind, config in nearest_configurations(architecture):
        try:
            restored = from_config({"model_type": kind, **config})
        except InvalidInput:  # its first layer is none of this type
            continue
        if restored == architecture:
            if (reason := unloadable(kind, config)) is None:
                return {"model_type": kind, **config}
            refused.append(f"{reason}, which its {kind} does not load")
            continue
        differences = list(_differences(architecture.canonical, restored.canonical))
        if nearest is None or len(differences) < len(nearest[1]):
            nearest = kind, differences
    if refused:
        fault = "; ".join(refused)
    elif nearest is None:
        fault = "blocks: its models have an attention (in lfm2 also a short_conv) and a feed_forward in turns"
    else:
        kind, differences = nearest
        fault = "; ".join(
            f"{path} {_shown(ours)}, which is {_shown(theirs)} in its nearest, {kind}"
            for path, ours, theirs in differences[:3]
        ) + (f" (and {len(differences) - 3} more)" if len(differences) > 3 else "")
    raise InvalidInput(
        f"transformers cannot express {fault}", field="architecture", value=architecture.digest, allowed=_EXPRESSIBLE
    )


_EXPRESSIBLE = (
    "the same layer throughout and an embedding without cutoffs: gpt2 and opt with learned positions; llama, mistral, "
    "qwen2, qwen3, smollm3, olmo2, granite, gemma3_text with rotary positions, RMS norms and gated feed_forward; "
    "gpt_neox, stablelm, phi with layer norms; lfm2, which mixes in "
    "short_conv. In a search: llama, lfm and lts-opt narrowed to loads_in=transformers"
)


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, our value and theirs of everything that differs between two canonical descriptions; None: the default."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{path}.kind".lstrip("."), ours.get("kind"), theirs.get("kind")
            return
        for name in sorted(ours.keys() | theirs.keys()):
            yield from _differences(ours.get(name), theirs.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index, (own, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _differences(own, other, f"{path}.{index}")
        if len(ours) != len(theirs):
            yield path, f"{len(ours)} in number", f"{len(theirs)} in number"
    elif ours != theirs:
        yield path, ours, theirs


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "given"))
    return "the default" if value is None else str(value)
