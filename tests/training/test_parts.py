"""A training of a part of a model begins with that part of its weights, and says what was cut."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from prepared_text import prepared_text, trainer

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.training.evaluation.model_card import model_card
from edgefront.core.training.evaluation.package import read_package
from edgefront.core.training.pruning.study import (
    CUTS,
    PruningStudySettings,
    load_pruned,
    study_pruning,
    write_pruning_study,
)
from edgefront.core.training.pruning.submodel import explicit_blocks, pruning_summary, submodel
from edgefront.core.training.recipes.catalogue import recipe
from edgefront.core.training.run import run
from edgefront.core.training.run_folder import EXIT_DONE, RESULT, SPEC, RunSpec

LAYER = [
    {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"},
    {"kind": "feed_forward", "d_inner": 48, "gated": True, "bias": False},
]
PARENT = Architecture.parse(
    {
        "d_model": 32,
        "embedding": {"vocab_size": 256},
        "blocks": LAYER * 3,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "activation": "silu",
    }
)


def child(parent: Architecture, d_model: int = 24) -> Architecture:
    """Without its second layer, with half of the heads and two thirds of the inner units in what is left."""
    kept = [block for index, block in enumerate(explicit_blocks(parent)) if index not in (2, 3)]
    kept[0] = kept[0].model_copy(update={"n_head": 2, "n_kv_head": 1})
    kept[1] = kept[1].model_copy(update={"d_inner": 32})
    return submodel(parent, kept, d_model)


@pytest.fixture(scope="module")
def parent(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of a parent that has learnt something, with the study of its cuts."""
    folder = tmp_path_factory.mktemp("parent")
    spec = spec_of(data, PARENT, "quick", steps=60, optimizer={"lr": 0.01})
    (folder / SPEC).write_text(spec.model_dump_json())
    assert run(folder, threading.Event()) == EXIT_DONE
    settings = PruningStudySettings(calibration_tokens=256, tokens=256, segment=16, combinations=4)
    package = read_package(folder / RESULT)
    write_pruning_study(study_pruning(package, open_prepared(data), "parent", settings), package.folder)
    return folder / RESULT / "model.safetensors"


def spec_of(data: Path, architecture: Architecture, name: str = "distil", **changes: Any) -> RunSpec:
    small = {"rows": 4, "segment": 16, "schedule": {"warmup": 0}, "evaluation": {"segment": 16, "tokens": 200}}
    return RunSpec(
        architecture=dict(architecture.canonical),
        data=str(data),
        recipe=recipe(name).overridden(small | {"steps": 6} | changes).model_dump(mode="json"),
        threads=1,
    )


def part_spec(data: Path, parent: Path, architecture: Architecture, **changes: Any) -> RunSpec:
    about = {"name": "small", "start": {"training": "trn_p"}, "licence": "apache-2.0"}
    origin = {"training": "trn_p", "name": "big"}
    about |= {"parent": origin | {"licence": "apache-2.0"}, "teacher": origin}
    given = {"start": str(parent), "teacher": str(parent), "inherit": True, "about": about}
    return spec_of(data, architecture, **changes).model_copy(update=given)


def test_it_begins_with_what_it_inherits_and_says_what_was_cut(data: Path, parent: Path, tmp_path: Path) -> None:
    whole = read_package(parent.parent).architecture
    made = trainer(part_spec(data, parent, child(whole)), tmp_path / "run")
    held = load_pruned(parent, child(whole))
    assert all(torch.equal(values, held[name]) for name, values in made.model.named_parameters())
    left = iter(range(2))
    stopped = trainer(part_spec(data, parent, child(whole)), tmp_path / "run", lambda: next(left, None) is None)
    assert stopped.train() == "stopped"
    # The weights are not read again, the teacher is, wherever it lies.
    elsewhere = Path(shutil.copytree(parent.parent, tmp_path / "elsewhere")) / parent.name
    again = part_spec(data, parent, child(whole)).model_copy(
        update={"start": str(tmp_path / "gone.safetensors"), "teacher": str(elsewhere)}
    )
    (tmp_path / "run" / SPEC).write_text(again.model_dump_json())
    assert run(tmp_path / "run", threading.Event()) == EXIT_DONE
    result = json.loads((tmp_path / "run" / RESULT / "result.json").read_text())
    sha256 = hashlib.sha256(parent.read_bytes()).hexdigest()
    origin = {"training": "trn_p", "name": "big", "sha256": sha256, "digest": whole.digest}
    assert result["parent"] == origin | {"licence": "apache-2.0"}
    assert result["teacher"] == origin | {"temperature": 1.0, "share": 1.0}
    assert result["start"] == {"training": "trn_p", "sha256": sha256}
    parameters = result["cut"]["decoder_parameters"]
    assert result["cut"] == {
        "sentence": "attention blocks 3 → 2; feed-forward blocks 3 → 2; heads 4 → 2 to 4; key/value heads 2 → 1 to 2; "
        f"inner width 48 → 32 to 48; width 32 → 24; parameters in blocks {parameters['from']:,} → {parameters['to']:,}",
        "attention_blocks": {"from": 3, "to": 2},
        "feed_forward_blocks": {"from": 3, "to": 2},
        "heads": {"from": [4, 4], "to": [2, 4]},
        "kv_heads": {"from": [2, 2], "to": [1, 2]},
        "d_inner": {"from": [48, 48], "to": [32, 48]},
        "d_model": {"from": 32, "to": 24},
        "decoder_parameters": parameters,
    }
    card = (tmp_path / "run" / RESULT / "README.md").read_text()
    for line in (
        f"| parent | big, trn_p, weights of SHA-256 {sha256} |",
        f"| what was cut of it | {result['cut']['sentence']} |",
        f"| teacher | big, trn_p, weights of SHA-256 {sha256} |",
        f"| tokens trained on since the cut | {result['tokens']} |",
        "apache-2.0, as its parent",
        "license: apache-2.0",
    ):
        assert line in card, line


def test_it_needs_no_teacher(data: Path, parent: Path, tmp_path: Path) -> None:
    whole = read_package(parent.parent).architecture
    spec = part_spec(data, parent, child(whole), distil=None).model_copy(update={"teacher": None})
    assert trainer(spec, tmp_path / "run").progress.cut is not None


def test_what_is_no_part_is_refused_before_anything_is_trained(data: Path, parent: Path, tmp_path: Path) -> None:
    whole = read_package(parent.parent).architecture
    wider = Architecture.parse({**whole.canonical, "blocks": [*LAYER[:1], {**LAYER[1], "d_inner": 64}]})
    unstudied = Path(shutil.copytree(parent.parent, tmp_path / "unstudied")) / parent.name
    (unstudied.parent / CUTS).unlink()
    words = prepared_text(tmp_path, level="words")
    for spec, said in (
        (part_spec(data, parent, wider), "have no such submodel: .*blocks.1"),
        (part_spec(data, unstudied, child(whole)), "cannot be pruned: .*has no pruning study"),
        (part_spec(words, parent, child(whole)), "trained with another tokenizer"),
        (part_spec(data, tmp_path / "none.safetensors", child(whole)), "cannot be read"),
    ):
        given = spec.model_copy(update={"recipe": {**spec.recipe, "distil": None}, "teacher": None})
        with pytest.raises(InvalidInput, match=said) as caught:
            trainer(given, tmp_path / "run")
        assert caught.value.field == "start"


def test_a_part_of_nothing_is_refused(data: Path) -> None:
    given = spec_of(data, PARENT).model_dump()
    with pytest.raises(ValueError, match="inherit needs start"):
        RunSpec.model_validate(given | {"inherit": True})


def test_a_card_names_another_licence_beside_the_parent_s() -> None:
    parts = {"licence": "mit", "parent": {"name": "big", "licence": "apache-2.0"}, "cut": {"sentence": "width 8 → 4"}}
    assert "mit; its parent: apache-2.0\n" in model_card(PARENT, parts)
    assert "since the cut" not in model_card(PARENT, {"tokens": 8})


def test_nothing_cut_is_said_to_be_nothing() -> None:
    assert pruning_summary(PARENT, PARENT) == {"sentence": "nothing", "parent": PARENT.digest}
