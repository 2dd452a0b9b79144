"""What an owner's trainings teach: one law for each owner and kind of training, replaced in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from concurrency import at_once
from databases import ON_BOTH
from simulated_agent import principal
from simulated_service import SMALL, Service
from simulated_trainings import BASE, Trainings, perplexity_of
from sqlalchemy import delete, select, update

from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import NotFound
from edgefront.core.common.states import WorkKind
from edgefront.core.quality.shipped import NAMES
from edgefront.core.quality.stored import from_json, summary
from edgefront.core.services.quality import laws, learning
from edgefront.core.store.tables import Evaluation, OwnerLaw, Training, WorkItem

pytestmark = pytest.mark.slow


SPACE = space("lts-gpt2").narrow(SMALL)
MODELS = [SPACE.architecture(genome) for genome in SPACE.samples(12, np.random.default_rng(0))]


def subject(service: Service) -> str:
    with service.database.read() as session:
        key, owner = session.execute(select(Evaluation.recipe_key, Evaluation.owner)).first()  # type: ignore[misc]
    return f"{key} {owner}"


def test_each_training_replaces_the_law_of_its_owner_and_kind(service: Service, trainings: Trainings) -> None:
    trainings.end(MODELS[0])
    trainings.learn()
    (first,) = trainings.laws()
    assert (first.owner, first.base, first.summary["table_models"]) == (trainings.pool.user.owner, BASE, 1)
    assert first.name.startswith(f"{BASE}-")
    trainings.end_all(MODELS[1:4])
    trainings.learn()
    (second,) = trainings.laws()
    assert (second.name, second.summary["table_models"]) == (first.name, 4)
    assert second.updated_at > first.updated_at
    assert second.digest != first.digest
    trainings.end(MODELS[6], overrides={"segment": 8, "steps": 4, "schedule": {"warmup": 0}})  # another recipe
    trainings.learn()
    (other,) = [row for row in trainings.laws() if row.name != first.name]
    assert other.summary["table_models"] == 1


def test_a_base_that_knows_one_budget_learns_from_trainings_of_one_length(
    service: Service, trainings: Trainings
) -> None:
    trainings.end(MODELS[0], 900.0, budget={"steps": 1})
    trainings.end_all(MODELS[1:3])
    trainings.learn()
    (row,) = trainings.laws()
    assert {each["digest"] for each in row.left_out} == {model.digest for model in MODELS[1:3]}


def test_a_law_predicts_what_its_trainings_come_to(service: Service, trainings: Trainings) -> None:
    trainings.end_all(MODELS[:7])
    trainings.learn()
    (row,) = trainings.laws()
    law = from_json(row.document)
    assert summary(law)["prior"] == BASE
    assert law.relative_to is None, "own trainings tell what perplexities are"
    for words in ("letters", "recipe quick", "3 steps"):
        assert words in f"{law.origin.data} {law.origin.trained}"
    others = MODELS[7:]
    true = np.log([perplexity_of(other) for other in others])
    predicted = law.predict(Shapes.of(others))
    assert np.abs(predicted.log_perplexity - true).max() < 0.1
    assert (np.abs(predicted.log_perplexity - true) <= predicted.half_width).all()
    assert all(each["low"] <= each["trained"] <= each["high"] for each in row.left_out)


def test_the_same_trainings_give_the_same_bytes(service: Service, trainings: Trainings) -> None:
    trainings.end_all(MODELS[:6])
    trainings.learn()
    (row,) = trainings.laws()
    with service.database.write() as session:
        session.execute(delete(OwnerLaw))
        # Rows come in another order: the first training is stored again.
        session.execute(update(Evaluation).where(Evaluation.value == perplexity_of(MODELS[0])).values(id="evl_z"))
    learning.learn(service.database, subject(service))
    (again,) = trainings.laws()
    assert (again.document, again.digest) == (row.document, row.digest)


@ON_BOTH
def test_two_at_once_store_one_law(service: Service, trainings: Trainings) -> None:
    trainings.end_all(MODELS[:5])
    asked = subject(service)
    at_once(*[lambda: learning.learn(service.database, asked)] * 2)
    assert [row.summary["table_models"] for row in trainings.laws()] == [5]


def test_a_training_that_ends_meanwhile_is_in_the_law(
    service: Service, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings.end_all(MODELS[:5])
    fit, seen = learning._fitted, list[int]()

    def slow(*arguments: Any) -> Any:
        seen.append(service.database.engine.pool.checkedout())  # type: ignore[attr-defined]
        if len(seen) == 1:
            trainings.end(MODELS[5])
        return fit(*arguments)

    monkeypatch.setattr(learning, "_fitted", slow)
    trainings.learn()
    assert [row.summary["table_models"] for row in trainings.laws()] == [6]
    assert seen == [0, 0]  # no transaction is held while a law is fitted


@ON_BOTH
def test_failed_trainings_and_endless_perplexities_teach_nothing(service: Service, trainings: Trainings) -> None:
    trainings.end_all(MODELS[:5])
    trainings.end(MODELS[5], ending="invalid")
    values = [float("inf"), 0.0]
    if service.database.engine.dialect.name == "postgresql":  # SQLite stores no NaN
        values.append(float("nan"))
    for place, value in enumerate(values, start=6):
        trainings.end(MODELS[place], value)
    trainings.learn()
    assert [row.summary["table_models"] for row in trainings.laws()] == [5]
    with service.database.write() as session:
        session.execute(update(Training).where(Training.digest == MODELS[0].digest).values(state="failed"))
    learning.learn(service.database, subject(service))
    assert [row.summary["table_models"] for row in trainings.laws()] == [4]
    with service.database.write() as session:
        session.execute(update(Training).values(state="failed"))
    learning.learn(service.database, subject(service))
    assert trainings.laws() == [], "nothing is left that taught it"


def test_a_request_stays_until_a_worker_has_learnt(service: Service, trainings: Trainings) -> None:
    """It is stored with the perplexity: no lost message loses it."""
    trainings.end_all(MODELS[:2])
    with service.database.read() as session:
        items = list(session.scalars(select(WorkItem).where(WorkItem.kind == WorkKind.LEARN)))
    assert [(item.subject, item.owner) for item in items] == [(subject(service), trainings.pool.user.owner)]


# The best checkpoint -------------------------------------------------------------------------------------------------


def test_an_overfitted_training_teaches_its_best_checkpoint_alone(service: Service, trainings: Trainings) -> None:
    """Evaluated by 8 points of its curve: the best is at 5,000 tokens, and the last far above it."""
    llama, best = space("llama").narrow({"n_layer": [2], "d_model": [128]}), 3.0
    (genome,) = llama.samples(1, np.random.default_rng(0))
    losses = [(1_000, 5.0), (2_000, 4.0), (3_000, 3.5), (4_000, 3.1), (5_000, best), (6_000, 3.6), (8_000, 4.4)]
    trainings.end(llama.architecture(genome), math.exp(best + 0.01), curve=losses)
    trainings.learn()
    (row,) = trainings.laws()
    own = from_json(row.document).own  # type: ignore[attr-defined]
    assert np.exp(own.log_tokens) == pytest.approx([5_000, 3_000, 4_000])
    assert own.log_perplexity == pytest.approx([3.01, 3.51, 3.11])
    assert np.exp(own.log_perplexity).max() < math.exp(3.6), "no perplexity that never occurred"


def test_a_training_without_a_curve_teaches_its_end() -> None:
    model = learning.TrainedModel("e", "t", "d", {}, 20.0, {}, "letters", None, {}, 700, 3)
    assert learning.data_of_training(model, []) == (700, ())
    assert learning.data_of_training(model, [learning.CurvePoint(300, math.nan), learning.CurvePoint(600, 3.0)]) == (
        600,
        (),
    )


# Owners --------------------------------------------------------------------------------------------------------------


def test_owners_learn_from_their_own_trainings_alone(service: Service, trainings: Trainings) -> None:
    trainings.end_all(MODELS[:3])
    eve = principal(service.database, owner="eve")
    mine, trainings.pool.user = trainings.pool.user, eve
    trainings.end(MODELS[0], 500.0)
    trainings.learn()
    own, theirs = sorted(trainings.laws(), key=lambda row: row.owner == "eve")
    assert own.name == theirs.name, "of one recipe and data"
    assert (own.summary["table_models"], theirs.summary["table_models"]) == (3, 1)
    assert [each["trained"] for each in theirs.left_out] == [500.0]
    assert 500.0 not in [each["trained"] for each in own.left_out]
    with service.database.read() as session:
        found = {owner: laws.named(session, owner, own.name) for owner in (mine.owner, "eve")}
        assert laws.named(session, mine.owner, own.name) is found[mine.owner], "parsed once"
        with pytest.raises(Exception, match=r"no scaling law .* exists"):
            laws.named(session, "mallory", own.name)
    assert found[mine.owner].models == 3


def test_only_shipped_laws_and_own_ones_are_listed_and_none_is_parsed(
    service: Service, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, eve = trainings.pool.user, principal(service.database, owner="eve")
    assert [view.name for view in laws.views(service.database, mine)] == list(NAMES)
    trainings.end_all(MODELS[:5])
    trainings.learn()
    monkeypatch.setattr(laws, "from_json", None)
    *shipped, view = laws.views(service.database, mine)
    assert [each.name for each in shipped] == list(NAMES)
    assert (view.table_models, view.prior) == (5, BASE)
    assert view.updated_at is not None
    assert laws.law_view(service.database, mine, view.name) == view
    assert [each.name for each in laws.views(service.database, eve)] == list(NAMES)
    for user, name in ((eve, view.name), (mine, "nothing"), (mine, f"{view.name}@1")):
        with pytest.raises(NotFound, match=f"choose one of {BASE}.*") as refused:
            laws.law_view(service.database, user, name)
        assert (view.name in str(refused.value).partition("choose one of")[2]) == (user is mine)
