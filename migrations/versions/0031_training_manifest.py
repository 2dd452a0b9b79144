"""The manifest of a training's files on the artifact store is a column: the row's fence protects it.

Manifests that earlier versions wrote to the store are read there until the training is published again.

Revision: 0031
Follows: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    op.add_column("training", sa.Column("manifest", json, nullable=True))


def downgrade() -> None:
    op.drop_column("training", "manifest")
