"""The loss beside a teacher is Hinton's formula, whatever is in memory at once; such a training resumes as any does."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from forked_runs import Start
from loop_runs import assert_nearly_the_same, assert_same_end, losses
from prepared_text import ALONE, after, prepared_text, trainer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import servers
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.nn.dropout import Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load_safetensors
from edgefront.core.training import distillation
from edgefront.core.training.checkpoint import read_model
from edgefront.core.training.distillation import Teacher, distillation_loss
from edgefront.core.training.parametrisation import initialise
from edgefront.core.training.recipes.catalogue import recipe
from edgefront.core.training.recipes.recipe import Distil, Recipe, check_task
from edgefront.core.training.run import run
from edgefront.core.training.run_folder import CHECKPOINTS, EXIT_DONE, LOG, METRICS, RESULT, SPEC, RunSpec, read_metrics
from edgefront.core.training.step import rows_of

TOKENS = 60
LAYER = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 32}]
DECODER: dict[str, Any] = {"d_model": 16, "embedding": {"vocab_size": TOKENS}, "blocks": LAYER * 2}
STUDENTS: dict[str, dict[str, Any]] = {
    "tied": DECODER,
    "biased and untied": DECODER | {"output": {"tied": False, "bias": True}},
    "projected": DECODER | {"embedding": {"vocab_size": TOKENS, "d_embed": 8}},
}
TEACHERS: dict[str, dict[str, Any]] = {
    "wider": DECODER | {"d_model": 24, "blocks": LAYER * 3},
    "padded": DECODER | {"embedding": {"vocab_size": TOKENS + 4}},
    "adaptive": DECODER | {"embedding": {"vocab_size": TOKENS, "cutoffs": [20, 40], "div": 2}},
}
RECIPE: dict[str, Any] = {
    "name": "test",
    "order": "shuffled",
    "steps": 8,
    "rows": 4,
    "segment": 16,
    "optimizer": {"lr": 0.003},
    "schedule": {"warmup": 2},
    "clip": 1.0,
    "checkpoint_every": 3,
    "evaluation": {"segment": 16, "rows": 4, "tokens": 200, "every": 5},
    "distil": {"temperature": 2.0, "share": 0.75},
}


def a_model(described: dict[str, Any], seed: int) -> LanguageModel:
    """In float64, with lively weights, so that its probabilities are far from uniform."""
    made = initialise(LanguageModel(Architecture.parse(described)), "bert", seed)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng) * 0.2)
    return made.double()


def batch() -> tuple[Tensor, Tensor]:
    """Tokens, and targets of which a fourth is ignored."""
    rng = torch.Generator().manual_seed(3)
    tokens, targets = (torch.randint(TOKENS, (3, 8), generator=rng) for _ in range(2))
    targets[torch.rand(targets.shape, generator=rng) < 0.25] = -100
    return tokens, targets


@pytest.mark.parametrize("positions", [1000, 5, 1])
@pytest.mark.parametrize("settings", [Distil(), Distil(temperature=3.0), Distil(temperature=0.5, share=0.3)])
@pytest.mark.parametrize(
    ("student", "teacher"), [*((name, "wider") for name in STUDENTS), ("tied", "padded"), ("tied", "adaptive")]
)
def test_it_is_the_formula_and_so_are_its_gradients_however_few_positions_are_in_memory(
    student: str, teacher: str, settings: Distil, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distillation, "MAX_SCORES", positions * TOKENS)
    own, other = a_model(STUDENTS[student], 0), a_model(TEACHERS[teacher], 1).eval().requires_grad_(False)
    teaching = Teacher(other, settings)
    tokens, targets = batch()
    temperature, share = settings.temperature, settings.share
    loss, parts = distillation_loss(own, own(tokens, "none"), targets, teaching, teaching.states(tokens), 0.1)
    loss.backward()
    found = {name: parameter.grad for name, parameter in own.named_parameters()}
    own.zero_grad()
    q, p = own(tokens) / temperature, other(tokens)[..., :TOKENS] / temperature
    chances = (p.exp() / p.exp().sum(-1, keepdim=True)).log()
    divergence = (chances.exp() * (chances - (q.exp() / q.exp().sum(-1, keepdim=True)).log())).sum(-1)
    divergence = divergence[targets != -100].sum()
    entropy = F.cross_entropy(own(tokens).flatten(0, 1), targets.flatten(), reduction="sum", label_smoothing=0.1)
    expected = share * temperature**2 * divergence + (1 - share) * entropy
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(parts, torch.stack((entropy, divergence)).detach(), rtol=1e-12, atol=1e-12)
    assert not parts.requires_grad
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-9, atol=1e-11, msg=name)
    assert all(parameter.grad is None for parameter in other.parameters())


def test_a_student_that_is_its_teacher_has_nothing_to_learn() -> None:
    own = a_model(DECODER, 0)
    teaching = Teacher(own, Distil())
    tokens, targets = batch()
    loss, parts = distillation_loss(own, own(tokens, "none"), targets, teaching, teaching.states(tokens))
    loss.backward()
    assert float(loss.detach()) == float(parts[1]) == 0
    assert all(float(parameter.grad.abs().max()) < 1e-12 for parameter in own.parameters())


def test_dropout_of_what_is_projected_is_the_same_when_scores_are_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By finite differences of the loss with its random numbers held."""
    monkeypatch.setattr(distillation, "MAX_SCORES", 5 * TOKENS)
    own, teaching = a_model(STUDENTS["projected"], 0).train(), Teacher(a_model(DECODER, 1).eval(), Distil())
    own.dropout = Dropout(narrow=0.5)
    tokens, targets = batch()
    weights = own.embedding.tables[0]

    def loss() -> Tensor:
        torch.manual_seed(7)
        return distillation_loss(own, own(tokens, "none"), targets, teaching, teaching.states(tokens))[0]

    loss().backward()
    gradient, direction = weights.grad.clone(), torch.randn(weights.shape, dtype=torch.float64)
    with torch.no_grad():
        weights.add_(direction, alpha=1e-6)
        above = loss()
        weights.add_(direction, alpha=-2e-6)
        slope = (above - loss()) / 2e-6
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-6)


# Recipes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "said"),
    [
        (TEACHERS["adaptive"], "the architecture has an adaptive softmax"),
        (
            DECODER | {"blocks": [{"kind": "srupp", "d_attn": 8}], "positions": {"kind": "none"}},
            "the recurrence of SRU",
        ),
    ],
)
def test_models_without_a_divergence_are_refused_by_name(described: dict[str, Any], said: str) -> None:
    contiguous = recipe("distil").overridden({"order": "contiguous"})
    with pytest.raises(InvalidInput, match=said) as caught:
        check_task(Architecture.parse(described), contiguous)
    assert caught.value.field == "recipe"
    check_task(Architecture.parse(DECODER), recipe("distil"))


# Trainings ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def teacher(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of a training that has learnt something."""
    folder = tmp_path_factory.mktemp("teacher")
    spec = spec_of(data, None, described=TEACHERS["wider"], steps=120, distil=None, evaluation={"every": 100})
    (folder / SPEC).write_text(spec.model_dump_json())
    assert run(folder, threading.Event()) == EXIT_DONE
    return folder / RESULT / "model.safetensors"


def spec_of(data: Path, teacher: Path | None, described: dict[str, Any] = DECODER, **changes: Any) -> RunSpec:
    whole = Recipe.parse(RECIPE).overridden(changes)
    return RunSpec(
        architecture=dict(Architecture.parse(described).canonical),
        data=str(data),
        recipe=whole.model_dump(mode="json"),
        teacher=None if teacher is None else str(teacher),
        threads=1,
    )


def divergences(folder: Path) -> list[float]:
    return [line.extra["divergence"] for line in read_metrics(folder / METRICS) if "divergence" in line.extra]


def assert_taught_nearly_the_same(one: Path, other: Path) -> None:
    assert_nearly_the_same(one, other)
    assert divergences(one) == pytest.approx(divergences(other), rel=2e-4)


def test_stopped_it_resumes_with_its_teacher_as_if_it_had_not_been(data: Path, teacher: Path, tmp_path: Path) -> None:
    spec = spec_of(data, teacher, dropout={"hidden": 0.1})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert trainer(spec, whole).train() == "done"
    for steps in (2, 3):
        assert trainer(spec, parts, after(steps)).train() == "stopped"
    assert trainer(spec, parts).train() == "done"
    assert_same_end(whole, parts)
    assert divergences(whole) == divergences(parts)
    assert len(divergences(whole)) == 8
    end = read_model(max((whole / CHECKPOINTS).iterdir()))
    assert end.keys() == dict(trainer(spec, whole).model.named_parameters()).keys()  # no teacher's


def test_another_teacher_makes_another_training(data: Path, teacher: Path, tmp_path: Path) -> None:
    spec = spec_of(data, teacher)
    assert trainer(spec, tmp_path / "run", after(2)).train() == "stopped"
    with pytest.raises(InvalidInput, match="checkpoint of another training"):
        trainer(spec.model_copy(update={"teacher": str(changed(teacher, tmp_path / "other", 0.5))}), tmp_path / "run")


def changed(weights: Path, folder: Path, value: float) -> Path:
    """The same model with one number replaced, and its tokenizer."""
    folder.mkdir()
    for file in weights.parent.iterdir():
        if file.is_file() and file != weights:
            (folder / file.name).write_bytes(file.read_bytes())
    tensors = load_file(weights)
    tensors["embedding.tables.0"][0, 0] = value
    with safe_open(weights, framework="pt") as file:
        save_file(tensors, folder / weights.name, file.metadata())
    return folder / weights.name


def test_a_batch_taken_a_few_rows_at_a_time_teaches_the_same(data: Path, teacher: Path, tmp_path: Path) -> None:
    for rows in (4, 3, 1):
        trainer(spec_of(data, teacher, micro_rows=rows), tmp_path / f"{rows}").train()
    for rows in (3, 1):
        assert_taught_nearly_the_same(tmp_path / "4", tmp_path / f"{rows}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's compiler itself
def test_compiled_it_learns_the_same(
    data: Path, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distillation, "MAX_SCORES", 40 * 256)  # of 64 positions a step
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))  # a sixth of inductor's time
    spec = spec_of(data, teacher, steps=3)
    trainer(spec, tmp_path / "plain").train()
    trainer(spec_of(data, teacher, steps=3, compile=True), tmp_path / "compiled").train()
    assert_taught_nearly_the_same(tmp_path / "plain", tmp_path / "compiled")


def test_two_ranks_learn_what_one_learns(data: Path, teacher: Path, tmp_path: Path, start: Start) -> None:
    spec = spec_of(data, teacher, steps=4)
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / SPEC).write_text(spec.model_dump_json())
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(servers.free_port()), "WORLD_SIZE": "2"}
    ranks = [start(two, RANK=rank, LOCAL_RANK=rank, **meeting) for rank in "01"]
    assert run(one, threading.Event()) == EXIT_DONE
    for rank in ranks:
        rank.join(120)
    assert [rank.exitcode for rank in ranks] == [0, 0], (two / LOG).read_text()
    assert_taught_nearly_the_same(one, two)


def test_with_a_teacher_it_comes_closer_to_it(data: Path, teacher: Path, tmp_path: Path) -> None:
    """Than by the text alone, with as many steps; validation is by the text's cross-entropy all the same."""
    ends = {}
    for share in (None, 1.0):
        folder = tmp_path / f"{share}"
        distil = None if share is None else {"share": share, "temperature": 1.0}
        trained = trainer(
            spec_of(data, None if share is None else teacher, steps=100, distil=distil, optimizer={"lr": 0.02}), folder
        )
        trained.train()
        teaching = Teacher(load_safetensors(teacher).eval(), Distil())
        rows = rows_of(trained.batches(1000), ALONE.device)
        model = trained.model.eval()
        with torch.no_grad():
            _, parts = distillation_loss(
                model, model(rows.inputs, "none"), rows.targets, teaching, teaching.states(rows.inputs)
            )
        ends[share] = float(parts[1]) / rows.targets.numel()
        *_, (_, _, last) = losses(folder)
        assert last == pytest.approx(trained.evaluate("valid", whole=False).loss)
    assert ends[1.0] < 0.8 * ends[None]


def test_a_teacher_that_cannot_teach_is_refused_before_anything_is_trained(
    data: Path, teacher: Path, tmp_path: Path
) -> None:
    words = prepared_text(tmp_path, level="words")
    for given, said in (
        (spec_of(data, None), "teacher: no teacher is given"),
        (spec_of(data, teacher, distil=None), "teacher: the recipe has no distil"),
        (spec_of(words, teacher), "trained with another tokenizer"),
        (spec_of(data, tmp_path / "none.safetensors"), "cannot be read: No such file"),
        (spec_of(data, changed(teacher, tmp_path / "nan", float("nan"))), "embedding.tables.0 that are not finite"),
    ):
        with pytest.raises(InvalidInput, match=said) as caught:
            trainer(given, tmp_path / "run")
        assert caught.value.field == "teacher"
    assert not list((tmp_path / "run").glob("checkpoints/*"))
