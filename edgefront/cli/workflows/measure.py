"""Measuring one model on this machine, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.processes.folders import work_folder
from edgefront.core.common.states import LaunchOutcome
from edgefront.core.measurement.figures import FIGURES, DoneLaunches, aggregated
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import LaunchResult, PeakMemory
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.measurement.statistics import LaunchVariance, LogLaunches, half_width_ms, p90
from edgefront.core.training.evaluation.given_model import architecture_of, is_gguf

if TYPE_CHECKING:
    from edgefront.agents.measuring.measure import Measurer


_SHORTEST_S, _LONGEST_S = 60.0, 3600.0
_SLOW_FLOPS, _SLOW_BYTES = 1e9, 0.5e9


def find_model(file_or_name: str, runtime: Runtime = "onnxruntime") -> Architecture | Path:
    """An ONNX file as its path, and for llama.cpp a GGUF file; else the architecture of the model
    (`core.training.evaluation.given_model`).
    """
    path = Path(file_or_name)
    if path.suffix.lower() == ".onnx" and path.is_file():
        return path.resolve()
    if runtime == "llamacpp" and is_gguf(file_or_name):
        return path.resolve()
    return architecture_of(file_or_name)


@dataclass(frozen=True)
class Measured:
    """The completed launches of one model."""

    subject: Architecture | Path
    protocol: MeasurementProtocol
    launches: tuple[LaunchResult, ...]

    def report(self) -> dict[str, Any]:
        """What `edgefront measure --json` prints; times in ms, memory in bytes."""
        latencies = [launch.latency for launch in self.launches if launch.latency is not None]
        medians = [median(latency.samples_ms) for latency in latencies]
        middle = median(medians)
        spread = LogLaunches.of(medians)
        variance = LaunchVariance(spread.sum_squares, spread.count - 1)  # nobody else's: there is nothing to clip
        return self._subject() | {
            "latency_ms": middle,
            "latency_half_width_ms": half_width_ms(middle, len(medians), variance),
            "latency_p90_ms": p90([sample for latency in latencies for sample in latency.samples_ms]),
            **({"generation": self.generation()} if self.protocol.mode == "generate" else {}),
            "memory": self._memory().model_dump(mode="json"),
            "protocol": self.protocol.model_dump(mode="json"),
            "launches": [launch.model_dump(mode="json") for launch in self.launches],
        }

    def _subject(self) -> dict[str, Any]:
        if isinstance(self.subject, Architecture):
            return {"digest": self.subject.digest}
        from edgefront.agents.measuring.measure import read_file

        header = read_file(self.subject, self.protocol)
        return {"file": str(self.subject)} | ({} if header is None else {"gguf": header.facts})

    def marked(self) -> str | None:
        """Which launches were measured under bad conditions, and what they were; None if none was."""
        said = [said for launch in self.launches if (said := launch.conditions) is not None]
        if not said:
            return None
        context = f"context {self.protocol.memory_length}: " if self.protocol.mode == "generate" else ""
        return f"{context}{len(said)} of {len(self.launches)} launches: {'; '.join(dict.fromkeys(said))}"

    def for_card(self) -> dict[str, Any]:
        """What a model card says of it."""
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
        """Figures of launches that generated: each time with half its interval, tokens a second, energy a token; the
        medians over launches of their medians.
        """
        figures: dict[str, float | str | None] = {}
        made = [launch.generation for launch in self.launches if launch.generation is not None]
        for name in ("first_token_ms", "token_ms", "total_ms"):
            medians = [median(getattr(generation, name)) for generation in made]
            spread = LogLaunches.of(medians)
            variance = LaunchVariance(spread.sum_squares, spread.count - 1)
            figures[name] = median(medians)
            figures[name.replace("_ms", "_half_width_ms")] = half_width_ms(median(medians), len(medians), variance)
        known = aggregated(DoneLaunches(self.launches, self.protocol.new_tokens * self.protocol.batch))
        others = {name: known[name] for name in known if FIGURES[name].of_generations and name not in figures}
        return figures | others | {"energy": made[-1].energy}

    def _memory(self) -> PeakMemory:
        """The launch with the median peak, so that its parts are consistent."""
        readings = sorted(
            (launch.memory for launch in self.launches if launch.memory), key=lambda item: item.peak_bytes
        )
        return readings[(len(readings) - 1) // 2]


def time_limit_s(subject: Architecture | Path, protocol: MeasurementProtocol) -> float:
    """A limit for one launch that slow devices keep, too: a minute, and what all passes would take at `_SLOW_FLOPS` and
    `_SLOW_BYTES` a second. An hour at most, as the protocol has it.
    """
    passes = protocol.warmup + protocol.repeats
    if isinstance(subject, Path):
        weight_bytes, parameters = _weights_of(subject, protocol)
        # The context of a GGUF file is read, too.
        flops = 2 * parameters * protocol.batch * (protocol.sequence_length + protocol.memory_length)
    else:
        costs = protocol_costs(subject, protocol)
        flops, weight_bytes = costs.flops, costs.weight_bytes
        if protocol.runtime == "llamacpp" and protocol.mode in ("decode", "generate") and protocol.memory_length:
            # Its context is read, and with a convolution before every generation.
            context = {"mode": "prefill", "memory_length": 0, "sequence_length": protocol.memory_length}
            read = {**protocol.model_dump(exclude={"new_tokens", "latency"}), **context}
            flops += protocol_costs(subject, MeasurementProtocol.model_validate(read)).flops
    moved = weight_bytes * max(1, protocol.new_tokens)
    return min(_LONGEST_S, _SHORTEST_S + passes * (flops / _SLOW_FLOPS + moved / _SLOW_BYTES))


def _weights_of(file: Path, protocol: MeasurementProtocol) -> tuple[int, int]:
    """Bytes and number of the weights of an ONNX or GGUF file. Raises as `agents.measuring.measure.read_file`."""
    from edgefront.agents.measuring.inputs import external_files
    from edgefront.agents.measuring.measure import read_file

    if protocol.runtime == "llamacpp" and (header := read_file(file, protocol)) is not None:
        return header.weight_bytes, header.parameters
    weight_bytes = sum(part.stat().st_size for part in (file, *external_files(file)) if part.is_file())
    return weight_bytes, weight_bytes // 4


def run(
    subject: Architecture | Path, protocols: Sequence[MeasurementProtocol], *, launches: int, seed: int
) -> Iterator[Measured]:
    """Measures by each protocol, with the same weights, `launches` times, each in a fresh process. Raises
    `MeasurementError` with the reason, and the context of a generation, where that is not possible on this machine.
    """
    from edgefront.agents.measuring.measure import Measurer

    with work_folder() as folder, Measurer(folder / "weights") as measurer:
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
