"""The Triton kernels of SRU on a GPU against the equations in float64. Needs torch and Triton alone."""

from __future__ import annotations

import pytest
import torch
from naive_recurrence import naive, naive_gradients, some_inputs

from edgefront.core.nn.recurrence import backend, sru_recurrence

SHAPES = [(1, 1, 1), (2, 7, 40), (3, 33, 300), (2, 192, 1024)]
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


def test_a_gpu_has_the_triton_kernels() -> None:
    assert getattr(backend("cuda"), "__name__", "").endswith(".gpu")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_follow_the_equations(
    shape: tuple[int, int, int], dtype: torch.dtype, masked: bool
) -> None:
    inputs = some_inputs(*shape, dtype=dtype, masked=masked)
    for weight in inputs[2:4]:  # larger ones make a difference in rounding grow from step to step
        assert weight is not None
        weight.clamp_(-1, 1)
    leaves = [None if t is None else t.cuda().requires_grad_(place < 5) for place, t in enumerate(inputs)]
    h, last = sru_recurrence(*leaves)  # type: ignore[arg-type]
    rng = torch.Generator().manual_seed(7)
    grads = [torch.randn(t.shape, generator=rng, dtype=torch.float64).to(dtype) for t in (h, last)]
    found = torch.autograd.grad([h, last], [t for t in leaves[:5] if t is not None], [grad.cuda() for grad in grads])
    wide = [None if t is None else t.double() for t in inputs]
    expected = [*naive(*wide), *naive_gradients(inputs, grads[0], grads[1])]  # type: ignore[arg-type]
    for actual, reference in zip([h, last, *found], expected, strict=True):
        assert actual.dtype == dtype
        scale = TOLERANCE[dtype] * max(1.0, float(reference.abs().max()))
        torch.testing.assert_close(actual.detach().double().cpu(), reference, rtol=TOLERANCE[dtype], atol=scale)
