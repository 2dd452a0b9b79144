"""The agent's HTTP requests to the server, each a cancellable coroutine, and the rules for repeating requests.

Error responses raise exceptions of `core.common.errors`, chosen by HTTP status. An unreachable server, a proxy's error
page and an unreadable response raise `Unavailable`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay, stop_never

from edgefront.core.common.addresses import is_own
from edgefront.core.common.errors import (
    Conflict,
    EdgefrontError,
    Forbidden,
    Gone,
    InvalidInput,
    NotFound,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from edgefront.core.common.http_client import (
    asking,
    client_options,
    pauses,
    problem_document,
    retry_after_s,
    server_url,
)
from edgefront.core.schemas.agent import (
    INSTANCE_HEADER,
    WITHHELD_HEADER,
    EnrolRequest,
    EnrolResponse,
    HeartbeatResponse,
    LeaseRequest,
    LeaseResponse,
    ReleaseRequest,
    ReportRequest,
    ReportResponse,
    StartRequest,
)

_CONNECT_S = 10.0
_ANSWER_S = 30.0

Answer = TypeVar("Answer", bound=BaseModel)
Result = TypeVar("Result")


class ProtocolMismatch(EdgefrontError):
    """Raised if the protocol versions of agent and server are incompatible. The older program must be updated."""

    status = 426
    kind = "protocol-mismatch"


class CopiedDataFolder(EdgefrontError):
    """Raised if the data folder is a copy of another agent's folder, because both agents would report as one device."""

    kind = "copied-data-folder"


_KINDS = (Unauthenticated, Forbidden, NotFound, Conflict, Gone, TooLarge, ProtocolMismatch, TooManyRequests)
_BY_STATUS: Mapping[int, type[EdgefrontError]] = {kind.status: kind for kind in _KINDS}


def check_url(server: str, *, insecure: bool = False) -> str:
    """Returns the server's URL without a trailing slash.

    Raises `InvalidInput` for an invalid URL, and for plain HTTP beyond this machine unless `insecure`, because plain
    HTTP exposes the credential and all results to the network.
    """
    url = httpx.URL(server_url(server, field="server"))
    if url.scheme == "http" and not insecure and not is_own(url.host):
        raise InvalidInput(
            f"plain HTTP to {url.host} would expose this device's credential to the network",
            field="server",
            value=server,
            allowed="an https:// URL, or --insecure in a network that you trust",
        )
    return server.rstrip("/")


class AgentClient:
    """One device's connection to the server. Use as an asynchronous context manager.

    `instance` is the name of this process (`core.schemas.agent.INSTANCE_HEADER`); by default a random name.
    """

    def __init__(self, server: str, *, insecure: bool = False, instance: str | None = None) -> None:
        self.instance = instance or secrets.token_urlsafe(24)
        self.server = check_url(server, insecure=insecure)
        self.blocked_reason: str | None = None
        """Why the device gets no launches, from the latest response to `lease`; None if it may get launches."""
        self._http = httpx.AsyncClient(
            **client_options(self.server),
            base_url=self.server,
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=60.0),
            headers={"User-Agent": "edgefront-agent", INSTANCE_HEADER: self.instance},
        )

    async def __aenter__(self) -> AgentClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def use(self, credential: str) -> None:
        """Authenticates with this credential from now on."""
        self._http.headers["Authorization"] = f"Bearer {credential}"

    async def enrol(self, token: str, request: EnrolRequest) -> EnrolResponse:
        """Exchanges an enrolment token for a credential."""
        return await self._ask("/v1/agents/enrol", request, EnrolResponse, bearer=token)

    async def lease(self, request: LeaseRequest) -> LeaseResponse:
        """Requests work; the server may take `wait_s` of the request to answer. Cancelling closes the connection, so
        that the server releases launches that it was just assigning to this agent.
        """
        response = await self._send("/v1/leases", request, wait_s=request.wait_s)
        reason = response.headers.get(WITHHELD_HEADER)
        self.blocked_reason = None if reason is None else unquote(reason)
        return self._read(response, LeaseResponse)

    async def start(self, launch_id: str, fence: int, conditions: str | None = None) -> None:
        """Reports the start of a launch, or what it waits for; `fence` is its fencing token. Raises `Conflict` or
        `NotFound` if the launch was reassigned or is no longer needed.
        """
        await self._send(f"/v1/launches/{launch_id}/start", StartRequest(fence=fence, conditions=conditions))

    async def heartbeat(self, lease_id: str) -> HeartbeatResponse:
        """Extends a lease. Raises `NotFound` or `Gone` if the lease has ended."""
        return await self._ask(f"/v1/leases/{lease_id}/heartbeat", None, HeartbeatResponse)

    async def release(self, lease_id: str, launch_ids: tuple[str, ...]) -> None:
        """Returns launches of a lease to the server, which reassigns them."""
        await self._send(f"/v1/leases/{lease_id}/release", ReleaseRequest(launch_ids=launch_ids))

    async def report(self, request: ReportRequest) -> ReportResponse:
        return await self._ask("/v1/reports", request, ReportResponse)

    async def _ask(self, path: str, body: BaseModel | None, kind: type[Answer], *, bearer: str | None = None) -> Answer:
        return self._read(await self._send(path, body, bearer=bearer), kind)

    def _read(self, response: httpx.Response, kind: type[Answer]) -> Answer:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise Unavailable(f"{self.server} sent a response that is not a {kind.__name__}: {error}") from None

    async def _send(
        self, path: str, body: BaseModel | None, *, wait_s: float = 0.0, bearer: str | None = None
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        timeout = httpx.Timeout(_ANSWER_S + wait_s, connect=_CONNECT_S)
        content = b"" if body is None else body.model_dump_json().encode()
        with asking(self.server):
            response = await self._http.post(path, content=content, headers=headers, timeout=timeout)
        if response.is_success:
            return response
        raise error_of(response)


def error_of(response: httpx.Response) -> EdgefrontError:
    """Returns the exception for an error response; the exception's `extra` includes `retry_after_s` if the server sends
    it. Errors from a proxy are temporary, except for a request body that the proxy finds too large.
    """
    status = response.status_code
    extra: dict[str, Any] = {} if (delay := retry_after_s(response.headers)) is None else {"retry_after_s": delay}
    problem = problem_document(response)
    if problem is None:
        kind = TooLarge if status == 413 else Unavailable
        return kind(f"the server answered {status} {response.reason_phrase} without a reason", **extra)
    detail = str(problem["detail"])
    if status == 409 and "protocol_version" in problem:
        return ProtocolMismatch(detail)
    if status == 409 and "second_agent" in problem:
        return CopiedDataFolder(detail)
    if status in _BY_STATUS:
        return _BY_STATUS[status](detail, **extra)
    if 400 <= status < 500 and status not in (408, 425):
        return InvalidInput(detail, field=str(problem.get("field") or ""), value=problem.get("value"))
    return Unavailable(detail, **extra)


def retryable(error: BaseException) -> bool:
    """Whether the same request may succeed later without any change, so that it should be retried."""
    return isinstance(error, Unavailable | TooManyRequests)


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetryPolicy:
    """Retries with the pauses of `core.common.http_client`, for at most `total_s` seconds (None: without limit)."""

    base_s: float = 0.5
    cap_s: float = 30.0
    total_s: float | None = None

    async def run(self, what: str, call: Callable[[], Awaitable[Result]]) -> Result:
        """Repeats `call` until it succeeds. Raises permanent errors at once, and a temporary error after `total_s`."""

        def log_failure(state: RetryCallState) -> None:
            # Logs the first failure, then at each doubling of the count, so that a long outage does not flood the log.
            failures = state.attempt_number
            if failures & (failures - 1) == 0:
                error = state.outcome.exception() if state.outcome else None
                pause_s = state.next_action.sleep if state.next_action else 0.0
                away_s = time.monotonic() - begun
                _log.warning(
                    "%s: %s (attempt %d, failing for %.0f s); next attempt in %.1f s",
                    what,
                    error,
                    failures,
                    away_s,
                    pause_s,
                )

        async def attempt() -> Result:  # tenacity awaits coroutine functions only, and `call` may be a lambda
            return await call()

        begun = time.monotonic()
        retrying = AsyncRetrying(
            retry=retry_if_exception(retryable),
            wait=pauses(self.base_s, self.cap_s),
            stop=stop_never if self.total_s is None else stop_before_delay(self.total_s),
            before_sleep=log_failure,
            reraise=True,
        )
        answer: Result = await retrying(attempt)
        if retrying.statistics["attempt_number"] > 1:
            _log.info("%s: the server is available again after %.0f s", what, time.monotonic() - begun)
        return answer


async def repeat(what: str, step: Callable[[], Awaitable[None]]) -> NoReturn:
    """Repeats a step forever. Errors from the server end the loop and are raised; any other error is logged, and the
    step is repeated after a pause, so that the agent survives unforeseen errors.
    """
    while True:
        try:
            await step()
        except EdgefrontError:
            raise
        except Exception:
            _log.exception("%s failed; trying again in %.0f s", what, AFTER_FAILURE_S)
            await asyncio.sleep(AFTER_FAILURE_S)


AFTER_FAILURE_S = 5.0
FOREVER = RetryPolicy()
"""Retry policy for leases, reports and enrolment: without time limit, because the agent waits for the server."""
BRIEF = RetryPolicy(base_s=0.2, cap_s=2.0, total_s=8.0)
"""Retry policy for requests that are useless when late: reporting the start of a launch, and returning launches."""
