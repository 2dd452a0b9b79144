"""Public requests and responses about trainings, recipes and data sets. Shared by the API and the client."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, model_validator

from edgefront.core.common.states import TrainingCommand, TrainingKind, TrainingState
from edgefront.core.schemas.agent import Identifier, Name
from edgefront.core.schemas.jobs import Positive, TrainerPace
from edgefront.core.schemas.messages import Request, View

Wanted = Literal[TrainingCommand.RUN, TrainingCommand.PAUSE, TrainingCommand.CANCEL]
Device = Literal["cpu", "cuda"]

MAX_PICKS = 64
"""Trainings of one request."""

Text = Annotated[str, Field(min_length=1, max_length=64)]
Licence = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
Score = Annotated[StrictFloat, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]


class FrontierPick(Request):
    """Points of a target's frontier between bounds: all of them, or `count` spread evenly over their order."""

    job: Identifier
    target: Name | None = None
    """Id or name; the job's first if absent."""
    min_latency_ms: Positive | None = None
    max_latency_ms: Positive | None = None
    min_memory_mb: Positive | None = None
    max_memory_mb: Positive | None = None
    """Peak memory in MB (10^6 bytes)."""
    min_proxy: Score | None = None
    max_proxy: Score | None = None
    count: Annotated[StrictInt, Field(ge=1, le=MAX_PICKS)] | None = None
    """By rising decoder parameters, the smallest and the largest among them; one alone is the largest."""


class TrainingBudget(Request):
    """A training ends at the first of these that it meets; else with the recipe's steps."""

    steps: Annotated[StrictInt, Field(ge=1, le=1 << 40)] | None = None
    tokens: Annotated[StrictInt, Field(ge=1, le=1 << 60)] | None = None
    hours: Positive | None = None


class Requirements(Request):
    """What a worker must have to take a training."""

    device: Device | None = None
    """The service's own choice (`training.device`) if absent."""
    gpus: Annotated[StrictInt, Field(ge=1, le=64)] = 1
    """How many on one machine; for `cuda`."""
    memory_gb: Positive | None = None
    """GiB that each GPU has at least, or without GPU the machine."""


class TrainingRequest(Request):
    """What to train is named by exactly one of `architecture`, `model`, `candidate` and `frontier`."""

    name: Name | None = None
    """Shown to people; made from what is trained if absent."""
    architecture: dict[str, Any] | None = None
    """A description as in `docs/architecture.md`."""
    model: Text | None = None
    """A named model of the catalogue."""
    candidate: Identifier | None = None
    frontier: FrontierPick | None = None
    dataset: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")] | None = None
    """A data set of the service by name, or a folder within its data folder; the recipe's own if absent."""
    recipe: Text | None = None
    """By name; if absent `modern`, or `quick` where a model carries memory from one segment to the next."""
    overrides: Annotated[dict[str, Any], Field(max_length=64)] = Field(default_factory=dict)
    """Changes to fields of the recipe, as {"steps": 500, "optimizer": {"lr": 0.001}}."""
    start: Identifier | None = None
    """A training of the same owner that is done, or an imported model: this one is initialised with its weights. It has
    the same architecture, or with `inherit` one of which this is a part. For a recipe with `distil` it is the teacher,
    too."""
    inherit: StrictBool = False
    """The trained model is a part of `start`'s model, and begins with that part of its weights. `start` is the model
    whose parts a candidate's job searches, if absent, and the recipe is `distil`."""
    licence: Licence | None = None
    """Of the weights, for the model card: an identifier of SPDX or the Hugging Face Hub. If absent that of `start`, or
    not stated."""
    budget: TrainingBudget = TrainingBudget()
    requires: Requirements = Requirements()
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] = 0

    @model_validator(mode="after")
    def _one_subject(self) -> TrainingRequest:
        named = ("architecture", "model", "candidate", "frontier")
        given = [name for name in named if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(named)}, not {' and '.join(given) or 'none'}")
        return self


class TrainingEstimate(View):
    """What a request for trainings would make. Nothing is stored."""

    trainings: int
    recipe: str
    """Its name, also of the one that is taken where none is named."""
    dataset: str
    tokens: int
    """Tokens that each training reads at most; a budget of hours may end it before."""


class MetricView(View):
    """One report of a run, a line of its `metrics.jsonl`. Losses are in nats per token, `seconds` and `tokens` over all
    starts and ranks.
    """

    step: int
    tokens: int
    seconds: float
    loss: float | None = None
    """Mean over the steps since the report before; with a teacher still the cross-entropy, whatever is minimised."""
    lr: float | None = None
    gradient_norm: float | None = None
    tokens_per_s: float | None = None
    valid_loss: float | None = None
    valid_perplexity: float | None = None
    valid_bpc: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    """With a teacher `divergence`: KL(teacher || student) at the recipe's temperature, a mean as `loss` is."""


class MetricPage(View):
    """By rising step. `next_step` is the `after` of the next page."""

    items: tuple[MetricView, ...]
    next_step: int | None = None


class EvaluationView(View):
    """A score of a trained architecture; it belongs to the digest."""

    id: Identifier
    digest: str
    training_id: Identifier | None
    dataset: str
    split: str
    metric: str
    value: float
    details: dict[str, Any]
    created_at: datetime


class MeasuredCandidateView(View):
    """What the candidate that is trained was measured at, on its target."""

    target: str
    latency_ms: float | None
    memory_bytes: int | None
    on_frontier: bool


class TrainingView(View):
    id: Identifier
    name: str
    owner: str
    kind: Literal[TrainingKind.TRAINING, TrainingKind.SUPERNET, TrainingKind.IMPORT]
    """An import was trained elsewhere: it has no data set, recipe, budget, requirements, queue and seed."""
    state: TrainingState
    wanted: Wanted
    """The owner's latest request; the run obeys it after its current step."""
    reason: str | None
    """Why it failed."""
    note: str
    """What a person should know: the batch was halved, it resumed from step 3000, it waits for a worker."""
    digest: str | None
    """Of the architecture as it was asked for: results belong to it. None for a supernet."""
    architecture: dict[str, Any]
    trained: dict[str, Any] | None
    """The description with the vocabulary of the data, once that is known."""
    decoder_parameters: int | None
    job_id: Identifier | None
    target_id: Identifier | None
    candidate_id: Identifier | None
    measured: MeasuredCandidateView | None
    dataset: str | None
    dataset_digest: str | None
    """Which of those with the name, once that is known."""
    recipe: dict[str, Any] | None
    """The whole of it, overrides included."""
    start: Identifier | None = None
    """The training that it is initialised with."""
    inherit: bool = False
    """Whether it is a part of that one's model."""
    licence: str | None = None
    """Of the weights; None if it was not stated."""
    budget: TrainingBudget | None
    requires: Requirements | None
    queue: str | None
    """The queue whose workers may take it, without the installation's prefix."""
    seed: int | None
    attempts: int
    """Failures in a row without a new checkpoint; the third ends it."""
    worker: str | None
    step: int
    steps: int
    checkpoint: int | None
    """Step of the newest checkpoint."""
    tokens: int
    seconds: float
    seconds_left: float | None
    last_metric: MetricView | None
    """The last report of each figure: those of the last validation appear beside a later training loss."""
    result: dict[str, Any] | None
    formats: tuple[str, ...] = ()
    """In which the trained model can be downloaded (`/v1/trainings/{id}/model`); none before it is done."""
    evaluations: tuple[EvaluationView, ...]
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    finished_at: datetime | None
    last_event: int


class TrainingPage(View):
    items: tuple[TrainingView, ...]
    next_cursor: str | None = None


class TrainingFile(View):
    """A file to download. `path` is below the training: `result/model.safetensors`."""

    path: str
    size: int
    modified_at: datetime


class ProbabilityRecord(View):
    """After a step: one row a layer, one number for each of `choices`."""

    step: int
    temperature: float
    probabilities: tuple[tuple[float, ...], ...]


class SearchProgress(View):
    """The search of one seed."""

    seed: int
    phase: Literal["weights", "tuning"]
    """Weights only, or weights and probabilities alternately."""
    pattern: str
    """The likeliest block of each layer so far: s attention, f feed-forward, i identity."""
    expected_ms: float | None = None
    """Latency of the blocks that the probabilities stand for; None without a latency term."""
    records: tuple[ProbabilityRecord, ...]
    """By rising step, the last one where the search stands."""


class ProbabilitiesView(View):
    training_id: Identifier
    choices: tuple[str, ...]
    """What the numbers of a row belong to."""
    searches: tuple[SearchProgress, ...]
    """One a seed; empty before the first report."""


class RecipeView(View):
    name: str
    title: str
    source: str
    """Paper, table or script that it was taken from."""
    task: str
    """streams, sentences, masked or pairs: what its batches are, and so which models it trains."""
    dataset: str | None
    """The one that is taken where none is named."""
    steps: int
    tokens: int
    """Of the whole training, by its rows and segments."""
    recipe: dict[str, Any]
    """All of it."""


class DatasetView(View):
    name: str
    title: str
    digest: str | None
    """Names it where several have the name; None before a built-in one is prepared, on its first use."""
    level: str
    vocab_size: int | None
    parallel: bool
    """Text in two languages, for recipes whose task is pairs."""


class TrainerView(View):
    """A worker that has trained a model to its end: how fast it trains is known."""

    name: str
    gpus: int
    """That its latest training used; 0: its CPU."""
    pace: TrainerPace
