"""Blocks of SRU and SRU++: padding anywhere, and gradients (their numbers: `test_sru_references`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from passes import in_torch, inputs, lively_model

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn.context import Cache, Context

SRUPP = {"kind": "srupp", "d_attn": 6}


def stack(blocks: list[dict[str, Any]], **changes: Any) -> Architecture:
    ends = {"positions": {"kind": "none"}, "norm": "post", "embedding": {"vocab_size": 19}}
    return Architecture.parse({"d_model": 8, **ends, "blocks": blocks, **changes})


MODELS = {
    "sru": stack([{"kind": "sru"}, {"kind": "sru", "d_proj": 3}]),
    "heads": stack([{**SRUPP, "n_head": 3}, {**SRUPP, "n_head": 2}]),
    "some attention": stack([{**SRUPP, "attends": "none"}, SRUPP, {**SRUPP, "attends": "none"}]),
    "both ways": stack([SRUPP, {"kind": "sru"}, {**SRUPP, "n_head": 2}], causal=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_anywhere_is_as_if_it_were_not_there(name: str) -> None:
    model, tokens = lively_model(MODELS[name]), inputs(MODELS[name], 4, 6)["tokens"]
    mask = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1]], bool)
    padded = in_torch(model, {"tokens": tokens, "mask": mask})
    for row, real in enumerate(mask):
        alone = in_torch(model, {"tokens": tokens[row : row + 1, real]})[0]
        np.testing.assert_allclose(padded[row][real], alone, rtol=0, atol=1e-12)


def test_padding_lets_no_gradient_through() -> None:
    model = lively_model(MODELS["heads"])
    tokens, mask = torch.tensor([[5, 5, 1, 2], [1, 2, 3, 4]]), torch.tensor([[False, False, True, True], [True] * 4])
    logits = model(tokens, mask=mask)
    logits[mask].square().sum().backward()
    assert all(value.grad.isfinite().all() for value in model.parameters())
    embedding = dict(model.named_parameters())["embedding.tables.0"]
    hidden = model(tokens, "none", mask=mask)
    (tied,) = torch.autograd.grad(hidden[mask].square().sum(), embedding)
    assert tied[5].abs().max() == 0
    assert tied[1].abs().max() > 0


def test_gradients_of_a_whole_block_with_memory_and_state() -> None:
    architecture = stack([{"kind": "srupp", "d_attn": 4, "n_head": 2}], d_model=4)
    block = lively_model(architecture).blocks[0]
    names, values = zip(*block.named_parameters(), strict=True)

    def run(x: torch.Tensor, memory: torch.Tensor, cell: torch.Tensor, *weights: torch.Tensor) -> Any:
        state = Cache(architecture, "memory")
        state |= {"blocks.0.memory": memory, "blocks.0.cell": cell}
        context = Context(architecture, x.shape[1], cache=state)
        h = torch.func.functional_call(block, dict(zip(names, weights, strict=True)), (x, "blocks.0", context))
        assert context.next_cache is not None
        return h, context.next_cache["blocks.0.cell"]

    rng = torch.Generator().manual_seed(0)
    shapes = [(2, 3, 4), (2, 2, 4), (2, 4)]
    inputs = [torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(run, (*inputs, *values))
