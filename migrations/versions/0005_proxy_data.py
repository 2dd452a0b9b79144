"""The data that a target's scores are taken on, by its digest: a name may come to mean other data.

Revision: 0005
Follows: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("target", schema=None) as batch_op:
        batch_op.add_column(sa.Column("proxy_data", sa.String(length=64), nullable=True))


def downgrade() -> None:
    op.drop_column("target", "proxy_data")
