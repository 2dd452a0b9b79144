"""Examples of requests and answers in the OpenAPI document, one JSON file each; tests hold them to the models."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


def example(name: str) -> Any:
    """The JSON value in the file `name`.json, a copy of its own for each caller."""
    return json.loads(_text(name))


@cache
def _text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
