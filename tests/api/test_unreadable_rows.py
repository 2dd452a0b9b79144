"""A stored document that this release cannot read takes no list down: the row is there, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from ended_trainings import end_trainings
from running_api import Service
from simulated_agent import CLASS, SimulatedAgent, facts
from sqlalchemy import Table, select, update

from edgefront.core.common.states import TrainingEventKind
from edgefront.core.quality.shipped import law_named
from edgefront.core.quality.stored import summary
from edgefront.core.services.jobs import job_views
from edgefront.core.store.database import Database
from edgefront.core.store.tables import (
    Base,
    Evaluation,
    Job,
    OwnerLaw,
    Training,
    TrainingEvent,
    TrainingMetric,
    new_id,
)

UNREADABLE, FAILED = "cannot be read: ", "answered with an error:"
FORMS: dict[str, Any] = {"an object": {"of": "another release"}, "a list": ["of another release"]}
DOCUMENTS = [
    f"{table.name}.{column.name}"
    for table in Base.metadata.sorted_tables
    for column in table.columns
    if "JSON" in repr(column.type)
]
NOT_SHOWN = {
    "candidate.genome",  # only in exports, as it is
    "device.instances",
    "device.failing",
    "generation.snapshot",
    "generation.device_data",
    "launch.reports",
    "measurement.architecture",
    "measurement.protocol",
    "owner_law.left_out",
    "training.supernet",
    "training.gpu_numbers",
}
"""What only workers read; the lists show nothing of it."""

ANY_OBJECT = {
    "event.data",
    "training_event.data",
    "training.recipe",
    "training.request",
    "training.result",
    "evaluation.details",
}
"""What is shown as it is, so that every object can be read."""


@pytest.fixture
def service(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]
) -> Iterator[Service]:
    """A finished job, one among published models, and trainings."""
    made = start_service(open_database(sqlite_url))
    client = made.client("user", "eve")
    agent = SimulatedAgent(made.database, device_facts=facts(memory_bytes=64 << 30))
    made.submit(client)
    made.measure(agent)
    made.submit(client, **AMONG_PUBLISHED)
    made.measure(agent)
    end_trainings(made.database, "gpu-box", owner="eve")
    with made.database.write() as session:
        now = made.database.now(session)
        law = law_named("lts-gpt2-wikitext103")
        session.add(
            OwnerLaw(
                owner="eve",
                name="taught",
                base="x",
                document="{}",
                digest="",
                left_out=[],
                summary={**summary(law), "name": "taught"},
                updated_at=now,
            )
        )
        for training in session.scalars(select(Training)):
            session.add(TrainingMetric(training_id=training.id, step=1, data={"step": 1, "tokens": 8, "seconds": 1.0}))
            session.add(
                TrainingEvent(
                    training_id=training.id, number=1, kind=TrainingEventKind.NOTE, data={"note": "x"}, created_at=now
                )
            )
            training.last_event, training.last_metric = 1, {"step": 1, "tokens": 8, "seconds": 1.0}
            training.result, training.request = {"level": "bpe"}, {"licence": "mit"}
            score = {"dataset": "python", "split": "test", "metric": "perplexity", "value": 9.0, "details": {}}
            session.add(
                Evaluation(
                    id=new_id("evl"),
                    owner=training.owner,
                    digest=training.digest,
                    training_id=training.id,
                    created_at=now,
                    **score,
                )
            )
    yield made
    job_views._kept.clear()


AMONG_PUBLISHED: dict[str, Any] = {
    "goal": "best_within_limits",
    "space": {"published": {"score": "obsscaling_base:HellaSwag"}},
    "algorithm": {"name": "auto"},
    "targets": [
        {
            "device_class": CLASS,
            "protocol": {"mode": "generate", "sequence_length": 64, "new_tokens": 8},
            "limits": {"token_ms": 1000.0},
            "variants": {"runtimes": ["onnxruntime"], "formats": ["f32"]},
        }
    ],
}


def lists(client: httpx.Client) -> dict[str, str]:
    """The path of every list → its text, of a page, an export or the events up to now."""
    jobs = [job["id"] for job in client.get("/v1/jobs").json()["items"]]
    trainings = [training["id"] for training in client.get("/v1/trainings").json()["items"]]
    (device,) = [device["id"] for device in client.get("/v1/devices").json()["items"]]
    candidates = [client.get(f"/v1/jobs/{job}/candidates").json()["items"][0]["id"] for job in jobs]
    paths = [
        "/v1/jobs",
        "/v1/trainings",
        "/v1/devices",
        f"/v1/devices/{device}/work",
        "/v1/trainers",
        "/v1/quality/laws",
    ]
    paths += [f"/v1/jobs/{job}/{name}" for job in jobs for name in ("candidates?limit=500", "frontier", "points")]
    paths += [f"/v1/jobs/{job}/candidates?format={kind}" for job in jobs for kind in ("csv", "parquet")]
    paths += [f"/v1/candidates/{candidate}/{name}" for candidate in candidates for name in ("launches", "details")]
    paths += [f"/v1/trainings/{training}/metrics" for training in trainings]
    texts = {}
    for path in paths:
        answer = client.get(path)
        texts[path] = (
            answer.content.decode("utf-8", "replace") if answer.status_code == 200 else f"{FAILED} {answer.text}"
        )
    for path in [*(f"/v1/jobs/{job}" for job in jobs), *(f"/v1/trainings/{training}" for training in trainings)]:
        texts[f"{path}/events"] = events(client, path)
    return texts


def events(client: httpx.Client, path: str) -> str:
    last, text = client.get(path).json()["last_event"], ""
    with client.stream("GET", f"{path}/events") as stream:
        for line in stream.iter_lines():
            text += line
            if line.startswith("data:") and f'"number":{last},' in line:
                return text
    raise AssertionError(f"the events of {path} end before number {last}")


def place(document: str) -> tuple[Table, str]:
    name, column = document.split(".")
    return Base.metadata.tables[name], column


@pytest.mark.parametrize("form", FORMS)
def test_no_document_takes_a_list_down(form: str, service: Service) -> None:
    client = service.client("user", "eve")
    whole = lists(client)
    assert not any(UNREADABLE in text or FAILED in text for text in whole.values())
    wrong = []
    for document in DOCUMENTS:
        table, column = place(document)
        with service.database.read() as session:
            before = session.execute(select(*table.primary_key.columns, table.c[column])).all()
        with service.database.write() as session:
            session.execute(update(table).where(table.c[column].is_not(None)).values({column: FORMS[form]}))
        job_views._kept.clear()
        shown = lists(client)
        wrong += [f"{document}: {path} {text}" for path, text in shown.items() if text.startswith(FAILED)]
        is_free = document in NOT_SHOWN | (ANY_OBJECT if form == "an object" else {"candidate.parents"})
        if not is_free and not any(UNREADABLE in text for text in shown.values()):
            wrong.append(f"{document}: no list says that it cannot be read")
        with service.database.write() as session:
            for *key, value in before:
                same = [own == part for own, part in zip(table.primary_key.columns, key, strict=True)]
                session.execute(update(table).where(*same).values({column: value}))
        job_views._kept.clear()
    assert not wrong, "\n".join(wrong)


def test_a_published_model_that_the_catalogue_lost(service: Service) -> None:
    client = service.client("user", "eve")
    with service.database.write() as session:
        job = session.scalars(select(Job).order_by(Job.created_at.desc())).first()
        assert job is not None
        space = {**job.request["space"], "published": {"score": "a_table:that is gone"}}
        job.request = {**job.request, "space": space}
        lost = job.id
    job_views._kept.clear()
    items = {item["id"]: item for item in client.get("/v1/jobs").json()["items"]}
    assert len(items) == 2
    assert UNREADABLE in str(items.pop(lost))
    assert UNREADABLE not in str(items)
