"""What trainings on GPUs depend on and a machine without one can show. `tests/gpu` has the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loop_runs import spec_of
from prepared_text import ALONE, trainer

from edgefront.core.training.distributed import Ranks
from edgefront.core.training.loop import Trainer
from edgefront.core.training.run_folder import CHECKPOINTS, METRICS
from edgefront.core.training.step import deterministic, is_not_deterministic, is_out_of_memory

GPU = torch.device("cuda")
REFUSED = (
    "cumsum_cuda_kernel does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
)


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.usefixtures("workspace")
def test_a_gpu_is_asked_for_the_same_results_each_time() -> None:
    with deterministic(ALONE.device):
        assert not torch.are_deterministic_algorithms_enabled()
    with deterministic(GPU):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")  # what PyTorch permits
        assert is_not_deterministic(RuntimeError(REFUSED))
        assert not is_not_deterministic(RuntimeError("CUDA error: an illegal memory access"))
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    assert not is_not_deterministic(RuntimeError(REFUSED))


@pytest.mark.usefixtures("workspace")
def test_an_operator_that_cannot_is_named_and_the_training_goes_on(data: Path, tmp_path: Path) -> None:
    spec = spec_of(data)
    trainer(spec, tmp_path / "usual").train()
    made = trainer(spec, tmp_path / "refused")
    call = made._call

    def refuses(rows: Any, state: Any) -> Any:
        loss = call(rows, state)
        if made.progress.step == 2 and not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(REFUSED)
        return loss

    made._call = refuses
    with deterministic(GPU):
        assert made._train() == "done"
    notes = (tmp_path / "refused" / "status.json").read_text()
    assert "does not resume bit for bit: cumsum_cuda_kernel does not have a deterministic implementation" in notes
    usual, refused = (max((tmp_path / name / CHECKPOINTS).iterdir()) for name in ("usual", "refused"))
    assert (usual / "model.safetensors").read_bytes() == (refused / "model.safetensors").read_bytes()
    assert (tmp_path / "refused" / METRICS).is_file()


def test_counts_of_a_resumed_state_stay_on_the_cpu() -> None:
    """Reading one would wait for the GPU, in each step from then on."""
    resumed: Any = SimpleNamespace(ranks=Ranks(0, 1, torch.device("meta")), architecture=None)
    Trainer._restore_memory(resumed, {"position": torch.tensor(7), "blocks.0.memory": torch.zeros(2, 4, 8)})
    assert {name: tensor.device.type for name, tensor in resumed._state.items()} == {
        "position": "cpu",
        "blocks.0.memory": "meta",
    }


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
    ],
)
def test_cuda_s_libraries_run_out_of_memory_too(error: Exception, is_one: bool) -> None:
    assert is_out_of_memory(error) == is_one
