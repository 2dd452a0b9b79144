"""What a score depends on besides architecture and seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from edgefront.core.canonical import digest
from edgefront.core.validation import checked


class ProxySettings(BaseModel):
    """The batch that a model is scored on, and how long `partial_training` trains.

    One batch of 16 sequences of 192 tokens is LTS's (arXiv 2203.02094, WikiText-103; 32 tokens for LM1B).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Annotated[StrictInt, Field(ge=1, le=1024)] = 16
    length: Annotated[StrictInt, Field(ge=2, le=4096)] = 192
    """Tokens of a sequence."""
    data: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Name of a prepared data set whose first batch is taken; None: tokens drawn at random by the seed."""
    steps: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 500
    """Only `partial_training` uses it; 500 of 40,000 is LTS's shortest (Table 1)."""
    recipe: Annotated[str, Field(min_length=1, max_length=64)] = "quick"
    """Only `partial_training` uses it."""
    law: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Only `quality_law` uses it. It names a shipped law, or in a job a law that the owner's trainings have
    taught; None stands for the law of the model's family."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> ProxySettings:
        """Settings from their JSON form; `InvalidInput` names the first field that is wrong."""
        return checked(cls, value)

    @property
    def digest(self) -> str:
        """SHA-256 of all settings: scores under different settings are different scores."""
        # `law` came later: settings without it keep the digest that stored scores have.
        return digest(self.model_dump(mode="json", exclude={"law"} if self.law is None else None))
