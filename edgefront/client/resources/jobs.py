"""Requests that create, follow and control jobs, and requests about the candidates of jobs."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Collection, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pydantic import PrivateAttr

from edgefront.client.extras import need
from edgefront.client.resources.repeated import follow_log, pages, until_ended
from edgefront.client.transport import Resource, Transport, segment
from edgefront.core.common.errors import EdgefrontError
from edgefront.core.common.files import whole_file
from edgefront.core.common.states import ENDED_JOBS
from edgefront.core.common.validation import checked
from edgefront.core.schemas.candidates import (
    CandidateDetails,
    CandidatePage,
    CandidateView,
    FrontierView,
    Group,
    LaunchView,
)
from edgefront.core.schemas.jobs import AddedTargetRequest, JobPage, JobRequest, JobView
from edgefront.core.schemas.messages import Event
from edgefront.core.schemas.predictions import JobEstimate
from edgefront.core.schemas.recommendations import ChoicesView, RecommendationView

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack

    from edgefront.client.show.plot import Chart, Plot


class _Page(JobPage):
    items: tuple[Job, ...]


class Jobs(Resource):
    """The search jobs, `client.jobs`."""

    def create(self, request: JobRequest | Mapping[str, Any], *, idempotency_key: str | None = None) -> Job:
        """Submits a job. Safe to retry: the same idempotency key and request return the same job.

        Raises `InvalidInput` that names the wrong field, found by the client's or the server's validation.
        """
        request = checked(JobRequest, request)
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._job("POST", "/v1/jobs", body=request, headers=headers, repeatable=True)

    def estimate(self, request: JobRequest | Mapping[str, Any]) -> JobEstimate:
        """Estimates a job's number of launches (runs of models), minutes and result size, and lists all reasons for
        which `create` would fail. Nothing is stored.
        """
        body = checked(JobRequest, request)
        return self._transport.ask(JobEstimate, "POST", "/v1/jobs/estimate", body=body, repeatable=True)

    def extend(
        self,
        job_id: str,
        *,
        device: str | None = None,
        device_class: str | None = None,
        name: str | None = None,
        protocol: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> Job:
        """Adds a target (a device or device class, with a runtime) to a job. The device measures about ten of the job's
        candidates, then the candidates that are predicted to matter. Protocol and limits default to those of the job's
        first target. A finished job runs again.

        Raises `Conflict` for a job that was cancelled or has failed, `InvalidInput` that names a wrong field.
        """
        target = {"name": name, "device": device, "device_class": device_class}
        request = checked(AddedTargetRequest, {**target, "protocol": protocol, "limits": limits})
        return self._job("POST", f"/v1/jobs/{segment(job_id)}/targets", body=request)

    def list(self, *, state: str | None = None, limit: int = 50) -> Iterator[Job]:
        """Yields jobs (only in `state` if set), newest first, over all pages. `limit` is the size of a page."""
        for job in pages(self._transport, _Page, "/v1/jobs", {"state": state, "limit": limit}):
            yield job.with_transport(self._transport)

    def get(self, job_id: str) -> Job:
        return self._job("GET", f"/v1/jobs/{segment(job_id)}")

    def recommendation(
        self,
        job_id: str,
        *,
        target: str | None = None,
        train_tokens: int | None = None,
        train_hours: float | None = None,
        trainer: str | None = None,
        **limits: Unpack[LimitQuery],
    ) -> RecommendationView:
        """Returns the best measured model of the job within limits, and the stock (default) model under the same
        limits.

        Limits default to the target's limits. With `train_tokens`, or `train_hours` on the worker `trainer`, returns
        the model that is best after training with that budget; raises `InvalidInput` if the job's scaling law supports
        a single training budget only, or if the worker's pace is unknown.
        """
        params = {
            "target": target,
            **limit_query(**limits),
            "train_tokens": train_tokens,
            "train_hours": train_hours,
            "trainer": trainer,
        }
        path = f"/v1/jobs/{segment(job_id)}/recommendation"
        return self._transport.ask(RecommendationView, "GET", path, params=params)

    def choices(self, job_id: str, **limits: Unpack[LimitQuery]) -> ChoicesView:
        """Returns the best combination of published model, format and runtime within limits, as measured by a job that
        searches published models.

        Limits default to those of the job's targets. In the result, `elsewhere` has the answers for the job's other
        devices. Raises `InvalidInput` for a job that searches another space.
        """
        path = f"/v1/jobs/{segment(job_id)}/choices"
        return self._transport.ask(ChoicesView, "GET", path, params=limit_query(**limits))

    def pause(self, job_id: str) -> Job:
        return self._change_state(job_id, "pause")

    def resume(self, job_id: str) -> Job:
        return self._change_state(job_id, "resume")

    def cancel(self, job_id: str) -> Job:
        return self._change_state(job_id, "cancel")

    def delete(self, job_id: str) -> None:
        """Deletes a job with its candidates, cancelling a running job. Measurements are kept for other jobs."""
        self._transport.request("DELETE", f"/v1/jobs/{segment(job_id)}")

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Returns the job once it has finished, failed or been cancelled. Raises `TimeoutError` after `timeout_s`."""
        return until_ended(lambda: self.get(job_id), ENDED_JOBS, f"job {job_id}", timeout_s)

    def events(self, job_id: str, *, after: int = 0, kinds: Collection[str] | None = None) -> Iterator[Event]:
        """Yields the job's events after number `after`, then new events until the job has ended. Every event is sent
        exactly once.

        `edgefront.core.schemas.messages` describes the `data` of each kind. After a broken connection the stream
        resumes from the latest event; raises `Unavailable` if resuming fails for the client's `patience_s`. `kinds`
        selects kinds of events; the event numbers then have gaps.
        """
        path = f"/v1/jobs/{segment(job_id)}/events"
        return follow_log(self._transport, path, lambda: self.get(job_id), ENDED_JOBS, after=after, kinds=kinds)

    def _change_state(self, job_id: str, action: str) -> Job:
        # Idempotent: pausing a paused job changes nothing.
        return self._job("POST", f"/v1/jobs/{segment(job_id)}/{action}", repeatable=True)

    def _job(self, method: str, path: str, **sent: Any) -> Job:
        return self._transport.ask(Job, method, path, **sent).with_transport(self._transport)


ExportFormat = Literal["csv", "parquet"]

_FIRST_BYTE_S = 300.0


_CATEGORIES = ("job_id", "target", "target_id", "role", "operator", "state")
_DEPTHS = ("n_layer", "n_block")
"""Names of genes for the number of layers."""


class Candidates(Resource):
    """The candidates of jobs, `client.candidates`."""

    def list(
        self,
        job_id: str,
        *,
        target: str | None = None,
        state: str | None = None,
        role: str | None = None,
        on_frontier: bool | None = None,
        group: Group | None = None,
        text: str | None = None,
        sort: str | None = None,
        limit: int = 200,
        **limits: Unpack[LimitQuery],
    ) -> Iterator[CandidateView]:
        """Yields candidates over all pages. `target` is a target's id or name, `limit` the size of a page, `sort` a
        field of a candidate, with a leading `-` for descending order. `text` matches a candidate by its number, the
        beginning or end of its id, the beginning of its digest, an operator, or part of a failure reason.
        """
        params = {
            "target": target,
            "state": state,
            "role": role,
            "on_frontier": on_frontier,
            "group": group,
            "text": text,
            "sort": sort,
            "limit": limit,
            **limit_query(**limits),
        }
        return pages(self._transport, CandidatePage, f"/v1/jobs/{segment(job_id)}/candidates", params)

    def get(self, candidate_id: str) -> CandidateView:
        return self._transport.ask(CandidateView, "GET", f"/v1/candidates/{segment(candidate_id)}")

    def details(self, candidate_id: str) -> CandidateDetails:
        """Returns a candidate with its protocol, blocks, ancestors and the files that can be downloaded."""
        return self._transport.ask(CandidateDetails, "GET", f"/v1/candidates/{segment(candidate_id)}/details")

    def launches(self, candidate_id: str) -> tuple[LaunchView, ...]:
        """Returns the launches (runs) of a candidate, oldest first: raw samples, memory by kind, environment."""
        return self._transport.ask(tuple[LaunchView, ...], "GET", f"/v1/candidates/{segment(candidate_id)}/launches")

    def export(
        self,
        job_id: str,
        path: str | os.PathLike[str],
        *,
        format: ExportFormat | None = None,  # noqa: A002
        target: str | None = None,
    ) -> Path:
        """Writes all candidates of a job to a file: CSV, or Parquet, by `format` or the file's extension."""
        path = Path(path)
        default: ExportFormat = "parquet" if path.suffix == ".parquet" else "csv"
        with whole_file(path) as file:
            for chunk in self._exported(job_id, format or default, target):
                file.write(chunk)
        return path

    def to_pandas(self, job_id: str, *, target: str | None = None) -> DataFrame:
        """Returns all candidates of a job as a table, one row per candidate, in the order of their proposal. `target`
        (id or name) selects one target.

        The table has the columns of `export` without the architecture, and a column for each gene: `gene_d_model`, or
        `gene_n_head_1` for a gene of the first layer. A missing value is NA. Raises `EdgefrontError` with the pip
        command if the extra `notebook` is missing.
        """
        need("candidates.to_pandas()", "notebook")
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Nullable types keep integers where values are missing.
        nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        content = io.BytesIO(b"".join(self._exported(job_id, "parquet", target)))
        export = pq.ParquetFile(content, read_dictionary=list(_CATEGORIES))
        table = export.read([name for name in export.schema_arrow.names if name != "architecture"])
        frame = table.to_pandas(types_mapper=nullable.get)
        genomes = [json.loads(text) if text else {} for text in table.column("genome").to_pylist()]
        columns: dict[str, list[Any]] = {}  # one value per genome, None if the genome lacks the gene
        for row, genome in enumerate(genomes):
            for name, value in _values(genome):
                columns.setdefault(name, [None] * len(genomes))[row] = value
        genes = pa.table(columns).to_pandas(types_mapper=nullable.get)
        return pd.concat([frame.drop(columns="genome"), genes], axis="columns")

    def _exported(self, job_id: str, format: ExportFormat, target: str | None) -> Iterator[bytes]:  # noqa: A002
        url, params = f"/v1/jobs/{segment(job_id)}/candidates", {"format": format, "target": target}
        with self._transport.stream(url, params=params, read_timeout_s=_FIRST_BYTE_S) as response:
            yield from response.iter_bytes()


def _values(genome: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    depth = next((genome[name] for name in _DEPTHS if name in genome), None)
    for name, value in genome.items():
        if isinstance(value, list):
            # A genome has unused values for layers beyond its depth.
            yield from (
                (f"gene_{name}_{layer}", layer_value) for layer, layer_value in enumerate(value[:depth], start=1)
            )
        else:
            # The value of a gene that follows another gene is the other gene's name.
            yield f"gene_{name}", genome[value] if isinstance(value, str) and value in genome else value


class LimitQuery(TypedDict, total=False):
    """Limits on latency and memory in a request; None: no limit given."""

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
    """Returns the limits as query parameters. Raises `TypeError` for an unknown name."""
    return {
        "max_latency_ms": max_latency_ms,
        "max_memory_mb": max_memory_mb,
        "max_first_token_ms": max_first_token_ms,
        "max_token_ms": max_token_ms,
    }


def chart(transport: Transport, job_id: str, target: str, most: int) -> Chart:
    """Returns the data for a plot of `target` (id or name): at most `most` points, with the recommended model."""
    from edgefront.client.show.plot import Chart
    from edgefront.core.schemas import points

    path = f"/v1/jobs/{segment(job_id)}"
    view = transport.ask(RecommendationView, "GET", f"{path}/recommendation", params={"target": target})
    best = view.recommended.id if view.recommended else None
    params: dict[str, str | int | None] = {"target": view.target_id, "axis": "predicted", "most": most, "keep": best}
    response = transport.request("GET", f"{path}/points", params=params)
    with transport.reading("points"):
        header, columns = points.decode(response.content)
    return Chart(view, header, columns)


class Job(JobView):
    """A job at the time of reading. Notebooks show the job as a table; `plot()` draws its candidates."""

    _transport: Transport | None = PrivateAttr(default=None)

    def with_transport(self, transport: Transport) -> Job:
        """Sets the connection that `plot` uses to read the job's data, and returns this job."""
        self._transport = transport
        return self

    def plot(self, target: str | None = None, *, most: int = 1000) -> Plot:
        """Plots the currently predicted perplexity (else the proxy) against latency, with peak memory as point size.
        The plot has one panel per target, or only a panel of `target` (id or name).

        Of more than `most` candidates, draws an even sample and the whole frontier. Raises `EdgefrontError` with the
        pip command if the extra `notebook` is missing.
        """
        need("job.plot()", "demo", install="notebook")
        from edgefront.client.show.plot import plot

        if self._transport is None:
            raise EdgefrontError(f"this job has no connection to a server: read it with client.jobs.get({self.id!r})")
        target_ids = [view.id for view in self.targets] if target is None else [target]
        return plot([chart(self._transport, self.id, target_id, most) for target_id in target_ids], title=self.name)

    def __getstate__(self) -> dict[Any, Any]:
        """Returns the state for pickling without the connection, so that the connection's key gets into no file."""
        return {**super().__getstate__(), "__pydantic_private__": {"_transport": None}}

    def _repr_html_(self) -> str:
        from edgefront.client.show.progress import progress_table

        lines = [self.reason] if self.reason else []
        lines += [f"{target.name}: {target.summary}" for target in self.targets if target.summary]
        return progress_table(self)._repr_html_() + _paragraphs(lines)


class Frontier(FrontierView):
    """A Pareto frontier of a job. Notebooks show it as a table."""

    def _repr_html_(self) -> str:
        from edgefront.client.show.frontier_table import frontier_label, frontier_table

        texts = (frontier_label(self), self.summary, self.note)
        return frontier_table(self)._repr_html_() + _paragraphs([text for text in texts if text])


def _paragraphs(texts: list[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)
