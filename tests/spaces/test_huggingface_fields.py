"""Every field of a `config.json` is read, known to say nothing of the model, or refused by its name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.huggingface import from_config, to_config
from edgefront.core.common.errors import InvalidInput

GPT2: dict[str, Any] = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 300}
OPT: dict[str, Any] = {
    "model_type": "opt", "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 300,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 512,
}  # fmt: skip
MISTRAL = {**LLAMA, "model_type": "mistral"}
QWEN2 = {**LLAMA, "model_type": "qwen2"}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 16}
LFM2 = {**LLAMA, "model_type": "lfm2", "full_attn_idxs": [1]}
PYTHIA = {
    "model_type": "gpt_neox", **{key: LLAMA[key] for key in LLAMA if key not in ("model_type", "num_key_value_heads")}
}  # fmt: skip
GRANITE = {
    **LLAMA, "model_type": "granite", "attention_multiplier": 0.0078125, "embedding_multiplier": 12,
    "logits_scaling": 8, "residual_multiplier": 0.22,
}  # fmt: skip
GEMMA3 = {**LLAMA, "model_type": "gemma3_text", "head_dim": 16}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

# What published files have besides: facebook/opt, openai-community/gpt2, HuggingFaceTB/SmolLM2, meta-llama/Llama-3.2,
# mistralai/Mistral, Qwen/Qwen2.5, Qwen/Qwen3, LiquidAI/LFM2, openlm-research/open_llama, tiiuae/Falcon3.
PUBLISHED: dict[str, dict[str, Any]] = {
    "granite": {**GRANITE, "architectures": ["GraniteForCausalLM"], "rope_theta": 10000000.0, "mlp_bias": False},
    "gemma3_text": {
        **GEMMA3, "architectures": ["Gemma3ForCausalLM"], "attn_logit_softcapping": None,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": None, "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 7,
        "query_pre_attn_scalar": 16, "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000,
        "sliding_window": 32, "sliding_window_pattern": 6, "rms_norm_eps": 1e-06, "attention_bias": False,
    },
    "opt": {
        **OPT, "_name_or_path": "opt-125m", "_remove_final_layer_norm": False, "activation_dropout": 0.0,
        "activation_function": "relu", "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0,
        "bos_token_id": 2, "do_layer_norm_before": True, "dropout": 0.1, "eos_token_id": 2, "init_std": 0.02,
        "layerdrop": 0.0, "max_position_embeddings": 2048, "pad_token_id": 1, "prefix": "</s>",
        "torch_dtype": "float16", "transformers_version": "4.21.0.dev0", "use_cache": True, "word_embed_proj_dim": 64,
    },
    "gpt2": {
        **GPT2, "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_positions": 1024, "resid_pdrop": 0.1,
        "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
        "summary_type": "cls_index", "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    },
    "smollm2": {
        **LLAMA, "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.041666666666666664,
        "is_llama_config": True, "mlp_bias": False, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        "transformers_version": "4.42.3", "use_cache": True,
    },
    "llama-3.2": {
        **LLAMA, "eos_token_id": [128001, 128008, 128009], "head_dim": 16, "rope_theta": 500000.0,
        "rope_scaling": {**LLAMA3, "rope_type": "llama3"}, "unsloth_fixed": True,
    },
    "without output": {**LLAMA, "architectures": ["LlamaModel"]},
    "open-llama": {**LLAMA, "max_sequence_length": 512, "gradient_checkpointing": False},
    "falcon-3": {**LLAMA, "activation": "swiglu", "head_dim": 16},
    "mistral": {**MISTRAL, "sliding_window": None, "rope_theta": 1000000.0, "_commit_hash": "0" * 40},
    "qwen2.5": {
        **QWEN2, "max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": False, "use_mrope": False,
    },
    "qwen3": {**QWEN3, "max_window_layers": 28, "sliding_window": None, "use_sliding_window": False},
    "smollm3": {
        **LLAMA, "model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "attention_bias": False,
        "layer_types": ["full_attention"] * 2, "max_window_layers": 28, "mlp_bias": False, "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 0], "pretraining_tp": 2, "rope_scaling": None, "rope_theta": 5000000.0,
        "sliding_window": None, "use_sliding_window": False,
    },
    "pythia": {
        **PYTHIA, "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
        "initializer_range": 0.02, "layer_norm_eps": 1e-05, "rotary_emb_base": 10000, "rotary_pct": 0.25,
        "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": True,
        "use_parallel_residual": True,
    },
    "stablelm": {
        **LLAMA, "model_type": "stablelm", "architectures": ["StableLmForCausalLM"], "hidden_act": "silu",
        "hidden_dropout": 0.0, "layer_norm_eps": 1e-05, "partial_rotary_factor": 0.25, "qk_layernorm": False,
        "rope_scaling": None, "rope_theta": 10000, "use_parallel_residual": False, "use_qkv_bias": True,
    },
    "phi": {
        **LLAMA, "model_type": "phi", "architectures": ["PhiForCausalLM"], "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "hidden_act": "gelu_new", "layer_norm_eps": 1e-05, "num_key_value_heads": None, "partial_rotary_factor": 0.5,
        "qk_layernorm": False, "rope_scaling": None, "rope_theta": 10000.0,
    },
    "lfm2": {
        **LFM2, "block_auto_adjust_ff_dim": True, "block_dim": 64, "block_ff_dim": 128, "intermediate_size": 128,
        "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0, "block_multiple_of": 16, "block_norm_eps": 1e-05,
        "block_out_init_scale": 1.0, "block_use_swiglu": True, "block_use_xavier_init": True, "conv_L_cache": 3,
        "conv_bias": False, "conv_dim": 64, "conv_dim_out": 64, "conv_use_xavier_init": True, "norm_eps": 1e-05,
        "num_heads": 4, "rope_theta": 1000000.0, "theta": 1000000.0, "tie_embedding": True, "use_pos_enc": True,
        "layer_types": ["conv", "full_attention"],
    },
}  # fmt: skip


def refused(config: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidInput) as raised:
        from_config(config)
    assert all(error["detail"] in raised.value.detail for error in raised.value.extra["errors"])
    return [error["field"] for error in raised.value.extra["errors"]]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_read(name: str) -> None:
    config = PUBLISHED[name]
    model = from_config(config)
    assert from_config(to_config(model)) == model
    assert refused({**config, "n_embed_extra": 3}) == ["n_embed_extra"]
    assert from_config({**config, "n_embed_extra": None}) == model


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({**LLAMA, "sliding_window": 16}, ["sliding_window"]),
        ({**LLAMA, "text_config": {"hidden_size": 32}}, ["text_config"]),
        ({**LLAMA, "logit_scale": 0.5}, ["logit_scale"]),
        ({**LLAMA, "rope_interleaved": True}, ["rope_interleaved"]),
        ({**LLAMA, "activation": "geglu"}, ["activation"]),
        ({**LLAMA, "max_sequence_length": 1024}, ["max_sequence_length"]),
        ({**LLAMA, "pruned_heads": {"0": [1]}}, ["pruned_heads"]),
        ({**LLAMA, "is_encoder_decoder": True}, ["is_encoder_decoder"]),
        ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, ["architectures"]),
        ({**LLAMA, "architectures": "LlamaForCausalLM"}, ["architectures"]),
        ({**LLAMA, "architectures": ["LlamaBidirectionalModel"]}, ["architectures"]),
        ({**LLAMA, "architectures": [["LlamaModel"]]}, ["architectures"]),
        ({**QWEN2, "architectures": ["Qwen2ForRewardModel"]}, ["architectures"]),
        ({**LLAMA, "dtype": "float32", "torch_dtype": "bfloat16"}, ["torch_dtype"]),
        ({**LLAMA, "per_layer_config": {"0": {"num_attention_heads": 2}}}, ["per_layer_config"]),
        ({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}, ["quantization_config"]),
        ({**LLAMA, "quantization": {"group_size": 64, "bits": 4}}, ["quantization"]),
        ({**MISTRAL, "layer_types": ["sliding_attention", "full_attention"]}, ["layer_types"]),
        ({**MISTRAL, "attention_bias": True}, ["attention_bias"]),
        ({**QWEN2, "use_mrope": True}, ["use_mrope"]),
        ({**GRANITE, "logits_scaling": 0}, ["logits_scaling"]),
        ({**GEMMA3, "final_logit_softcapping": 30.0}, ["final_logit_softcapping"]),
        ({**GEMMA3, "attn_logit_softcapping": 50.0}, ["attn_logit_softcapping"]),
        ({**GEMMA3, "use_bidirectional_attention": True}, ["use_bidirectional_attention"]),
        ({**GEMMA3, "hidden_act": "silu"}, ["hidden_act"]),
        (
            {**GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            ["rope_parameters.full_attention.rope_type"],
        ),
        ({**GEMMA3, "rope_parameters": {"rope_theta": 500.0}}, ["rope_parameters.rope_theta"]),
        ({**GEMMA3, "rope_parameters": {"full_attention": 500.0}}, ["rope_parameters.full_attention"]),
        (
            {**GEMMA3, "rope_parameters": {"sliding_attention": {"rope_type": "llama3", **LLAMA3}}},
            ["rope_parameters.sliding_attention.rope_type"],
        ),
        (
            {**GEMMA3, "rope_local_base_freq": 10.0, "rope_parameters": {"sliding_attention": {"rope_theta": 20.0}}},
            ["rope_local_base_freq"],
        ),
        ({**GPT2, "hidden_size": 32}, ["hidden_size"]),
        ({**GPT2, "n_ctx": 512}, ["n_ctx"]),
        ({**GPT2, "rope_theta": 10000.0}, ["rope_theta"]),
        ({**OPT, "add_cross_attention": True}, ["add_cross_attention"]),
        ({**LFM2, "tie_embedding": True, "tie_word_embeddings": False}, ["tie_word_embeddings"]),
        ({**LFM2, "block_ff_dim": 256}, ["intermediate_size"]),
        ({**LFM2, "layer_types": ["full_attention", "conv"]}, ["full_attn_idxs"]),
        ({**LFM2, "full_attn_idxs": [-1]}, ["full_attn_idxs"]),
        ({**LFM2, "full_attn_idxs": ["1"]}, ["full_attn_idxs"]),
        ({**LFM2, "conv_dim": 32}, ["conv_dim"]),
        ({**LFM2, "num_heads": 2}, ["num_heads"]),
        ({**LFM2, "theta": 10000.0}, ["theta"]),
        ({**LFM2, "block_norm_eps": 1e-6}, ["block_norm_eps"]),
        ({**LFM2, "block_use_swiglu": False}, ["block_use_swiglu"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else value["model_type"],
)
def test_what_is_not_known_or_contradicts_is_refused_by_name(config: dict[str, Any], fields: list[str]) -> None:
    assert refused(config) == fields


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "rope_scaling": {"type": "yarn"}},
         ["rope_scaling.rope_type"]),
        ({"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"type": "linear", "factor": 2.0}},
         ["rope_scaling.rope_type"]),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, ["rope_parameters.rope_type"]),
        ({"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}, ["rope_scaling"]),
        ({"rope_parameters": {"rope_theta": 1e6}, "rope_scaling": {"rope_type": "default"}}, ["rope_scaling"]),
        ({"rope_parameters": {"rope_theta": 1e6}, "rope_theta": 1e4}, ["rope_theta"]),
        ({"rope_scaling": {"type": "yarn", "rope_type": "default"}}, ["rope_scaling.type"]),
        ({"rope_scaling": {"rope_type": "default", "factor": 4.0}}, ["rope_scaling.factor"]),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "beta_fast": 32}}, ["rope_scaling.beta_fast"]),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, ["rope_parameters.full_attention"]),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, ["partial_rotary_factor"]),
        ({"rope_parameters": {"rope_theta": 0}}, ["rope_theta"]),
        ({"rope_parameters": [1]}, ["rope_parameters"]),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "factor": 0}}, ["rope_scaling.factor"]),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 8192.5}},
         ["rope_scaling.original_max_position_embeddings"]),
        ({"original_max_position_embeddings": 4096}, ["original_max_position_embeddings"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_positions_that_are_said_otherwise_are_refused_by_name(changes: dict[str, Any], fields: list[str]) -> None:
    assert refused({**LLAMA, **changes}) == fields


def test_positions_that_are_said_twice_alike_are_read() -> None:
    both = {"rope_type": "llama3", **LLAMA3, "rope_theta": 500000.0}
    once = from_config({**LLAMA, "rope_parameters": both})
    assert from_config({**LLAMA, "rope_parameters": both, "rope_scaling": both, "rope_theta": 500000}) == once
    without = {key: value for key, value in both.items() if key != "rope_theta"}
    assert from_config({**LLAMA, "rope_scaling": without, "rope_theta": 500000}) == once


@pytest.mark.parametrize("value", [1e-5, 9.999999747378752e-06, 3e-6, 1e-20, 5e-324, 0.1, 1, 2.5])
def test_an_epsilon_is_kept_exactly(value: float) -> None:
    for config, field in ((LLAMA, "rms_norm_eps"), (GPT2, "layer_norm_epsilon"), (LFM2, "norm_eps")):
        model = from_config({**config, field: value})
        assert float(model.norm_eps) == value
        assert to_config(Architecture.parse(model.canonical))[field] == value


@pytest.mark.parametrize("value", [1, 10000, 10000.5, 1e6, 1e15, 1e20, 10**20, 0.5])
def test_a_base_is_kept_exactly(value: float) -> None:
    model = from_config({**LLAMA, "rope_theta": value})
    assert to_config(Architecture.parse(model.canonical))["rope_parameters"]["rope_theta"] == value
    assert isinstance(model.positions, RotaryPositions)
    assert float(model.positions.theta) == value


def test_factors_of_stretched_positions_are_kept_exactly() -> None:
    given = {
        "rope_type": "llama3", "rope_theta": 1e6, "factor": 1.5, "low_freq_factor": 0.25, "high_freq_factor": 2.75,
        "original_max_position_embeddings": 333,
    }  # fmt: skip
    written = to_config(from_config({**LLAMA, "rope_parameters": given}))
    assert written["rope_parameters"] == given


HUGE = 10**400
NO_NUMBERS = [0, -1, HUGE, float("inf"), float("nan"), "5", True, [1]]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: str(value)[:8])
def test_what_is_no_positive_number_is_named(value: Any) -> None:
    for field in ("rms_norm_eps", "rope_theta", "vocab_size", "hidden_size", "max_position_embeddings", "head_dim"):
        with pytest.raises(InvalidInput) as raised:
            from_config({**LLAMA, field: value})
        assert field in raised.value.detail
    for field in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
        with pytest.raises(InvalidInput, match=field):
            from_config({**LLAMA, "rope_scaling": {"rope_type": "llama3", **LLAMA3, field: value}})
    if value != -1:  # of those only counts are read
        for field in ("block_ffn_dim_multiplier", "block_multiple_of", "conv_L_cache"):
            with pytest.raises(InvalidInput):
                from_config({**LFM2, field: value})


ODD: list[Any] = [
    None, 0, -1, 2.5, 1e308, 5e-324, HUGE, -HUGE, float("inf"), float("nan"), "", "x", True, [], [None], [[1]], {},
    {"rope_type": [1]}, {"rope_theta": "x"}, {"rope_type": "llama3"}, {"rope_theta": HUGE}, {"type": {}},
]  # fmt: skip
BESIDES = ("rope_scaling", "rope_parameters", "partial_rotary_factor", "layer_types", "quantization_config", "dtype")


@pytest.mark.parametrize("name", PUBLISHED)
def test_whatever_a_field_holds_is_a_value_or_refused(name: str) -> None:
    for field in (*PUBLISHED[name], *BESIDES):
        for value in ODD:
            with suppress(InvalidInput):
                to_config(from_config({**PUBLISHED[name], field: value}))


def test_what_is_missing_or_null_means_what_it_means_in_transformers() -> None:
    def heads(config: dict[str, Any], **changes: Any) -> int:
        block: Any = from_config({**config, "num_attention_heads": 32, "head_dim": 4, **changes}).blocks[0]
        return int(block.kv_heads)

    bare = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    for kind, missing in (("llama", 32), ("mistral", 8), ("qwen2", 32), ("qwen3", 32)):
        assert heads({**bare, "model_type": kind}) == missing
        assert heads({**bare, "model_type": kind}, num_key_value_heads=None) == 32
    inner: Any = from_config({**LFM2, "block_ffn_dim_multiplier": None}).blocks[1]
    assert inner.d_inner == 85
    window: Any = from_config({**QWEN2, "use_sliding_window": True, "max_window_layers": 0, "sliding_window": None})
    assert window.blocks[0].window is None


def test_gemma_s_rotary_bases_are_the_same_in_either_form() -> None:
    older = from_config({**GEMMA3, "num_hidden_layers": 7, "rope_theta": 500.0, "rope_local_base_freq": 100.0})
    by_type = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 100.0}}
    assert from_config({**GEMMA3, "num_hidden_layers": 7, "rope_parameters": by_type}) == older
    bases = [block.get("theta") for block in older.canonical["blocks"][::2]]
    assert bases == [100] * 5 + [None, 100]
    assert older.canonical["positions"] == {"kind": "rotary", "theta": 500}


def test_the_context_is_kept_and_written() -> None:
    assert from_config({**LLAMA, "max_position_embeddings": 8192}).canonical["context_length"] == 8192
    written = to_config(from_config({**LLAMA, "max_position_embeddings": 8192}))
    assert written["max_position_embeddings"] == 8192
    assert "context_length" not in from_config({**LLAMA, "max_position_embeddings": 4096}).canonical
    bare = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    for kind, length in (("llama", 2048), ("mistral", 131072), ("qwen2", 32768), ("qwen3", 32768), ("lfm2", 128000)):
        assert from_config({**bare, "model_type": kind}).stated_length == length
        assert from_config({**bare, "model_type": kind, "max_position_embeddings": None}).stated_length == length
    stretched = {key: value for key, value in LLAMA3.items() if key != "original_max_position_embeddings"}
    positions = from_config({**bare, "rope_scaling": {"rope_type": "llama3", **stretched}}).positions
    assert isinstance(positions, RotaryPositions)
    assert positions.scaling is not None
    assert positions.scaling.length == 2048
    assert from_config(GPT2).stated_length == 1024
    assert from_config(OPT).stated_length == 2048
