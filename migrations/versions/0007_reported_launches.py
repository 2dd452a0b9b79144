"""Launches keep their report until it is settled, with the time that their device spent on them.

Revision: 0007
Follows: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("launch", schema=None) as batch_op:
        batch_op.add_column(sa.Column("busy_s", sa.Double(), server_default="0", nullable=False))


def downgrade() -> None:
    """Reports that are not settled are given up: their launches are made again."""
    op.execute(
        "UPDATE launch SET state = 'wanted', result = NULL, finished_at = NULL, device_id = NULL "
        "WHERE state = 'reported'"
    )
    with op.batch_alter_table("launch", schema=None) as batch_op:
        batch_op.drop_column("busy_s")
