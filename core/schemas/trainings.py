"""Public requests and responses about trainings, recipes and data sets."""

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
"""Maximum number of trainings of one request."""

Text = Annotated[str, Field(min_length=1, max_length=64)]
Licence = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
Score = Annotated[StrictFloat, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]


class FrontierPick(Request):
    """Points of a target's frontier within bounds: all, or `count` evenly spaced ones."""

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
    """By decoder parameters, including the smallest and the largest; a single one is the largest."""


class TrainingBudget(Request):
    """A training ends at the first of these bounds, else with the recipe's steps."""

    steps: Annotated[StrictInt, Field(ge=1, le=1 << 40)] | None = None
    tokens: Annotated[StrictInt, Field(ge=1, le=1 << 60)] | None = None
    hours: Positive | None = None


class Requirements(Request):
    """What a worker must have to take a training."""

    device: Device | None = None
    """Default: the service's setting `training.device`."""
    gpus: Annotated[StrictInt, Field(ge=1, le=64)] = 1
    """Number of GPUs of one machine, for `cuda`."""
    memory_gb: Positive | None = None
    """Minimum memory of each GPU, or of the machine without GPU, in GiB."""


class TrainingRequest(Request):
    """Exactly one of `architecture`, `model`, `candidate` and `frontier` names what to train."""

    name: Name | None = None
    """Default: made from what is trained."""
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
    """A done training of the same owner, or an imported model, whose weights initialise this one. Its architecture is
    equal, or with `inherit` that of the parent. For a recipe with `distil` it is also the teacher."""
    inherit: StrictBool = False
    """The model is a submodel of `start`'s model and begins with its weights. Defaults: `start` is the parent of the
    candidate's job, the recipe is `distil`."""
    licence: Licence | None = None
    """Licence of the weights for the model card: an identifier of SPDX or the Hugging Face Hub. Default: that of
    `start`, else not stated.
    """
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
    """Estimate of a request for trainings. Nothing is stored."""

    trainings: int
    recipe: str
    """Name of the recipe, or of the default one."""
    dataset: str
    tokens: int
    """Maximum tokens of each training; a budget of hours may end it earlier."""


class MetricView(View):
    """One report of a run, a line of its `metrics.jsonl`. Losses are in nats per token, `seconds` and `tokens` over all
    starts and ranks.
    """

    step: int
    tokens: int
    seconds: float
    loss: float | None = None
    """Mean cross-entropy over the steps since the previous report, also with a teacher."""
    lr: float | None = None
    gradient_norm: float | None = None
    tokens_per_s: float | None = None
    valid_loss: float | None = None
    valid_perplexity: float | None = None
    valid_bpc: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    """With a teacher `divergence`: mean KL(teacher || student) at the recipe's temperature."""


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
    """Measurement of the trained candidate on its target."""

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
    """The owner's latest command; the run follows it after its current step."""
    reason: str | None
    """Why it failed."""
    note: str
    """Status: the batch was halved, it resumed from step 3000, it waits for a worker."""
    digest: str | None
    """Digest of the requested architecture, to which results belong. None for a supernet."""
    architecture: dict[str, Any]
    trained: dict[str, Any] | None
    """The description with the vocabulary of the data, once known."""
    decoder_parameters: int | None
    job_id: Identifier | None
    target_id: Identifier | None
    candidate_id: Identifier | None
    measured: MeasuredCandidateView | None
    dataset: str | None
    dataset_digest: str | None
    """Digest of the data set, once known."""
    recipe: dict[str, Any] | None
    """The recipe with overrides."""
    start: Identifier | None = None
    """The training whose weights initialise it."""
    inherit: bool = False
    """Whether it is a submodel of that one's model."""
    licence: str | None = None
    """Licence of the weights; None if not stated."""
    budget: TrainingBudget | None
    requires: Requirements | None
    queue: str | None
    """The queue whose workers may take it, without the installation's prefix."""
    seed: int | None
    attempts: int
    """Consecutive failures without a new checkpoint; the third ends it."""
    worker: str | None
    step: int
    steps: int
    checkpoint: int | None
    """Step of the newest checkpoint."""
    tokens: int
    seconds: float
    seconds_left: float | None
    last_metric: MetricView | None
    """The latest value of each figure, so that a validation may be older than the training loss."""
    result: dict[str, Any] | None
    formats: tuple[str, ...] = ()
    """Download formats of the trained model (`/v1/trainings/{id}/model`); empty before it is done."""
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
    """Probabilities after a step: a row for each layer, a number for each of `choices`."""

    step: int
    temperature: float
    probabilities: tuple[tuple[float, ...], ...]


class SearchProgress(View):
    """The search of one seed."""

    seed: int
    phase: Literal["weights", "tuning"]
    """Weights only, or weights and probabilities alternately."""
    pattern: str
    """The most probable block of each layer: s attention, f feed-forward, i identity."""
    expected_ms: float | None = None
    """Expected latency of the blocks; None without a latency term."""
    records: tuple[ProbabilityRecord, ...]
    """By rising step; the last one is current."""


class ProbabilitiesView(View):
    training_id: Identifier
    choices: tuple[str, ...]
    """Block types of a row of probabilities."""
    searches: tuple[SearchProgress, ...]
    """One a seed; empty before the first report."""


class RecipeView(View):
    name: str
    title: str
    source: str
    """Source: paper, table or script."""
    task: str
    """Type of its batches, and so of its models: streams, sentences, masked or pairs."""
    dataset: str | None
    """Default data set."""
    steps: int
    tokens: int
    """Tokens of the whole training, by its rows and segments."""
    recipe: dict[str, Any]
    """The complete recipe."""


class DatasetView(View):
    name: str
    title: str
    digest: str | None
    """Distinguishes data sets with equal names; None before a built-in one is prepared on its first use."""
    level: str
    vocab_size: int | None
    parallel: bool
    """Text in two languages, for recipes whose task is pairs."""


class TrainerView(View):
    """A worker with a known pace: it has completed a training."""

    name: str
    gpus: int
    """Number of GPUs of its latest training; 0: its CPU."""
    pace: TrainerPace
