"""The times and the energy of generations, beside the latency.

Revision: 0012
Follows: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = ("measurement", "candidate")
COLUMNS = ("first_token_ms", "token_ms", "total_ms", "tokens_per_s", "energy_token_mj")


def upgrade() -> None:
    for table in TABLES:
        with op.batch_alter_table(table, schema=None) as batch_op:
            for name in COLUMNS:
                batch_op.add_column(sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    for table in TABLES:
        with op.batch_alter_table(table, schema=None) as batch_op:
            for name in COLUMNS:
                batch_op.drop_column(name)
