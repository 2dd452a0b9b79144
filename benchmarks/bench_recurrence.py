"""Speed of the SRU recurrence: compiled against PyTorch's operators on the CPU, and against memory bandwidth on a GPU.

CPU: L = 192, d = 1024, batch 1 and 16, and one step of decoding. All implementations take turns in one run, after a
check that their results agree:

- compiled: compiled with Numba (`core.nn.recurrence.cpu`)
- plain: PyTorch's operators (`core.nn.recurrence.plain`)

A ratio above 1 means that the compiled implementation is faster. GPU, if there is one, or alone with `--device cuda`:
the Triton kernels in float32 and bfloat16 at L = 1024, batch 16, d = 3072, as the share of the time in which the GPU's
memory could move the same bytes. The results must agree with the CPU's.

    python benchmarks/bench_recurrence.py [--threads 1,2] [--repeats 50] [--device cpu|cuda] [--quick]

Goal: on a GPU at least 60 % of the bandwidth.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from record import append, table
from torch import Tensor

from edgefront.core.nn.recurrence import backend, plain, sru_recurrence

Run = Callable[[], Any]
GOAL_SHARE = 0.6
CPU_SHAPES = {"batch 1": (1, 192, 1024), "batch 16": (16, 192, 1024), "decode": (1, 1, 1024)}
GPU_SHAPE = (16, 1024, 3072)


def inputs(shape: tuple[int, int, int], device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Returns random inputs of the recurrence: u, x, v, b and cell."""
    batch, length, width = shape
    rng = torch.Generator().manual_seed(0)
    shapes = ((batch, length, 3, width), (batch, length, width), (2, width), (2, width), (batch, width))
    u, x, v, b, cell = (torch.randn(shape, generator=rng) for shape in shapes)
    v.uniform_(-1, 1, generator=rng)  # as initialised; larger weights amplify rounding differences
    return [tensor.to(device, dtype) for tensor in (u, x, v, b, cell)]


def gradients(working: Any, arguments: Sequence[Tensor]) -> Run:
    """Returns a function that runs a forward pass, keeping the cells, and computes the gradients of the sum of h."""
    grads = torch.ones_like(arguments[1]), torch.zeros_like(arguments[4])

    def run() -> tuple[Tensor, ...]:
        _, _, states = working.forward(*arguments, None, True)
        found: tuple[Tensor, ...] = working.backward(*grads, *arguments, None, states)
        return found

    return run


def interleaved(contenders: Mapping[str, Run], repeats: int) -> dict[str, float]:
    """Returns the median milliseconds of each implementation. Each round runs all, which spreads noise equally."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(3 + repeats):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - started))
    return {name: statistics.median(seconds[3:]) for name, seconds in times.items()}


def cpu_contenders(arguments: list[Tensor], passes: str) -> dict[str, Run]:
    """Returns name → function. Raises AssertionError if the results of the functions differ."""
    from edgefront.core.nn.recurrence import cpu  # needs Numba, which a machine with a GPU may lack

    if passes == "forward":
        found: dict[str, Run] = {
            "compiled": lambda: sru_recurrence(*arguments),  # type: ignore[arg-type]
            "plain": lambda: plain.forward(*arguments, None, False),  # type: ignore[arg-type, misc]
        }
        torch.testing.assert_close(found["compiled"](), found["plain"]()[:2], rtol=1e-4, atol=1e-4)
        return found
    found = {"compiled": gradients(cpu, arguments), "plain": gradients(plain, arguments)}
    torch.testing.assert_close(found["compiled"](), found["plain"](), rtol=1e-3, atol=1e-3)
    return found


def on_the_cpu(options: argparse.Namespace) -> None:
    rows = []
    for threads, (name, shape) in product(options.threads, CPU_SHAPES.items()):
        torch.set_num_threads(threads)
        arguments = inputs(shape)
        for passes in ("forward",) if name == "decode" else ("forward", "forward and backward"):
            with torch.set_grad_enabled(passes != "forward"):
                medians = interleaved(cpu_contenders(arguments, passes), options.repeats)
            ours = medians["compiled"]
            row = {"shape": name, "pass": passes, "threads": threads, "compiled ms": ours}
            row |= {"plain ms": medians["plain"], "plain / ours": medians["plain"] / ours}
            rows.append(row)
            append("bench_recurrence", {"device": "cpu", **row}, quick=options.quick)
    table("The recurrence on the CPU, medians", rows)


def on_the_gpu(options: argparse.Namespace) -> None:
    from triton.testing import get_dram_gbps

    from edgefront.core.nn.recurrence import gpu

    shape = (2, 64, 512) if options.quick else GPU_SHAPE
    name, nominal, copied = torch.cuda.get_device_name(), 1e9 * get_dram_gbps(), copy_bandwidth()
    print(
        f"\n{name}: {nominal / 1e9:.0f} GB/s by its memory's clock and width, {copied / 1e9:.0f} GB/s in a plain copy"
    )
    rows, reference = [], backend("cpu")
    for dtype in (torch.float32, torch.bfloat16):
        arguments = inputs(shape, "cuda", dtype)
        h, _, states = gpu.forward(*arguments, None, True)  # type: ignore[arg-type, misc]
        on_cpu = [tensor.float().cpu() for tensor in arguments]
        expected = reference.forward(*on_cpu, None, True)  # type: ignore[arg-type, misc]
        tolerance = 1e-4 if dtype == torch.float32 else 0.05
        torch.testing.assert_close(h.float().cpu(), expected[0], rtol=tolerance, atol=tolerance)
        grads = torch.randn_like(h), torch.zeros_like(arguments[4])
        found = gpu.backward(*grads, *arguments, None, states)  # type: ignore[arg-type, misc]
        cpu_grads = grads[0].float().cpu(), grads[1].float().cpu()
        wanted_grads = reference.backward(*cpu_grads, *on_cpu, None, expected[2])  # type: ignore[arg-type, misc]
        for gradient, other in zip(found, wanted_grads, strict=True):
            scale = tolerance * float(other.abs().max())
            torch.testing.assert_close(gradient.float().cpu(), other, rtol=tolerance, atol=scale)
        numbers, size = h.numel(), h.element_size()
        # Bytes per element of x. Forward: reads u and x, writes h. Backward: u, x, ∂h and the cells, ∂u and ∂x.
        passes: dict[str, tuple[int, Run]] = {
            "forward": (5 * size, lambda: gpu.forward(*arguments, None, False)),  # noqa: B023
            "backward": (9 * size + 4, lambda: gpu.backward(*grads, *arguments, None, states)),  # noqa: B023
        }
        for kind, (bytes_each, timed) in passes.items():
            ms = cuda_ms(timed, options.repeats)
            rate = numbers * bytes_each / ms * 1e3
            row = {
                "pass": kind,
                "type": str(dtype).removeprefix("torch."),
                "ms": ms,
                "GB/s": rate / 1e9,
                "of the bandwidth": rate / nominal,
                "of a copy": rate / copied,
            }
            rows.append(row)
            append("bench_recurrence", {"device": name, "shape": list(shape), **row}, quick=options.quick)
    table(f"The recurrence on {name}, batch, steps and features {shape} (goal {GOAL_SHARE:.0%} of the bandwidth)", rows)


def copy_bandwidth() -> float:
    """Bytes per second of a copy of 1 GiB, counting read and written bytes."""
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2e3 * source.numel() * source.element_size() / cuda_ms(lambda: target.copy_(source), 20)


def cuda_ms(run: Run, repeats: int) -> float:
    """Median milliseconds of a run between two CUDA events."""
    times = []
    for _ in range(3 + repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(float(start.elapsed_time(stop)))
    return statistics.median(times[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only there; else on both, as far as they are here")
    parser.add_argument(
        "--quick", action="store_true", help="three repeats, a small shape on the GPU, and nothing recorded"
    )
    options = parser.parse_args()
    options.threads = [int(count) for count in options.threads.split(",")]
    options.repeats = 3 if options.quick else options.repeats
    if options.device != "cuda":
        on_the_cpu(options)
    if options.device == "cuda" or (options.device is None and torch.cuda.is_available()):
        on_the_gpu(options)


if __name__ == "__main__":
    main()
