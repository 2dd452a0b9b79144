"""When a device last had a result: without one, heartbeats keep its leases no longer than one launch may take. The
nonce by which an agent may repeat its enrolment.

Revision: 0024
Follows: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    op.add_column("device", sa.Column("reported_at", UTC, nullable=True))
    op.add_column("api_key", sa.Column("enrolment_nonce", sa.String(64), nullable=True))


def downgrade() -> None:
    op.drop_column("api_key", "enrolment_nonce")
    op.drop_column("device", "reported_at")
