"""Every named model, its widths made small, and equal layers few: one file of each mode, against the torch model, at
two shapes.

`scripts/check_named_models.py` does the same with the models as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from passes import in_onnx, in_torch, inputs, onnx_pieces
from tiny_models import onnx_session

from edgefront.core.graph.export import write_onnx
from edgefront.core.graph.options import GraphOptions
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models import named_models

Part = dict[str, Any]
SHAPES = [(1, 11), (3, 6)]
SEED = 5
UNIFORM = 6
"""Layers that are kept of a stack of equal ones: sessions of forty take seconds, and run the same nodes again."""


def narrow(description: Part) -> Part:
    """The same blocks in the same order, of 32 features at most, over 60 tokens; embedding narrower or wider as was. Of
    equal layers (one to four blocks) there are a few.
    """
    embedding = dict(description["embedding"])
    cutoffs = [10, 20, 40][: len(embedding.get("cutoffs", ()))]
    d_embed = embedding.get("d_embed", description["d_model"])
    wide = 64 if d_embed > description["d_model"] else 32 if d_embed == description["d_model"] else 16
    small = {**embedding, "vocab_size": 60, "cutoffs": cutoffs, "d_embed": wide}
    if embedding.get("div", 1) ** len(cutoffs) > wide:
        small["div"] = 2
    positions = dict(description.get("positions", {"kind": "learned"}))
    if positions["kind"] == "learned":
        positions["length"] = 16
    if positions.get("clamp"):
        positions["clamp"] = 7
    source = {"source": narrow(description["source"])} if "source" in description else {}
    blocks = _shortened([_narrow_block(block) for block in description["blocks"]])
    return {**description, "d_model": 32, "embedding": small, "positions": positions, "blocks": blocks, **source}


def _shortened(blocks: list[Part]) -> list[Part]:
    for layer in range(1, 5):
        if len(blocks) > UNIFORM * layer and blocks[layer:] == blocks[:-layer]:
            return blocks[: UNIFORM * layer]
    return blocks


def _narrow_block(block: Part) -> Part:
    grouped = {"n_kv_head": 1} if "n_kv_head" in block else {}
    widths = {
        "attention": {"n_head": 2, **({"d_head": 8} if "d_head" in block else {}), **grouped},
        "feed_forward": {"d_inner": 24},
        "sru": {"d_proj": 8} if "d_proj" in block else {},
        "srupp": {"d_attn": 8},
    }
    return {**block, **widths.get(block["kind"], {})}


# Models of one shape but for their widths and depths are one here.
MODELS = {
    small.digest: (name, small)
    for name, small in (
        (name, Architecture.parse(narrow(model.architecture.canonical))) for name, model in named_models().items()
    )
}


@pytest.mark.parametrize("model", [pytest.param(model, id=name) for name, model in MODELS.values()])
def test_files_agree_with_torch(model: Architecture, tmp_path: Path) -> None:
    twin = fill(LanguageModel(model), SEED)
    modes = ["forward", "prefill", "decode"] if model.causal else ["forward"]
    for mode in modes:
        write_onnx(model, SEED, tmp_path / mode, GraphOptions(mode=mode))
    session = {mode: onnx_session(str(tmp_path / mode)) for mode in modes}
    for batch, sequence in SHAPES:
        given = inputs(model, batch, sequence)
        expected = in_torch(twin, given)
        within = 1e-4 * abs(expected).max()  # untrained models without norms answer with tiny numbers
        np.testing.assert_allclose(in_onnx(session["forward"], given)[0], expected, rtol=0, atol=within)
        if model.causal:
            first, state = in_onnx(session["prefill"], {**given, "tokens": given["tokens"][:, :4]})
            rest = onnx_pieces(session["decode"], {"tokens": given["tokens"]}, state, [5], at=4)
            np.testing.assert_allclose(np.concatenate((first, rest), 1), expected, rtol=0, atol=within)
