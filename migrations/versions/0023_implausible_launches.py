"""Implausible launches are found by their device.

Revision: 0023
Follows: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

IMPLAUSIBLE = sa.text("state = 'implausible'")


def upgrade() -> None:
    op.create_index(
        "ix_launch_implausible",
        "launch",
        ["device_id", "finished_at"],
        postgresql_where=IMPLAUSIBLE,
        sqlite_where=IMPLAUSIBLE,
    )


def downgrade() -> None:
    op.drop_index("ix_launch_implausible", table_name="launch")
