"""Lists in responses."""

from __future__ import annotations

import json
from typing import TypeVar

import httpx
from pydantic import BaseModel

View = TypeVar("View", bound=BaseModel)


def views(view: type[View], response: httpx.Response) -> list[View]:
    """The items of a response that is a list, or a page (`items`)."""
    value = json.loads(response.content)
    items = value["items"] if isinstance(value, dict) else value
    return [view.model_validate(item) for item in items]
