"""A model is given in the same ways to every command that takes one: a table of commands and ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from imported import imported, shipped
from typer.testing import CliRunner, Result

from edgefront.cli.main import app
from edgefront.cli.workflows.measure import find_model
from edgefront.client.requests import space_request
from edgefront.core.architectures.architecture import Architecture

WAYS = ("name", "description", "config.json", "config of another name", "hugging face folder", "folder", "gguf")
WITHOUT_WEIGHTS = ("name", "description", "config of another name")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same model in each way, but for the name, which is of another."""
    base = tmp_path_factory.mktemp("models")
    package = imported("smollm2", base)
    gguf, hugging_face = shipped(package, base)
    (base / "mine.json").write_text(json.dumps(package.architecture.canonical))
    (base / "apart").mkdir()
    (base / "apart" / "llama.json").write_text((hugging_face / "config.json").read_text())
    paths = (base / "mine.json", hugging_face / "config.json", base / "apart" / "llama.json", hugging_face)
    return dict(zip(WAYS, ("gpt2-small", *map(str, (*paths, package.folder, gguf))), strict=True))


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def told(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def built(model: str, folder: Path) -> str:
    words = ("model", "build", model, "--format", "architecture", "-o", str(folder / "built.json"), "--force")
    return str(told(*words)["digest"])


def around(model: str, _: Path) -> str:
    """What `job submit --model` and `find --model` send."""
    return Architecture.parse(space_request("lts-gpt2", {}, model)["model"]).digest


def measured(model: str, _: Path) -> str:
    architecture = find_model(model)
    assert isinstance(architecture, Architecture)
    of_llama_cpp = find_model(model, "llamacpp")
    assert isinstance(of_llama_cpp, Path) == model.endswith(".gguf")  # which it runs as it is
    return architecture.digest


DESCRIBED: dict[str, Callable[[str, Path], str]] = {
    "describe": lambda model, _: str(told("describe", model)["digest"]),
    "model show": lambda model, _: str(told("model", "show", model)["digest"]),
    "model build": built,
    "job submit, find": around,
    "measure": measured,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", DESCRIBED)
def test_every_command_takes_a_model_in_every_way(
    places: dict[str, str], tmp_path: Path, command: str, way: str
) -> None:
    expected = places["name"] if way == "name" else places["description"]
    assert DESCRIBED[command](places[way], tmp_path) == told("describe", expected)["digest"]


TAKING = (
    ("describe",),
    ("model", "show"),
    ("model", "build"),
    ("measure",),
    ("predict",),
    ("proxy", "score"),
    ("quality", "predict"),
    ("generate",),
    ("evaluate", "--data", "none"),
    ("finetune", "--train", "a.tsv", "--test", "b.tsv"),
    ("job", "submit", "--target", "local", "--model"),
    ("find", "--device", "local", "--max-latency-ms", "9", "--model"),
    ("train", "submit", "--architecture"),
)


@pytest.mark.parametrize("command", TAKING, ids=" ".join)
def test_what_is_no_model_is_said_alike_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("EDGEFRONT_HOME", str(tmp_path))
    (tmp_path / "empty").mkdir()
    for model, said in (
        ("gpt3", "neither a file nor a named model"),
        (str(tmp_path / "empty"), "not a model folder"),
    ):
        done = run(*command, model)
        assert done.exit_code != 0
        assert said in " ".join(str(done.exception or done.output).split()), (done.output, done.exception)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_those_that_need_weights_take_every_way_that_has_them(places: dict[str, str], way: str) -> None:
    words = ("generate", places[way], "--prompt", "the end", "--temperature", "0", "--tokens", "6", "--no-chat")
    if way in WITHOUT_WEIGHTS:
        done = run(*words)
        assert done.exit_code != 0
        assert "has no weights: give the folder" in str(done.exception)
    else:
        assert told(*words)["text"] == told("generate", places["folder"], *words[2:])["text"]
