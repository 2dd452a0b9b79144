"""What trainings are compared by is called comparability key, in refined laws, wanted refits and evaluations.

Revision: 0035
Follows: 0034
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

FORMER = "manner"
NAME = "comparability_key"

POSTGRES = """
UPDATE evaluation
SET details = details - CAST(:former AS text)
    || jsonb_build_object(CAST(:name AS text), details -> CAST(:former AS text))
WHERE jsonb_exists(details, CAST(:former AS text))
"""
SQLITE = """
UPDATE evaluation
SET details = json_remove(json_set(details, '$.' || :name, json_extract(details, '$.' || :former)), '$.' || :former)
WHERE json_extract(details, '$.' || :former) IS NOT NULL
"""


def upgrade() -> None:
    _rename(FORMER, NAME)


def downgrade() -> None:
    _rename(NAME, FORMER)


def _rename(former: str, name: str) -> None:
    op.drop_index(op.f(f"ix_quality_law_{former}"), table_name="quality_law")
    for table in ("quality_law", "quality_refit"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {former} TO {name}")
    op.create_index(op.f(f"ix_quality_law_{name}"), "quality_law", [name])
    names = {"former": former, "name": name}
    statement = POSTGRES if op.get_bind().dialect.name == "postgresql" else SQLITE
    op.execute(sa.text(statement).bindparams(**names))
