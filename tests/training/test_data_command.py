"""`edgefront data` as people and as scripts use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefront.cli.commands.data import app
from edgefront.core.common.errors import InvalidInput, NotFound


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEFRONT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "home"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "poem.txt"
    path.write_text("so much depends upon\na red wheel barrow\n" * 50)
    return path


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_prepare_show_and_list(text: Path, home: Path) -> None:
    made = json.loads(run("prepare", str(text), "--level", "words", "--unit", "line", "--json"))
    assert Path(made["folder"]).parent == home / "data"
    assert made["level"] == "words"
    assert made["splits"]["train"]["tokens"] == made["splits"]["train"]["words"]
    assert made["settings"] == {"level": "words", "unit": "line"}
    assert [original["name"] for original in made["originals"]] == ["poem.txt"]
    assert json.loads(run("show", "poem.txt", "--verify", "--json")) == made
    shown = run("show", made["digest"][:10])
    assert "poem.txt" in shown
    assert "words" in shown
    assert made["folder"] in shown
    listed = json.loads(run("list", "--json"))
    assert listed["prepared"] == [made]
    assert "enwik8" in [data_set["name"] for data_set in listed["data_sets"]]
    assert made["digest"][:12] in run("list")
    (Path(made["folder"]) / "train.tokens").unlink()
    assert "train.tokens is missing" in json.loads(run("list", "--json"))["prepared"][0]["damaged"]
    assert "damaged" in run("list")


def test_prepare_in_another_folder_and_with_a_translation(text: Path, tmp_path: Path) -> None:
    target = tmp_path / "gedicht.txt"
    target.write_text("so viel hängt ab\nvon einer roten karre\n" * 50)
    arguments = ("--target", str(target), "--vocab-size", "300", "--home", str(tmp_path / "there"), "--json")
    made = json.loads(run("prepare", str(text), *arguments))
    assert Path(made["folder"]).parent == tmp_path / "there"
    assert made["source_vocab_size"]


def test_what_is_wrong_is_an_error(text: Path) -> None:
    with pytest.raises(InvalidInput, match="level"):
        run("prepare", str(text), "--level", "syllables")
    with pytest.raises(NotFound, match="neither a data set nor a file or folder"):
        run("prepare", "nowhere.txt")
