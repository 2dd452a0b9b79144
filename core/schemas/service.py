"""Public requests and responses about devices, keys, the catalogue, quality laws and the service itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictInt

from edgefront.core.common.states import DeviceState, KeyRole, Purpose
from edgefront.core.schemas.agent import DeviceFacts, Identifier, Name
from edgefront.core.schemas.messages import Request, View

Role = Literal[KeyRole.ADMIN, KeyRole.USER, KeyRole.VIEWER, KeyRole.AGENT]
PersonRole = Literal[KeyRole.ADMIN, KeyRole.USER, KeyRole.VIEWER]
"""Of a key: an admin does everything, a user what concerns its owner, a viewer reads everything and changes nothing."""
IdentifiedKind = Literal["job", "candidate", "training", "device", "token", "key"]


class Problem(View):
    """RFC 9457 problem document. `kind` is the stable word; `field`, `value`, `allowed` come with invalid input."""

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
    """Launches it holds now."""
    measuring_share: float | None
    quarantine: str | None = None
    """Why it gets no launches until its owner or an admin trusts it again. None: it gets them."""


class AnchorPoint(View):
    """One measurement of a device's anchor, and the conditions, where the device reports them."""

    launch_id: Identifier
    measured_at: datetime
    provider: str = "cpu"
    """What it was measured on, as in the protocol."""
    latency_ms: float
    clock_mhz: float | None = None
    load_1m: float | None = None
    temperature_c: float | None = None
    mark: str | None = None


class AnchorView(View):
    """The history of a device's anchor, the small fixed model that it measures regularly; oldest first."""

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
    """None of an anchor, and of what only jobs of other owners wanted."""
    job_name: str | None = None
    candidate_id: Identifier | None = None


class QueuedLaunches(View):
    """Launches of one job that wait for a device."""

    job_id: Identifier | None
    """None: anchors, and jobs of other owners, together."""
    job_name: str | None
    of_class: bool
    """Any device of its class may take them."""
    launches: int


class DeviceWork(View):
    """What a device does now, and what waits for it."""

    device_id: Identifier
    held: tuple[HeldLaunch, ...]
    """Those that have started first."""
    waiting: int
    """Launches that wait for this device alone."""
    waiting_class: int
    """Launches that wait for any device of its class."""
    queue: tuple[QueuedLaunches, ...]
    """The same by job: the largest first, 50 at most."""


class AddressView(View):
    """Where a device reaches this service."""

    url: str
    local_only: bool
    """Only an agent on the server's own machine reaches it."""
    note: str = ""
    """What a person should know of it; mostly empty."""


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
    """The one device that it enrols again; null: it enrols new devices."""
    enrolled: tuple[Identifier, ...] = ()
    """Ids of the devices that enrolled with it; not in lists."""
    token: str | None = None
    """The secret; only in the answer that made it."""


class KeyRequest(Request):
    name: Name
    role: PersonRole = KeyRole.USER
    owner: Name | None = None
    """Whose rows it sees; the name if absent. Admins and viewers see all."""
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
    """The whole identifier that a part of it stands for."""

    id: Identifier


class Costs(View):
    """Exact costs of an architecture, as `edgefront describe` prints them."""

    digest: str
    decoder_parameters: int
    position_parameters: int
    embedding_parameters: int
    total_parameters: int
    flops: int
    """Two for each multiply-accumulate of one pass, which the fields after `state_bytes` describe."""
    weight_bytes: int
    state_bytes: int = 0
    """Keys, values and cells that generation keeps after all tokens of the pass."""
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
    """Why the proxy is known to mislead in this space; empty where that is not known."""
    genes: dict[str, Any]
    """Gene → its permitted values as {values} or {min, max, step}, and whether it is per layer."""
    loads_in: tuple[str, ...] = ()
    """What loads its architectures, or a part of them that the narrowing `loads_in` leaves: transformers, llamacpp."""
    size: str
    """Number of architectures, a decimal integer as text (it passes 2^64)."""


class QualityFeature(View):
    """One feature of a quality law, and the range in which its table has models."""

    name: str
    unit: str
    meaning: str
    low: float
    high: float


class QualityLawView(View):
    """A quality law without its table: what perplexity it predicts, and where it holds."""

    name: str
    family: str
    """gpt2, llama or transformer-xl; empty for a law of none of these."""
    title: str
    data: str
    split: str
    tokens: str
    """The tokens that the perplexity is per."""
    trained: str
    label: str = ""
    """What its predictions are of, in about six words: whose data, how many tokens, how trained."""
    source: str
    licence: str
    table_models: int
    """Trained models that it was fitted to."""
    blocks: tuple[str, ...]
    """Kinds of blocks of those models."""
    features: tuple[QualityFeature, ...]
    widening: float
    """Factor of all standard deviations, from predictions of each model by the others."""
    prior: str | None
    """The law whose prediction is its mean; None without one."""
    relative_to: str | None = None
    """The named model to whose perplexity predictions are ratios; None: they are perplexities."""
    train_tokens: float | None = None
    """Training tokens that it speaks of unless others are asked for; None: it knows one budget alone."""
    min_train_tokens: float | None = None
    max_train_tokens: float | None = None
    """Beyond these its intervals widen."""
    updated_at: datetime | None = None
    """When trainings taught it last; None of a shipped law."""


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
    """What a Hugging Face configuration describes."""

    digest: str
    architecture: dict[str, Any]


class HealthView(View):
    status: Literal["ok", "unavailable"]
    version: str
    checks: dict[str, str] = Field(default_factory=dict)


class SessionRequest(Request):
    """What a browser logs in with."""

    key: Annotated[str, Field(min_length=1, max_length=200)]


class MeView(View):
    """Whose key it is that asks."""

    key_id: Identifier
    name: str
    owner: str
    role: Role
    device_id: Identifier | None = None


class LawChoice(View):
    """A scaling law."""

    law: str
    models: int
    """Trained models that it was fitted to, without its prior's."""
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
    """A candidate's predicted and trained perplexity."""

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
    """The law was fitted to this training too: it is predicted without it (leave-one-out)."""


class LawAgreement(View):
    """How far predictions agree with trainings of the job's candidates that were alike (data, recipe, budget)."""

    dataset: str
    split: str
    recipe: str
    alike: bool
    """Whether the models of the law were trained so too. Otherwise only the order and the ratio tell anything."""
    models: int
    held: int
    ratio: float
    """Median of trained by predicted perplexity."""
    held_after_shift: int
    """Intervals that hold after that ratio is taken out."""
    spearman: float | None
    """Of predicted and trained perplexity; None for too few models."""
    rows: tuple[AgreementRow, ...]
    """By rising trained perplexity."""


class JobLawView(View):
    """The scaling laws of a job's search and of its answers, and how far the latter agrees with trainings."""

    job_id: Identifier
    law: LawChoice | None
    """By which it searches, from its beginning to its end. None where no law is about the models of its space."""
    answers: LawChoice | None
    """By which it answers: what its owner's trainings have taught by now, where they did."""
    agreement: LawAgreement | None
    """None while none of the job's candidates has both a predicted and a trained perplexity."""
