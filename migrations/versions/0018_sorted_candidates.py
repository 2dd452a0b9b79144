"""Candidates are listed in the order of an index, and their points counted and thinned without reading the rows.

Revision: 0018
Follows: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

POINTS = [
    *("target_id", "state", "role", "on_frontier", "latency_ms", "memory_bytes", "proxy", "predicted_perplexity"),
    "number",
]
OPTIONAL = ("latency_ms", "memory_bytes", "predicted_perplexity")
ALWAYS = ("proxy", "decoder_parameters")


def upgrade() -> None:
    op.add_column("candidate", sa.Column("predicted_perplexity", sa.Double(), nullable=True))
    if op.get_bind().dialect.name == "sqlite":
        perplexity = "json_extract(predicted, '$.perplexity')"
    else:
        perplexity = "CAST(predicted ->> 'perplexity' AS double precision)"
    op.execute(f"UPDATE candidate SET predicted_perplexity = {perplexity} WHERE predicted IS NOT NULL")  # noqa: S608
    op.drop_index("ix_candidate_target_state", "candidate")
    op.create_index("ix_candidate_target_state", "candidate", POINTS)
    for name in OPTIONAL:
        known = sa.text(f"{name} IS NOT NULL")
        op.create_index(
            f"ix_candidate_by_{name}",
            "candidate",
            ["target_id", name, "id"],
            postgresql_where=known,
            sqlite_where=known,
        )
    for name in ALWAYS:
        op.create_index(f"ix_candidate_by_{name}", "candidate", ["target_id", name, "id"])


def downgrade() -> None:
    for name in (*OPTIONAL, *ALWAYS):
        op.drop_index(f"ix_candidate_by_{name}", "candidate")
    op.drop_index("ix_candidate_target_state", "candidate")
    op.create_index("ix_candidate_target_state", "candidate", ["target_id", "state"])
    op.drop_column("candidate", "predicted_perplexity")
