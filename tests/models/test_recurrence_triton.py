"""The CUDA kernels where there may be no GPU: right in Triton's interpreter, and compiled to what is meant."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from edgefront.core.nn.recurrence import gpu

HERE = Path(__file__).parent
READ_EACH_STEP = {"forward": 4, "backward": 6}
WORDS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}


def test_values_and_gradients_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "triton_interpreted.py"],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "32"


def assembly(kernel: Any, stages: int, dtype: torch.dtype, capability: int, masked: bool) -> str:
    """PTX of a kernel for a GPU that need not be here."""
    names = kernel.arg_names
    wide = "fp64" if dtype == torch.float64 else "fp32"
    types = {name: f"*{wide if name in ('states', 'sums') else WORDS[dtype]}" for name in names}
    types |= dict.fromkeys(("length", "width"), "i32")
    types |= {name: "constexpr" for name in names if name.isupper()}
    given = {"MASKED": masked, "KEEP": True, "REAL": tl.float64 if wide == "fp64" else tl.float32}
    given |= {"BLOCK": gpu.block_size(dtype), "STAGES": stages}
    aligned = [name for name in names if name != "length" and types[name] != "constexpr"]
    hints = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(kernel, types, {name: given[name] for name in names if name in given}, hints)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 1})
    return str(compiled.asm["ptx"])


@pytest.mark.parametrize(("dtype", "capability"), [*((dtype, 80) for dtype in WORDS), (torch.float32, 90)])
@pytest.mark.parametrize("kernel", gpu.STAGES)
def test_inputs_of_later_steps_are_loaded_ahead(
    kernel: str, dtype: torch.dtype, capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each input of a step is copied to shared memory by instructions that nothing waits for."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    stages = gpu.STAGES[kernel]
    ptx = assembly(getattr(gpu, f"_{kernel}"), stages, dtype, capability, masked=True)
    copies = len(re.findall(r"cp\.async\.c[ag]\.", ptx))
    assert copies == READ_EACH_STEP[kernel] * stages  # in the loop once, and before it for the steps ahead
