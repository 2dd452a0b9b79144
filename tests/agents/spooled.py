"""Reports in a spool."""

from __future__ import annotations

from edgefront.agents.measuring.failures import failure
from edgefront.agents.server.spool import Spool, SpooledReport
from edgefront.core.schemas.agent import LaunchReport


def entry(number: int) -> SpooledReport:
    result = failure("crashed", f"number {number}")
    return SpooledReport(
        report=LaunchReport(launch_id=f"lau_{number}", fence=number, result=result), busy_s=number / 10
    )


def launches(spool: Spool) -> list[str]:
    return [each.report.launch_id for each in spool.oldest(1000).values()]
