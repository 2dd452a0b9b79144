"""CHANGELOG.md: its newest version is that of the package."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import tomli

ROOT = Path(__file__).parents[2]
TITLES = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_newest_version_is_that_of_the_package() -> None:
    unreleased, newest, *_ = TITLES
    assert unreleased == "[Unreleased]"
    version = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert newest.startswith(f"[{version}] - ")


def test_every_version_has_its_date_the_newest_first() -> None:
    dates = [date.fromisoformat(title.partition("] - ")[2]) for title in TITLES[1:]]
    assert dates == sorted(dates, reverse=True)
