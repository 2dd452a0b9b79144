"""Wrong descriptions at the command line and through the client: one error that names the field, and points at it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from running_client import Running
from wrong_descriptions import RIGHT, WRONG

from edgefront import cli, exits
from edgefront.core.errors import InvalidInput


def complaint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What `edgefront …` says on standard error when it refuses, which is all that it says."""
    monkeypatch.setattr(sys, "argv", ["edgefront", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == exits.REFUSED
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object])
def test_values_outside_json_are_not_sent(running: Running, value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent as JSON"):
        running.client.catalogue.describe({**RIGHT, "d_model": value})
