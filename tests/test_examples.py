"""The examples of property tests: the same in every run of the suite, others for each seed of `make fuzz`."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

FUZZ = Path(__file__).parents[1] / "scripts" / "fuzz.py"

PROFILE = """
from hypothesis import settings

settings.register_profile("fuzz", database=None)
"""
FAILING = """
from hypothesis import Phase, given, settings, strategies as st

@settings(phases=[Phase.generate])  # shrunk, it would be the same from every seed
@given(st.integers(0, 1 << 60))
def test_never_large_and_odd(number):
    assert number < 1000 or number % 2 == 0
"""


def examples() -> list[int]:
    drawn: list[int] = []

    @given(st.integers())
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    return drawn


def test_examples_depend_on_nothing_that_ran_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = examples()
    (tmp_path / "imported_later.py").write_text(f"CONSTANTS = {list(range(10**9, 10**9 + 300))}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, importlib.import_module("imported_later").__name__)
    monkeypatch.setitem(sys.modules, "imported_later", importlib.import_module("imported_later"))
    assert examples() == before


def fuzz(folder: Path, test: str, *arguments: str) -> tuple[int, str]:
    """The exit code, and what it prints."""
    (folder / "conftest.py").write_text(PROFILE, encoding="utf-8")
    (folder / "test_number.py").write_text(test, encoding="utf-8")
    command = [sys.executable, FUZZ, *arguments, "-n", "0", "-c", "/dev/null", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


@pytest.mark.long
def test_a_search_says_the_seed_and_the_example_and_repeats_them(tmp_path: Path) -> None:
    """A failing round ends it, though it has an hour."""
    code, said = fuzz(tmp_path, FAILING, "--minutes", "60")
    assert code == 1
    [seed] = re.findall(r"^== seed (\d+)$", said, re.MULTILINE)
    assert f"make fuzz SEED={seed} " in said
    [example] = re.findall(r"^number = \d+$", said, re.MULTILINE)
    code, again = fuzz(tmp_path, FAILING, "--seed", seed)
    assert code == 1
    assert example in again


@pytest.mark.long
def test_a_search_that_finds_nothing_ends_well(tmp_path: Path) -> None:
    code, said = fuzz(tmp_path, FAILING.replace("number < 1000 or", "number >= 0 or"), "--minutes", "0")
    assert code == 0
    assert "Nothing found in 1 round." in said
