"""The processes of a device's agent, by which two with one credential are told apart.

Revision: 0028
Follows: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("device", sa.Column("instances", JSON, nullable=True))


def downgrade() -> None:
    op.drop_column("device", "instances")
