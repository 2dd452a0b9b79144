"""The typed, synchronous client of the service: `from edgefront import Client`.

Methods return the wire models (`core.schemas`). Error responses raise exceptions of `core.common.errors`, chosen by the
`kind` in the server's problem document. While the server is unavailable, idempotent requests are retried with jitter.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.client.local import LocalServer, default_home, read_key
from edgefront.client.resources.downloads import Models
from edgefront.client.resources.fleet import Catalogue, Devices, Keys, Tokens
from edgefront.client.resources.jobs import Candidates, Frontier, Jobs, LimitQuery, limit_query
from edgefront.client.resources.trainings import Trainings
from edgefront.client.transport import Transport, segment
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Unavailable
from edgefront.core.common.validation import checked
from edgefront.core.schemas.jobs import PredictionBudget, Quality
from edgefront.core.schemas.predictions import ComparisonView, PredictionRequest, PredictionsView
from edgefront.core.schemas.service import HealthView, IdentifiedKind, IdentifierView

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Client:
    """A client of one server with one key. Thread-safe; a context manager that closes its HTTP connections.

    Args:
        url: the server; else `EDGEFRONT_URL`; else the embedded service that runs on this machine (`edgefront up`).
        key: the API key; else `EDGEFRONT_KEY`; else, for the embedded service, the key in its data folder.
        home: data folder of the embedded service; else `EDGEFRONT_HOME`; else the user's data folder.
        timeout_s: timeout of one request.
        patience_s: total time for which requests are retried while the server is unavailable.

    Raises `Unavailable` if no server is given and none runs on this machine.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 15.0,
    ) -> None:
        folder = Path(home) if home is not None else default_home()
        url = url or (os.environ.get("EDGEFRONT_URL") if home is None else None)
        key = key or (os.environ.get("EDGEFRONT_KEY") if home is None else None)
        if url is None:
            url = LocalServer.find(folder).url
            key = key or read_key(folder)
        elif key is None and _is_local(url, folder):
            key = read_key(folder)
        self._transport = Transport(url, key, timeout_s=timeout_s, patience_s=patience_s)
        self.url = self._transport.url
        self.jobs = Jobs(self._transport)
        self.candidates = Candidates(self._transport)
        self.models = Models(self._transport)
        self.trainings = Trainings(self._transport)
        self.devices = Devices(self._transport)
        self.tokens = Tokens(self._transport)
        self.keys = Keys(self._transport)
        self.catalogue = Catalogue(self._transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def frontier(
        self,
        job_id: str,
        *,
        target: str | None = None,
        by: Quality = "proxy",
        dataset: str | None = None,
        **limits: Unpack[LimitQuery],
    ) -> Frontier:
        """Returns the Pareto frontier of a job on a target (a device and runtime of the job), among the models within
        the limits. `target` is the target's id or name, optional if the job has one target. With `by="perplexity"`,
        returns the frontier of the models that were trained on `dataset`.
        """
        params = {"target": target, **limit_query(**limits), "by": by, "dataset": dataset}
        return self._transport.ask(Frontier, "GET", f"/v1/jobs/{segment(job_id)}/frontier", params=params)

    def compare(self, targets: Sequence[str], *, jobs: Sequence[str] = ()) -> ComparisonView:
        """Compares targets (devices with a runtime): the targets with these ids, and all targets of these jobs. Returns
        latency and memory of each architecture on any target's frontier, on each target. Ratios are relative to the
        first target.
        """
        params = {"target": list(targets), "job": list(jobs)}
        return self._transport.ask(ComparisonView, "GET", "/v1/comparison", params=params)

    def predict(
        self,
        architectures: Sequence[Architecture | Mapping[str, Any] | str],
        *,
        device: str | None = None,
        device_class: str | None = None,
        protocol: Mapping[str, Any] | None = None,
        law: str | None = None,
        train_tokens: int | None = None,
        train_hours: float | None = None,
        trainer: str | None = None,
    ) -> PredictionsView:
        """Predicts latency, memory and quality of architectures (or named models) on a device, with 95 % intervals,
        from the device's measurements under the protocol. `protocol` has the fields that differ from the defaults.
        Nothing is run. `law` is a scaling law; if it supports several training budgets, `train_tokens`, or
        `train_hours` on the worker `trainer`, sets the budget.

        Raises `Conflict` if fewer than three architectures were measured on the device under this protocol, and
        `InvalidInput` that names a wrong field.
        """
        fields = {
            "architectures": [each.canonical if isinstance(each, Architecture) else each for each in architectures],
            "device": device,
            "device_class": device_class,
            "protocol": protocol or {},
            "law": law,
            **PredictionBudget.of(train_tokens, train_hours, trainer).fields,
        }
        body = checked(PredictionRequest, fields)
        return self._transport.ask(PredictionsView, "POST", "/v1/predictions", body=body, repeatable=True)

    def identifier(self, kind: IdentifiedKind, text: str) -> str:
        """Returns the full identifier of an object. `text`: first or last characters of the identifier; or `last` for
        the newest.

        Raises `NotFound` if no identifier matches, `InvalidInput` if several match (the error lists the matches).
        """
        params = {"kind": kind, "text": text}
        return self._transport.ask(IdentifierView, "GET", "/v1/identifiers", params=params).id

    def health(self) -> HealthView:
        """Returns health and version of the server. Needs no key."""
        return self._transport.ask(HealthView, "GET", "/v1/health")


def _is_local(url: str, home: Path) -> bool:
    try:
        return LocalServer.find(home).url.rstrip("/") == url.rstrip("/")
    except Unavailable:
        return False
