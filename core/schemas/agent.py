"""Messages between agent and server. `PROTOCOL_VERSION` rises with each change of the messages; the server refuses
agents of another version.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    model_validator,
)

from edgefront.core.common.number_formats import KvCache, NumberFormat
from edgefront.core.common.states import DeviceState, ReportOutcome
from edgefront.core.common.validation import form, printable
from edgefront.core.measurement.protocol import MeasurementProtocol, MemoryMethod, Mode, Runtime
from edgefront.core.measurement.record import Fact, LaunchResult

PROTOCOL_VERSION = 4
WITHHELD_HEADER = "Edgefront-Withheld"
"""Header of a lease response: why the device gets no launches, percent-encoded. It is not a field, because older agents
would refuse a new field."""
INSTANCE_HEADER = "Edgefront-Agent-Instance"
"""Header of a lease request: a random id of the agent's process (`INSTANCE`), which distinguishes two agents with one
credential. Older servers ignore this header."""
INSTANCE = re.compile(r"[A-Za-z0-9_-]{20,64}")
MAX_BATCH = 32
MAX_FACTS_BYTES = 64 << 10
MAX_FENCE = (1 << 31) - 1
MAX_WAIT_S = 60

Identifier = Annotated[
    str, Field(min_length=1, max_length=64, pattern=form(r"^[A-Za-z0-9_\-]+$", "letters, digits, _ and -"))
]
Nonce = Annotated[
    str, Field(min_length=20, max_length=64, pattern=form(r"^[A-Za-z0-9_\-]+$", "letters, digits, _ and -"))
]
Fence = Annotated[int, Field(strict=True, ge=0, le=MAX_FENCE)]
Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100,
        pattern=form(
            r"^[\w.:@()+,/\-][\w .:@()+,/\-]*$", "letters, digits, spaces (not first) and any of . : @ ( ) + , / - _"
        ),
    ),
]
Printable = AfterValidator(printable)
"""Text of one line without control characters."""
FactName = Annotated[str, Field(max_length=64), Printable]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RuntimeFacts(_Message):
    """A runtime on the device, with its working providers and memory methods."""

    runtime: Runtime
    version: Annotated[str, Field(max_length=100), Printable]
    providers: Annotated[
        tuple[Annotated[str, Field(max_length=40), Printable], ...],
        Field(max_length=32, fail_fast=True),
    ]
    memory_methods: Annotated[tuple[MemoryMethod, ...], Field(max_length=8, fail_fast=True)]
    numbers: Annotated[
        dict[
            Annotated[str, Field(max_length=40), Printable],
            Annotated[tuple[NumberFormat, ...], Field(max_length=16, fail_fast=True)],
        ],
        Field(max_length=32),
    ] = Field(default_factory=dict)
    """Provider → number formats that were tested with this provider; only float32 for other providers."""

    kv_caches: Annotated[
        tuple[KvCache, ...], Field(max_length=8, fail_fast=True, exclude_if=lambda formats: not formats)
    ] = ()
    """Formats of llama.cpp's key/value cache."""


class DeviceFacts(_Message):
    """Hardware and software of a device, as its agent reports them."""

    hostname: Annotated[str, Field(max_length=255), Printable]
    system: Annotated[str, Field(max_length=100), Printable]
    """Operating system and release, such as `Linux 6.1.0`."""
    architecture: Annotated[str, Field(max_length=40), Printable]
    """Processor architecture: x86_64, aarch64 …"""
    cpu: Annotated[str, Field(max_length=200), Printable]
    cpu_features: Annotated[
        tuple[Annotated[str, Field(max_length=40), Printable], ...],
        Field(max_length=256, fail_fast=True),
    ] = ()
    cores: Annotated[int, Field(strict=True, ge=1, le=4096)]
    """Cores that the agent may use."""
    memory_bytes: Annotated[int, Field(strict=True, ge=1, le=1 << 50)]
    gpus: Annotated[
        tuple[Annotated[dict[FactName, Fact], Field(max_length=32)], ...], Field(max_length=64, fail_fast=True)
    ] = ()
    runtimes: Annotated[tuple[RuntimeFacts, ...], Field(max_length=8, fail_fast=True)]
    modes: Annotated[tuple[Mode, ...], Field(max_length=8, fail_fast=True)]
    """Modes of the protocol that the agent supports."""
    extra: Annotated[dict[FactName, Fact], Field(max_length=64)] = Field(default_factory=dict)


def _bounded(facts: DeviceFacts) -> DeviceFacts:
    size = len(facts.model_dump_json().encode())
    if size > MAX_FACTS_BYTES:
        raise ValueError(f"facts must have at most {MAX_FACTS_BYTES} bytes as JSON, not {size}")
    return facts


ReportedFacts = Annotated[DeviceFacts, AfterValidator(_bounded)]


class EnrolRequest(_Message):
    """Request to exchange an enrolment token (bearer) for the device's own credential."""

    protocol_version: StrictInt = PROTOCOL_VERSION
    name: Name
    """Device name, unique among devices; default: the host name."""
    device_class: Name
    """Class of interchangeable devices; default: CPU or GPU model, architecture and core count."""
    facts: ReportedFacts
    nonce: Annotated[Nonce | None, Field(exclude_if=lambda nonce: nonce is None)] = None
    """Random text that is equal in a repeated request, so that the repetition gets the same response. Without a nonce,
    only a request with a single-use token can be repeated.
    """


class EnrolResponse(_Message):
    protocol_version: StrictInt = PROTOCOL_VERSION
    device_id: Identifier
    credential: str
    """The device's secret; sent once, stored as a hash."""


class LeaseRequest(_Message):
    protocol_version: StrictInt = PROTOCOL_VERSION
    max_items: Annotated[int, Field(strict=True, ge=1, le=MAX_BATCH)] = 8
    wait_s: Annotated[float, Field(strict=True, ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 25.0
    """Seconds that the server may hold the request while there is no work."""
    facts: ReportedFacts | None = None
    """Sent with the first lease request of a process, to report changed hardware or versions."""


class LeaseItem(_Message):
    """A launch to run. `fence`, the fencing token, is part of every message about this launch."""

    launch_id: Identifier
    fence: int
    digest: str
    architecture: dict[str, Any]
    """The canonical description; the agent parses it with `Architecture.parse`."""
    protocol: MeasurementProtocol
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
    """Seed of the random weights and tokens."""


class LeaseResponse(_Message):
    """Leased launches. `items` is empty and `lease_id` None if there was no work in time."""

    lease_id: Identifier | None = None
    items: tuple[LeaseItem, ...] = ()
    expires_at: datetime | None = None
    ttl_s: float = 0.0
    heartbeat_s: float = 0.0
    """Maximum seconds between two heartbeats during the lease."""
    state: Literal[DeviceState.ACTIVE, DeviceState.DRAINING] = DeviceState.ACTIVE
    """State of the device; a draining device gets no work."""


class StartRequest(_Message):
    """The agent starts this launch now. From now on the agent's death uses up an attempt of the launch."""

    fence: Fence
    conditions: Annotated[
        Annotated[str, Field(max_length=200), Printable] | None, Field(exclude_if=lambda text: text is None)
    ] = None
    """What the launch waits for (`WAITS`), in a repeated message; the device's conditions until the next report."""


class HeartbeatResponse(_Message):
    expires_at: datetime
    state: Literal[DeviceState.ACTIVE, DeviceState.DRAINING] = DeviceState.ACTIVE
    cancelled: tuple[Identifier, ...] = ()
    """Launches of this lease that are no longer needed (job paused or cancelled). Skip those that are not started."""


class ReleaseRequest(_Message):
    """Gives back launches that were not started; if empty, all unfinished launches of the lease."""

    launch_ids: Annotated[tuple[Identifier, ...], Field(max_length=MAX_BATCH, fail_fast=True)] = ()


class LaunchReport(_Message):
    launch_id: Identifier
    fence: Fence
    result: LaunchResult

    @model_validator(mode="after")
    def _times_add_up(self) -> LaunchReport:
        if self.result.measuring_s > self.result.wall_s:
            raise ValueError("measuring_s must be at most wall_s, which includes it")
        return self


class ReportRequest(_Message):
    protocol_version: StrictInt = PROTOCOL_VERSION
    reports: Annotated[tuple[LaunchReport, ...], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)]
    busy_s: Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """Wall time with a lease since the agent's previous report, s. `measuring_s` divided by it is the measuring share.
    """


class ReportReceipt(_Message):
    """Answer to a report. accepted: the report counts. duplicate: the same report came before and gets the same answer.
    conflict: another report completed this launch, or another device leases it; drop the report. unknown: the launch
    does not exist (its job was deleted); drop the report. cancelled: the job no longer needs the launch; its result is
    stored.
    """

    launch_id: Identifier
    outcome: ReportOutcome
    detail: str = ""


class ReportResponse(_Message):
    receipts: tuple[ReportReceipt, ...]
