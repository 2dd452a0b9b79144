"""Launches remember who held them, measurements can be unconfirmed, devices quarantined.

Revision: 0015
Follows: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")
STATES = ("launch", "measurement")


def upgrade() -> None:
    with op.batch_alter_table("launch", schema=None) as batch_op:
        batch_op.add_column(sa.Column("former_device_id", sa.String(length=40), nullable=True))
        batch_op.add_column(sa.Column("mark", sa.Text(), nullable=True))
    with op.batch_alter_table("device", schema=None) as batch_op:
        batch_op.add_column(sa.Column("quarantine", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("drift", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("trusted_at", UTC, nullable=True))
        batch_op.add_column(sa.Column("audits", sa.Integer(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("audits_held", sa.Integer(), nullable=False, server_default="0"))
    for table in STATES:
        _widen(table, 10, 12)


def downgrade() -> None:
    op.execute("UPDATE launch SET state = 'failed' WHERE state = 'implausible'")
    op.execute("UPDATE measurement SET state = 'measured' WHERE state = 'unconfirmed'")
    op.execute("UPDATE candidate SET state = 'measured' WHERE state = 'unconfirmed'")
    op.execute("UPDATE launch SET purpose = 'refinement' WHERE purpose IN ('confirm', 'anchor')")
    for table in STATES:
        _widen(table, 12, 10)
    with op.batch_alter_table("device", schema=None) as batch_op:
        for column in ("audits_held", "audits", "trusted_at", "drift", "quarantine"):
            batch_op.drop_column(column)
    with op.batch_alter_table("launch", schema=None) as batch_op:
        batch_op.drop_column("mark")
        batch_op.drop_column("former_device_id")


def _widen(table: str, old: int, new: int) -> None:
    with op.batch_alter_table(table, schema=None) as batch_op:
        batch_op.alter_column(
            "state", existing_type=sa.String(length=old), type_=sa.String(length=new), existing_nullable=False
        )
