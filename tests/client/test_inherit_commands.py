"""`edgefront inherit …` without a server; `find --inherit`, `job submit --inherit` and healing against the service."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import edgefront
from inherited_models import ROTARY, write_parent
from packages import lively
from running_client import BOARD, Running
from simulated_agent import by_size
from trained_parent import ARCHITECTURE

from edgefront.cli import exits
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.trainings import TrainingView
from edgefront.core.training.evaluation.package import CUTS, write_package

pytestmark = pytest.mark.slow

FEW = ("--tokens", "256", "--calibration", "512", "--combinations", "8")
LAYER = [
    {"kind": "attention", "n_head": 4, "n_kv_head": 2, "d_head": 32, "bias": "none"},
    {"kind": "feed_forward", "d_inner": 512, "gated": True, "bias": False},
]
TEXT = "".join(f"{number} and {number + 1} make {2 * number + 1}\n" for number in range(400))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the data sets `counting`, in bytes, and `alphabet`, in characters."""
    home = tmp_path_factory.mktemp("home")
    for name, level in (("counting", "bytes"), ("alphabet", "characters")):
        (home / name).write_text(TEXT)
        prepare(str(home / name), home / "data", settings=Preparation(level=level))  # type: ignore[arg-type]
    return home


@pytest.fixture(scope="module")
def studied(home: Path) -> tuple[Path, dict[str, Any]]:
    """A model of three layers, and what the study of its cuts says as JSON."""
    folder = home / "counter"
    write_package(folder, lively(ARCHITECTURE, spread=0.1), ByteTokenizer(), {"name": "counter", "licence": "mit"})
    done = edgefront("inherit study --data counting --json", str(folder), *FEW, home=home, code=exits.OK)
    return folder, json.loads(done.stdout)


def part(**changes: Any) -> dict[str, Any]:
    """The model without its last layer, and with half of the inner units of its first."""
    attention, feed_forward = ARCHITECTURE["blocks"][:2]  # type: ignore[index]
    blocks = [attention, {**feed_forward, "d_inner": 48}, attention, feed_forward]
    return dict(Architecture.parse({**ARCHITECTURE, "blocks": blocks, **changes}).canonical)


def test_a_study_is_written_and_shown(home: Path, studied: tuple[Path, dict[str, Any]]) -> None:
    folder, study = studied
    assert study["path"] == str(folder / CUTS)
    assert (folder / CUTS).is_file()
    assert (study["data"], study["combinations"]) == ("counting", 8)
    assert [block["kind"] for block in study["blocks"]] == ["attention", "feed_forward"] * 3
    again = edgefront("inherit show --json", str(folder), home=home)
    assert json.loads(again.stdout) == study
    shown = edgefront("inherit show", str(folder), home=home).stdout
    first = next(line for line in shown.splitlines() if line.split()[:2] == ["0", "attention"])
    dropped, half = study["blocks"][0]["dropped"], study["blocks"][0]["narrowed"]["losses"][0]
    assert first.split()[2:4] == [f"{dropped:+.3f}", f"{half:+.3f}"]
    assert f"perplexity is {study['perplexity']:.4g}; 8 random submodels were evaluated" in shown


def test_a_part_is_cut_and_is_a_model_like_any_other(
    home: Path, studied: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "part.json").write_text(json.dumps(part()))
    asked = ("inherit", "cut", str(studied[0]), "--to", str(tmp_path / "part.json"), "--output")
    done = edgefront(*asked, str(tmp_path / "part"), "--json", home=home, code=exits.OK)
    cut = json.loads(done.stdout)
    assert cut["path"] == str(tmp_path / "part")
    assert cut["digest"] == Architecture.parse(part()).digest
    assert "attention blocks 3 → 2" in cut["cut"]["sentence"]
    said = edgefront(*asked, str(tmp_path / "same"), home=home)
    assert said.stdout.splitlines() == [cut["cut"]["sentence"], str(tmp_path / "same")]
    twice = edgefront(*asked, str(tmp_path / "part"), home=home, code=exits.REFUSED)
    assert "exists; choose a folder that does not exist" in twice.stderr
    evaluated = edgefront("evaluate --data counting --json", str(tmp_path / "part"), home=home, code=exits.OK)
    assert json.loads(evaluated.stdout)["digest"] == cut["digest"]
    words = ("--prompt", "1 and", "--tokens", "3", "--json")
    generated = edgefront("generate", str(tmp_path / "part"), *words, home=home, code=exits.OK)
    assert json.loads(generated.stdout)["tokens"] == 3


def test_without_weights_or_a_study_the_command_that_makes_them_is_named(
    home: Path, studied: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    described = tmp_path / "described"
    described.mkdir()
    shutil.copy(studied[0] / "architecture.json", described)
    for folder, command in (
        (described, ("study", "--data", "counting")),
        (described, ("cut", "--to", str(described), "-o", str(tmp_path / "part"))),
        (described / "architecture.json", ("show",)),
        (tmp_path / "nowhere", ("show",)),
    ):
        refused = edgefront("inherit", command[0], str(folder), *command[1:], home=home, code=exits.NOT_FOUND)
        assert f"{folder} is not the folder of a trained model with its weights" in refused.stderr
        assert "edgefront model import MODEL -o FOLDER" in refused.stderr
    folder = tmp_path / "unstudied"
    shutil.copytree(studied[0], folder, ignore=shutil.ignore_patterns(CUTS))
    for command in (("show", str(folder)), ("cut", str(folder), "--to", str(described), "-o", str(tmp_path / "part"))):
        refused = edgefront("inherit", *command, home=home, code=exits.NOT_FOUND)
        assert f"has no pruning study ({CUTS})" in refused.stderr
        assert "edgefront inherit study FOLDER --data DATA" in refused.stderr


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with parts in the space of Llama's blocks, and the study of its cuts."""
    folder = tmp_path_factory.mktemp("searched") / "parent"
    write_parent(folder, lively({"d_model": 192, **ROTARY, "blocks": LAYER * 3}, spread=0.05))
    return folder


@pytest.fixture
def service(running: Running) -> Iterator[Running]:
    yield running
    for training in running.client.trainings.list():
        running.client.trainings.delete(training.id)


def test_limits_in_a_part_of_the_model_out(service: Running, searched: Path, home: Path) -> None:
    whole = Architecture.parse(json.loads((searched / "architecture.json").read_text()))
    latency = by_size()(whole, MeasurementProtocol(), 0).latency
    assert latency is not None
    limit = str(0.9 * latency.samples_ms[0])
    asked = ("--device", f"class={BOARD}", "--model", str(searched), "--inherit", "--candidates", "8")
    done = service.command("find --json", *asked, "--max-latency-ms", limit, code=exits.OK)
    answer = json.loads(done.stdout)
    (parent,) = (item for item in service.client.trainings.list() if item.kind == "import")
    assert service.client.jobs.get(answer["job"]).request.space.inherit == parent.id
    (target,) = answer["targets"]
    view, commands = target["recommendation"], target["commands"]
    assert "a part of my model" in view["sentence"]
    assert "before healing" in view["sentence"]
    best = view["recommended"]["id"]
    assert commands == {
        "download": f"edgefront model download {best} --format architecture -o part.json",
        "cut": "edgefront inherit cut FOLDER --to part.json -o part",
        "train": f"edgefront train submit --candidate {best} --inherit --data noise --watch",
    }
    shown = service.command("job recommend --explain", answer["job"]).stdout
    for words in (view["sentence"], *commands.values()):
        assert words in shown

    # What the answer names works: the part is written, cut, and healed with the whole as its teacher.
    for name in ("download", "cut"):
        words = [str(searched) if word == "FOLDER" else word for word in shlex.split(commands[name])[1:]]
        service.command(*words, cwd=searched.parent, code=exits.OK)
    assert (searched.parent / "part" / "model.safetensors").is_file()
    prepare(str(home / "counting"), service.home / "data", settings=Preparation(level="bytes"))
    heals = shlex.split(commands["train"].removesuffix(" --data noise --watch"))[1:]
    healed = service.command(*heals, "--data", "counting", "--steps", "2", "--json", code=exits.OK)
    training = TrainingView.model_validate(json.loads(healed.stdout)[0])
    assert (training.start, training.inherit, training.candidate_id) == (parent.id, True, best)
    assert training.recipe is not None
    assert training.recipe["name"] == "distil"
    prepare(str(home / "alphabet"), service.home / "data", settings=Preparation(level="characters"))
    other = service.command(*heals, "--data", "alphabet", code=exits.REFUSED)
    assert "`edgefront data prepare NAME --level bytes`" in other.stderr


def test_a_job_takes_the_parts_of_a_model_that_is_imported_already(service: Running, searched: Path) -> None:
    parent = service.client.trainings.import_model(str(searched))
    asked = ("job", "submit", "--target", f"{service.board}:onnxruntime:1", "--candidates", "2", "--inherit", "--json")
    for model in (str(searched), parent.id):
        made = service.command(*asked, "--model", model, code=exits.OK)
        job = json.loads(made.stdout)
        assert job["request"]["space"]["inherit"] == parent.id
        service.client.jobs.cancel(job["id"])


def test_what_cannot_be_inherited_is_refused_before_anything_is_submitted(
    service: Running, searched: Path, tmp_path: Path
) -> None:
    unstudied = tmp_path / "unstudied"
    shutil.copytree(searched, unstudied, ignore=shutil.ignore_patterns(CUTS))
    before = [job.id for job in service.client.jobs.list()]
    for options, words in (
        ((), "--inherit searches the submodels of a model: name it"),
        (("--model", str(unstudied)), f"{unstudied} has no {CUTS}"),
        (("--model", "trn_none"), "trn_none"),
        (("--published",), "--inherit is of a search for architectures"),
        (("--model", str(searched), "--published"), "--model is of a search for architectures"),
    ):
        asked = ("find", "--device", f"class={BOARD}", "--max-latency-ms", "5", "--inherit", *options)
        refused = service.command(*asked)
        assert refused.returncode in (exits.REFUSED, exits.NOT_FOUND), refused.stdout
        assert words in refused.stderr
    assert [job.id for job in service.client.jobs.list()] == before
