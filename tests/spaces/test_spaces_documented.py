"""docs/spaces.md has every space with its size, its genes and its shares, and the narrowings that it shows work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from edgefront.client.requests import parse_narrowing
from edgefront.core.architectures.catalogue import space, spaces
from edgefront.core.architectures.space import SearchSpace

PAGE = (Path(__file__).parents[2] / "docs" / "spaces.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("listed", spaces().values(), ids=lambda listed: listed.name)
def test_each_space_is_listed_with_its_size(listed: SearchSpace) -> None:
    (row,) = [row for row in ROWS if row[0] == f"`{listed.name}`" and len(row) == 4]
    mantissa, exponent = f"{float(listed.size()):.1e}".split("e+")
    rough = f"{mantissa}·10{exponent.translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    assert row[2] in (rough, f"{listed.size():,}")
    last = re.findall(r"1 to (\d+) layers", row[3])
    assert [int(depth) for depth in last] == [len(listed.baselines())] or listed.name == "hybrid"


def test_each_gene_is_listed() -> None:
    documented = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}
    assert {gene.name for listed in spaces().values() for gene in listed.gene_list} <= documented


def test_each_caveat_is_listed() -> None:
    told = {row[0].strip("`") for row in ROWS if len(row) == 2}
    assert told == {name for name, listed in spaces().items() if listed.caveat}


def test_its_narrowings_leave_something() -> None:
    lines = re.findall(r"^edgefront space show (\S+) (.*)$", PAGE, re.MULTILINE)
    assert lines
    for name, options in lines:
        words = [word for word in shlex.split(options) if word != "--narrow"]
        assert 0 < space(name).narrow(parse_narrowing(words)).size() <= space(name).size()
