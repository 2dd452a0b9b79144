"""Quality laws refined by trainings, jobs that are moved to one, and an index for all measurements of a device.

Revision: 0011
Follows: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")

MOVING = sa.text("wanted_law IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "quality_law",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("base", sa.String(length=64), nullable=False),
        sa.Column("manner", sa.String(length=16), nullable=False),
        sa.Column("dataset", sa.String(length=200), nullable=False),
        sa.Column("dataset_digest", sa.String(length=64), nullable=True),
        sa.Column("recipe", sa.String(length=64), nullable=False),
        sa.Column("models", sa.Integer(), nullable=False),
        sa.Column("rows_digest", sa.String(length=64), nullable=False),
        sa.Column("law", sa.Text(), nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quality_law")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_quality_law_name_version")),
        sa.UniqueConstraint("rows_digest", "name", name=op.f("uq_quality_law_rows_digest_name")),
    )
    op.create_index(op.f("ix_quality_law_manner"), "quality_law", ["manner"])
    op.create_table(
        "quality_refit",
        sa.Column("manner", sa.String(length=16), nullable=False),
        sa.Column("wanted_at", UTC, nullable=False),
        sa.PrimaryKeyConstraint("manner", name=op.f("pk_quality_refit")),
    )
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.add_column(sa.Column("wanted_law", sa.String(length=80), nullable=True))
        batch_op.create_index("ix_job_wanted_law", ["id"], postgresql_where=MOVING, sqlite_where=MOVING)
    op.create_index("ix_measurement_device", "measurement", ["device_key", "protocol_digest"])


def downgrade() -> None:
    op.drop_index("ix_measurement_device", table_name="measurement")
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.drop_index("ix_job_wanted_law", postgresql_where=MOVING, sqlite_where=MOVING)
        batch_op.drop_column("wanted_law")
    op.drop_table("quality_refit")
    op.drop_index(op.f("ix_quality_law_manner"), table_name="quality_law")
    op.drop_table("quality_law")
