"""What was measured with int8 weights of eight bits says so: from now on `int8` means seven (decision 14).

Digests of protocols stay: those of eight bits are told apart by them from what is measured now. Devices count as able
to measure int8 again once an agent that knows seven bits has said so.

Revision: 0006
Follows: 0005
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BATCH = 1000


def upgrade() -> None:
    for table in ("target", "measurement"):
        _rewrite(table, "protocol", lambda protocol: _renamed(protocol, "int8", "int8_8bit"))
    _rewrite("device", "facts", _without_int8)


def downgrade() -> None:
    for table in ("target", "measurement"):
        _rewrite(table, "protocol", lambda protocol: _renamed(protocol, "int8_8bit", "int8"))


def _renamed(protocol: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {**protocol, "weights": new} if protocol.get("weights") == old else protocol


def _without_int8(facts: dict[str, Any]) -> dict[str, Any]:
    runtimes = [
        {
            **runtime,
            "numbers": {
                provider: [number for number in numbers if number != "int8"]
                for provider, numbers in runtime.get("numbers", {}).items()
            },
        }
        for runtime in facts["runtimes"]
    ]
    return {**facts, "runtimes": runtimes}


def _rewrite(table_name: str, column: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    connection = op.get_bind()
    table = sa.table(table_name, sa.column("id"), sa.column(column, JSON))
    last = ""
    while rows := connection.execute(
        sa.select(table.c.id, table.c[column].label("value")).where(table.c.id > last).order_by(table.c.id).limit(BATCH)
    ).all():
        last = rows[-1].id
        changes = [{"key": row.id, "new": new} for row in rows for new in [change(row.value)] if new != row.value]
        if changes:
            statement = table.update().where(table.c.id == sa.bindparam("key"))
            connection.execute(statement.values({column: sa.bindparam("new", type_=JSON)}), changes)
