"""Bounds that an admin sets for one owner, with their history.

Revision: 0017
Follows: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    op.create_table(
        "owner_bounds",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("weight", sa.Double(), nullable=True),
        sa.Column("running_jobs", sa.Integer(), nullable=True),
        sa.Column("waiting_launches", sa.Integer(), nullable=True),
        sa.Column("trainings", sa.Integer(), nullable=True),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=True),
        sa.Column("set_at", UTC, nullable=False),
        sa.Column("set_by", sa.String(length=100), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_owner_bounds")),
    )
    op.create_index(op.f("ix_owner_bounds_owner"), "owner_bounds", ["owner"])


def downgrade() -> None:
    op.drop_table("owner_bounds")
