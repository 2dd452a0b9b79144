"""The last lines of the agents' logs.

Revision: 0019
Follows: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    op.create_table(
        "device_log_line",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("device_id", sa.String(length=40), nullable=False),
        sa.Column("logged_at", UTC, nullable=False),
        sa.Column("level", sa.String(length=10), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"], ["device.id"], name="fk_device_log_line_device_id_device", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_device_log_line"),
    )
    op.create_index("ix_device_log_line_device", "device_log_line", ["device_id", "id"])


def downgrade() -> None:
    op.drop_table("device_log_line")
