"""Measures one model on this machine, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.processes.folders import work_folder
from edgefront.core.common.states import WAITS, LaunchOutcome
from edgefront.core.measurement.figures import FIGURES, aggregate_figures, launches_of
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import LaunchResult, PeakMemory
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms
from edgefront.core.training.evaluation.given_model import architecture_of, is_gguf

if TYPE_CHECKING:
    from edgefront.agents.measuring.measure import Measurer


_MIN_LIMIT_S, _MAX_LIMIT_S = 60.0, 3600.0
_SLOW_FLOPS, _SLOW_BYTES = 1e9, 0.5e9
"""Assumed FLOPs and bytes per second of a slow device."""


def find_model(file_or_name: str, runtime: Runtime = "onnxruntime") -> Architecture | Path:
    """Returns the path if `file_or_name` is an ONNX file, or a GGUF file and `runtime` is llama.cpp; otherwise the
    architecture of the named model (`core.training.evaluation.given_model`).
    """
    path = Path(file_or_name)
    is_onnx = path.suffix.lower() == ".onnx" and path.is_file()
    if is_onnx or (runtime == "llamacpp" and is_gguf(file_or_name)):
        return path.resolve()
    return architecture_of(file_or_name)


@dataclass(frozen=True)
class Measured:
    """The completed launches (runs in a fresh process) of one model by one protocol."""

    subject: Architecture | Path
    protocol: MeasurementProtocol
    launches: tuple[LaunchResult, ...]

    def report(self) -> dict[str, Any]:
        """Returns the result as JSON of `edgefront measure --json`; times in ms, memory in bytes."""
        figures = aggregate_figures(self.launches, self.protocol.batch)
        subject = self._subject()
        # The graph of an ONNX file, not the protocol, decides on logits and number formats.
        defaults = {"logits", "dtype", "weights"} if "computes" in subject else None
        return subject | {
            "latency_ms": figures["latency_ms"],
            "latency_half_width_ms": self._half_width(figures["latency_ms"]),
            "latency_p90_ms": figures["latency_p90_ms"],
            **({"generation": self.generation()} if self.protocol.mode == "generate" else {}),
            "memory": self.memory().model_dump(mode="json"),
            "protocol": self.protocol.model_dump(mode="json", exclude=defaults),
            "launches": [launch.model_dump(mode="json") for launch in self.launches],
        }

    def _subject(self) -> dict[str, Any]:
        if isinstance(self.subject, Architecture):
            return {"digest": self.subject.digest}
        from edgefront.agents.measuring.inputs import computed_by
        from edgefront.agents.measuring.measure import read_file

        header = read_file(self.subject, self.protocol)
        described = {"computes": computed_by(self.subject)} if header is None else {"gguf": header.facts}
        return {"file": str(self.subject), **described}

    def bad_conditions(self) -> str | None:
        """Describes bad measuring conditions and the number of launches with them; None if all conditions were good."""
        conditions = [launch.conditions for launch in self.launches if launch.conditions is not None]
        if not conditions:
            return None
        context = f"context {self.protocol.memory_length}: " if self.protocol.mode == "generate" else ""
        return f"{context}{len(conditions)} of {len(self.launches)} launches: {'; '.join(dict.fromkeys(conditions))}"

    def for_card(self) -> dict[str, Any]:
        """Returns the measurement as an entry of a model card."""
        from edgefront.agents.device.nvml import Gpu
        from edgefront.agents.device.probe import processor

        provider = Provider(self.protocol.provider)
        device = Gpu.visible(provider.number).name() if provider.on_nvidia else processor()[0]
        report = self.report()
        return {
            "device": device,
            "protocol": self.protocol.setup,
            "latency_ms": report["latency_ms"],
            "latency_half_width_ms": report["latency_half_width_ms"],
            "peak_bytes": report["memory"]["peak_bytes"],
            "digest": report["digest"],
            "vocab_size": self.subject.embedding.vocab_size if isinstance(self.subject, Architecture) else None,
        }

    def generation(self) -> dict[str, float | str | None]:
        """Returns figures of generations: times with half of their 95 % intervals, tokens/s, and energy per token."""
        figures: dict[str, float | str | None] = {}
        for name, value in aggregate_figures(self.launches, self.protocol.batch).items():
            if FIGURES[name].of_generations:
                figures[name] = value
                if name.endswith("_ms"):
                    figures[name.replace("_ms", "_half_width_ms")] = self._half_width(value)
        last = self.launches[-1].generation
        return figures | {"energy": "" if last is None else last.energy}

    def _half_width(self, time_ms: float | None) -> float | None:
        """Returns half of the 95 % interval of a time, in which another launch will lie, in ms."""
        return None if time_ms is None else half_width_ms(time_ms, launches_of(self.launches), LaunchVariance())

    def memory(self) -> PeakMemory:
        """Returns the peak memory, split by kind, of the launch with the median peak (the kinds add up to the peak)."""
        readings = sorted(
            (launch.memory for launch in self.launches if launch.memory), key=lambda item: item.peak_bytes
        )
        return readings[(len(readings) - 1) // 2]


def time_limit_s(subject: Architecture | Path, protocol: MeasurementProtocol) -> float:
    """Returns the time limit of one launch, which slow devices meet too: `_MIN_LIMIT_S` plus the time of all passes at
    the speeds `_SLOW_FLOPS` and `_SLOW_BYTES`, at most `_MAX_LIMIT_S`.
    """
    passes = protocol.warmup + protocol.repeats
    if isinstance(subject, Path):
        weight_bytes, parameters = _weights_of(subject, protocol)
        # The context of a GGUF file is processed, too.
        flops = 2 * parameters * protocol.batch * (protocol.sequence_length + protocol.memory_length)
    else:
        costs = protocol_costs(subject, protocol)
        flops, weight_bytes = costs.flops, costs.weight_bytes
        if protocol.runtime == "llamacpp" and protocol.mode in ("decode", "generate") and protocol.memory_length:
            # llama.cpp prefills the context, and models with a convolution do so before every generation.
            context = {"mode": "prefill", "memory_length": 0, "sequence_length": protocol.memory_length}
            prefill = {**protocol.model_dump(exclude={"new_tokens", "latency"}), **context}
            flops += protocol_costs(subject, MeasurementProtocol.model_validate(prefill)).flops
    moved_bytes = weight_bytes * max(1, protocol.new_tokens)
    return min(_MAX_LIMIT_S, _MIN_LIMIT_S + passes * (flops / _SLOW_FLOPS + moved_bytes / _SLOW_BYTES))


def _weights_of(file: Path, protocol: MeasurementProtocol) -> tuple[int, int]:
    """Returns the bytes and the number of an ONNX or GGUF file's weights. Raises the errors of `read_file`."""
    from edgefront.agents.measuring.inputs import external_files
    from edgefront.agents.measuring.measure import read_file

    if protocol.runtime == "llamacpp" and (header := read_file(file, protocol)) is not None:
        return header.weight_bytes, header.parameters
    weight_bytes = sum(part.stat().st_size for part in (file, *external_files(file)) if part.is_file())
    return weight_bytes, weight_bytes // 4


def run(
    subject: Architecture | Path,
    protocols: Sequence[MeasurementProtocol],
    *,
    launches: int,
    seed: int,
    note: Callable[[str], None],
) -> Iterator[Measured]:
    """Measures the model by each protocol in `launches` fresh processes, with the same weights. Calls `note` once
    if a launch waits for another measurement on this host.

    Raises `MeasurementError` if a launch fails, with the reason and, for a generation, the context length.
    """
    from edgefront.agents.measuring.measure import Measurer

    with work_folder() as folder, Measurer(folder / "weights", waits=cache(lambda: note(WAITS))) as measurer:
        for protocol in protocols:
            yield Measured(
                subject, protocol, tuple(_launch(measurer, subject, protocol, seed) for _ in range(launches))
            )


def _launch(measurer: Measurer, subject: Architecture | Path, protocol: MeasurementProtocol, seed: int) -> LaunchResult:
    result = measurer.measure(subject, protocol, seed)
    if result.outcome != LaunchOutcome.DONE:
        context = f"context {protocol.memory_length}: " if protocol.mode == "generate" else ""
        raise MeasurementError(
            f"{context}{result.outcome}, {(result.reason or '').replace('_', ' ')}: {result.message}",
            reason=result.reason or "run_error",
        )
    return result
