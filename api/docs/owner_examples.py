"""Examples of requests and responses about owners, as in `examples`."""

from __future__ import annotations

from datetime import datetime, timezone

from edgefront.core.wire.owners import BoundView, OwnerChange, OwnerRequest, OwnerView

_LISTED = OwnerView(
    owner="ada",
    weight=2.0,
    running_jobs=BoundView(used=3, most=20, set_for_owner=True),
    waiting_launches=BoundView(used=1_204, most=200_000, set_for_owner=False),
    trainings=BoundView(used=0, most=200, set_for_owner=False),
    stored_bytes=BoundView(used=None, most=50_000_000_000, set_for_owner=True),
)
_CHANGE = OwnerChange(
    set_at=datetime(2026, 5, 4, 9, 30, tzinfo=timezone.utc),
    set_by="admin",
    weight=2.0,
    running_jobs=20,
    waiting_launches=None,
    trainings=None,
    stored_bytes=50_000_000_000,
)
_USED = _LISTED.stored_bytes.model_copy(update={"used": 812_004_331})
OWNER_LISTED = _LISTED.model_dump(mode="json")
OWNER = _LISTED.model_copy(update={"stored_bytes": _USED, "changes": (_CHANGE,)}).model_dump(mode="json")
OWNER_REQUEST = OwnerRequest(weight=2.0, running_jobs=20, stored_bytes=50_000_000_000).model_dump(
    mode="json", exclude_unset=True
)
