"""Public requests and responses about devices, keys, the catalogue, scaling laws and the service itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, StrictInt

from edgefront.core.architectures.cost.costs import Costs
from edgefront.core.common.states import DeviceState, KeyRole, Purpose
from edgefront.core.measurement.protocol import Mode
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
    """Whether the device was seen within the last minute."""
    last_seen_at: datetime | None
    enrolled_at: datetime
    facts: DeviceFacts
    leased: int
    """Number of launches that the device leases."""
    measuring_share: float | None
    conditions: str | None = None
    """Disturbed conditions of its latest launch, such as other load; None if they were good."""
    quarantine: str | None = None
    """Reason why the device gets no launches until its owner or an admin trusts it again; else None."""


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
    """Measurements of a device's anchor, a small fixed model that the device measures regularly; oldest first."""

    device_id: Identifier
    digest: str
    points: tuple[AnchorPoint, ...]


class HeldLaunch(View):
    """A launch that a device leases: it runs, or waits on the device."""

    launch_id: Identifier
    purpose: Purpose
    started_at: datetime | None
    """None: the launch waits on the device."""
    digest: str
    architecture: dict[str, Any]
    runtime: str
    mode: str
    job_id: Identifier | None = None
    """Job of the launch; None for an anchor, and for launches of other owners' jobs."""
    job_name: str | None = None
    candidate_id: Identifier | None = None


class QueuedLaunches(View):
    """Waiting launches of one job."""

    job_id: Identifier | None
    """Job of the launches; None for anchors and other owners' jobs together."""
    job_name: str | None
    of_class: bool
    """Whether any device of the class may take these launches."""
    launches: int


class DeviceWork(View):
    """Leased and waiting launches of a device."""

    device_id: Identifier
    held: tuple[HeldLaunch, ...]
    """Leased launches, started ones first."""
    waiting: int
    """Number of launches that wait for this device."""
    waiting_class: int
    """Number of launches that wait for any device of its class."""
    queue: tuple[QueuedLaunches, ...]
    """Waiting launches by job: at most 50 jobs, those with the most launches first."""


class AddressView(View):
    """Address of this service for devices."""

    url: str
    local_only: bool
    """Whether only agents on the server's machine reach this address."""
    note: str = ""
    """Warning about the address; mostly empty."""


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
    """Device that the token enrols again; None: the token enrols new devices."""
    enrolled: tuple[Identifier, ...] = ()
    """Ids of the devices enrolled with this token; empty in lists."""
    token: str | None = None
    """The secret token; only in the response that created the token."""


class KeyRequest(Request):
    name: Name
    role: PersonRole = KeyRole.USER
    owner: Name | None = None
    """Owner whose rows the key may read; default: the key's name. Admins and viewers read all rows."""
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
    """The secret key; only in the response that created the key."""


class IdentifierView(View):
    """The one identifier that begins with the requested prefix."""

    id: Identifier


class SpaceView(View):
    name: str
    title: str
    source: str
    caveat: str = ""
    """Reason why parameter counts mislead as a proxy in this space; empty without one."""
    genes: dict[str, Any]
    """Gene → permitted values, as {values} or {min, max, step}, and whether the gene is per layer."""
    loads_in: tuple[str, ...] = ()
    """Libraries that load the space's architectures, as narrowed by `loads_in`: transformers, llamacpp."""
    size: str
    """Number of architectures as decimal text, because it may exceed 2^64."""
    modes: tuple[Mode, ...] = get_args(Mode)
    train_tokens: float | None = None
    """Default training tokens of predicted perplexities; None if the scaling law has one budget, or there is none."""


class QualityFeature(View):
    """A feature of a scaling law, and the feature's range in the law's training data."""

    name: str
    unit: str
    meaning: str
    low: float
    high: float


class QualityLawView(View):
    """Metadata of a scaling law, and the ranges of its training data."""

    name: str
    family: str
    """Family of the models: gpt2, llama, transformer-xl or empty."""
    title: str
    data: str
    split: str
    tokens: str
    """Kind of tokens that the perplexity refers to."""
    trained: str
    label: str = ""
    """Label of the predictions: data, tokens and training in about six words."""
    source: str
    licence: str
    table_models: int
    """Number of trained models that the scaling law was fitted to."""
    blocks: tuple[str, ...]
    """Kinds of blocks in the trained models."""
    features: tuple[QualityFeature, ...]
    widening: float
    """Factor of all standard deviations of predictions, calibrated by leave-one-out."""
    prior: str | None
    """Name of the scaling law whose prediction is the prior mean; None without one."""
    relative_to: str | None = None
    """Named model whose perplexity the predictions are relative to; None: predictions are perplexities."""
    train_tokens: float | None = None
    """Default number of training tokens; None for a scaling law with one budget."""
    min_train_tokens: float | None = None
    max_train_tokens: float | None = None
    """Range of training tokens in the scaling law's data; intervals are wider beyond this range."""
    updated_at: datetime | None = None
    """Time of the latest fit; None for a shipped law."""


class AlgorithmView(View):
    name: str
    title: str
    source: str
    settings: dict[str, Any]
    """JSON schema of the algorithm's settings, with defaults."""


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
    status: Literal["ok", "degraded", "unavailable"]
    version: str
    checks: dict[str, str] = Field(default_factory=dict)


class SessionRequest(Request):
    """Login of a browser with an API key."""

    key: Annotated[str, Field(min_length=1, max_length=200)]


class MeView(View):
    """Who sent the request."""

    key_id: Identifier | None = None
    """Id of the API key; absent if a proxy has signed the person in."""
    name: str
    owner: str
    role: Role
    device_id: Identifier | None = None


class LawChoice(View):
    """The scaling law of a job's search or of its answers."""

    law: str
    models: int
    """Number of trained models that the scaling law was fitted to, without those of its prior."""
    data: str
    split: str
    trained: str
    label: str = ""
    """Label of the predictions: data and training in about six words."""
    relative_to: str | None = None
    """Model whose perplexity the predictions are relative to; None: predictions are perplexities."""
    updated_at: datetime | None = None
    """Time of the latest fit to trainings; None for a shipped law."""


class AgreementRow(View):
    """A candidate's predicted perplexity and its perplexity after training."""

    candidate_id: Identifier
    target: str
    number: int
    name: str
    """Shape of the architecture in words."""
    training_id: Identifier | None
    predicted: float
    low: float
    high: float
    """Ends of the prediction's 95 % interval."""
    trained: float
    held: bool
    """Whether the predicted interval contains the trained perplexity."""
    learnt_from: bool
    """Whether the scaling law was fitted to this training; the prediction is then leave-one-out."""


class LawAgreement(View):
    """Agreement of predicted and trained perplexity, over the job's candidates with equal data, recipe and budget."""

    dataset: str
    split: str
    recipe: str
    alike: bool
    """Whether the scaling law's models were trained in the same way. If not, only order and ratio are meaningful."""
    models: int
    held: int
    ratio: float
    """Median ratio of trained to predicted perplexity."""
    held_after_shift: int
    """Number of intervals that contain the trained perplexity after division by `ratio`."""
    spearman: float | None
    """ρ of predicted and trained perplexity; None for too few models."""
    rows: tuple[AgreementRow, ...]
    """Trained candidates in ascending order of trained perplexity."""


class JobLawView(View):
    """The scaling laws of a job's search and of its answers, and the agreement of the answers' law with trainings."""

    job_id: Identifier
    law: LawChoice | None
    """Scaling law of the search, fixed when the search begins; None if no law covers the space."""
    answers: LawChoice | None
    """Scaling law of the answers: the newest one refined by the owner's trainings, else the search's law."""
    agreement: LawAgreement | None
    """Agreement with trainings; None until a candidate has a predicted and a trained perplexity."""
