"""The recurrence on CPUs as loops that Numba compiles. One work item is a range of features of one row of the batch.

A kernel's argument is the address of a job, an array of 64-bit integers with the indices below. Any number of threads
may run one job, each taking items until none is left. The atomic counter is their only synchronisation, because items
share no output. Within an item time is the outer loop and features are the inner loop, which LLVM vectorises. LLVM must
therefore know that rows do not overlap (`get` and `put` declare this) and see the operations of an exponential
(`_sigmoid`, because Numba's own exponential is a call for each number).

The threads are PyTorch's threads, which spin after every operator and would compete with other threads. On Linux and
macOS PyTorch uses OpenMP, whose entry point (`GOMP_parallel` in GNU's and LLVM's library) is found through PyTorch;
elsewhere one thread computes everything. As with PyTorch itself, a process may fork until it has used several threads.

All compiled code is in this file, because Numba's cache on disk is valid only until this file changes.
"""

# Numba calls functions under `intrinsic` with their parameters' names.
# ruff: noqa: ARG001

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic
from torch import Tensor

from edgefront.core.nn.recurrence import plain

ANY_TYPES = False

# Indices in a job. The shapes are those of `core.nn.recurrence`; GRAD_SUMS is [batch, 4, d]: v's two rows, then b's.
COUNTER, BATCH, LENGTH, WIDTH, CHUNK = range(5)
U, X, V, B, CELL, MASK, STATES = range(5, 12)  # addresses; MASK and (forward) STATES may be 0
H, LAST = range(12, 14)  # written by the forward pass
GRAD_H, GRAD_LAST = range(14, 16)  # read by the backward pass
GRAD_U, GRAD_X, GRAD_CELL, GRAD_SUMS = range(16, 20)  # written by the backward pass; GRAD_SUMS starts at zero
JOB_SIZE = 20

# Fused multiply-add, and no signed zeros. Approximate reciprocals ("arcp") would make NaN of 1/infinity.
OPTIONS = {"fastmath": {"contract", "nsz"}, "error_model": "numpy"}

# Numbers of the rows that a loop reads or writes, for `get` and `put`. Rows with different numbers do not overlap.
_READ, _BEFORE, _AFTER, _H, _CARRY, _GU0, _GU1, _GU2, _GX, _SVF, _SVR, _SBF, _SBR = range(13)


def _disjoint(builder: Any, access: Any, row: int) -> None:
    """Declares for LLVM that this memory access overlaps only accesses to rows with the same number."""
    module = builder.module
    domain = module.add_metadata(["edgefront.core.nn.recurrence"])
    scopes = [module.add_metadata([f"row {number}", domain]) for number in range(_SBR + 1)]
    access.set_metadata("alias.scope", module.add_metadata([scopes[row]]))
    access.set_metadata("noalias", module.add_metadata([scope for scope in scopes if scope is not scopes[row]]))


def _pointer(builder: Any, address: Any, index: Any) -> Any:
    base = builder.inttoptr(address, ir.FloatType().as_pointer())
    return builder.gep(base, [index], source_etype=ir.FloatType())


@intrinsic(prefer_literal=True)
def get(_typing: Any, row: Any, address: Any, index: Any) -> Any:
    """Reads the number at `index` of the row at `address`."""
    which = row.literal_value

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        value = builder.load(_pointer(builder, *arguments[1:]), typ=ir.FloatType())
        _disjoint(builder, value, which)
        return value

    return types.float32(row, types.intp, types.intp), generate


@intrinsic(prefer_literal=True)
def put(_typing: Any, row: Any, address: Any, index: Any, value: Any) -> Any:
    """Stores `value` at `index` of the row at `address`."""
    which = row.literal_value

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _disjoint(builder, builder.store(arguments[3], _pointer(builder, *arguments[1:3])), which)
        return context.get_dummy_value()

    return types.void(row, types.intp, types.intp, types.float32), generate


@intrinsic
def _next_item(_typing: Any, job: Any) -> Any:
    """Increments the job's counter atomically and returns its previous value."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", arguments[0], ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.CPointer(types.int64)), generate


@intrinsic
def _bits(_typing: Any, number: Any) -> Any:
    """Returns the 32 bits of a float32 as an integer."""
    return types.int32(types.float32), lambda _c, builder, _s, given: builder.bitcast(given[0], ir.IntType(32))


@intrinsic
def _from_bits(_typing: Any, bits: Any) -> Any:
    """Returns the float32 with these 32 bits."""
    return types.float32(types.int32), lambda _c, builder, _s, given: builder.bitcast(given[0], ir.FloatType())


_SIZE = 4
"""Number of bytes of a float32."""
_ONE = np.float32(1)
_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = (
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)  # the high part has 9 bits, so that its product with n is exact
_TO_INTEGER = np.float32(3 << 22)  # adding 1.5·2²³ leaves the nearest integer in the low bits
_LARGEST, _SMALLEST = np.float32(88.8), np.float32(-87.0)
# Minimax coefficients of (eʳ − 1 − r)/r² on |r| ≤ ln 2 / 2, lowest power first (Cephes, expf).
_E0, _E1, _E2 = np.float32(5.0000001201e-1), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_E3, _E4, _E5 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
_MANTISSA, _BIAS = np.int32(23), np.int32(127 << 23)


@njit(**OPTIONS)
def _sigmoid(x: Any) -> Any:
    """Sigmoid 1/(1 + e⁻ˣ), relative error below 3e-7; 0 and 1 at the infinities, NaN for NaN.

    e^y = 2ⁿ·eʳ with n = round(y/ln 2). For the largest y the power's bits are those of infinity. The comparisons keep
    NaN.
    """
    y = -x
    y = _LARGEST if y > _LARGEST else y
    y = _SMALLEST if y < _SMALLEST else y
    shifted = y * _LOG2_E + _TO_INTEGER
    n = shifted - _TO_INTEGER
    r = (y - n * _LN2_HIGH) - n * _LN2_LOW
    series = ((((_E5 * r + _E4) * r + _E3) * r + _E2) * r + _E1) * r + _E0
    power = _from_bits((_bits(shifted) << _MANTISSA) + _BIAS)
    return _ONE / (_ONE + power * (series * (r * r) + r + _ONE))


def forward_job(job_address: Any) -> None:
    """Computes h, the final cell and, if STATES of the job is not 0, all cells. Compiled entry point."""
    job = carray(job_address, JOB_SIZE)
    length, width, chunk = job[LENGTH], job[WIDTH], job[CHUNK]
    chunks = (width + chunk - 1) // chunk
    row_size = width * _SIZE
    masked, keep = job[MASK] != 0, job[STATES] != 0
    while True:
        item = _next_item(job_address)
        if item >= job[BATCH] * chunks:
            return
        batch = item // chunks
        first = (item - batch * chunks) * chunk
        count = min(chunk, width - first)
        v_f, b_f = job[V] + first * _SIZE, job[B] + first * _SIZE
        v_r, b_r = v_f + row_size, b_f + row_size
        last = job[LAST] + batch * row_size + first * _SIZE
        mask = job[MASK] + batch * row_size + first * _SIZE
        before = job[CELL] + batch * row_size + first * _SIZE
        for t in range(length):
            offset = (batch * length + t) * row_size + first * _SIZE
            x, h = job[X] + offset, job[H] + offset
            u0 = job[U] + (batch * length + t) * 3 * row_size + first * _SIZE
            u1, u2 = u0 + row_size, u0 + 2 * row_size
            # Without STATES the cell is updated in place, because every number is read before it is overwritten.
            after = job[STATES] + offset if keep else last
            for j in range(count):
                c_before = get(_BEFORE, before, j)
                f = _sigmoid(get(_READ, u1, j) + get(_READ, v_f, j) * c_before + get(_READ, b_f, j))
                r = _sigmoid(get(_READ, u2, j) + get(_READ, v_r, j) * c_before + get(_READ, b_r, j))
                candidate, x_j = get(_READ, u0, j), get(_READ, x, j)
                c = candidate + (c_before - candidate) * f
                put(_AFTER, after, j, c)
                if masked:
                    r = r * get(_READ, mask, j)
                put(_H, h, j, x_j + (c - x_j) * r)
            before = after
        if keep:
            for j in range(count):
                put(_CARRY, last, j, get(_BEFORE, before, j))


def backward_job(job_address: Any) -> None:
    """Computes the gradients of a job from the final step to the first; recomputes gates and cells. Entry point."""
    job = carray(job_address, JOB_SIZE)
    length, width, chunk = job[LENGTH], job[WIDTH], job[CHUNK]
    chunks = (width + chunk - 1) // chunk
    row_size = width * _SIZE
    masked = job[MASK] != 0
    while True:
        item = _next_item(job_address)
        if item >= job[BATCH] * chunks:
            return
        batch = item // chunks
        first = (item - batch * chunks) * chunk
        count = min(chunk, width - first)
        v_f, b_f = job[V] + first * _SIZE, job[B] + first * _SIZE
        v_r, b_r = v_f + row_size, b_f + row_size
        here = batch * row_size + first * _SIZE
        mask, grad_last, carry = job[MASK] + here, job[GRAD_LAST] + here, job[GRAD_CELL] + here
        sum_v_f = job[GRAD_SUMS] + batch * 4 * row_size + first * _SIZE
        sum_v_r, sum_b_f, sum_b_r = sum_v_f + row_size, sum_v_f + 2 * row_size, sum_v_f + 3 * row_size
        for j in range(count):
            put(_CARRY, carry, j, get(_READ, grad_last, j))
        for step in range(length):
            t = length - 1 - step
            offset = (batch * length + t) * row_size + first * _SIZE
            x, grad_h, grad_x = job[X] + offset, job[GRAD_H] + offset, job[GRAD_X] + offset
            from_u = (batch * length + t) * 3 * row_size + first * _SIZE
            u0, grad_u0 = job[U] + from_u, job[GRAD_U] + from_u
            u1, grad_u1 = u0 + row_size, grad_u0 + row_size
            u2, grad_u2 = u1 + row_size, grad_u1 + row_size
            before = job[STATES] + offset - row_size if t > 0 else job[CELL] + here
            for j in range(count):
                c_before = get(_READ, before, j)
                w_f, w_r = get(_READ, v_f, j), get(_READ, v_r, j)
                f = _sigmoid(get(_READ, u1, j) + w_f * c_before + get(_READ, b_f, j))
                r = _sigmoid(get(_READ, u2, j) + w_r * c_before + get(_READ, b_r, j))
                candidate, x_j = get(_READ, u0, j), get(_READ, x, j)
                c = candidate + (c_before - candidate) * f
                g = get(_READ, grad_h, j)
                g_highway = g
                if masked:
                    g_highway = g * get(_READ, mask, j)
                g_c = get(_CARRY, carry, j) + g_highway * r
                g_f = g_c * (c_before - candidate) * (f * (_ONE - f))
                g_r = g_highway * (c - x_j) * (r * (_ONE - r))
                put(_GX, grad_x, j, g - g_highway * r)
                put(_GU0, grad_u0, j, g_c * (_ONE - f))
                put(_GU1, grad_u1, j, g_f)
                put(_GU2, grad_u2, j, g_r)
                put(_CARRY, carry, j, g_c * f + g_f * w_f + g_r * w_r)
                put(_SVF, sum_v_f, j, get(_SVF, sum_v_f, j) + g_f * c_before)
                put(_SVR, sum_v_r, j, get(_SVR, sum_v_r, j) + g_r * c_before)
                put(_SBF, sum_b_f, j, get(_SBF, sum_b_f, j) + g_f)
                put(_SBR, sum_b_r, j, get(_SBR, sum_b_r, j) + g_r)


JOB_ONLY = types.void(types.CPointer(types.int64))


@cache
def address(entry: Callable[[Any], None]) -> int:
    """Address of the machine code of an entry point: a C function whose argument is a pointer to a job.

    The first call on this machine compiles (half a second); later calls read Numba's cache in this file's folder or the
    user's cache folder. If neither folder is writable, nothing is cached.
    """
    try:
        compiled = cfunc(JOB_ONLY, cache=True, **OPTIONS)(entry)
    except (RuntimeError, OSError):  # no folder for a cache, or a full disk
        compiled = cfunc(JOB_ONLY, **OPTIONS)(entry)
    return int(compiled.address)


_C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Job = ctypes.c_int64 * JOB_SIZE

# Below this many numbers one thread is faster than several, which must be woken.
_WORTH_THREADS = 1 << 16
_ITEMS_PER_THREAD = 4
_SHORTEST_RUN = 256


def prepare() -> None:
    """Loads or compiles the code for inference, without starting a thread or running an operator."""
    address(forward_job)


def forward(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Computes h, the final cell and, with `keep`, the cells after every step [batch, sequence, d] for `backward`.

    All tensors are contiguous and of one type, float32 or float64; `plain` computes in float64.
    """
    if x.dtype == torch.float64:
        return plain.forward(u, x, v, b, cell, mask, keep)
    h, last = torch.empty_like(x), torch.empty_like(cell)
    states = torch.empty_like(x) if keep else None
    inputs = {U: u, X: x, V: v, B: b, CELL: cell, MASK: mask}
    _run(address(forward_job), x, {**inputs, STATES: states, H: h, LAST: last})
    return h, last, states


def backward(
    grad_h: Tensor,
    grad_last: Tensor,
    u: Tensor,
    x: Tensor,
    v: Tensor,
    b: Tensor,
    cell: Tensor,
    mask: Tensor | None,
    states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Computes the gradients of u, x, v, b and cell."""
    if x.dtype == torch.float64:
        return plain.backward(grad_h, grad_last, u, x, v, b, cell, mask, states)
    grad_h, grad_last = grad_h.contiguous(), grad_last.contiguous()
    grad_u, grad_x, grad_cell = torch.empty_like(u), torch.empty_like(x), torch.empty_like(cell)
    sums = x.new_zeros(x.shape[0], 4, x.shape[2])
    tensors = {U: u, X: x, V: v, B: b, CELL: cell, MASK: mask, STATES: states, GRAD_H: grad_h, GRAD_LAST: grad_last}
    _run(address(backward_job), x, {**tensors, GRAD_U: grad_u, GRAD_X: grad_x, GRAD_CELL: grad_cell, GRAD_SUMS: sums})
    grad_v, grad_b = sums.sum(0).chunk(2)
    return grad_u, grad_x, grad_v, grad_b, grad_cell


def _run(entry: int, x: Tensor, tensors: Mapping[int, Tensor | None]) -> None:
    batch, length, width = x.shape
    count = torch.get_num_threads() if x.numel() >= _WORTH_THREADS else 1
    job = _Job()
    job[BATCH], job[LENGTH], job[WIDTH] = batch, length, width
    job[CHUNK] = run_of_features(batch, width, count)
    for index, tensor in tensors.items():
        job[index] = 0 if tensor is None else tensor.data_ptr()
    argument, parallel = ctypes.addressof(job), _openmp()
    if count == 1 or parallel is None:
        _C_FUNCTION(entry)(argument)
    else:
        parallel(entry, argument, count, 0)


def run_of_features(batch: int, width: int, count: int) -> int:
    """Number of features per work item: a whole row (contiguous in memory), or fewer if threads would be idle."""
    run = width
    while count > 1 and batch * -(-width // run) < _ITEMS_PER_THREAD * count and run > _SHORTEST_RUN:
        run = max(_SHORTEST_RUN, -(-run // 2))
    return -(-run // 16) * 16


@lru_cache(maxsize=1)
def _openmp() -> Callable[[int, int, int, int], None] | None:
    """`GOMP_parallel(function, argument, threads, flags)` of PyTorch's OpenMP library; None without OpenMP."""
    try:
        libraries = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        parallel = libraries.GOMP_parallel  # found in the libraries that libtorch_cpu is linked to
    except (OSError, AttributeError):
        return None
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel
