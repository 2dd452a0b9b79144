"""The points of a target's chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefront.core.wire.recommendations import RecommendationView
from edgefront.transport import Transport, segment

if TYPE_CHECKING:
    from edgefront.core.wire.points import PointsHeader


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
