"""Leases have an end that no heartbeat moves.

Revision: 0022
Follows: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    op.add_column("lease", sa.Column("ends_at", UTC, nullable=True))


def downgrade() -> None:
    op.drop_column("lease", "ends_at")
