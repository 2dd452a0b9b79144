"""What an agent finds out about its runtimes is kept for its next start, until something changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefront.agents.device.probe import runtimes
from edgefront.agents.device.runtimes_file import RuntimesFile
from edgefront.core.measurement.runtimes import not_installed
from edgefront.core.processes.child import python
from edgefront.core.wire.agent import DeviceFacts, RuntimeFacts

pytestmark = pytest.mark.skipif(not_installed("llamacpp") is not None, reason="tests the smallest runtime in a child")

_EVERY_PYTHON = """\
import os, sys
with open(os.environ["STARTED"], "a") as file:
    file.write(" ".join(sys.orig_argv[1:]) + "\\n")
if os.environ.get("CRASHES"):
    import atexit
    atexit.register(os._exit, 3)
"""
_LLAMA = " ".join(python("edgefront.agents.measuring.runtimes.describe", "llamacpp", str(os.getpid()))[1:]) + "\n"


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The command lines of the Python processes that were started since the last call."""
    place, lines = tmp_path / "site", tmp_path / "started"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_EVERY_PYTHON)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("STARTED", str(lines))

    def read() -> str:
        written = lines.read_text() if lines.exists() else ""
        lines.unlink(missing_ok=True)
        return written

    return read


def test_a_second_start_loads_no_runtime(
    facts: DeviceFacts, tmp_path: Path, started: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of real processes; the other runtimes are known from the first start of all, that of the fixture."""
    others = [runtime for runtime in facts.runtimes if runtime.runtime != "llamacpp"]
    RuntimesFile(tmp_path).write(others)
    monkeypatch.setenv("CRASHES", "1")
    kept = RuntimesFile(tmp_path)
    first = runtimes(kept)
    assert started() == _LLAMA
    assert {runtime.runtime for runtime in first} == {runtime.runtime for runtime in facts.runtimes}
    assert set(kept.read()) == {other.runtime for other in others}, "a process that crashed is no complete test"
    monkeypatch.delenv("CRASHES")
    assert runtimes(RuntimesFile(tmp_path)) == facts.runtimes
    assert started() == _LLAMA
    assert runtimes(RuntimesFile(tmp_path)) == facts.runtimes
    assert started() == ""


def test_what_is_kept_holds_until_something_changes(
    facts: DeviceFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    by_name = {runtime.runtime: runtime for runtime in facts.runtimes}
    on_gpu = RuntimeFacts(runtime="pytorch", version="2", providers=("cpu", "cuda"), memory_methods=("resident",))
    file = RuntimesFile(tmp_path)
    assert file.read() == {}
    file.write([*(runtime for runtime in facts.runtimes if runtime.runtime != "pytorch"), on_gpu])
    del by_name["pytorch"]
    assert RuntimesFile(tmp_path).read() == by_name
    assert RuntimesFile(tmp_path, again=True).read() == {}

    package = tmp_path / "new" / "runtime-1.0.dist-info"
    package.mkdir(parents=True)
    monkeypatch.syspath_prepend(package.parent)
    assert RuntimesFile(tmp_path).read() == {}, "a package was installed"
    RuntimesFile(tmp_path).write(by_name.values())
    assert RuntimesFile(tmp_path).read() == by_name
    package.rename(package.with_name("runtime-1.1.dist-info"))
    assert RuntimesFile(tmp_path).read() == {}, "it has another version"
    RuntimesFile(tmp_path).write(by_name.values())
    with monkeypatch.context() as patch:
        patch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
        assert RuntimesFile(tmp_path).read() == {}, "an environment variable turns instructions of the processor off"
    assert RuntimesFile(tmp_path).read() == by_name

    for damaged in ("", "{", "[]", json.dumps({"fingerprint": file.fingerprint}), "\udcff"):
        file.path.write_text(damaged, errors="surrogateescape")
        assert RuntimesFile(tmp_path).read() == {}
    file.path.unlink()
    file.path.mkdir()
    file.write(by_name.values())
    assert "the next start tests the runtimes again" in caplog.text
    assert RuntimesFile(tmp_path).read() == {}
    assert list(tmp_path.glob(".*")) == []
