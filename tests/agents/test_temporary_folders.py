"""What measuring processes leave when they are killed is removed: by their parent, or when it was killed too, later."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import subjects

from edgefront.agents.device.probe import try_runtime
from edgefront.agents.measuring.measure import Measurer
from edgefront.core.common.processes.folders import CHILD, work_folder
from edgefront.core.measurement.protocol import MeasurementProtocol

_HOLDER = """
import sys
from edgefront.core.common.processes.folders import work_folder

with work_folder() as folder:
    (folder / "weights").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""
_DIES_IN_A_TRIAL = """
import os, sys, tempfile
make = tempfile.mkdtemp
def mkdtemp(suffix=None, prefix=None, dir=None):
    made = make(suffix, prefix, dir)
    if prefix == "ef-":
        open(os.environ["SEEN"], "w").write(made)
        os._exit(9)
    return made
tempfile.mkdtemp = mkdtemp
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, of this process and its children."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_kept(temporary: Path) -> None:
    command = [sys.executable, "-c", _HOLDER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as killed, subprocess.Popen(command, **pipes) as living:  # type: ignore[call-overload]
        dead, held = (Path(process.stdout.readline().strip()) for process in (killed, living))
        killed.kill()
        killed.wait()
        new = temporary / "edgefront-work-new"
        new.mkdir()  # its owner has yet to lock it
        cleaned = temporary / "edgefront-work-cleaned"
        cleaned.mkdir()  # the system removed its lock, which was old
        outside = temporary / "outside"
        outside.mkdir()
        (temporary / "edgefront-work-link").symlink_to(outside)
        for folder in (dead, held, outside, cleaned):
            os.utime(folder, (0, 0))
        with work_folder() as own:
            assert own.is_dir()
            assert not dead.exists()
            assert (held / "weights").is_dir()
            assert new.is_dir()
            assert cleaned.is_dir()
            assert list(outside.iterdir()) == []
        assert not own.exists()
        living.stdin.close()
        assert living.wait() == 0
    assert not held.exists()


def test_a_trial_that_dies_leaves_nothing(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, seen = tmp_path / "site", tmp_path / "seen"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_DIES_IN_A_TRIAL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SEEN", str(seen))
    assert try_runtime("onnxruntime") is not None
    assert Path(seen.read_text()).is_relative_to(temporary)
    assert list(temporary.iterdir()) == []


def test_a_launch_that_is_killed_leaves_nothing(
    temporary: Path, weights: Path, tmp_path: Path, own_measuring_lock: None
) -> None:
    with Measurer(weights) as measurer:
        assert measurer.measure(subjects.gpt(), MeasurementProtocol(), seed=3).outcome == "done"
        (own,) = temporary.iterdir()
        server = psutil.Process(measurer._server("onnxruntime").pid)
        assert server.environ()["TMPDIR"] == str(own)
        left = Path(tempfile.mkdtemp(prefix=CHILD, dir=own))
        (left / "sock").touch()
        endless = subjects.endless(tmp_path / "endless.onnx")
        late = measurer.measure(endless, MeasurementProtocol(time_limit_s=2.0), seed=3)
        assert late.reason == "over_time"
        assert not left.exists()
    assert list(temporary.iterdir()) == []
