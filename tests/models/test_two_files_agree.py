"""The product's own check of a download, ONNX Runtime on one file against PyTorch on the other, for every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from tiny_models import LENGTH, adaptive, architecture

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.build import build
from edgefront.core.graph.export import write_onnx, write_safetensors
from edgefront.core.graph.options import GraphOptions
from edgefront.core.spaces.architecture import Architecture
from edgefront.workflows.agreement import compare


def _encoder(**output: Any) -> Architecture:
    embedding = {"vocab_size": 97, "segments": 2, "norm": True}
    return architecture(causal=False, norm="post", activation="gelu", embedding=embedding, output=output)


SOURCE = {
    "d_model": 16,
    "causal": False,
    "positions": {"kind": "none"},
    "embedding": {"vocab_size": 89},
    "blocks": [{"kind": "srupp", "d_attn": 8}],
    "output": {"kind": "none"},
}
MODELS = {
    "plain": architecture(),
    "adaptive": adaptive(),
    "masked tokens": _encoder(kind="masked_tokens"),
    "pooled": _encoder(kind="pooled"),
    "classes": _encoder(kind="classes", classes=3),
    "spans": _encoder(kind="spans"),
    "none": _encoder(kind="none"),
    "relative": architecture(positions={"kind": "relative"}, blocks=[{"kind": "attention", "n_head": 2}]),
    "translation": architecture(blocks=[{"kind": "srupp", "d_attn": 8, "attends": "both"}], source=SOURCE),
}


def _files(model: Architecture, folder: Path, **changes: Any) -> tuple[Path, Path]:
    write_onnx(model, 7, folder / "model.onnx", GraphOptions(**changes))
    write_safetensors(model, 7, folder / "model.safetensors")
    return folder / "model.onnx", folder / "model.safetensors"


@pytest.mark.parametrize("name", MODELS)
def test_both_files_of_a_download_agree(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    agreement = compare(*_files(model, tmp_path))
    assert agreement.holds
    assert agreement.tokens == (LENGTH if model.max_length else 64)
    assert agreement.values > 0


def test_hidden_states_are_compared_too(tmp_path: Path) -> None:
    agreement = compare(*_files(MODELS["plain"], tmp_path, logits="none"))
    assert agreement.holds
    assert agreement.values == LENGTH * 16


def test_another_seed_does_not_agree(tmp_path: Path) -> None:
    in_onnx, _ = _files(MODELS["classes"], tmp_path)
    write_safetensors(MODELS["classes"], 8, tmp_path / "other.safetensors")
    assert not compare(in_onnx, tmp_path / "other.safetensors").holds


def test_a_graph_with_state_is_refused(tmp_path: Path) -> None:
    _, weights = _files(MODELS["plain"], tmp_path)
    onnx.save(build(MODELS["plain"], GraphOptions(mode="decode")), tmp_path / "decode.onnx")
    with pytest.raises(InvalidInput, match=r"has an input position, which a forward pass .* does not have"):
        compare(tmp_path / "decode.onnx", weights)
