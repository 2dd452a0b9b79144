"""`config.json` of Hugging Face: all that cannot be expressed is named (`test_published_models` reads published
files)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.huggingface import from_config, parse_config, read_config, to_config
from edgefront.core.common.errors import InvalidInput, NotFound

SMOL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
    "rms_norm_eps": 1e-05, "rope_theta": 100000, "hidden_act": "silu", "rope_scaling": None,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "attn_pdrop": 0.1,
}  # fmt: skip

SMOLLM3: dict[str, Any] = {
    "model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 128256, "rope_theta": 5000000.0,
    "no_rope_layer_interval": 4, "use_sliding_window": False, "sliding_window": None,
}  # fmt: skip
PYTHIA: dict[str, Any] = {
    "model_type": "gpt_neox", "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 6,
    "num_attention_heads": 4, "vocab_size": 50304, "hidden_act": "gelu", "rotary_emb_base": 10000, "rotary_pct": 0.25,
    "use_parallel_residual": True, "tie_word_embeddings": False,
}  # fmt: skip
STABLELM: dict[str, Any] = {
    "model_type": "stablelm", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "partial_rotary_factor": 0.25,
    "rope_theta": 10000, "use_qkv_bias": True,
}  # fmt: skip
PHI: dict[str, Any] = {
    "model_type": "phi", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
    "num_attention_heads": 32, "num_key_value_heads": None, "vocab_size": 51200, "partial_rotary_factor": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"model_type": "qwen3_moe"}, ["model_type"]),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, ["rope_scaling.rope_type"]),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.5}}, [
            "rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor",
        ]),
        ({"attention_bias": "odd", "hidden_act": "relu2", "rms_norm_eps": 0},
         ["attention_bias", "rms_norm_eps", "hidden_act"]),
        ({"hidden_size": None, "num_hidden_layers": "two"}, ["hidden_size", "num_hidden_layers"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers"]),
        ({"vocab_size": 0, "rope_theta": 1e400}, ["vocab_size", "rope_theta"]),
        ({"partial_rotary_factor": 0.5, "auto_map": {"AutoModel": "code.py"}}, ["auto_map", "partial_rotary_factor"]),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 30}, ["use_sliding_window"]),
        ({"model_type": "qwen2", "layer_types": ["full_attention"] * 3}, ["layer_types"]),
        ({"model_type": "qwen3", "layer_types": ["chunked_attention"] + ["full_attention"] * 29}, ["layer_types.0"]),
        ({"model_type": "lfm2", "full_attn_idxs": list(range(99))}, ["full_attn_idxs"]),
        ({"model_type": "lfm2", "layer_types": [["conv"]] + ["conv"] * 29}, ["layer_types.0"]),
        ({"model_type": "lfm2", "block_multiple_of": 0}, ["block_multiple_of"]),
        ({"model_type": "lfm2", "block_ffn_dim_multiplier": 1e308}, ["block_ffn_dim_multiplier"]),
        ({**SMOLLM3, "no_rope_layers": [1, 2]}, ["no_rope_layers"]),
        ({**PYTHIA, "rotary_pct": 0.333}, ["rotary_pct"]),
        ({**PYTHIA, "rotary_pct": 0, "rotary_emb_base": -1}, ["rotary_pct", "rotary_emb_base"]),
        ({**STABLELM, "qk_layernorm": True, "partial_rotary_factor": "half"},
         ["qk_layernorm", "partial_rotary_factor"]),
        ({**PHI, "qk_layernorm": True, "rope_scaling": {"type": "linear", "factor": 2.0}},
         ["qk_layernorm", "rope_scaling.rope_type"]),
        ({**GPT2, "scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx"]),
    ],
    ids=lambda value: "" if isinstance(value, dict) else ",".join(value),
)  # fmt: skip
def test_what_cannot_be_expressed_is_named(changes: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(InvalidInput) as raised:
        from_config(changes if len(changes) > 6 else {**SMOL, **changes})
    errors = raised.value.extra["errors"]
    assert sorted(error["field"] for error in errors) == sorted(fields)
    assert raised.value.field == errors[0]["field"]
    assert all(error["detail"] in raised.value.detail and error["allowed"] for error in errors)


@pytest.mark.parametrize("changes", [{"num_attention_heads": 7}, {"hidden_size": 1 << 20}])
def test_parts_that_do_not_fit_are_said(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="does not describe a valid model"):
        from_config({**SMOL, **changes})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"hidden_size": NaN}', "\ufeff{}", "[" * 100_000])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"config\.json"):
        parse_config(text)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"config\.json"):
        read_config(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no .*config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SMOL))
    assert read_config(tmp_path) == read_config(tmp_path / "config.json") == from_config(SMOL)


def test_what_transformers_cannot_express_is_named_with_the_nearest() -> None:
    layers = [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 64}] * 2
    model = {"d_model": 32, "embedding": {"vocab_size": 97}, "blocks": layers}
    narrow = {"kind": "feed_forward", "d_inner": 48}
    for changes, said in (
        ({"blocks": [*layers[:3], narrow]}, r"blocks\.3\.d_inner 48, which is 64 in the nearest model, gpt2"),
        ({"blocks": [*layers, {"kind": "sru"}]}, "blocks 5 in number, which is 4 in number"),
        ({"blocks": [{"kind": "sru"}]}, "they must be an attention"),
        ({"norm": "post"}, "norm post, which is the default in the nearest model, gpt2"),
        ({"positions": {"kind": "rotary"}, "norm_kind": "rms"}, "in the nearest model, gpt_neox"),
    ):
        with pytest.raises(InvalidInput, match=said) as raised:
            to_config(Architecture.parse({**model, **changes}))
        assert "llama, lfm and lts-opt narrowed to loads_in=transformers" in raised.value.allowed
