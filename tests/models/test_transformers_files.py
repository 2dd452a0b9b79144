"""The folder that transformers reads: the same logits there, and the same model when it is read back."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_models import difference, transformers
from safetensors.torch import load_file, save_file
from their_models import our_logits, small
from tiny_models import lively_weights, random_tokens

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.huggingface import from_config, read_config, to_config
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.model_files.huggingface import TransformersWeights, write_transformers
from edgefront.core.model_files.parameter_values import GivenValues

ATTENTION: dict[str, Any] = {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"}
GATED = {"kind": "feed_forward", "d_inner": 40, "gated": True, "bias": False}
CONV = {"kind": "short_conv", "kernel": 3}


def rotary(*blocks: dict[str, Any], **changes: Any) -> Architecture:
    description = {
        "d_model": 32,
        "positions": {"kind": "rotary", "theta": 500},
        "norm_kind": "rms",
        "activation": "silu",
        "embedding": {"vocab_size": 97},
        "blocks": list(blocks) or [ATTENTION, GATED] * 2,
    }
    return Architecture.parse({**description, **changes})


def gpt2(**changes: Any) -> Architecture:
    layer = [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 48}]
    description = {"d_model": 32, "positions": {"kind": "learned", "length": 24}, "embedding": {"vocab_size": 97}}
    return Architecture.parse({**description, "blocks": layer * 2, **changes})


def partly(attention: dict[str, Any], fed: dict[str, Any], **changes: Any) -> Architecture:
    """Layer norms, and positions that turn a quarter of each head."""
    layer = [{"kind": "attention", "n_head": 4, **attention}, {"kind": "feed_forward", "d_inner": 48, **fed}]
    description = {
        "d_model": 32,
        "positions": {"kind": "rotary", "percent": 25},
        "embedding": {"vocab_size": 97},
        "output": {"kind": "tokens", "tied": False},
    }
    return Architecture.parse({**description, "blocks": layer * 2, **changes})


OFFSET = {"kind": "learned", "length": 24, "offset": 2}
WINDOW, NORMED = {**ATTENTION, "window": 4}, {**ATTENTION, "qk_norm": True, "d_head": 10}
MODELS = {
    "gpt2": gpt2(),
    "gpt2 untied relu": gpt2(output={"tied": False}, activation="relu", norm_eps="1e-6"),
    "opt": gpt2(positions=OFFSET, activation="relu"),
    "opt post-norm with projections": gpt2(
        positions=OFFSET, activation="relu", norm="post", embedding={"vocab_size": 97, "d_embed": 12}
    ),
    "llama": rotary(),
    "llama stretched": rotary(positions={"kind": "rotary", "theta": 500, "scaling": {"factor": 8, "length": 16}}),
    "llama all biases untied": rotary(
        {**ATTENTION, "bias": "all"}, {**GATED, "bias": True}, output={"tied": False}, activation="gelu_tanh"
    ),
    "mistral": rotary(*[WINDOW, GATED] * 2),
    "qwen2": rotary(*[{**ATTENTION, "bias": "qkv"}, GATED] * 2),
    "qwen3": rotary(*[NORMED, GATED] * 2),
    "qwen3 of windows and not": rotary({**NORMED, "window": 4}, GATED, NORMED, GATED, {**NORMED, "window": 4}, GATED),
    "smollm3": rotary(ATTENTION, GATED, {**ATTENTION, "rope": False}, GATED, ATTENTION, GATED),
    "smollm3 with windows and biases": rotary(
        *[{**ATTENTION, "bias": "all"}, {**GATED, "bias": True}] * 3,
        {**ATTENTION, "bias": "all", "rope": False, "window": 4},
        {**GATED, "bias": True},
    ),
    "olmo2": rotary(*[{**ATTENTION, "qk_norm": "whole", "d_head": 10}, GATED] * 2, norm="branch"),
    "granite": rotary(
        *[{**ATTENTION, "scale": "0.11"}, GATED] * 2,
        embedding={"vocab_size": 97, "multiplier": "1.5"},
        residual_multiplier="0.22",
        output={"kind": "tokens", "tied": False, "logits_scaling": 8},
    ),
    "gemma3_text": rotary(
        *[{**NORMED, "window": 4, "theta": 50}, GATED, NORMED, GATED, {**NORMED, "window": 4, "theta": 50}, GATED],
        norm="both",
        activation="gelu_tanh",
        embedding={"vocab_size": 97, "scaled": True},
    ),
    "gemma3_text stretched": rotary(
        *[{**NORMED, "theta": 50, "window": 4, "scale": repr(12**-0.5)}, GATED],
        *[{**NORMED, "scale": repr(12**-0.5)}, GATED],
        positions={"kind": "rotary", "theta": 500, "scaling": {"factor": 8, "length": 16}},
        norm="both",
        activation="gelu_tanh",
        embedding={"vocab_size": 97, "scaled": True},
        output={"kind": "tokens", "tied": False},
    ),
    "gpt_neox": partly({"bias": "all"}, {"parallel": "own_norm"}, activation="gelu"),
    "gpt_neox in turns, tied": partly({"bias": "none"}, {}, output={"kind": "tokens"}, activation="relu"),
    "stablelm": partly({"n_kv_head": 2, "bias": "qkv"}, {"gated": True, "bias": False}, activation="silu"),
    "stablelm in parallel": partly(
        {"bias": "none"}, {"gated": True, "bias": False, "parallel": "shared_norm"}, activation="silu"
    ),
    "phi": partly(
        {"n_kv_head": 2}, {"parallel": "shared_norm"}, output={"kind": "tokens", "tied": False, "bias": True}
    ),
    "lfm2": rotary(CONV, GATED, {**ATTENTION, "qk_norm": True}, GATED, {**CONV, "bias": False}, GATED),
}


def written(model: Architecture, folder: Path, weights: Any, files: dict[str, bytes] | None = None) -> Path:
    write_transformers(model, weights, folder / "model.tar", files)
    with tarfile.open(folder / "model.tar") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"edgefront-{model.digest[:12]}"


def their_logits(folder: Path, tokens: Any) -> Any:
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.inference_mode():
        return theirs.eval()(torch.from_numpy(tokens)).logits.numpy()


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_it_with_the_same_logits(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    weights, tokens = lively_weights(model, 5), random_tokens(model, 2, 20)
    folder = written(model, tmp_path, GivenValues(weights, {"weights": "trained"}))
    assert json.loads((folder / "config.json").read_text())["model_type"] == name.split()[0]
    assert difference(their_logits(folder, tokens), our_logits(model, weights, tokens)) < 1e-5
    assert read_config(folder) == model
    back = TransformersWeights(folder, model)
    assert back.keys() == weights.keys()
    # Gains that are stored less one are rounded.
    within = 1e-7 if model.norm == "both" else 0.0
    assert all(np.allclose(back[key], weights[key], rtol=0, atol=within) for key in weights)


def test_a_folder_of_mobilellm_is_read(tmp_path: Path) -> None:
    """Its own code, which transformers does not have, keeps the names of Llama's tensors."""
    theirs = small("llama")
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "mobilellm", "architectures": ["MobileLLMForCausalLM"], "auto_map": {"AutoConfig": "a.B"}}
    plain, tied = read_config(tmp_path), config.pop("tie_word_embeddings")
    config |= {"share_embedding": tied, "layer_sharing": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_config(tmp_path) == plain
    assert len(TransformersWeights(tmp_path, plain)) == len(parameters(plain))
    with pytest.raises(InvalidInput, match="layers that share weights cannot be expressed"):
        from_config({**config, "layer_sharing": True})


def test_untrained_weights_are_those_of_the_seed(tmp_path: Path) -> None:
    model = MODELS["llama"]
    (tmp_path / "again").mkdir()
    folder, again = written(model, tmp_path, 7), written(model, tmp_path / "again", 7)
    assert (tmp_path / "model.tar").read_bytes() == (tmp_path / "again" / "model.tar").read_bytes()
    assert "untrained" in (again / "README.md").read_text()
    assert (folder / "README.md").read_text().startswith("---\nlibrary_name: transformers\n")
    assert transformers.GenerationConfig.from_pretrained(folder) is not None


@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama", "mistral", "qwen2", "qwen3", "lfm2"])
def test_a_folder_of_transformers_is_read(tmp_path: Path, kind: str) -> None:
    theirs = small(kind)
    theirs.save_pretrained(tmp_path)
    model = read_config(tmp_path)
    assert sum(spec.size for spec in parameters(model)) == theirs.num_parameters()
    tokens = random_tokens(model, 2, 20)
    with torch.inference_mode():
        expected = theirs(torch.from_numpy(tokens)).logits.numpy()
    assert difference(our_logits(model, TransformersWeights(tmp_path, model), tokens), expected) < 1e-5
    assert from_config(to_config(model)) == model


def test_halves_and_shards_are_read(tmp_path: Path) -> None:
    theirs = small("llama").to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    model = read_config(tmp_path)
    weights = TransformersWeights(tmp_path, model)
    expected = theirs.state_dict()["model.layers.1.mlp.down_proj.weight"].float().numpy()
    assert np.array_equal(weights["blocks.3.down.weight"], expected)
    next(tmp_path.glob("model-00002-*")).unlink()
    with pytest.raises(InvalidInput, match="lacks model-00002"):
        TransformersWeights(tmp_path, model)


def test_wrong_weights_are_named(tmp_path: Path) -> None:
    small("qwen3").save_pretrained(tmp_path)
    model, path = read_config(tmp_path), tmp_path / "model.safetensors"
    state = load_file(path)
    key = "model.layers.0.self_attn.k_norm.weight"
    for changed, said in (
        ({name: value for name, value in state.items() if name != key}, f"lacks {key}"),
        ({**state, key: torch.ones(12)}, rf"{key} of shape \[12\], not \[10\]"),
        ({**state, key: torch.ones(10, dtype=torch.int8)}, f"{key} as I8"),
        ({**state, "model.layers.0.mlp.experts": torch.ones(2)}, "has model.layers.0.mlp.experts, which is not"),
    ):
        save_file(changed, path)
        with pytest.raises(InvalidInput, match=said):
            TransformersWeights(tmp_path, model)
    save_file(state, path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InvalidInput, match="cut short"):
        TransformersWeights(tmp_path, model)
    path.unlink()
    with pytest.raises(NotFound, match=r"no model\.safetensors"):
        TransformersWeights(tmp_path, model)


def test_a_broken_entry_is_named_with_its_file(tmp_path: Path) -> None:
    small("qwen3").save_pretrained(tmp_path, max_shard_size="20KB")
    model = read_config(tmp_path)
    key = "model.layers.0.self_attn.k_norm.weight"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    path = tmp_path / index["weight_map"][key]
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    (low, high), size = header[key]["data_offsets"], len(data)
    broken: list[tuple[Any, str]] = [
        ({"dtype": "F64"}, f"has {key} as F64; it must be one of F32, F16, BF16"),
        ({"dtype": ["F32"]}, f"has {key} as ['F32']"),
        ({"shape": [5]}, f"has {key} of shape [5], not [10]"),
        ({"shape": 10}, f"has {key} of shape 10, not [10]"),
        ({"data_offsets": [size, size + high - low]}, f"was cut short: {key} is incomplete"),
        ({"data_offsets": [low, 1 << 70]}, f"was cut short: {key} is incomplete"),
        ({"data_offsets": [-4, high]}, f"has {key} at invalid offsets [-4, {high}]"),
        ({"data_offsets": [high, low]}, "at invalid offsets"),
        ({"data_offsets": ["0", "40"]}, "at invalid offsets"),
        ({"data_offsets": None}, f"has {key} at invalid offsets None"),
        ({"data_offsets": [low, high - 4]}, f"has {key} in {high - low - 4} bytes; its shape needs {high - low}"),
        ("nothing", f"has {key} as None"),
        (None, f"lacks {key}"),
        ({**header, "more": header[key]}, "has more, which is not a parameter"),
    ]
    for change, said in broken:
        entries = {**header, key: {**header[key], **change}} if isinstance(change, dict) else {**header, key: change}
        if change is None:
            del entries[key]
        elif isinstance(change, dict) and "more" in change:
            entries = change
        text = json.dumps(entries).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        with pytest.raises(InvalidInput) as refused:
            TransformersWeights(tmp_path, model)
        assert said in refused.value.detail
        assert str(tmp_path if change is None else path) in refused.value.detail
    path.write_bytes(whole)
    assert len(TransformersWeights(tmp_path, model)) == len(parameters(model))
