"""Example requests and responses of the OpenAPI document, one JSON file each; tests check each against its model."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


def example(name: str) -> Any:
    """Returns the JSON value in the file `name`.json, as a new copy for each caller."""
    return json.loads(_text(name))


@cache
def _text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
