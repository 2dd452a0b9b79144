"""Examples of trainings for the OpenAPI document, made from the wire models themselves."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from edgefront.api.docs.examples import ARCHITECTURE, COSTS
from edgefront.core.recipes.papers import recipe
from edgefront.core.services.trainings.choices import recipe_view
from edgefront.core.wire import trainings
from edgefront.core.wire.training_choices import DatasetView

_NOW = datetime(2026, 5, 4, 9, 30, tzinfo=timezone.utc)
_LATER = datetime(2026, 5, 4, 9, 41, tzinfo=timezone.utc)
_TRAINING = "trn_01jv0d1e3m4q3k2n1p0r9s8t74"
_JOB = "job_01jv0c8z5m4q3k2n1p0r9s8t7v"
_TARGET = "tgt_01jv0c8z5n6q3k2n1p0r9s8t7w"
_CANDIDATE = "cnd_01jv0c9a7m4q3k2n1p0r9s8t7x"


def _json(model: Any) -> Any:
    return model.model_dump(mode="json")


def _request(**values: Any) -> Any:
    return trainings.TrainingRequest(**values).model_dump(mode="json", exclude_defaults=True)


REQUESTS: dict[str, Any] = {
    "frontier": {
        "summary": "Two models of a job's frontier",
        "value": _request(
            frontier=trainings.FrontierPick(job=_JOB, max_latency_ms=50, max_memory_mb=300, count=2),
            dataset="python",
            budget=trainings.TrainingBudget(hours=0.5),
        ),
    },
    "candidate": {
        "summary": "A candidate on a GPU, with a recipe that is changed",
        "value": _request(
            candidate=_CANDIDATE,
            recipe="quick",
            overrides={"steps": 500, "optimizer": {"lr": 0.001}},
            requires=trainings.Requirements(device="cuda", memory_gb=20),
        ),
    },
    "architecture": {"summary": "Any architecture", "value": _request(architecture=ARCHITECTURE, dataset="python")},
}

_METRIC = trainings.MetricView(
    step=200, tokens=409_600, seconds=81.4, loss=3.91, lr=0.0011, gradient_norm=0.62, tokens_per_s=5032.0
)
_EVALUATION = trainings.EvaluationView(
    id="evl_01jv0d9f4m4q3k2n1p0r9s8t75",
    digest=COSTS["digest"],
    training_id=_TRAINING,
    dataset="python",
    split="valid",
    metric="perplexity",
    value=31.7,
    details={"recipe": "quick", "seed": 0, "dataset_digest": "5d" * 32},
    created_at=_LATER,
)
_VIEW = trainings.TrainingView(
    id=_TRAINING,
    name="small models for the lab laptops 17",
    owner="ada",
    kind="training",
    state="done",
    wanted="run",
    reason=None,
    note="",
    digest=COSTS["digest"],
    architecture=ARCHITECTURE,
    trained={**ARCHITECTURE, "embedding": {"vocab_size": 4096}},
    decoder_parameters=COSTS["decoder_parameters"],
    job_id=_JOB,
    target_id=_TARGET,
    candidate_id=_CANDIDATE,
    measured=trainings.MeasuredCandidateView(
        target="laptop, onnxruntime", latency_ms=12.4, memory_bytes=84_000_000, on_frontier=True
    ),
    dataset="python",
    dataset_digest="5d" * 32,
    recipe=recipe("quick").model_dump(mode="json"),
    budget=trainings.TrainingBudget(hours=0.5),
    requires=trainings.Requirements(device="cpu"),
    queue="train-cpu",
    seed=0,
    attempts=0,
    worker="lab-7",
    step=300,
    steps=300,
    checkpoint=300,
    tokens=614_400,
    seconds=122.0,
    seconds_left=None,
    last_metric=_METRIC,
    result={"best_step": 300},
    evaluations=(_EVALUATION,),
    created_at=_NOW,
    started_at=_NOW,
    updated_at=_LATER,
    finished_at=_LATER,
    last_event=19,
)
TRAINING = _json(_VIEW)
TRAINING_PAGE = _json(trainings.TrainingPage(items=(_VIEW,)))
METRIC_PAGE = _json(trainings.MetricPage(items=(_METRIC,), next_step=200))
FILES = [_json(trainings.TrainingFile(path="result/model.safetensors", size=12_582_912, modified_at=_LATER))]
LOG = "2026-05-04 09:30:12,431 INFO step 100 of 300\n2026-05-04 09:30:41,902 INFO step 200 of 300\n"
_EVENT = trainings.TrainingEventView(number=12, kind="metric", data=_json(_METRIC), created_at=_LATER)
EVENT_STREAM = f"id: 12\r\nevent: metric\r\ndata: {_EVENT.model_dump_json()}\r\n\r\n: still here\r\n\r\n"
RECIPES = [_json(recipe_view(recipe("quick")))]
DATASETS = [
    _json(
        DatasetView(
            name="python",
            title="Python's standard library as it is installed here: its source and the documentation in it",
            digest="5d" * 32,
            level="bpe",
            vocab_size=4096,
            parallel=False,
        )
    )
]
