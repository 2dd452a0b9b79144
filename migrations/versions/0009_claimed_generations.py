"""A generation says until when a worker computes its proposals, so that no second one does the same.

Revision: 0009
Follows: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("generation", schema=None) as batch_op:
        batch_op.add_column(sa.Column("claimed_until", UTC, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("generation", schema=None) as batch_op:
        batch_op.drop_column("claimed_until")
