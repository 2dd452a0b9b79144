"""What an agent says of its device: cores, processor, memory, runtimes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, get_args

from edgefront.agents.device.cores import CorePlan
from edgefront.agents.device.nvml import Gpu
from edgefront.agents.device.probe import as_name, default_class, processor
from edgefront.agents.measuring.child import gpu_environment
from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.measuring.runtimes import describe
from edgefront.core.common.number_formats import GgufQuantisation
from edgefront.core.common.processes.gpus import parse_gpus
from edgefront.core.common.processes.limits import available_memory_bytes, total_memory_bytes
from edgefront.core.measurement.runtimes import Runtime, not_installed
from edgefront.core.schemas.agent import DeviceFacts, EnrolRequest, RuntimeFacts
from edgefront.core.services.measuring import anchors

RASPBERRY_PI_4 = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

processor\t: 1
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU part\t: 0xd08
"""
BIG_LITTLE = "\n".join(
    f"processor : {number}\nCPU implementer : 0x41\nCPU part : {part}\nFeatures : fp asimddp\n"
    for number, part in enumerate(["0xd05"] * 4 + ["0xd0b"] * 4)
)
X86 = "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i7-1185G7 CPU @ 3.00GHz\nflags\t\t: fpu avx2 avx512_vnni\n"

FORMATS = {
    "onnxruntime": {"float32", "int8", "int4"},
    "pytorch": {"float32", "int8"},
    "openvino": {"float32"},
    "llamacpp": {"float32", "float16", *get_args(GgufQuantisation)},
}
"""What every processor computes in, by runtime."""


def test_processors_by_name():
    assert processor(RASPBERRY_PI_4, "Raspberry Pi 4 Model B Rev 1.4") == (
        "Raspberry Pi 4 Model B Rev 1.4 (2x Cortex-A72)",
        ("asimd", "cpuid", "crc32", "evtstrm", "fp"),
    )
    assert processor(BIG_LITTLE) == ("4x Cortex-A55 + 4x Cortex-A76", ("asimddp", "fp"))
    assert processor(X86) == ("Intel Core i7-1185G7", ("avx2", "avx512_vnni", "fpu"))
    assert processor("CPU implementer : 0x99\nCPU part : 0x123\n")[0] == "1x ARM 0x99/0x123"
    assert processor("")[0]


def test_gpus_from_the_drivers_tool():
    row = "0, NVIDIA H100 80GB HBM3, GPU-1, 81559, 550.54, 9.0\n1, Tegra, GPU-2, [N/A], 1, 8.7\nbroken\n"
    first, second = parse_gpus(row)
    assert first.memory_bytes == 81559 << 20
    assert second.memory_bytes is None


# NVIDIA's management library of a GPU that knows its clocks and temperature, but not its power (error 3).
DRIVER = SimpleNamespace(
    nvmlDeviceGetClockInfo=lambda _handle, kind, answer: _answer(answer, {1: 1410, 2: 1593}[kind]),
    nvmlDeviceGetTemperature=lambda _handle, _sensor, answer: _answer(answer, 54),
    nvmlDeviceGetPowerUsage=lambda _handle, _answer: 3,
    nvmlDeviceGetCurrentClocksThrottleReasons=lambda _handle, answer: _answer(answer, 0x44),
)


def _answer(reference: Any, value: int) -> int:
    reference._obj.value = value
    return 0


def test_a_gpu_reports_its_clocks_and_temperature_where_it_can() -> None:
    assert Gpu(DRIVER, ctypes.c_void_p()).facts() == {
        "gpu_clock_mhz": 1410,
        "gpu_memory_clock_mhz": 1593,
        "gpu_temperature_c": 54,
        "gpu_throttled": "0x44",
    }
    assert gpu_environment("cpu") == {}


def test_memory_is_what_a_launch_could_get():
    assert 0 < available_memory_bytes() <= total_memory_bytes()


def test_control_groups_bound_the_memory(tmp_path, monkeypatch):
    """A container's limits, as files of both versions of control groups show them."""
    from edgefront.core.common.processes import limits

    v2 = tmp_path / "v2"
    v2.mkdir()
    (v2 / "memory.max").write_text("1000000\n")
    (v2 / "memory.current").write_text("600000\n")
    (v2 / "memory.stat").write_text("anon 1\nfile 200000\n")
    assert limits._limit_and_use(v2) == (1000000, 400000)
    v1 = tmp_path / "v1"
    v1.mkdir()
    (v1 / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (v1 / "memory.usage_in_bytes").write_text("5\n")
    assert limits._limit_and_use(v1) is None


def test_probe_reports_working_runtimes_and_loads_none(facts):
    code = (
        "import sys; from edgefront.agents.device.probe import try_runtime\n"
        "assert try_runtime('llamacpp') is not None\n"
        "assert not {'torch', 'onnxruntime', 'openvino', 'xllamacpp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    by_name = {runtime.runtime: runtime for runtime in facts.runtimes}
    assert set(by_name) == {runtime for runtime in get_args(Runtime) if not_installed(runtime) is None}
    assert {"onnxruntime", "pytorch"} <= set(by_name)
    for runtime in facts.runtimes:
        assert "cpu" in runtime.providers
        assert "anonymous" in runtime.memory_methods
        assert FORMATS[runtime.runtime] <= set(runtime.numbers["cpu"])
    assert {"bfloat16", "float16"} <= set(by_name["pytorch"].numbers["cpu"])
    assert facts.cores == CorePlan.of_device().count
    EnrolRequest(name=as_name(facts.hostname), device_class=default_class(facts), facts=facts)


def test_a_gpu_or_npu_is_offered_in_the_formats_that_passed_there(monkeypatch, capsys):
    """This machine has neither; the processor and NVIDIA's GPUs have float32 whatever a test on a full one says."""
    passed = {"cpu": {"float32", "int4"}, "gpu": {"float16"}, "npu": set(), "cuda": set()}
    described = {"version": "1", "providers": ["cpu", "cuda", "gpu", "npu"], "memory_methods": ["resident"]}
    monkeypatch.setattr(describe, "library", lambda _: SimpleNamespace(facts=lambda: dict(described)))
    monkeypatch.setattr(describe, "computes_in", lambda number, _, provider: number in passed[provider])
    describe.main("onnxruntime")
    first, *_, last = (RuntimeFacts.model_validate_json(line) for line in capsys.readouterr().out.strip().splitlines())
    assert first.providers == ("cpu", "cuda")
    assert last.providers == ("cpu", "cuda", "gpu")
    assert last.numbers == {"cpu": ("float32", "int4"), "cuda": ("float32",), "gpu": ("float16",)}


def test_names_fit_the_wire():
    assert as_name("Jetson™ Orin\n<nano>") == "Jetson Orin nano"
    assert as_name("™") == "device"


def test_every_runtime_here_measures_the_anchor(facts: DeviceFacts, measurer: Measurer) -> None:
    for runtime in facts.runtimes:
        protocol = anchors.protocols_for(facts.model_copy(update={"runtimes": (runtime,)}).model_dump())["cpu"]
        assert protocol.runtime == runtime.runtime
        result = measurer.measure(anchors.ARCHITECTURE, protocol, anchors.SEED)
        assert result.outcome == "done", result.message
