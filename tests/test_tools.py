"""The step of `make test` that gets the programs of the suite: what it finds, installs, and asks for."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

import tools

STEP = str(Path(__file__).parents[1] / "scripts" / "get_test_tools.py")
# Installs a package by making a program of its name; Postgres's is called otherwise.
APT_GET = """#!{python}
import pathlib, sys
with open("{log}", "a") as log:
    print(*sys.argv[1:], file=log)
if sys.argv[1] == "install":
    for package in set(sys.argv[2:]) & set({has!r}):
        program = pathlib.Path("{folder}", dict(postgresql="initdb", prometheus="promtool").get(package, package))
        program.touch()
        program.chmod(0o755)
"""


def program(folder: Path, name: str, text: str = "") -> Path:
    """An executable file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds all programs on PATH. Postgres and nginx may be there too: they have folders of their own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("EDGEFRONT_TEST_BROWSER", raising=False)
    return tmp_path


def step(monkeypatch: pytest.MonkeyPatch, user: int) -> int:
    """The exit code of the step for this user's id."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    return int(runpy.run_path(STEP)["main"]())


def test_a_tool_is_found_by_any_of_its_names_in_its_folder_and_by_its_variable(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tools.Tool("browser", ("chromium", "chrome"), folder=f"{machine}/lib/*/bin", variable="OTHER_BROWSER")
    assert tool.find() is None
    with pytest.raises(RuntimeError, match=r": apt-get install browser$"):
        tool.path()
    for version in ("14", "15"):
        folder = machine / "lib" / version / "bin"
        folder.mkdir(parents=True)
        newest = program(folder, "chrome")
    assert tool.find() == str(newest)
    on_path = program(machine, "chrome")
    assert tool.path() == str(on_path)
    monkeypatch.setenv("OTHER_BROWSER", "/opt/mine")
    assert tool.find() == "/opt/mine"


def apt_get(machine: Path, has: list[str]) -> Path:
    """Puts an apt-get there that knows these packages; its log."""
    log = machine / "log"
    program(machine, "apt-get", APT_GET.format(python=sys.executable, log=log, has=has, folder=machine))
    return log


def test_root_gets_all_that_is_missing_at_once(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(machine, "curl")
    log = apt_get(machine, [tool.package for tool in tools.TOOLS])
    assert step(monkeypatch, user=0) == 0
    update, install = log.read_text(encoding="utf-8").splitlines()
    assert update.startswith("update ")
    assert install.endswith(" redis-server chromium-headless-shell prometheus")
    assert "redis-server, chromium-headless-shell, prometheus for the tests" in capsys.readouterr().err
    assert step(monkeypatch, user=0) == 0
    assert len(log.read_text(encoding="utf-8").splitlines()) == 2


def test_others_are_told_all_that_is_missing_in_one_line(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(machine, "chromium")
    log = apt_get(machine, [tool.package for tool in tools.TOOLS])
    assert step(monkeypatch, user=1000) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("redis-server curl prometheus")
    assert "On Debian: apt-get install " in line
    assert not log.exists()
