"""Whether a launch behind a candidate's figures was measured under conditions out of the ordinary.

Revision: 0025
Follows: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("candidate", sa.Column("marked", sa.Boolean(), server_default=sa.false(), nullable=False))
    launch = sa.table("launch", sa.column("measurement_id"), sa.column("state"), sa.column("mark"))
    candidate = sa.table("candidate", sa.column("measurement_id"), sa.column("launches"), sa.column("marked"))
    marked = sa.select(launch.c.measurement_id).where(launch.c.state == "done", launch.c.mark.is_not(None))
    settled = sa.and_(candidate.c.launches > 0, candidate.c.measurement_id.in_(marked))
    op.execute(sa.update(candidate).where(settled).values(marked=sa.true()))


def downgrade() -> None:
    op.drop_column("candidate", "marked")
