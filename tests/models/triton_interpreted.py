"""The Triton kernels on CPU tensors, in Triton's interpreter, against float64: a program, for the interpreter is chosen
by the environment before Triton is loaded (TRITON_INTERPRET=1). Prints the number of cases that held.
"""

from __future__ import annotations

import itertools
import os

import torch
from naive_recurrence import naive, naive_gradients, some_inputs

from edgefront.core.nn.recurrence import gpu

assert os.environ["TRITON_INTERPRET"] == "1"
SHAPES = [(1, 1, 1), (1, 4, 33), (2, 7, 40), (3, 5, 64)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 0.03, torch.float16: 5e-3}


def main() -> None:
    cases = list(itertools.product(SHAPES, TOLERANCE.items(), (False, True)))
    for seed, (shape, (dtype, tolerance), masked) in enumerate(cases):
        inputs = some_inputs(*shape, seed=seed, dtype=dtype, masked=masked)
        h, last, states = gpu.forward(*inputs, True)  # type: ignore[call-arg]
        again, last_again, none = gpu.forward(*inputs, False)  # type: ignore[call-arg]
        assert torch.equal(h, again)
        assert torch.equal(last, last_again)
        assert none is None
        torch.manual_seed(seed)
        grads = torch.randn_like(h), torch.randn_like(last)
        outputs = [h, last, *gpu.backward(*grads, *inputs, states)]  # type: ignore[call-arg]
        wide = [None if t is None else t.double() for t in inputs]
        expected = [*naive(*wide), *naive_gradients(wide, *grads)]  # type: ignore[call-arg]
        for actual, reference in zip(outputs, expected, strict=True):
            assert actual.dtype == dtype
            scale = max(1.0, float(reference.abs().max()))
            torch.testing.assert_close(actual.double(), reference, rtol=tolerance, atol=tolerance * scale)
    print(len(cases))


if __name__ == "__main__":
    main()
