"""One launch's crash, hang or hunger costs that launch only, and is reported as what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import get_args

import psutil
import pytest
import subjects
from running_agent import ended
from scripted_server import wait_for

from edgefront.agents.measuring import measure
from edgefront.agents.measuring.measure import Aborted, Measurer
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime

ORT = MeasurementProtocol(runtime="onnxruntime", sequence_length=16, repeats=3)
TORCH = ORT.model_copy(update={"runtime": "pytorch"})


def parent_of(measurer: Measurer, runtime: str = "onnxruntime") -> int:
    """The process of the fork server, started now if there is none."""
    return measurer._server(runtime).pid


def children(measurer: Measurer, runtime: str = "onnxruntime") -> list[psutil.Process]:
    return psutil.Process(parent_of(measurer, runtime)).children()


@pytest.mark.parametrize("protocol", [ORT, TORCH], ids=["onnxruntime", "pytorch"])
def test_a_launch_reports_everything(measurer, protocol):
    result = measurer.measure(subjects.gpt(), protocol, seed=3)
    assert result.outcome == "done", result.message
    assert len(result.latency.warmup_ms) == 2
    assert len(result.latency.samples_ms) == 3
    assert result.memory.method == "anonymous"
    assert result.memory.peak_bytes == result.memory.forward_peak_bytes + result.memory.mapped_weight_bytes
    assert 0 < result.build_s < result.wall_s
    assert 0 < result.measuring_s < result.wall_s
    assert {"cores", "python", "minor_faults", protocol.runtime.replace("pytorch", "torch")} <= set(result.environment)


@pytest.mark.parametrize("runtime", get_args(Runtime))
def test_the_warm_parent_has_one_thread_before_and_after_a_launch(measurer, runtime):
    parent = psutil.Process(parent_of(measurer, runtime))
    assert parent.num_threads() == 1
    protocol = MeasurementProtocol(runtime=runtime, sequence_length=16, repeats=3)
    result = measurer.measure(subjects.gpt(), protocol, seed=3)
    assert result.outcome == "done", result.message
    assert {"onnxruntime", "torch", "openvino", "xllamacpp"} & set(result.environment)
    assert parent_of(measurer, runtime) == parent.pid
    assert parent.num_threads() == 1
    assert parent.children() == []


def test_two_threads_work_in_a_fork(measurer):
    if measurer.plan.count < 2:
        result = measurer.measure(subjects.gpt(), ORT.model_copy(update={"threads": 2}), seed=3)
        assert result.reason == "unsupported"
        return
    for protocol in (ORT, TORCH):
        result = measurer.measure(subjects.gpt(), protocol.model_copy(update={"threads": 2}), seed=3)
        assert result.outcome == "done", result.message
        assert len(str(result.environment["cores"]).split(",")) == 2


def test_a_hang_is_over_time(measurer, tmp_path):
    protocol = ORT.model_copy(update={"time_limit_s": 1.0})
    result = measurer.measure(subjects.endless(tmp_path / "endless.onnx"), protocol, seed=0)
    assert (result.outcome, result.reason) == ("infeasible", "over_time")
    assert result.wall_s >= 1.0
    assert children(measurer) == []
    assert measurer.measure(subjects.gpt(), ORT, seed=3).outcome == "done"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_is_a_crash(measurer, tmp_path, number):
    subject = subjects.endless(tmp_path / "endless.onnx")
    results = []
    thread = threading.Thread(target=lambda: results.append(measurer.measure(subject, ORT, seed=0)))
    parent_of(measurer)
    thread.start()
    wait_for(lambda: children(measurer))
    os.kill(children(measurer)[0].pid, number)
    thread.join()
    assert (results[0].outcome, results[0].reason) == ("failed", "crashed")
    assert signal.Signals(number).name in results[0].message
    assert measurer.measure(subjects.gpt(), ORT, seed=3).outcome == "done"


def test_more_than_the_limit_is_out_of_memory_and_harms_no_other(weights, tmp_path):
    big = subjects.doubled(tmp_path / "big.onnx", width=1 << 16)  # 48 MiB in, 96 MiB out
    protocol = MeasurementProtocol(sequence_length=192)
    with Measurer(weights, memory_limit_bytes=100 << 20) as measurer:
        result = measurer.measure(big, protocol, seed=0)
        assert (result.outcome, result.reason) == ("infeasible", "out_of_memory"), result
        assert measurer.measure(subjects.gpt(), ORT, seed=3).outcome == "done"
        assert measurer.measure(subjects.gpt(), TORCH, seed=3).outcome == "done"
        wide = subjects.gpt(layers=1, d_model=512, vocabulary=50264)
        result = measurer.measure(wide, MeasurementProtocol(runtime="pytorch", logits="all", batch=4), seed=3)
        assert (result.outcome, result.reason) == ("infeasible", "out_of_memory"), result
        result = measurer.measure(wide, MeasurementProtocol(logits="all"), seed=3)
        assert (result.outcome, result.reason) == ("infeasible", "out_of_memory"), result


def test_a_model_that_cannot_fit_is_refused_before_it_is_built(measurer):
    giant = subjects.gpt(layers=48, d_model=16384)
    result = measurer.measure(giant, ORT, seed=3)
    assert (result.outcome, result.reason) == ("infeasible", "out_of_memory")
    assert "at least" in result.message
    assert result.wall_s == 0.0


def test_failures_have_their_names(measurer, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    cases = {
        "build_error": broken,
        "run_error": subjects.mismatched(tmp_path / "mismatched.onnx"),
        "not_finite": subjects.not_a_number(tmp_path / "nan.onnx"),
    }
    for reason, path in cases.items():
        result = measurer.measure(path, ORT, seed=0)
        assert (result.outcome, result.reason) == ("failed", reason), result
    unknown = ORT.model_copy(update={"provider": "abacus"})
    for protocol in (unknown, unknown.model_copy(update={"runtime": "pytorch"})):
        result = measurer.measure(subjects.gpt(), protocol, seed=0)
        assert (result.outcome, result.reason) == ("failed", "unsupported"), result
    assert measurer.measure(subjects.gpt(length=8), ORT, seed=0).reason == "build_error"
    crowded = ORT.model_copy(update={"threads": 512})
    assert measurer.measure(subjects.gpt(), crowded, seed=0).reason == "unsupported"


def test_an_abort_ends_the_launch_at_once_and_the_next_one_works(measurer, tmp_path):
    subject = subjects.endless(tmp_path / "endless.onnx")
    raised = []

    def measure() -> None:
        try:
            measurer.measure(subject, ORT, seed=0)
        except Aborted as error:
            raised.append(error)

    parent_of(measurer)
    thread = threading.Thread(target=measure)
    thread.start()
    wait_for(lambda: children(measurer))
    child = children(measurer)[0]
    measurer.abort()
    thread.join()
    assert raised
    wait_for(lambda: ended(child))
    assert measurer.measure(subjects.gpt(), ORT, seed=3).outcome == "done"


AGENT = """
import sys
from pathlib import Path
from edgefront.agents.measuring.measure import Measurer
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime

with Measurer(Path(sys.argv[1])) as measurer:
    print(measurer._server("onnxruntime").pid, flush=True)
    measurer.measure(Path(sys.argv[2]), MeasurementProtocol(sequence_length=16), 0)
"""


@pytest.mark.parametrize("victim", ["agent", "server"])
def test_no_child_outlives_its_parent(weights, tmp_path, victim):
    subject = subjects.endless(tmp_path / "endless.onnx")
    command = [sys.executable, "-c", textwrap.dedent(AGENT), str(weights), str(subject)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as agent:
        assert agent.stdout is not None
        server = psutil.Process(int(agent.stdout.readline()))
        wait_for(server.children)
        child = server.children()[0]
        os.kill(agent.pid if victim == "agent" else server.pid, signal.SIGKILL)
        wait_for(lambda: ended(child))
        wait_for(lambda: ended(server))


def test_launches_of_two_agents_take_turns(weights, tmp_path, monkeypatch):
    """While one holds the host's lock the other waits and says so, and goes on when it is let go."""
    from edgefront.agents.measuring.forkserver import lock_path, only_measurement

    results, waits = [], threading.Event()
    monkeypatch.setattr(measure, "WAIT_S", 0.05)
    with Measurer(weights, waits=waits.set) as measurer:
        thread = threading.Thread(target=lambda: results.append(measurer.measure(subjects.gpt(), ORT, seed=3)))
        with only_measurement(lock_path()):
            server = psutil.Process(parent_of(measurer))
            thread.start()
            assert waits.wait(60)
            assert thread.is_alive()
            assert server.children() == []
        thread.join()
    assert results[0].outcome == "done"


def test_a_spawned_child_measures_the_same(weights, tmp_path):
    """The way of GPUs and of other systems, here on the CPU."""
    from edgefront.agents.measuring.measure import run_spawned
    from edgefront.agents.measuring.runtimes import LaunchRequest
    from edgefront.core.architectures.parameters import parameters
    from edgefront.core.model_files.formats import WeightCache

    model: Architecture = subjects.gpt()
    cache = WeightCache(weights)
    for spec in parameters(model):
        cache.file(spec, 3)
    protocol = ORT.model_copy(update={"memory": "resident"})
    request = LaunchRequest(architecture=model.canonical, protocol=protocol, seed=3, cache=weights)
    begun = []
    result = run_spawned(request, begun.append, tmp_path)
    assert result.outcome == "done", result.message
    assert result.memory.method == "resident"
    assert begun[0].returncode == 0
    late = request.model_copy(update={"protocol": protocol.model_copy(update={"time_limit_s": 0.01})})
    assert run_spawned(late, begun.append, tmp_path).reason == "over_time"
