"""Probes: small trainings after whose refit a job is moved to the refined law.

Revision: 0034
Follows: 0033
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")
OPEN = sa.text("finished_at IS NULL")


def upgrade() -> None:
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    op.create_table(
        "quality_probe",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("plan", json, nullable=False),
        sa.Column("law", sa.String(length=80), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("finished_at", UTC, nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_quality_probe_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quality_probe")),
        sa.UniqueConstraint("owner", "idempotency_key", name=op.f("uq_quality_probe_owner_idempotency_key")),
    )
    op.create_index(op.f("ix_quality_probe_job_id"), "quality_probe", ["job_id"])
    op.create_index("ix_quality_probe_open", "quality_probe", ["id"], postgresql_where=OPEN, sqlite_where=OPEN)


def downgrade() -> None:
    op.drop_table("quality_probe")
