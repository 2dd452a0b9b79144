"""Scores of proxies are items of work: claims and attempts are the item's.

A score that was being computed is wanted again; the sweep requests it.

Revision: 0032
Follows: 0031
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")
STATES = ("wanted", "done", "infeasible")
FORMER = ("wanted", "claimed", "done", "infeasible")


def upgrade() -> None:
    op.execute("UPDATE proxy_score SET state = 'wanted' WHERE state = 'claimed'")
    op.drop_index("ix_proxy_score_open", table_name="proxy_score")
    with op.batch_alter_table("proxy_score") as batch:
        batch.drop_constraint(op.f("ck_proxy_score_state"), type_="check")
        batch.create_check_constraint(op.f("ck_proxy_score_state"), f"state IN ({_listed(STATES)})")
        batch.drop_column("attempts")
        batch.drop_column("claimed_until")
    _index("state = 'wanted'")


def downgrade() -> None:
    op.drop_index("ix_proxy_score_open", table_name="proxy_score")
    with op.batch_alter_table("proxy_score") as batch:
        batch.drop_constraint(op.f("ck_proxy_score_state"), type_="check")
        batch.create_check_constraint(op.f("ck_proxy_score_state"), f"state IN ({_listed(FORMER)})")
        batch.add_column(sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"))
        batch.add_column(sa.Column("claimed_until", UTC, nullable=True))
    _index("state IN ('wanted', 'claimed')")


def _listed(states: tuple[str, ...]) -> str:
    return ", ".join(f"'{state}'" for state in states)


def _index(where: str) -> None:
    condition = sa.text(where)
    op.create_index("ix_proxy_score_open", "proxy_score", ["id"], postgresql_where=condition, sqlite_where=condition)
