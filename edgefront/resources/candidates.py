"""Candidates of a job, and the frontier of a target."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgefront.core.files import whole_file
from edgefront.core.wire.candidates import CandidatePage, CandidateView, Group, LaunchView
from edgefront.resources.repeated import pages
from edgefront.resources.results import LimitQuery, limit_query
from edgefront.transport import Transport, segment

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack

ExportFormat = Literal["csv", "parquet"]

_FIRST_BYTE_S = 300.0


class Candidates:
    """`client.candidates`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

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
        """Candidates over all pages. `target` is a target's id or name, `limit` the size of a page, `sort` a field of
        a candidate, with a leading `-` for descending order. `text` is a number, the beginning or end of an id, the
        beginning of a digest, an operator, or part of a reason.
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

    def launches(self, candidate_id: str) -> tuple[LaunchView, ...]:
        """The launches of its measurement, oldest first: raw samples, memory by parts, environment."""
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
        chosen = format or ("parquet" if path.suffix == ".parquet" else "csv")
        with whole_file(path) as file:
            for chunk in self._exported(job_id, chosen, target):
                file.write(chunk)
        return path

    def to_pandas(self, job_id: str, *, target: str | None = None) -> DataFrame:
        """All candidates of a job (of one target, by its id or name), one row each, by order of proposal.

        Columns are those of `export` but for the architecture, and one for each gene: `gene_d_model`, and of a gene
        that every layer has `gene_n_head_1` for the first. A missing value is NA. Raises EdgefrontError with the line
        for pip where the extra `notebook` is missing.
        """
        from edgefront.extras import need

        need("candidates.to_pandas()", "notebook")
        from edgefront.resources.frames import candidate_frame

        return candidate_frame(io.BytesIO(b"".join(self._exported(job_id, "parquet", target))))

    def _exported(self, job_id: str, format: ExportFormat, target: str | None) -> Iterator[bytes]:  # noqa: A002
        url, params = f"/v1/jobs/{segment(job_id)}/candidates", {"format": format, "target": target}
        with self._transport.stream(url, params=params, read_timeout_s=_FIRST_BYTE_S) as response:
            yield from response.iter_bytes()
