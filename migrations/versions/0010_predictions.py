"""Candidates keep what was predicted of them, and generations what was known of their device beside their own results.

Revision: 0010
Follows: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("candidate", schema=None) as batch_op:
        batch_op.add_column(sa.Column("predicted", JSON, nullable=True))
    with op.batch_alter_table("generation", schema=None) as batch_op:
        batch_op.add_column(sa.Column("device_data", JSON, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("generation", schema=None) as batch_op:
        batch_op.drop_column("device_data")
    with op.batch_alter_table("candidate", schema=None) as batch_op:
        batch_op.drop_column("predicted")
