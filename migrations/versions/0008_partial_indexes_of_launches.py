"""Indexes of launches that wait, for a device or to be settled: a launch that does neither is in none of them.

Revision: 0008
Follows: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

WANTED, REPORTED = sa.text("state = 'wanted'"), sa.text("state = 'reported'")


def upgrade() -> None:
    op.drop_index("ix_launch_wanted", "launch")
    op.create_index(
        "ix_launch_wanted", "launch", ["device_key", "priority", "id"], postgresql_where=WANTED, sqlite_where=WANTED
    )
    op.create_index("ix_launch_reported", "launch", ["finished_at"], postgresql_where=REPORTED, sqlite_where=REPORTED)


def downgrade() -> None:
    op.drop_index("ix_launch_reported", "launch")
    op.drop_index("ix_launch_wanted", "launch")
    op.create_index("ix_launch_wanted", "launch", ["state", "device_key", "priority", "id"])
