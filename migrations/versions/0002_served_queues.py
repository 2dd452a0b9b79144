"""The latest time at which a worker served each queue.

Revision: 0.1.1
Follows: 0.1.0
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0.1.1"
down_revision = "0.1.0"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "served_queue",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("served_at", sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite"), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("served_queue")
