"""Models with a recurrence through torch.export and torch.compile, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from naive_recurrence import some_inputs
from torch import Tensor

from edgefront.core.nn.dropout import Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.recurrence import function
from edgefront.core.nn.weights import fill
from edgefront.core.spaces.architecture import Architecture

BLOCKS = [{"kind": "srupp", "d_attn": 8}, {"kind": "sru", "d_proj": 4}]


@pytest.fixture(autouse=True)
def forgotten_graphs() -> Iterator[None]:
    yield
    torch.compiler.reset()


def model() -> LanguageModel:
    description = {"d_model": 16, "positions": {"kind": "none"}, "embedding": {"vocab_size": 50}, "blocks": BLOCKS}
    return fill(LanguageModel(Architecture.parse(description)), 0)


def tokens(batch: int, sequence: int) -> Tensor:
    return torch.randint(50, (batch, sequence), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operators_are_what_they_say(masked: bool, dtype: torch.dtype) -> None:
    """Shapes, types, strides and aliases, known without running; gradients in every mode."""
    inputs = some_inputs(2, 3, 8, dtype=dtype, masked=masked)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    leaves = [None if t is None else t.clone().requires_grad_(i < 5) for i, t in enumerate(inputs)]
    for keep in (True, False):
        torch.library.opcheck(function.recurrence, (*inputs, keep), test_utils=checks)
    torch.library.opcheck(function.recurrence, (*leaves, True), test_utils=checks)
    h, last, states = function.recurrence(*inputs, True)
    assert (h.dtype, last.dtype, states.dtype) == (dtype, dtype, torch.float32)
    torch.library.opcheck(function.gradients, (h, last, *inputs, states), test_utils=("test_schema", "test_faketensor"))


def test_an_exported_model_takes_any_batch_and_length() -> None:
    subject = model().eval()
    batch, sequence = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("sequence", min=2, max=512)
    exported = torch.export.export(subject, (tokens(2, 7),), dynamic_shapes={"tokens": {0: batch, 1: sequence}})
    for shape in ((2, 7), (3, 11)):
        assert torch.equal(exported.module()(tokens(*shape)), subject(tokens(*shape)))


def test_a_compiled_model_trains_as_an_eager_one() -> None:
    subject = model().train()
    subject.dropout = Dropout()

    def loss(inputs: Tensor) -> Tensor:
        return subject.token_losses(subject(inputs, "none"), inputs).sum()

    expected = loss(tokens(2, 7))
    expected.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in subject.named_parameters()}
    subject.zero_grad()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)(tokens(2, 7))
    compiled.backward()
    torch.testing.assert_close(compiled, expected)
    for name, parameter in subject.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], msg=name)
