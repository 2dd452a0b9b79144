"""Kinds of events and roles of keys keep to their values: a CHECK on each column that holds one.

Revision: 0033
Follows: 0032
"""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

VALUES: dict[str, tuple[str, tuple[str, ...]]] = {
    "event": ("kind", ("job_state", "target_state", "generation", "candidate", "frontier", "law", "launch")),
    "training_event": ("kind", ("state", "metric", "rewound", "checkpoint", "note", "evaluation")),
    "api_key": ("role", ("admin", "user", "viewer", "agent")),
}


def upgrade() -> None:
    for table, (column, values) in VALUES.items():
        listed = ", ".join(f"'{value}'" for value in values)
        with op.batch_alter_table(table) as batch:
            batch.create_check_constraint(op.f(f"ck_{table}_{column}"), f"{column} IN ({listed})")


def downgrade() -> None:
    for table, (column, _) in VALUES.items():
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(op.f(f"ck_{table}_{column}"), type_="check")
