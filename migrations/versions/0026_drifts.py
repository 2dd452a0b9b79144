"""How a device's anchor has moved, by what it was measured on: the processor, or an accelerator.

Revision: 0026
Follows: 0025
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _replace(JSON, {id_: {"cpu": text} for id_, text in _drifts(sa.Text()).items()})


def downgrade() -> None:
    _replace(sa.Text(), {id_: "; ".join(found.values()) for id_, found in _drifts(JSON).items()})


def _devices(type_: sa.types.TypeEngine[Any]) -> sa.TableClause:
    return sa.table("device", sa.column("id", sa.String()), sa.column("drift", type_))


def _drifts(type_: sa.types.TypeEngine[Any]) -> dict[str, Any]:
    devices = _devices(type_)
    found = op.get_bind().execute(sa.select(devices.c.id, devices.c.drift))
    return {row.id: row.drift for row in found if row.drift}


def _replace(type_: sa.types.TypeEngine[Any], drifts: Mapping[str, Any]) -> None:
    op.drop_column("device", "drift")
    op.add_column("device", sa.Column("drift", type_, nullable=True))
    devices = _devices(type_)
    for id_, drift in drifts.items():
        op.execute(sa.update(devices).where(devices.c.id == id_).values(drift=drift))
