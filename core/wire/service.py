"""Public requests and responses about devices, keys, the catalogue and the service itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictInt

from edgefront.core.states import DeviceState
from edgefront.core.wire.agent import DeviceFacts, Identifier, Name
from edgefront.core.wire.messages import Request, View

Role = Literal["admin", "user", "agent"]


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


class DevicePage(View):
    items: tuple[DeviceView, ...]
    next_cursor: str | None = None


class EnrolmentTokenRequest(Request):
    name: Name = "device"
    minutes: Annotated[StrictInt, Field(ge=1, le=60 * 24 * 30)] = 60
    uses: Annotated[StrictInt, Field(ge=1, le=10_000)] = 1


class EnrolmentTokenView(View):
    id: Identifier
    name: str
    expires_at: datetime
    uses_left: int
    revoked: bool
    token: str | None = None
    """The secret; only in the answer that made it."""


class KeyRequest(Request):
    name: Name
    role: Literal["admin", "user"] = "user"
    owner: Name | None = None
    """Whose rows it sees; the name if absent. Admins see all."""
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
    version: int = 0
    """Of a law that trainings of the service have refined, from 1: it is named NAME@VERSION. 0: it comes along."""
    family: str
    """gpt2 or transformer-xl; empty for a law of neither."""
    title: str
    data: str
    split: str
    tokens: str
    """The tokens that the perplexity is per."""
    trained: str
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
    created_at: datetime | None = None
    """Of a refined law."""


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
