"""The first measurements of a device are read by their ids.

Revision: 0027
Follows: 0026
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

POOLED = sa.text("launches > 1")


def upgrade() -> None:
    _replace(["id"])


def downgrade() -> None:
    _replace([])


def _replace(more: Sequence[str]) -> None:
    for name in ("ix_measurement_device", "ix_measurement_pooled"):
        op.drop_index(name, table_name="measurement")
    op.create_index("ix_measurement_device", "measurement", ["device_key", "protocol_digest", "state", *more])
    op.create_index(
        "ix_measurement_pooled",
        "measurement",
        ["device_key", "protocol_digest", *more],
        postgresql_where=POOLED,
        sqlite_where=POOLED,
    )
