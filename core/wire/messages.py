"""What all messages have in common: they are frozen, and a request with an unknown field is refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Request(BaseModel):
    """What a person sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(BaseModel):
    """What the service answers. Clients of an older release pass over fields that they do not know."""

    model_config = ConfigDict(frozen=True)
