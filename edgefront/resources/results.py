"""Jobs and frontiers with their display in notebooks: views of `core.wire` with `_repr_html_` and plots."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import PrivateAttr

from edgefront.core.errors import EdgefrontError
from edgefront.core.wire.candidates import FrontierView
from edgefront.core.wire.jobs import JobView
from edgefront.core.wire.recommendations import RecommendationView
from edgefront.transport import Transport, segment

if TYPE_CHECKING:
    from edgefront.core.wire.points import PointsHeader
    from edgefront.show.plot import Plot


class LimitQuery(TypedDict, total=False):
    """Limits of a request, each None where it is not given."""

    max_latency_ms: float | None
    max_memory_mb: float | None
    max_first_token_ms: float | None
    max_token_ms: float | None


def limit_query(
    max_latency_ms: float | None = None,
    max_memory_mb: float | None = None,
    max_first_token_ms: float | None = None,
    max_token_ms: float | None = None,
) -> dict[str, float | None]:
    """The limits as parameters of a request. `TypeError` for another name."""
    return {
        "max_latency_ms": max_latency_ms,
        "max_memory_mb": max_memory_mb,
        "max_first_token_ms": max_first_token_ms,
        "max_token_ms": max_token_ms,
    }


@dataclass(frozen=True)
class Chart:
    """What is drawn of a target."""

    recommendation: RecommendationView
    """With the target's name, its limits, the recommended model and the name of the proxy."""
    points: PointsHeader
    columns: dict[str, Any]
    """Name → array, as `core.wire.points` has them."""


def chart(transport: Transport, job_id: str, target: str, most: int) -> Chart:
    """The points of a target (its id or name), with the recommended model among them."""
    from edgefront.core.wire import points

    path = f"/v1/jobs/{segment(job_id)}"
    view = transport.ask(RecommendationView, "GET", f"{path}/recommendation", params={"target": target})
    best = view.recommended.id if view.recommended else None
    params: dict[str, str | int | None] = {"target": view.target_id, "axis": "predicted", "most": most, "keep": best}
    response = transport.request("GET", f"{path}/points", params=params)
    with transport.reading("points"):
        header, columns = points.decode(response.content)
    return Chart(view, header, columns)


class Job(JobView):
    """A job as it was when it was read. In a notebook it is shown as a table, and `plot()` draws it."""

    _transport: Transport | None = PrivateAttr(default=None)

    def with_transport(self, transport: Transport) -> Job:
        """This job, with the connection by which it reads its points."""
        self._transport = transport
        return self

    def plot(self, target: str | None = None, *, most: int = 1000) -> Plot:
        """Predicted perplexity (else the proxy) against latency as they are now, peak memory as the size of a point; a
        panel for each target, or for the one of this id or name.

        Of more than `most` candidates an even spread is drawn, with the whole frontier. Raises EdgefrontError with the
        command for pip if the extra `notebook` is missing.
        """
        from edgefront.extras import need

        need("job.plot()", "demo", install="notebook")
        from edgefront.show.plot import plot

        if self._transport is None:
            raise EdgefrontError(f"this job was not read by a client: client.jobs.get({self.id!r}) reads it")
        target_ids = [view.id for view in self.targets] if target is None else [target]
        return plot([chart(self._transport, self.id, target_id, most) for target_id in target_ids], title=self.name)

    def __getstate__(self) -> dict[Any, Any]:
        """What is pickled: without the connection, whose key must not get into a file."""
        return {**super().__getstate__(), "__pydantic_private__": {"_transport": None}}

    def _repr_html_(self) -> str:
        from edgefront.show.progress import progress_table

        lines = [self.reason] if self.reason else []
        lines += [f"{target.name}: {target.summary}" for target in self.targets if target.summary]
        return progress_table(self)._repr_html_() + _paragraphs(lines)


class Frontier(FrontierView):
    """A frontier, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from edgefront.show.tables import frontier_label, frontier_table

        texts = (frontier_label(self), self.summary, self.note)
        return frontier_table(self)._repr_html_() + _paragraphs([text for text in texts if text])


def _paragraphs(texts: list[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)
