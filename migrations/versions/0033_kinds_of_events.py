"""Kinds of events keep to their values: a CHECK on each log.

Revision: 0033
Follows: 0032
"""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

KINDS = {
    "event": ("job_state", "target_state", "generation", "candidate", "frontier", "law", "launch"),
    "training_event": ("state", "metric", "rewound", "checkpoint", "note", "evaluation"),
}


def upgrade() -> None:
    for table, kinds in KINDS.items():
        listed = ", ".join(f"'{kind}'" for kind in kinds)
        with op.batch_alter_table(table) as batch:
            batch.create_check_constraint(op.f(f"ck_{table}_kind"), f"kind IN ({listed})")


def downgrade() -> None:
    for table in KINDS:
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(op.f(f"ck_{table}_kind"), type_="check")
