"""Checkpoints as people have them: every tensor is used, known to say nothing, or named as the reason to refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import difference, transformers
from safetensors.torch import load_file, save_file, save_model
from their_models import our_logits, small
from tiny_models import random_tokens

from edgefront.core.architectures.huggingface import read_config
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.huggingface import TransformersWeights, read_architecture
from edgefront.core.training.evaluation.package import import_transformers, read_package

State = dict[str, torch.Tensor]
PREFIXES = {"gpt2": "transformer.", "opt": "model.", "llama": "model.", "qwen3": "model.", "lfm2": "model."}
EMBEDDING = "model.embed_tokens.weight"
QUERIES = "model.layers.0.self_attn.q_proj"


def saved(folder: Path, kind: str, change: Callable[[State], State] = lambda state: state) -> Any:
    """A model of transformers in a folder, whose tensors are stored otherwise."""
    theirs = small(kind)
    theirs.save_pretrained(folder)
    store(folder, change(load_file(folder / "model.safetensors")))
    return theirs


def store(folder: Path, state: State) -> None:
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")


def check_scores(folder: Path, theirs: Any) -> None:
    model = read_architecture(folder)
    tokens = random_tokens(model, 2, 12)
    with torch.inference_mode():
        expected = theirs(torch.from_numpy(tokens)).logits.numpy()
    assert difference(our_logits(model, TransformersWeights(folder, model), tokens), expected) < 1e-5


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidInput) as refused:
        TransformersWeights(folder, read_architecture(folder))
    return refused.value.detail


def wrapped(old: str, new: str) -> Callable[[State], State]:
    return lambda state: {name.replace(old, new, 1): value for name, value in state.items()}


@pytest.mark.parametrize("kind", PREFIXES)
def test_names_without_the_prefix_of_the_model_are_read(tmp_path: Path, kind: str) -> None:
    check_scores(tmp_path, saved(tmp_path, kind, wrapped(PREFIXES[kind], "")))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {f"_orig_mod.{name}": value for name, value in state.items()},
        lambda state: {f"module.{name}": value for name, value in state.items()},
        lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
        wrapped("model.", "model._orig_mod."),
        wrapped("layers.0.", "layers.0._orig_mod."),
        wrapped("layers.1.", "layers.1._fsdp_wrapped_module._checkpoint_wrapped_module."),
    ],
    ids=["compiled", "parallel", "both", "inside", "layer", "sharded"],
)
def test_names_with_what_wrappers_add_are_read(tmp_path: Path, change: Callable[[State], State]) -> None:
    check_scores(tmp_path, saved(tmp_path, "llama", change))


def test_names_that_are_the_same_without_a_wrapper_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "llama", lambda state: {**state, f"_orig_mod.{EMBEDDING}": state[EMBEDDING].clone()})
    assert f"{EMBEDDING} a second time" in refusal(tmp_path)


def test_names_with_an_unknown_prefix_are_shown(tmp_path: Path) -> None:
    saved(tmp_path, "llama", lambda state: {f"student.{name}": value for name, value in state.items()})
    assert f"it has student.{EMBEDDING}" in refusal(tmp_path)


def test_what_there_is_in_place_of_a_missing_tensor_is_shown(tmp_path: Path) -> None:
    saved(tmp_path, "llama", wrapped(f"{QUERIES}.weight", f"{QUERIES}.W_q"))
    assert f"lacks {QUERIES}.weight; it has {QUERIES}.W_q" in refusal(tmp_path)
    saved(tmp_path, "llama", wrapped(f"{QUERIES}.weight", f"{QUERIES.removeprefix('model.')}.weight"))
    assert f"lacks {QUERIES}.weight; it has {QUERIES.removeprefix('model.')}.weight" in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["qwen3", "gpt2", "opt"])
def test_an_output_that_is_not_the_embedding_makes_a_model_untied(tmp_path: Path, kind: str) -> None:
    embedding = {"gpt2": "transformer.wte.weight", "opt": "model.decoder.embed_tokens.weight"}.get(kind, EMBEDDING)
    theirs = saved(tmp_path, kind, lambda state: {**state, "lm_head.weight": state[embedding] * 1.5})
    assert read_config(tmp_path).output.tied
    model = read_architecture(tmp_path)
    assert not model.output.tied
    assert read_architecture(tmp_path / "config.json") == model
    untied = transformers.AutoConfig.from_pretrained(tmp_path, tie_word_embeddings=False)
    check_scores(tmp_path, transformers.AutoModelForCausalLM.from_pretrained(tmp_path, config=untied).eval())
    with pytest.raises(InvalidInput, match=r"lm_head\.weight that differs from the embedding"):
        TransformersWeights(tmp_path, read_config(tmp_path))
    import_transformers(tmp_path, tmp_path / "mine")
    assert read_package(tmp_path / "mine").architecture == model
    store(tmp_path, {**load_file(tmp_path / "model.safetensors"), "lm_head.weight": theirs.lm_head.weight.detach()})
    assert read_architecture(tmp_path).output.tied
    check_scores(tmp_path, theirs)
    store(tmp_path, {**load_file(tmp_path / "model.safetensors"), "lm_head.weight": torch.ones(3, 3)})
    assert "lm_head.weight of shape [3, 3]" in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_an_embedding_that_is_stored_as_the_output_alone_is_read(tmp_path: Path, kind: str) -> None:
    theirs = small(kind)
    theirs.save_pretrained(tmp_path)
    save_model(theirs, str(tmp_path / "model.safetensors"))
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")
    assert read_architecture(tmp_path).output.tied
    check_scores(tmp_path, theirs)


def test_a_description_needs_no_weights_that_can_be_read(tmp_path: Path) -> None:
    saved(tmp_path, "qwen3")
    whole = read_architecture(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    assert read_architecture(tmp_path) == whole
    assert "model.safetensors is a pointer of Git LFS" in refusal(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert read_architecture(tmp_path) == whole


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("gpt2", ["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"]),
        ("llama", ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"]),
    ],
)
def test_what_older_versions_stored_beside_parameters_is_left_out(tmp_path: Path, kind: str, names: list[str]) -> None:
    check_scores(tmp_path, saved(tmp_path, kind, lambda state: {**state, **{name: torch.ones(2) for name in names}}))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama", "model.layers.0.attn.bias"),
        ("llama", "model.layers.2.input_layernorm.weight"),
        ("llama", f"{QUERIES}.bias"),
        ("llama", "lm_head.bias"),
        ("llama", "score.weight"),
        ("llama", "model.vision.rotary_emb.inv_freq"),
        ("opt", "model.decoder.layers.0.self_attn.rotary_emb.inv_freq"),
        ("gpt2", "multiple_choice_head.summary.weight"),
    ],
)
def test_a_tensor_that_no_part_of_the_model_has_is_named(tmp_path: Path, kind: str, name: str) -> None:
    saved(tmp_path, kind, lambda state: {**state, name: torch.ones(2)})
    assert f"has {name}, which is not a parameter" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("qweight", "GPTQ or AWQ"),
        ("weight.absmax", "bitsandbytes"),
        ("weight.quant_state.bitsandbytes__nf4", "bitsandbytes"),
        ("SCB", "bitsandbytes"),
        ("weight_scale_inv", "with separate scales"),
        ("weight_packed", "with separate scales"),
        ("scales", "MLX"),
        ("lora_A.default.weight", "a LoRA adapter"),
    ],
)
def test_quantised_weights_and_adapters_are_called_what_they_are(tmp_path: Path, added: str, said: str) -> None:
    saved(tmp_path, "llama", lambda state: {**state, f"{QUERIES}.{added}": torch.ones(2)})
    assert f"has the unsupported tensor {QUERIES}.{added}: it is" in refusal(tmp_path)
    assert said in refusal(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_a_broken_header_is_refused(tmp_path: Path, text: str) -> None:
    saved(tmp_path, "llama")
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text.encode())
    assert "is not a safetensors file" in refusal(tmp_path)


def test_an_adapter_beside_a_model_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "Merge adapter and model first" in refusal(tmp_path)


def test_an_index_that_promises_what_its_files_lack_is_refused(tmp_path: Path) -> None:
    small("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    shard = index["weight_map"][EMBEDDING]
    path.write_text(json.dumps({"weight_map": {**index["weight_map"], "model.layers.7.mlp.up_proj.weight": shard}}))
    assert f"{shard} lacks model.layers.7.mlp.up_proj.weight" in refusal(tmp_path)
    path.write_text("[" * 100_000)
    assert "without a weight_map" in refusal(tmp_path)
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "index.json is a pointer of Git LFS" in refusal(tmp_path)
