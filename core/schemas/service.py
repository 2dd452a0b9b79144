"""Public requests and responses about devices, keys, the catalogue, scaling laws and the service itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictInt

from edgefront.core.common.states import DeviceState, KeyRole, Purpose
from edgefront.core.schemas.agent import DeviceFacts, Identifier, Name
from edgefront.core.schemas.messages import Request, View

Role = Literal[KeyRole.ADMIN, KeyRole.USER, KeyRole.VIEWER, KeyRole.AGENT]
PersonRole = Literal[KeyRole.ADMIN, KeyRole.USER, KeyRole.VIEWER]
"""Roles of keys: admins may do everything, users act for their owner, viewers only read."""
IdentifiedKind = Literal["job", "candidate", "training", "device", "token", "key"]


class Problem(View):
    """RFC 9457 problem document. `kind` is a stable identifier; invalid input has `field`, `value` and `allowed`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str
    kind: str
    instance: str | None = None
    field: str | None = None
    value: Any = None
    allowed: str | None = None


class DeviceView(View):
    id: Identifier
    name: str
    device_class: str
    owner: str
    state: DeviceState
    online: bool
    """Seen within the last minute."""
    last_seen_at: datetime | None
    enrolled_at: datetime
    facts: DeviceFacts
    leased: int
    """Number of its leased launches."""
    measuring_share: float | None
    quarantine: str | None = None
    """Why it gets no launches until its owner or an admin trusts it again; None if it gets them."""


class AnchorPoint(View):
    """A measurement of a device's anchor, with its conditions if reported."""

    launch_id: Identifier
    measured_at: datetime
    provider: str = "cpu"
    """Provider, as in the protocol."""
    latency_ms: float
    clock_mhz: float | None = None
    load_1m: float | None = None
    temperature_c: float | None = None
    mark: str | None = None


class AnchorView(View):
    """Measurements of a device's anchor, the small fixed model that it measures regularly; oldest first."""

    device_id: Identifier
    digest: str
    points: tuple[AnchorPoint, ...]


class HeldLaunch(View):
    """A launch that a device holds: it runs, or comes next."""

    launch_id: Identifier
    purpose: Purpose
    started_at: datetime | None
    """None: it waits on the device."""
    digest: str
    architecture: dict[str, Any]
    runtime: str
    mode: str
    job_id: Identifier | None = None
    """None for an anchor, and for launches of other owners' jobs."""
    job_name: str | None = None
    candidate_id: Identifier | None = None


class QueuedLaunches(View):
    """Waiting launches of one job."""

    job_id: Identifier | None
    """None: anchors and other owners' jobs together."""
    job_name: str | None
    of_class: bool
    """Whether any device of the class may take them."""
    launches: int


class DeviceWork(View):
    """Present and waiting launches of a device."""

    device_id: Identifier
    held: tuple[HeldLaunch, ...]
    """Started ones first."""
    waiting: int
    """Number of launches that wait for this device."""
    waiting_class: int
    """Number of launches that wait for any device of its class."""
    queue: tuple[QueuedLaunches, ...]
    """The same by job, the largest first, at most 50."""


class AddressView(View):
    """Address of this service for devices."""

    url: str
    local_only: bool
    """Whether only agents on the server's machine reach it."""
    note: str = ""
    """A warning; mostly empty."""


class DevicePage(View):
    items: tuple[DeviceView, ...]
    next_cursor: str | None = None


class EnrolmentTokenRequest(Request):
    name: Name = "device"
    minutes: Annotated[StrictInt, Field(ge=1, le=60 * 24 * 30)] = 60
    uses: Annotated[StrictInt, Field(ge=1, le=10_000)] = 1


class ReenrolRequest(Request):
    minutes: Annotated[StrictInt, Field(ge=1, le=60 * 24 * 30)] = 60


class EnrolmentTokenView(View):
    id: Identifier
    name: str
    expires_at: datetime
    uses_left: int
    revoked: bool
    device_id: Identifier | None = None
    """The device that it enrols again; null: it enrols new devices."""
    enrolled: tuple[Identifier, ...] = ()
    """Ids of the devices enrolled with it; empty in lists."""
    token: str | None = None
    """The secret; only in the answer that made it."""


class KeyRequest(Request):
    name: Name
    role: PersonRole = KeyRole.USER
    owner: Name | None = None
    """Owner whose rows it sees; default: the name. Admins and viewers see all."""
    days: Annotated[StrictInt, Field(ge=1, le=3650)] | None = None


class KeyView(View):
    id: Identifier
    name: str
    owner: str
    role: Role
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked: bool
    key: str | None = None
    """The secret; only in the answer that made it."""


class IdentifierView(View):
    """The identifier with a given prefix."""

    id: Identifier


class Costs(View):
    """Exact costs of an architecture, as `edgefront describe` prints them."""

    digest: str
    decoder_parameters: int
    position_parameters: int
    embedding_parameters: int
    total_parameters: int
    flops: int
    """FLOPs of one pass, two for each multiply-accumulate; the fields after `state_bytes` describe the pass."""
    weight_bytes: int
    state_bytes: int = 0
    """Bytes of the cache after the pass: keys, values and recurrent states."""
    sequence_length: int
    batch: int
    dtype: str
    mode: str = "forward"
    memory_length: int = 0
    logits: str = "all"
    weights: str = "full"


class SpaceView(View):
    name: str
    title: str
    source: str
    caveat: str = ""
    """Why the proxy misleads in this space; empty if it does not."""
    genes: dict[str, Any]
    """Gene → its permitted values as {values} or {min, max, step}, and whether it is per layer."""
    loads_in: tuple[str, ...] = ()
    """Libraries that load its architectures, or those left by the narrowing `loads_in`: transformers, llamacpp."""
    size: str
    """Number of architectures as decimal text (it may exceed 2^64)."""


class QualityFeature(View):
    """A feature of a scaling law, and its range in the law's data."""

    name: str
    unit: str
    meaning: str
    low: float
    high: float


class QualityLawView(View):
    """A scaling law without its data: metadata and ranges."""

    name: str
    family: str
    """gpt2, llama, transformer-xl or empty."""
    title: str
    data: str
    split: str
    tokens: str
    """Tokens that the perplexity is per."""
    trained: str
    label: str = ""
    """Data, tokens and training of its predictions in about six words."""
    source: str
    licence: str
    table_models: int
    """Number of trained models that it was fitted to."""
    blocks: tuple[str, ...]
    """Block kinds of those models."""
    features: tuple[QualityFeature, ...]
    widening: float
    """Factor of all standard deviations, calibrated by leave-one-out."""
    prior: str | None
    """The law whose prediction is its prior mean; None without one."""
    relative_to: str | None = None
    """The named model to which predictions are ratios; None: they are perplexities."""
    train_tokens: float | None = None
    """Default training tokens; None for a law of one budget."""
    min_train_tokens: float | None = None
    max_train_tokens: float | None = None
    """Intervals are wider beyond this range."""
    updated_at: datetime | None = None
    """Time of its last fit; None for a shipped law."""


class AlgorithmView(View):
    name: str
    title: str
    source: str
    settings: dict[str, Any]
    """JSON schema of its settings, with defaults."""


class NamedModelView(View):
    name: str
    source: str
    architecture: dict[str, Any]
    costs: Costs


class ImportedModel(View):
    """The architecture of a Hugging Face configuration."""

    digest: str
    architecture: dict[str, Any]


class HealthView(View):
    status: Literal["ok", "unavailable"]
    version: str
    checks: dict[str, str] = Field(default_factory=dict)


class SessionRequest(Request):
    """Login of a browser."""

    key: Annotated[str, Field(min_length=1, max_length=200)]


class MeView(View):
    """The key of the request."""

    key_id: Identifier
    name: str
    owner: str
    role: Role
    device_id: Identifier | None = None


class LawChoice(View):
    """A scaling law."""

    law: str
    models: int
    """Number of trained models that it was fitted to, without its prior's."""
    data: str
    split: str
    trained: str
    label: str = ""
    """What its predictions are of, in about six words."""
    relative_to: str | None = None
    """The model to whose perplexity predictions are ratios; None: they are perplexities."""
    updated_at: datetime | None = None
    """When trainings taught it last; None of a shipped law."""


class AgreementRow(View):
    """A candidate's predicted perplexity and its perplexity after training."""

    candidate_id: Identifier
    target: str
    number: int
    name: str
    """Its shape in words."""
    training_id: Identifier | None
    predicted: float
    low: float
    high: float
    """The ends of the 95 % interval."""
    trained: float
    held: bool
    """Whether the interval contains the trained perplexity."""
    learnt_from: bool
    """Whether the law was fitted to this training; the prediction is then leave-one-out."""


class LawAgreement(View):
    """Agreement of predictions with the job's candidates that were trained alike (data, recipe, budget)."""

    dataset: str
    split: str
    recipe: str
    alike: bool
    """Whether the law's models were trained likewise. If not, only order and ratio are meaningful."""
    models: int
    held: int
    ratio: float
    """Median of trained by predicted perplexity."""
    held_after_shift: int
    """Number of intervals that hold after division by that ratio."""
    spearman: float | None
    """ρ of predicted and trained perplexity; None for too few models."""
    rows: tuple[AgreementRow, ...]
    """By rising trained perplexity."""


class JobLawView(View):
    """The scaling laws of a job's search and of its answers, and the agreement of the latter with trainings."""

    job_id: Identifier
    law: LawChoice | None
    """Law of the search, fixed at its beginning; None if no law covers the space."""
    answers: LawChoice | None
    """Law of the answers: the newest one refined by the owner's trainings, if any."""
    agreement: LawAgreement | None
    """None while no candidate has both a predicted and a trained perplexity."""
