"""docs/settings.md has every setting with its type and its default, every other variable, and nothing else."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from setting_fields import fields

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `EDGEFRONT_")
]
SETTINGS = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 4}
OTHERS = {row[0].strip("`") for row in ROWS if len(row) == 2}

_TYPES = {str: "text", int: "integer", float: "number", bool: "boolean", Path: "path"} | {
    tuple: "JSON list",
    dict: "JSON object",
}


def kind(field: FieldInfo) -> str:
    """The type of a field and its bounds, as the page writes them."""
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    name = _TYPES[get_origin(annotation) or annotation]
    above = [bound.gt for bound in field.metadata if isinstance(bound, Gt)]
    least = [bound.ge for bound in field.metadata if isinstance(bound, Ge)]
    most = [bound.le for bound in field.metadata if isinstance(bound, Le)]
    if least and most:
        return f"{name}, {least[0]} to {most[0]}"
    bounds = [f"above {bound}" for bound in above] + [f"at least {bound}" for bound in least]
    return ", ".join([name, *bounds, *(f"at most {bound}" for bound in most)])


def test_the_table_has_every_setting_and_no_other() -> None:
    assert list(SETTINGS) == list(fields())


def test_types_and_bounds_are_those_of_the_settings() -> None:
    assert {name: row[0] for name, row in SETTINGS.items()} == {name: kind(field) for name, field in fields().items()}


def test_defaults_are_those_of_the_settings() -> None:
    for name, field in fields().items():
        written = SETTINGS[name][1]
        if field.default in (None, PydanticUndefined, ""):  # what stands for it is said in words
            assert written
            assert not re.fullmatch(r"`\d.*`", written)
        else:
            value = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            assert written == f"`{value}`"


def test_every_setting_has_a_meaning() -> None:
    assert all(row[2].endswith(".") for row in SETTINGS.values())


def test_other_variables_are_those_that_something_reads() -> None:
    files = [ROOT / "docker-compose.yml", *(ROOT / "scripts").glob("*.py")]
    files += [ROOT / "tests" / name for name in ("servers.py", "tools.py")]
    for folder in ("agents", "api", "core", "edgefront", "workers"):
        files += (ROOT / folder).rglob("*.py")
    read = set()
    for file in files:
        text = file.read_text(encoding="utf-8")
        read |= set(re.findall(r"(?:environ\.get\(|environ\[|envvar=|variable=)\"(EDGEFRONT_\w+)\"", text))
        read |= set(re.findall(r"\$\{(EDGEFRONT_\w+)", text))
    assert read - set(SETTINGS) == OTHERS
