"""Jobs and frontiers with their display in notebooks: views of `core.wire` with `_repr_html_` and plots."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from edgefront.core.errors import EdgefrontError
from edgefront.core.wire.candidates import FrontierView
from edgefront.core.wire.jobs import JobView
from edgefront.resources.points import chart
from edgefront.transport import Transport

if TYPE_CHECKING:
    from edgefront.show.plot import Plot


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
