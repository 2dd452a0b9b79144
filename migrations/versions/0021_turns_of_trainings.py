"""Owners take turns in the queues of trainings, also where they resume or delete them.

Revision: 0021
Follows: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    op.create_table(
        "training_turn",
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("queue", sa.String(length=10), nullable=False),
        sa.Column("taken_at", UTC, nullable=False),
        sa.PrimaryKeyConstraint("owner", "queue", name="pk_training_turn"),
    )
    op.execute(
        "INSERT INTO training_turn (owner, queue, taken_at) SELECT owner, queue, max(started_at) FROM training "
        "WHERE started_at IS NOT NULL GROUP BY owner, queue"
    )


def downgrade() -> None:
    op.drop_table("training_turn")
