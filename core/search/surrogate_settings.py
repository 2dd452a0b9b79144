"""Settings of the search by prediction."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.errors import InvalidInput

MAX_PREDICTED = 1_000_000
"""Predictions of one generation: about a minute, for which a worker's other searches wait."""


class SurrogateSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    initial: Annotated[
        int, Field(ge=3, le=1000, description="Models to learn from first: known ones, then spread-out candidates.")
    ] = 10
    batch: Annotated[int, Field(ge=1, le=1000, description="Candidates of each later generation, audits included.")] = 5
    audit_share: Annotated[
        float, Field(ge=0, le=1, description="Share of the later candidates drawn at random, to check predictions.")
    ] = 0.1
    least_gain: Annotated[
        float,
        Field(ge=0, le=1, description="Ends when a generation can be expected to gain less, as a share of the whole."),
    ] = 0.01
    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations at most, the first included.")] = 100
    population: Annotated[int, Field(ge=16, le=100_000, description="Predicted in each step of the evolution.")] = 4000
    steps: Annotated[int, Field(ge=1, le=1000, description="Of the evolution over predictions.")] = 30

    def check_predictions(self) -> None:
        """Refuses what would take too long; not part of reading them, since stored jobs may hold more."""
        predicted = self.population * self.steps
        if predicted > MAX_PREDICTED:
            raise InvalidInput(
                f"steps {self.steps} times population {self.population} are {predicted:,} predictions for each "
                f"generation, and at most {MAX_PREDICTED:,} are made",
                field="steps",
                value=self.steps,
                allowed=f"at most {MAX_PREDICTED // self.population}, or a smaller population",
            )
