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
"""Maximum number of trainings in one request."""

Text = Annotated[str, Field(min_length=1, max_length=64)]
Licence = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
Score = Annotated[StrictFloat, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]


class FrontierPick(Request):
    """Points of a target's frontier within bounds: all, or `count` evenly spaced ones."""

    job: Identifier
    target: Name | None = None
    """Id or name of the target; default: the job's first target."""
    min_latency_ms: Positive | None = None
    max_latency_ms: Positive | None = None
    min_memory_mb: Positive | None = None
    max_memory_mb: Positive | None = None
    """Peak memory in MB (10^6 bytes)."""
    min_proxy: Score | None = None
    max_proxy: Score | None = None
    count: Annotated[StrictInt, Field(ge=1, le=MAX_PICKS)] | None = None
    """Number of points, evenly spaced by decoder parameters from smallest to largest; 1 selects the largest."""


class TrainingBudget(Request):
    """Bounds of a training, which ends at the first bound that it reaches, or after the recipe's steps."""

    steps: Annotated[StrictInt, Field(ge=1, le=1 << 40)] | None = None
    tokens: Annotated[StrictInt, Field(ge=1, le=1 << 60)] | None = None
    hours: Positive | None = None


class Requirements(Request):
    """Resources that a worker must have to take a training."""

    device: Device | None = None
    """Default: the service's setting `training.device`."""
    gpus: Annotated[StrictInt, Field(ge=1, le=64)] = 1
    """Number of GPUs of one machine, for `cuda`."""
    memory_gb: Positive | None = None
    """Minimum memory of each GPU, or of the machine without GPU, in GiB."""


class TrainingRequest(Request):
    """Request for trainings. Exactly one of `architecture`, `model`, `candidate` and `frontier` must be given."""

    name: Name | None = None
    """Name of the training; default: derived from the trained model."""
    architecture: dict[str, Any] | None = None
    """Description of an architecture as in `docs/architecture.md`."""
    model: Text | None = None
    """Name of a model in the catalogue."""
    candidate: Identifier | None = None
    frontier: FrontierPick | None = None
    dataset: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")] | None = None
    """Name of a data set, or a folder within the service's data folder; default: the recipe's data set."""
    recipe: Text | None = None
    """Name of the recipe; default: `modern`, or `quick` if a model carries memory from one segment to the next."""
    overrides: Annotated[dict[str, Any], Field(max_length=64)] = Field(default_factory=dict)
    """Changed fields of the recipe, as in {"steps": 500, "optimizer": {"lr": 0.001}}."""
    start: Identifier | None = None
    """A done training of the same owner, or an imported model, whose weights initialise this training. The architecture
    must be equal; with `inherit` it is the parent's. A recipe with `distil` also uses this model as teacher."""
    inherit: StrictBool = False
    """Whether the model is a submodel of `start`'s model and begins with its weights. Defaults: `start` is the parent
    of the candidate's job, the recipe is `distil`."""
    licence: Licence | None = None
    """Licence of the weights for the model card: an identifier of SPDX or the Hugging Face Hub. Default: the licence of
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
    """Name of the requested or default recipe."""
    dataset: str
    tokens: int
    """Maximum tokens of each training; a budget of hours may end a training earlier."""


class MetricView(View):
    """One metrics report of a run, a line of its `metrics.jsonl`. Losses are in nats per token. `seconds` and `tokens`
    are totals over all starts and ranks.
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
    """Other metrics. With a teacher, `divergence` is mean KL(teacher || student) at the recipe's temperature."""


class MetricPage(View):
    """Page of metrics, ordered by step. `next_step` is the `after` of the next page."""

    items: tuple[MetricView, ...]
    next_step: int | None = None


class EvaluationView(View):
    """Score of a trained architecture, stored under the architecture's digest."""

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
    latency_half_width_ms: float | None = None
    memory_bytes: int | None
    on_frontier: bool


class TrainingView(View):
    id: Identifier
    name: str
    owner: str
    kind: Literal[TrainingKind.TRAINING, TrainingKind.SUPERNET, TrainingKind.IMPORT]
    """An import was trained elsewhere, so that it has no data set, recipe, budget, requirements, queue and seed."""
    state: TrainingState
    wanted: Wanted
    """The owner's latest command; the run follows it after its current step."""
    reason: str | None
    """Reason why the training failed."""
    note: str
    """Status in words, such as a halved batch, a resumed step, or a wait for a worker."""
    digest: str | None
    """Digest of the requested architecture, to which results belong. None for a supernet."""
    architecture: dict[str, Any]
    trained: dict[str, Any] | None
    """Trained architecture with the vocabulary of the data; None until the vocabulary is known."""
    decoder_parameters: int | None
    job_id: Identifier | None
    target_id: Identifier | None
    candidate_id: Identifier | None
    measured: MeasuredCandidateView | None
    dataset: str | None
    dataset_digest: str | None
    """Digest of the data set; None until the data set is prepared."""
    recipe: dict[str, Any] | None
    """The recipe with overrides."""
    start: Identifier | None = None
    """Id of the training whose weights initialise this one."""
    inherit: bool = False
    """Whether the model is a submodel of the model of `start`."""
    licence: str | None = None
    """Licence of the weights; None if not stated."""
    budget: TrainingBudget | None
    requires: Requirements | None
    queue: str | None
    """Queue of the workers that may take the training, without the installation's prefix."""
    seed: int | None
    attempts: int
    """Consecutive failures without a new checkpoint; the third failure ends the training."""
    worker: str | None
    step: int
    steps: int
    checkpoint: int | None
    """Step of the newest checkpoint."""
    tokens: int
    seconds: float
    seconds_left: float | None
    last_metric: MetricView | None
    """Latest value of each metric, so that a validation may be older than the training loss."""
    result: dict[str, Any] | None
    formats: tuple[str, ...] = ()
    """Download formats of the trained model (`/v1/trainings/{id}/model`); empty before the training is done."""
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
    """A file to download. `path` is relative to the training's folder, as in `result/model.safetensors`."""

    path: str
    size: int
    modified_at: datetime


class ProbabilityRecord(View):
    """Block probabilities after a step: a row for each layer, a number for each of `choices`."""

    step: int
    temperature: float
    probabilities: tuple[tuple[float, ...], ...]


class SearchProgress(View):
    """Progress of a supernet's search with one seed."""

    seed: int
    phase: Literal["weights", "tuning", "ended"]
    """Phase, which trains weights only, or weights and probabilities alternately."""
    pattern: str
    """The most probable block of each layer: s attention, f feed-forward, i identity."""
    expected_ms: float | None = None
    """Expected latency of the blocks; None without a latency term."""
    records: tuple[ProbabilityRecord, ...]
    """Records, ordered by step; the final record is current."""


class ProbabilitiesView(View):
    training_id: Identifier
    choices: tuple[str, ...]
    """Block types, in the order of a row of probabilities."""
    searches: tuple[SearchProgress, ...]
    """One search per seed; empty before the first report."""


class RecipeView(View):
    name: str
    title: str
    source: str
    """Source of the recipe: paper, table or script."""
    task: str
    """Type of the recipe's batches and models: streams, sentences, masked or pairs."""
    dataset: str | None
    """Name of the default data set."""
    steps: int
    tokens: int
    """Tokens of the whole training, computed from its rows and segments."""
    recipe: dict[str, Any]
    """The complete recipe."""


class DatasetView(View):
    name: str
    title: str
    digest: str | None
    """Digest that distinguishes data sets with equal names; None before the first use of a built-in data set."""
    level: str
    vocab_size: int | None
    parallel: bool
    """Whether the data set is text in two languages, for recipes whose task is pairs."""


class TrainerView(View):
    """A worker with a known pace, because it has completed a training."""

    name: str
    gpus: int
    """Number of GPUs of the worker's latest training; 0 for its CPU."""
    pace: TrainerPace
