"""Imported models are trainings: without what says how they are trained, and once for each owner.

Revision: 0036
Follows: 0035
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
TRAINED: dict[str, Any] = {
    "dataset": sa.String(200),
    "recipe_name": sa.String(64),
    "recipe": JSON,
    "budget": JSON,
    "seed": sa.BigInteger(),
    "sharding": sa.String(10),
    "device": sa.String(10),
    "gpus": sa.Integer(),
    "queue": sa.String(10),
}
FORMER_KINDS = "kind IN ('training', 'supernet')"
KINDS = "kind IN ('training', 'supernet', 'import')"


def upgrade() -> None:
    present = " AND ".join(f"{name} IS NOT NULL" for name in TRAINED)
    with op.batch_alter_table("training") as batch:
        batch.add_column(sa.Column("import_digest", sa.String(length=64), nullable=True))
        for name, kind in TRAINED.items():
            batch.alter_column(name, existing_type=kind, nullable=True)
        batch.drop_constraint(op.f("ck_training_kind"), type_="check")
        batch.create_check_constraint(op.f("ck_training_kind"), KINDS)
        batch.create_check_constraint(op.f("ck_training_trained"), f"kind = 'import' OR ({present})")
        batch.create_unique_constraint(op.f("uq_training_owner_import_digest"), ["owner", "import_digest"])


def downgrade() -> None:
    op.execute("DELETE FROM training WHERE kind = 'import'")
    with op.batch_alter_table("training") as batch:
        batch.drop_constraint(op.f("uq_training_owner_import_digest"), type_="unique")
        batch.drop_constraint(op.f("ck_training_trained"), type_="check")
        batch.drop_constraint(op.f("ck_training_kind"), type_="check")
        batch.create_check_constraint(op.f("ck_training_kind"), FORMER_KINDS)
        for name, kind in TRAINED.items():
            batch.alter_column(name, existing_type=kind, nullable=False)
        batch.drop_column("import_digest")
