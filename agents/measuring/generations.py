"""A generator as the model of a launch, whose pass is one generation, with what each took."""

from __future__ import annotations

from contextlib import nullcontext

from edgefront.agents.measuring.energy import EnergyMeter
from edgefront.agents.measuring.runtimes import Generated, Generator
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import GenerationSamples


class Generations:
    """Passes are generations; a pass takes what the protocol names as its latency."""

    def __init__(self, generator: Generator, protocol: MeasurementProtocol) -> None:
        self._generator, self._protocol = generator, protocol
        self._made: list[Generated] = []
        self._meter: EnergyMeter | None = None
        self.versions, self.starts = generator.versions, generator.starts

    def begin(self, meter: EnergyMeter) -> None:
        """Forgets the generations so far: `samples` are of those after this, whose energy the meter counts."""
        self._made.clear()
        self._meter = meter

    def forward_ms(self) -> float:
        self._generator.release()
        self._generator.prepare()
        with self._meter or nullcontext():
            made = self._generator.generate()
        self._made.append(made)
        times = {"total": sum(made), "first_token": made.first_ms, "token": self._each(made)}
        return times[self._protocol.latency]

    def release(self) -> None:
        self._generator.release()

    def finite(self) -> bool:
        return self._generator.finite()

    def samples(self) -> GenerationSamples:
        """The generations since `begin`, and the energy of each of their tokens."""
        assert self._meter is not None
        made, energy = self._made, self._meter.read()
        tokens = len(made) * self._protocol.new_tokens * self._protocol.batch
        return GenerationSamples(
            first_token_ms=tuple(generated.first_ms for generated in made),
            token_ms=tuple(self._each(generated) for generated in made),
            total_ms=tuple(sum(generated) for generated in made),
            energy_token_mj=None if energy.joules is None else 1e3 * energy.joules / tokens,
            energy=energy.source,
        )

    def _each(self, made: Generated) -> float:
        return made.further_ms / (self._protocol.new_tokens - 1)
