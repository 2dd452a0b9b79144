"""Launches are served by turns, devices know the digest of their facts, and generations are stored in parts.

Revision: 0014
Follows: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

WANTED = sa.text("state = 'wanted'")


def upgrade() -> None:
    op.drop_index("ix_launch_wanted", "launch")
    op.add_column("launch", sa.Column("turn", sa.Double(), server_default="0", nullable=False))
    op.drop_column("launch", "priority")
    op.create_index(
        "ix_launch_wanted", "launch", ["device_key", "turn", "id"], postgresql_where=WANTED, sqlite_where=WANTED
    )
    op.add_column("job", sa.Column("weight", sa.Double(), server_default="1", nullable=False))
    op.add_column("target", sa.Column("last_turn", sa.Double(), server_default="0", nullable=False))
    op.add_column("generation", sa.Column("proposals", sa.Integer(), nullable=True))
    op.add_column("generation", sa.Column("stored", sa.Integer(), server_default="0", nullable=False))
    op.add_column("device", sa.Column("facts_digest", sa.String(length=16), nullable=True))
    op.add_column("device", sa.Column("class_next", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    for table, column in (
        ("device", "class_next"),
        ("device", "facts_digest"),
        ("generation", "stored"),
        ("generation", "proposals"),
        ("target", "last_turn"),
        ("job", "weight"),
    ):
        op.drop_column(table, column)
    op.drop_index("ix_launch_wanted", "launch")
    op.add_column("launch", sa.Column("priority", sa.Integer(), server_default="0", nullable=False))
    op.drop_column("launch", "turn")
    op.create_index(
        "ix_launch_wanted", "launch", ["device_key", "priority", "id"], postgresql_where=WANTED, sqlite_where=WANTED
    )
