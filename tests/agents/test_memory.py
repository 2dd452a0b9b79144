"""Peak memory against footprints that are known, and launches against each other."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import subjects

from edgefront.agents.device import linux
from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.measuring.memory_probes import DeviceMeter
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.units import MIB
from edgefront.core.measurement.protocol import MeasurementProtocol

ROOT = Path(__file__).parent.parent.parent
RUNTIME = 6 * MIB  # what a runtime holds for itself: 4 to 5 MiB
RUNTIMES = ("onnxruntime", "pytorch")


def weight_bytes(model):
    return 4 * sum(spec.size for spec in parameters(model))


def peak_of(measurer, subject, **protocol):
    result = measurer.measure(subject, MeasurementProtocol(**protocol), seed=3)
    assert result.outcome == "done", result.message
    return result.memory


def test_onnx_input_and_output_of_known_size(measurer, tmp_path):
    """x, and twice x as the output; beside them only the arena's book of its regions grows, by up to a 32nd."""
    peaks = {
        width: peak_of(measurer, subjects.doubled(tmp_path / f"{width}.onnx", width)) for width in (1 << 14, 1 << 15)
    }
    x = 4 * 192 * (1 << 14)
    assert peaks[1 << 15].mapped_weight_bytes == 0
    assert peaks[1 << 15].peak_bytes - peaks[1 << 14].peak_bytes == pytest.approx(3 * x, rel=1 / 32)
    assert peaks[1 << 15].peak_bytes == pytest.approx(6 * x, abs=RUNTIME)


def test_pytorch_maps_its_weights_and_holds_its_logits(measurer):
    """All weights stay mapped from files; the largest activation by far is the logits: 192 × 50264 floats."""
    model = subjects.gpt(layers=2, d_model=128, vocabulary=50264)
    result = measurer.measure(model, MeasurementProtocol(runtime="pytorch", logits="all"), seed=3)
    assert result.outcome == "done", result.message
    assert result.memory.mapped_weight_bytes == pytest.approx(weight_bytes(model), rel=1e-3)
    logits = 4 * 192 * 50264
    assert result.memory.forward_peak_bytes == pytest.approx(logits, abs=RUNTIME)


def test_onnxruntime_packs_its_weights_once_more(measurer):
    """The table stays mapped for the lookup; the linear layers, and the table as output layer, lie packed in memory."""
    model = subjects.gpt(layers=4, d_model=256, vocabulary=20000)
    result = measurer.measure(model, MeasurementProtocol(logits="last"), seed=3)
    assert result.outcome == "done", result.message
    table = 4 * 20000 * 256
    assert result.memory.mapped_weight_bytes == pytest.approx(table, abs=2 * MIB)
    packed = weight_bytes(model) - 4 * 1024 * 256  # all but the positions
    assert result.memory.forward_peak_bytes == pytest.approx(packed, abs=10 * MIB)
    assert result.memory.build_peak_bytes > table


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_new_launches_agree_within_one_percent(measurer, runtime):
    model = subjects.gpt(layers=3, d_model=128, vocabulary=4096)
    protocol = MeasurementProtocol(runtime=runtime, sequence_length=128, logits="all")
    peaks = []
    for _ in range(6):
        result = measurer.measure(model, protocol, seed=3)
        assert result.outcome == "done", result.message
        peaks.append(result.memory.peak_bytes)
    assert statistics.stdev(peaks) / statistics.mean(peaks) < 0.01


def test_resident_counts_what_anonymous_leaves_out(measurer):
    model = subjects.gpt(layers=2, d_model=128, vocabulary=8192)
    anonymous = measurer.measure(model, MeasurementProtocol(runtime="pytorch"), seed=3)
    resident = measurer.measure(model, MeasurementProtocol(runtime="pytorch", memory="resident"), seed=3)
    assert resident.memory.method == "resident"
    assert resident.memory.peak_bytes > anonymous.memory.forward_peak_bytes


def test_a_method_that_is_not_there_is_unsupported(measurer):
    for runtime, method in (("pytorch", "allocator"), ("onnxruntime", "device")):
        protocol = MeasurementProtocol(runtime=runtime, memory=method)
        assert measurer.measure(subjects.gpt(), protocol, seed=3).reason == "unsupported"


def test_both_runtimes_run_the_same_weights_from_the_same_files(weights, measurer):
    model, seed = subjects.gpt(), 29  # a seed of this test's own: its files are not there yet
    held = [sum(path.stat().st_size for path in weights.rglob("*.f32"))]
    for runtime in RUNTIMES:
        assert measurer.measure(model, MeasurementProtocol(runtime=runtime), seed=seed).outcome == "done"
        held.append(sum(path.stat().st_size for path in weights.rglob("*.f32")))
    assert held[0] < held[1] == held[2]


def test_mapped_ranges_count_once(tmp_path):
    import mmap

    path = tmp_path / "weights.f32"
    path.write_bytes(b"\0" * 10_000)
    with path.open("rb") as file:
        first = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        second = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert linux.mapped_bytes((tmp_path,), {}) == 10_000
        assert linux.mapped_bytes((path,), {str(path): 6_000}) == 6_000
        assert linux.mapped_bytes((tmp_path / "elsewhere", tmp_path / "weights"), {}) == 0
        (tmp_path / "link").symlink_to(tmp_path)
        assert linux.mapped_bytes((tmp_path / "link",), {}) == 10_000
        first.close()
        second.close()


def test_the_high_water_mark_is_of_anonymous_memory(tmp_path):
    """A file that is mapped and read meanwhile adds nothing; memory that is allocated and freed does.

    In a process of its own: one that has run many tests may give memory back while this is measured.
    """
    path = tmp_path / "file"
    path.write_bytes(b"\1" * (32 * MIB))
    program = (
        "import mmap, sys\n"
        "import numpy as np\n"
        "from edgefront.agents.measuring.memory_probes import AnonymousMeter\n"
        "meter = AnonymousMeter(())\n"
        "meter.start()\n"
        "meter.built()\n"
        "with open(sys.argv[1], 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:\n"
        "    for _ in range(2):\n"
        "        assert sum(mapped[::4096]) > 0\n"
        f"        np.ones({16 * MIB}, np.uint8).sum()\n"
        "    print(meter.read({}).forward_peak_bytes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert int(done.stdout) == pytest.approx(16 * MIB, abs=2 * MIB)


class FakeGpu:
    """Answers its poller's first question, which it is asked during the build, only when that is over."""

    BUILD, PASSES = 900 * MIB, 100 * MIB

    def __init__(self):
        self.asked, self.is_built, self.is_stored = threading.Event(), threading.Event(), threading.Event()

    def used_bytes(self):
        if threading.current_thread().name != "gpu-memory":
            return self.PASSES if self.asked.is_set() else 0
        if self.asked.is_set():  # asked again: the first answer is stored
            self.is_stored.set()
            return self.PASSES
        self.asked.set()
        assert self.is_built.wait(10)
        return self.BUILD


def test_a_reading_from_before_the_model_was_built_is_none_of_its_passes():
    gpu = FakeGpu()
    meter = DeviceMeter(gpu)
    meter.start()
    assert gpu.asked.wait(10)
    meter.built()
    gpu.is_built.set()
    assert gpu.is_stored.wait(10)
    assert meter.read({}).forward_peak_bytes == FakeGpu.PASSES


def test_a_gpu_that_stops_answering_the_poller_has_no_peak():
    class Gpu:
        ended = threading.Event()

        def used_bytes(self):
            if threading.current_thread().name == "gpu-memory":
                self.ended.set()
                raise OSError("the GPU is lost")
            return 1

    meter = DeviceMeter(Gpu())
    meter.start()
    assert Gpu.ended.wait(10)
    for thread in threading.enumerate():
        if thread.name == "gpu-memory":
            thread.join(10)
    with pytest.raises(OSError, match="the GPU is lost"):
        meter.read({})


def test_an_unusable_cache_folder_is_reported(tmp_path):
    from edgefront.core.common.errors import EdgefrontError

    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises((EdgefrontError, OSError)):
        Measurer(file / "cache")


def test_weights_beside_an_onnx_file_are_counted_as_mapped(measurer, tmp_path):
    """And nothing else that lies in its folder."""
    rows = 1 << 18
    path = subjects.lookup(tmp_path / "lookup.onnx", rows, external=True)
    memory = peak_of(measurer, path)
    assert memory.mapped_weight_bytes == pytest.approx(8 * rows, abs=4096)
    inside = peak_of(measurer, subjects.lookup(tmp_path / "inside.onnx", rows))
    assert inside.mapped_weight_bytes == 0
    assert inside.forward_peak_bytes - memory.forward_peak_bytes == pytest.approx(8 * rows, rel=0.1)
