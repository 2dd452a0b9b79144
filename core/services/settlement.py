"""Takes what is known of measurements into the candidates that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session


def settle(session: Session, measurement_ids: Sequence[str], now: datetime) -> None:
    """Brings measurements that have an answer (measured, infeasible, failed) to all candidates of active targets.

    Calls `frontier.candidate_settled` once for each target and sends `advance` where `advance.due` says so. The
    caller has locked those targets by id.
    """
    raise NotImplementedError
