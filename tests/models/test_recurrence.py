"""The SRU recurrence on this machine's devices: values, gradients, segments; through torch.export and compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_recurrence import naive, naive_gradients, some_inputs
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn import recurrence as function
from edgefront.core.nn.dropout import Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.recurrence import Backend, backend, cpu, plain, sru_recurrence
from edgefront.core.nn.weights import fill

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CPU_BACKENDS = [cpu, plain]
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 0.01}

both = pytest.mark.parametrize("working", CPU_BACKENDS, ids=lambda module: module.__name__.rpartition(".")[2])


def close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(actual.double().cpu(), expected.double(), rtol=tolerance, atol=tolerance * scale)


def check(run: Callable[..., tuple[Tensor, Tensor]], inputs: list[Tensor | None], tolerance: float) -> None:
    """Holds values and gradients of `run` to the equations, for one random direction."""
    leaves = [None if t is None else t.detach().clone().requires_grad_(i < 5) for i, t in enumerate(inputs)]
    h, last = run(*leaves)
    assert leaves[1] is not None
    assert leaves[4] is not None
    assert (h.dtype, last.dtype) == (leaves[1].dtype, leaves[4].dtype)
    expected_h, expected_last = naive(*(None if t is None else t.double().cpu() for t in inputs))  # type: ignore[arg-type]
    close(h, expected_h, tolerance)
    close(last, expected_last, tolerance)
    rng = torch.Generator().manual_seed(7)
    grads = [torch.randn(t.shape, generator=rng, dtype=torch.float64).to(t) for t in (h, last)]
    gradients = torch.autograd.grad([h, last], [t for t in leaves[:5] if t is not None], grads)
    on_cpu = [None if t is None else t.cpu() for t in inputs]
    for grad, expected in zip(gradients, naive_gradients(on_cpu, grads[0].cpu(), grads[1].cpu()), strict=True):
        close(grad, expected, tolerance)


@contextmanager
def using(working: Backend) -> Iterator[None]:
    """`sru_recurrence` by this implementation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, "backend", lambda _: working)
        yield


@both
@given(
    batch=st.integers(1, 3),
    sequence=st.integers(1, 7),
    width=st.one_of(st.integers(1, 70), st.sampled_from([256, 300, 513])),
    masked=st.booleans(),
    wide=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_follows_the_equations(
    working: Any, batch: int, sequence: int, width: int, masked: bool, wide: bool, seed: int
) -> None:
    dtype = torch.float64 if wide else torch.float32
    inputs = some_inputs(batch, sequence, width, seed=seed, dtype=dtype, masked=masked)
    with using(working):
        check(sru_recurrence, inputs, TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_floating_type_on_every_device(device: str, dtype: torch.dtype) -> None:
    inputs = [None if t is None else t.to(device) for t in some_inputs(2, 9, 96, dtype=dtype)]
    check(sru_recurrence, inputs, TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
def test_mixed_types_keep_x_and_cell(device: str) -> None:
    u, x, v, b, cell, mask = (t.to(device) for t in some_inputs(2, 3, 8, dtype=torch.float32) if t is not None)
    check(sru_recurrence, [u.bfloat16(), x, v.bfloat16(), b, cell.half(), mask], 0.02)


def test_gradients_of_one_output_alone() -> None:
    inputs = some_inputs(2, 3, 4)
    cell = inputs[4]
    assert cell is not None
    cell.requires_grad_()
    _, last = sru_recurrence(*inputs)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(last.sum(), [cell])
    zeros = torch.zeros(2, 3, 4, dtype=torch.float64)
    close(gradient, naive_gradients(inputs, zeros, torch.ones_like(cell))[4], 1e-12)


@both
@given(sequence=st.integers(2, 9), data=st.data())
def test_segments_with_the_cell_carried_are_the_whole(working: Any, sequence: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, sequence - 1))
    u, x, v, b, cell, mask = some_inputs(2, sequence, 33, dtype=torch.float32)
    assert u is not None
    assert x is not None
    with using(working):
        whole, last = sru_recurrence(u, x, v, b, cell, mask)  # type: ignore[arg-type]
        first, carried = sru_recurrence(u[:, :cut], x[:, :cut], v, b, cell, mask)  # type: ignore[arg-type]
        second, end = sru_recurrence(u[:, cut:], x[:, cut:], v, b, carried, mask)  # type: ignore[arg-type]
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(end, last, rtol=1e-6, atol=1e-6)


def test_strided_inputs_and_untouched_arguments() -> None:
    inputs = some_inputs(2, 5, 12)
    wide = [t if t is None else torch.stack([t, t], dim=-1)[..., 0] for t in inputs]
    assert not any(t.is_contiguous() for t in wide if t is not None)
    before = [None if t is None else t.clone() for t in wide]
    check(sru_recurrence, wide, 1e-11)
    assert all(a is None or (b is not None and torch.equal(a, b)) for a, b in zip(wide, before, strict=True))


@both
@pytest.mark.parametrize(("gate", "from_there_on"), [(0, True), (1, True), (2, False), (None, False)])
def test_nan_goes_where_it_must_and_nowhere_else(working: Any, gate: int | None, from_there_on: bool) -> None:
    """In a candidate or forget gate it stays in the cell; in a reset gate or in x it spoils one output."""
    inputs = some_inputs(2, 6, 40, dtype=torch.float32, masked=False)
    with using(working):
        clean, clean_last = sru_recurrence(*inputs)  # type: ignore[arg-type]
    u, x = inputs[:2]
    assert u is not None
    assert x is not None
    if gate is None:
        x[1, 2, 17] = torch.nan
    else:
        u[1, 2, gate, 17] = torch.nan
    with using(working):
        h, last = sru_recurrence(*inputs)  # type: ignore[arg-type]
    hit = torch.zeros_like(h, dtype=torch.bool)
    hit[1, 2 : None if from_there_on else 3, 17] = True
    assert torch.equal(h.isnan(), hit)
    assert torch.equal(h[~hit], clean[~hit])
    assert bool(last[1, 17].isnan()) == from_there_on
    assert torch.equal(last[0], clean_last[0])


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_infinite_gates_are_open_or_shut(working: Any, dtype: torch.dtype) -> None:
    u, x, v, b, cell, _ = some_inputs(1, 1, 40, dtype=dtype, masked=False)
    assert u is not None
    for forget, reset in ((torch.inf, torch.inf), (torch.inf, -torch.inf), (-torch.inf, torch.inf)):
        u[:, :, 1], u[:, :, 2] = forget, reset
        with using(working):
            h, last = sru_recurrence(u, x, v, b, cell, None)  # type: ignore[arg-type]
        torch.testing.assert_close(last, cell if forget > 0 else u[:, 0, 0])
        torch.testing.assert_close(h[:, 0], last if reset > 0 else x[:, 0])  # type: ignore[index]


def test_the_compiled_sigmoid_is_as_exact_as_float32_can_tell() -> None:
    """With candidate and cell 1, x 0 and no weights, h is the reset gate."""
    z = torch.cat([torch.linspace(-87, 88, 200_001), torch.tensor([-1e30, -104.0, -89.0, 104.0, 1e30])]).reshape(1, -1)
    ones, none = torch.ones_like(z), torch.zeros(2, z.shape[1])
    h, _, _ = cpu.forward(
        torch.stack([ones, ones, z], 1)[:, None], torch.zeros_like(z)[:, None], none, none, ones, None, False
    )
    exact = torch.sigmoid(z.double())
    normal = exact > 1e-37
    error = ((h[0].double() - exact) / exact)[normal].abs().max()
    assert error < 4e-7
    assert h[0][~normal].abs().max() < 1e-37


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own threads, or none where these cannot be had: the same bits."""
    inputs = some_inputs(3, 24, 1000, dtype=torch.float32)
    grads = torch.ones(3, 24, 1000), torch.ones(3, 1000)

    def everything() -> list[Tensor]:
        h, last, states = cpu.forward(*inputs, True)  # type: ignore[call-arg]
        return [h, last, *cpu.backward(*grads, *inputs, states)]  # type: ignore[call-arg]

    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(everything())
        with monkeypatch.context() as patch:
            patch.setattr(cpu, "_openmp", lambda: None)
            results.append(everything())
        with ThreadPoolExecutor(4) as callers:  # and from several threads at once
            results += [future.result() for future in [callers.submit(everything) for _ in range(8)]]
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@given(batch=st.integers(1, 64), width=st.integers(1, 9000), count=st.integers(1, 64))
def test_every_feature_is_in_one_run(batch: int, width: int, count: int) -> None:
    run = cpu.run_of_features(batch, width, count)
    items = batch * -(-width // run)
    assert run >= min(width, 256) or count == 1
    assert items >= min(count, batch * (width // 256))


def test_the_plain_one_runs_elsewhere() -> None:
    assert backend("meta") is plain
    assert backend("mps") is plain
    h, last = sru_recurrence(*(None if t is None else t.to("meta") for t in some_inputs(2, 3, 4)))  # type: ignore[arg-type]
    assert (h.shape, last.shape) == ((2, 3, 4), (2, 4))


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
