"""The walks through the code (docs/walks.md) name files and functions that are there, leave none out, and are short."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/walks.md").read_text(encoding="utf-8")
MOST = {"A launch": 42, "A request": 24}
"""Files of a walk at most."""
ROW = re.compile(r"\| (\d+) `([\w./-]+)` \| `([\w.]+)` \|")


class Step(NamedTuple):
    number: int
    path: str
    function: str
    begins: bool
    """Whether a process, a request or a message begins here."""


def walk(title: str) -> list[Step]:
    section = next(part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE) if part.startswith(title))
    rows = section.split("| --- | --- | --- |\n")[1].splitlines()
    return [
        Step(int(found[1]), found[2], found[3], before.startswith("| **"))
        for before, row in pairwise(rows)
        if (found := ROW.match(row)) is not None
    ]


def imports(importer: str, imported: str) -> bool:
    text = (ROOT / importer).read_text(encoding="utf-8")
    if imported.endswith(".js"):
        return re.search(rf'from "[^"]*/{re.escape(Path(imported).name)}"', text) is not None
    package, _, name = imported.removesuffix(".py").removesuffix("/__init__").replace("/", ".").rpartition(".")
    whole, part = (
        rf"from edgefront\.{re.escape(package)}\.{name} import",
        rf"from edgefront\.{re.escape(package)} import ",
    )
    parts = re.findall(part + r"(\([^)]*\)|.*)", text)
    return re.search(whole, text) is not None or any(re.search(rf"\b{name}\b", names) for names in parts)


@pytest.mark.parametrize("title", MOST)
def test_a_walk_names_what_is_there(title: str) -> None:
    for step in walk(title):
        text = (ROOT / step.path).read_text(encoding="utf-8")
        for name in step.function.split("."):
            assert re.search(rf"\b(?:def|class|function) {name}\b", text), f"{step.path} has no {name}"


@pytest.mark.parametrize("title", MOST)
def test_a_walk_leaves_no_file_out(title: str) -> None:
    passed: list[str] = []
    for step in walk(title):
        is_passed = step.path in passed
        assert step.begins or is_passed or any(imports(earlier, step.path) for earlier in passed), step.path
        passed.append(step.path)


@pytest.mark.parametrize("title", MOST)
def test_a_walk_is_short_and_counted(title: str) -> None:
    numbers: dict[str, int] = {}
    for step in walk(title):
        assert numbers.setdefault(step.path, len(numbers) + 1) == step.number, step.path
    assert len(numbers) <= MOST[title]
    assert re.search(rf"^\| \[{title.lower()}[^|]*\| {len(numbers)} \|$", TEXT, re.MULTILINE), len(numbers)


def test_a_launch_has_few_forms() -> None:
    forms = re.findall(r"^\| `(\w+)` \| `([\w./]+)` \|", TEXT, re.MULTILINE)
    assert 0 < len(forms) <= 11
    for name, path in forms:
        assert re.search(rf"^class {name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name
