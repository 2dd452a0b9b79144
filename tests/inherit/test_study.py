"""The study of a model that was really trained: what matters, what cuts cost, and the file that keeps it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import spearmanr
from torch import Tensor
from trained_parent import SETTINGS, TrainedParent, trained_parent

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.model_files.export import write_safetensors
from edgefront.core.model_files.parameter_values import GivenValues
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.quality.stored import to_text
from edgefront.core.training.evaluation.package import CUTS, WEIGHTS, read_package
from edgefront.core.training.pruning.importance import Importance
from edgefront.core.training.pruning.prune import EvaluationText, prune_weights
from edgefront.core.training.pruning.study import (
    PruningStudySettings,
    load_pruned,
    read_pruning_study,
    study_pruning,
    write_pruning_study,
)
from edgefront.core.training.pruning.study_file import read_cut_law
from edgefront.core.training.pruning.submodel import explicit_blocks, random_submodel, submodel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedParent:
    return trained_parent(tmp_path_factory.mktemp("parent"))


@pytest.fixture(scope="module")
def text(trained: TrainedParent) -> EvaluationText:
    return trained.held_out()


def _child(trained: TrainedParent, child: Architecture, importance: Importance | None = None) -> LanguageModel:
    weights = dict(trained.package.model().named_parameters())
    held = prune_weights(weights, child, trained.study.law.table, importance or trained.study.importance)
    model: LanguageModel = load(LanguageModel(child), held)
    return model


def test_important_units_are_worth_more_than_the_others(trained: TrainedParent, text: EvaluationText) -> None:
    of, study = trained.package.architecture, trained.study
    blocks = [
        block.model_copy(update={"d_inner": 48}) if hasattr(block, "d_inner") else block
        for block in explicit_blocks(of)
    ]
    child = submodel(of, blocks, 24)
    turned = replace(
        study.importance, channels=-study.importance.channels, units=tuple(-units for units in study.importance.units)
    )
    assert text.loss(_child(trained, child)) < text.loss(_child(trained, child, turned)) - 0.1


def test_cuts_cost_what_they_cost_on_text_that_the_study_never_saw(
    trained: TrainedParent, text: EvaluationText
) -> None:
    """Most random parts lie within their intervals there, and the order is nearly that of the predictions."""
    law, rng = trained.study.law, np.random.default_rng(77)
    parts = [random_submodel(law.parent, rng) for _ in range(40)]
    whole = text.loss(trained.package.model())
    losses = np.array([text.loss(_child(trained, part)) for part in parts]) - whole
    predicted = law.predict(Shapes.of(parts))
    expected = predicted.log_perplexity - law.parent_log_perplexity
    within = np.abs(losses - expected) <= predicted.half_width
    assert within.mean() >= 0.85
    assert spearmanr(losses, expected).statistic > 0.85


def test_the_file_says_it_again(trained: TrainedParent) -> None:
    folder = trained.package.folder
    study, law = read_pruning_study(folder), read_cut_law(folder)
    assert law is not None
    assert to_text(study.law) == to_text(law) == to_text(trained.study.law)
    for name, tensor in trained.study.importance.tensors().items():
        assert torch.equal(study.importance.tensors()[name], tensor)
    child = random_submodel(law.parent, np.random.default_rng(5))
    held = load_pruned(folder / WEIGHTS, child)
    assert {name: tuple(tensor.shape) for name, tensor in held.items()} == {
        name: tuple(tensor.shape) for name, tensor in _child(trained, child).named_parameters()
    }


def test_an_interrupted_study_resumes_and_finds_the_same(trained: TrainedParent, tmp_path: Path) -> None:
    folder = tmp_path / "interrupted"
    shutil.copytree(trained.package.folder, folder, ignore=shutil.ignore_patterns(CUTS))
    package = read_package(folder)

    def stop(done: float, total: float) -> None:
        if done > 0.6 * total:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        study_pruning(package, trained.data, "counter", SETTINGS, progress=stop)
    begun, shares = list[tuple[float, bool]](), list[float]()
    study = study_pruning(
        *(package, trained.data, "counter", SETTINGS),
        begin=lambda pace, resumes: begun.append((pace, resumes)),
        progress=lambda done, total: shares.append(done / total),
    )
    ((pace, resumes),) = begun
    assert pace > 0
    assert resumes
    assert shares == sorted(shares)
    assert 0.6 < shares[-1] <= 1, "the work is known beforehand"
    assert to_text(study.law) == to_text(trained.study.law)
    study_pruning(package, trained.data, "counter", replace(SETTINGS, seed=1), begin=lambda *said: begun.append(said))
    assert not begun[1][1], "another study starts from the beginning"
    write_pruning_study(study, folder)
    assert {path.name for path in folder.iterdir()} == {path.name for path in trained.package.folder.iterdir()}


def test_a_study_of_other_weights_is_refused(trained: TrainedParent, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(trained.package.folder, folder)
    weights = {name: tensor.detach().numpy() * 2 for name, tensor in trained.package.model().named_parameters()}
    values = GivenValues(weights, {"weights": "trained"})
    write_safetensors(trained.package.architecture, values, folder / WEIGHTS)
    with pytest.raises(InvalidInput, match="is about weights"):
        read_pruning_study(folder)


def test_a_damaged_file_and_none_are_said(trained: TrainedParent, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(trained.package.folder, folder)
    (folder / CUTS).write_bytes((folder / CUTS).read_bytes()[:200])
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_pruning_study(folder)
    shutil.copy(folder / WEIGHTS, folder / CUTS)
    with pytest.raises(InvalidInput, match="not a pruning study"):
        read_cut_law(folder)
    (folder / CUTS).unlink()
    assert read_cut_law(folder) is None
    with pytest.raises(NotFound, match="has no pruning study"):
        read_pruning_study(folder)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("channels", torch.ones(7), r"has channels as F32 \[7\], not F32"),
        ("blocks.0", torch.ones(2, dtype=torch.float64), "has blocks.0 as F64"),
        ("blocks.1", None, "lacks blocks.1"),
        ("energy.final_norm", None, "lacks energy.final_norm"),
        ("channels", torch.nan, "not finite"),
        ("energy.final_norm", -1.0, "below 0"),
    ],
)
def test_importance_of_other_units_is_refused_before_anything_is_cut(
    trained: TrainedParent, tmp_path: Path, name: str, values: Tensor | float | None, said: str
) -> None:
    tensors = trained.study.importance.tensors()
    if values is None:
        del tensors[name]
    else:
        tensors[name] = values if isinstance(values, Tensor) else torch.full_like(tensors[name], values)
    about = {"format": "edgefront-cuts", "weights": trained.study.weights, "law": to_text(trained.study.law)}
    save_file(tensors, tmp_path / CUTS, about)
    with pytest.raises(InvalidInput, match=said):
        read_cut_law(tmp_path)


def test_a_model_that_has_not_learnt_the_text_is_refused_before_anything_is_cut(
    trained: TrainedParent, tmp_path: Path
) -> None:
    folder = tmp_path / "loud"
    shutil.copytree(trained.package.folder, folder)
    weights = {name: tensor.detach().numpy() for name, tensor in trained.package.model().named_parameters()}
    weights["final_norm.weight"] = weights["final_norm.weight"] * 1e4
    write_safetensors(trained.package.architecture, GivenValues(weights, {"weights": "trained"}), folder / WEIGHTS)
    with pytest.raises(InvalidInput, match="has not learnt this text"):
        study_pruning(read_package(folder), trained.data, "loud")


def test_text_of_other_tokens_and_too_little_of_it_are_refused(trained: TrainedParent, tmp_path: Path) -> None:
    text = tmp_path / "other.txt"
    text.write_text("".join(f"row {number} of another text, with other signs!\n" for number in range(400)))
    other = open_prepared(prepare(str(text), tmp_path / "prepared", settings=Preparation(level="characters")).folder)
    with pytest.raises(InvalidInput, match="another tokenizer") as refused:
        study_pruning(trained.package, other, "counter")
    assert refused.value.field == "data"
    with pytest.raises(InvalidInput, match="too few"):
        study_pruning(trained.package, trained.data, "counter", PruningStudySettings(segment=4000))
