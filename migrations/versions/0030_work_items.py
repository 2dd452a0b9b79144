"""Work that workers claim, in one table; claims on generations go.

Revision: 0030
Follows: 0029
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")
KINDS = ("results", "advance", "search", "score", "refit", "move_law")


def upgrade() -> None:
    op.create_table(
        "work_item",
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("subject", sa.String(120), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("turn", sa.Double(), nullable=False),
        sa.Column("again", sa.Boolean(), nullable=False),
        sa.Column("holder", sa.String(120), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("claimed_until", UTC, nullable=True),
        sa.Column("requested_at", UTC, nullable=False),
        sa.PrimaryKeyConstraint("kind", "subject", name=op.f("pk_work_item")),
        sa.CheckConstraint(f"kind IN ({', '.join(repr(kind) for kind in KINDS)})", name=op.f("ck_work_item_kind")),
    )
    op.create_index("ix_work_item_turn", "work_item", ["kind", "turn"])
    op.create_index("ix_work_item_owner", "work_item", ["owner", "kind"])
    with op.batch_alter_table("generation") as batch:
        batch.drop_column("claimed_until")


def downgrade() -> None:
    with op.batch_alter_table("generation") as batch:
        batch.add_column(sa.Column("claimed_until", UTC, nullable=True))
    op.drop_table("work_item")
