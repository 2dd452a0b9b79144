"""Reports: what agents found, taken in once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from core.wire.agent import ReportRequest, ReportResponse


def accept(session: Session, device_id: str, request: ReportRequest, now: datetime) -> ReportResponse:
    """Takes a batch of reports in one transaction; one receipt for each, in order."""
    raise NotImplementedError
