"""States, roles and purposes keep to their values: a CHECK on each column that holds one.

Revision: 0029
Follows: 0028
"""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

STATES: dict[str, dict[str, tuple[str, ...]]] = {
    "job": {"state": ("running", "paused", "cancelled", "finished", "failed")},
    "target": {"state": ("baselines", "searching", "refining", "finished", "cancelled", "failed")},
    "candidate": {
        "state": ("waiting", "measured", "unconfirmed", "out_of_bounds", "infeasible", "failed", "cancelled"),
        "role": ("baseline", "search"),
    },
    "measurement": {"state": ("wanted", "unconfirmed", "measured", "infeasible", "failed")},
    "launch": {
        "state": ("wanted", "leased", "reported", "done", "infeasible", "failed", "cancelled", "implausible"),
        "purpose": ("first", "refinement", "confirm", "anchor"),
    },
    "device": {"state": ("active", "draining", "revoked")},
    "proxy_score": {"state": ("wanted", "claimed", "done", "infeasible")},
    "training": {
        "state": ("queued", "starting", "training", "evaluating", "paused", "cancelled", "done", "failed"),
        "kind": ("training", "supernet"),
        "wanted": ("run", "pause", "cancel"),
    },
}


def upgrade() -> None:
    for table, columns in STATES.items():
        with op.batch_alter_table(table) as batch:  # one for each table: SQLite rebuilds it
            for column, values in columns.items():
                listed = ", ".join(f"'{value}'" for value in values)
                batch.create_check_constraint(op.f(f"ck_{table}_{column}"), f"{column} IN ({listed})")


def downgrade() -> None:
    for table, columns in STATES.items():
        with op.batch_alter_table(table) as batch:
            for column in columns:
                batch.drop_constraint(op.f(f"ck_{table}_{column}"), type_="check")
