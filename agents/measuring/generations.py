"""A generator as the model of a launch, whose pass is one generation, with what each took."""

from __future__ import annotations

from edgefront.agents.measuring.energy import Energy
from edgefront.agents.measuring.runtimes import Generated, Generator
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import GenerationSamples


class Generations:
    """Passes are generations; a pass takes what the protocol names as its latency."""

    def __init__(self, generator: Generator, protocol: MeasurementProtocol) -> None:
        self._generator, self._protocol = generator, protocol
        self._made: list[Generated] = []
        self.versions, self.starts = generator.versions, generator.starts

    def forward_ms(self) -> float:
        self._generator.let_go()
        made = self._generator.generate()
        self._made.append(made)
        times = {"total": sum(made), "first_token": made.first_ms, "token": self._each(made)}
        return times[self._protocol.latency]

    def let_go(self) -> None:
        self._generator.let_go()

    def finite(self) -> bool:
        return self._generator.finite()

    def samples(self, count: int, energy: Energy) -> GenerationSamples:
        """The last `count` generations, which took this energy together."""
        last, protocol = self._made[-count:], self._protocol
        tokens = count * protocol.new_tokens * protocol.batch
        return GenerationSamples(
            first_token_ms=tuple(made.first_ms for made in last),
            token_ms=tuple(self._each(made) for made in last),
            total_ms=tuple(sum(made) for made in last),
            energy_token_mj=None if energy.joules is None else 1e3 * energy.joules / tokens,
            energy=energy.source,
        )

    def _each(self, made: Generated) -> float:
        return made.further_ms / (self._protocol.new_tokens - 1)
