"""Wrong descriptions at the command line and through the client: one error that names the field, and points at it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from command_line import environment
from running_client import Running
from wrong_descriptions import RIGHT, WRONG, Wrong

from edgefront import cli, exits
from edgefront.core.errors import ArchitectureError, InvalidInput

PATTERNS = [case for case in WRONG if "there is '" in case.words and case.field == "blocks.pattern"]


def complaint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What `edgefront …` says on standard error when it refuses, which is all that it says."""
    monkeypatch.setattr(sys, "argv", ["edgefront", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == exits.REFUSED
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def pointed_at(text: str) -> str:
    """The character above the caret, which stands alone on its line."""
    lines = text.splitlines()
    (at,) = [index for index, line in enumerate(lines) if line.strip() == "^"]
    return lines[at - 1][lines[at].index("^")]


@pytest.mark.parametrize("command", ["describe", "model show", "model build", "measure"])
def test_each_command_names_the_field(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    for case in WRONG:
        file.write_text(json.dumps(case.description), encoding="utf-8")
        said = complaint(capsys, monkeypatch, *command.split(), str(file))
        assert said.startswith("error: "), case.title
        assert case.words in said, case.title
        assert case.field in said, case.title
        assert case.allowed in said, case.title
        assert len(said) < 1000, case.title
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("case", PATTERNS, ids=str)
def test_the_caret_is_below_the_character_in_any_terminal(case: Wrong, tmp_path: Path) -> None:
    """In a narrow one, too, where a long line would break and the caret stand below something else."""
    file = tmp_path / "model.json"
    file.write_text(json.dumps(case.description), encoding="utf-8")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    env = {name: value for name, value in environment(None).items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "edgefront", "describe", str(file)],
        stdout=theirs,
        stderr=theirs,
        env=env | {"TERM": "xterm-256color"},
    ) as running:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    assert running.returncode == exits.REFUSED
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    (wrong,) = re.findall(r"there is '(.)'", text)
    assert pointed_at(text) == (wrong if wrong.isascii() else "?")
    assert max(map(len, text.splitlines()[1:3])) <= 72


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # what Linux says of a terminal whose other end is closed
        return b""


def test_the_client_raises_what_the_server_said(running: Running) -> None:
    for case in WRONG:
        with pytest.raises(ArchitectureError) as caught:
            running.client.describe(case.description)
        assert caught.value.field == case.field, case.title
        assert case.words in caught.value.detail, case.title
        assert case.allowed in caught.value.allowed, case.title
        if case in PATTERNS:
            assert pointed_at(caught.value.detail) in ("s", "q", "(", "?")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object])
def test_values_outside_json_are_not_sent(running: Running, value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent as JSON"):
        running.client.describe({**RIGHT, "d_model": value})
