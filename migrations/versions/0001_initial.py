"""The tables of the first release.

Revision: 0001
Follows:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    op.create_table(
        "artifact",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("format", sa.String(length=20), nullable=False),
        sa.Column("path", sa.String(length=300), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact")),
        sa.UniqueConstraint("digest", "seed", "format", name=op.f("uq_artifact_digest_seed_format")),
    )
    op.create_table(
        "device",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("device_class", sa.String(length=100), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("facts", JSON, nullable=False),
        sa.Column("protocol_version", sa.Integer(), nullable=False),
        sa.Column("enrolled_at", UTC, nullable=False),
        sa.Column("last_seen_at", UTC, nullable=True),
        sa.Column("busy_s", sa.Double(), nullable=False),
        sa.Column("measuring_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device")),
        sa.UniqueConstraint("name", name=op.f("uq_device_name")),
    )
    with op.batch_alter_table("device", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_device_device_class"), ["device_class"], unique=False)
        batch_op.create_index(batch_op.f("ix_device_owner"), ["owner"], unique=False)

    op.create_table(
        "enrolment_token",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("expires_at", UTC, nullable=False),
        sa.Column("max_uses", sa.Integer(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("revoked_at", UTC, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enrolment_token")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_enrolment_token_secret_hash")),
    )
    with op.batch_alter_table("enrolment_token", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_enrolment_token_owner"), ["owner"], unique=False)

    op.create_table(
        "job",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("request", JSON, nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("updated_at", UTC, nullable=False),
        sa.Column("finished_at", UTC, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("owner", "idempotency_key", name=op.f("uq_job_owner_idempotency_key")),
    )
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_job_owner"), ["owner"], unique=False)
        batch_op.create_index(batch_op.f("ix_job_state"), ["state"], unique=False)

    op.create_table(
        "measurement",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("device_key", sa.String(length=120), nullable=False),
        sa.Column("protocol_digest", sa.String(length=64), nullable=False),
        sa.Column("protocol", JSON, nullable=False),
        sa.Column("architecture", JSON, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("launches", sa.Integer(), nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("latency_p90_ms", sa.Double(), nullable=True),
        sa.Column("log_mean", sa.Double(), nullable=True),
        sa.Column("log_m2", sa.Double(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("build_peak_bytes", sa.BigInteger(), nullable=True),
        sa.Column("measured_at", UTC, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
        sa.UniqueConstraint(
            "digest",
            "device_key",
            "protocol_digest",
            "seed",
            name=op.f("uq_measurement_digest_device_key_protocol_digest_seed"),
        ),
    )
    with op.batch_alter_table("measurement", schema=None) as batch_op:
        batch_op.create_index(
            "ix_measurement_pooled",
            ["device_key", "protocol_digest"],
            unique=False,
            postgresql_where=sa.text("launches > 1"),
            sqlite_where=sa.text("launches > 1"),
        )

    op.create_table(
        "api_key",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("device_id", sa.String(length=40), nullable=True),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("expires_at", UTC, nullable=True),
        sa.Column("revoked_at", UTC, nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"], ["device.id"], name=op.f("fk_api_key_device_id_device"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_api_key_secret_hash")),
    )
    with op.batch_alter_table("api_key", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_api_key_device_id"), ["device_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_api_key_owner"), ["owner"], unique=False)

    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("target_id", sa.String(length=40), nullable=True),
        sa.Column("data", JSON, nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_event_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_event_job_id_number")),
    )
    op.create_table(
        "lease",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("device_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("expires_at", UTC, nullable=False),
        sa.Column("ended_at", UTC, nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"], ["device.id"], name=op.f("fk_lease_device_id_device"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease")),
    )
    with op.batch_alter_table("lease", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_lease_device_id"), ["device_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_lease_ended_at"), ["ended_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_lease_expires_at"), ["expires_at"], unique=False)

    op.create_table(
        "target",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("device_key", sa.String(length=120), nullable=False),
        sa.Column("protocol", JSON, nullable=False),
        sa.Column("protocol_digest", sa.String(length=64), nullable=False),
        sa.Column("limits", JSON, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("reference", JSON, nullable=True),
        sa.Column("hypervolume", sa.Double(), nullable=False),
        sa.Column("frontier_size", sa.Integer(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("settled", sa.Integer(), nullable=False),
        sa.Column("launches_done", sa.Integer(), nullable=False),
        sa.Column("refinements", sa.Integer(), nullable=False),
        sa.Column("busy_s", sa.Double(), nullable=False),
        sa.Column("measuring_s", sa.Double(), nullable=False),
        sa.Column("started_at", UTC, nullable=True),
        sa.Column("finished_at", UTC, nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_target_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_target")),
        sa.UniqueConstraint("job_id", "position", name=op.f("uq_target_job_id_position")),
    )
    with op.batch_alter_table("target", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_target_device_key"), ["device_key"], unique=False)
        batch_op.create_index(batch_op.f("ix_target_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_target_state"), ["state"], unique=False)

    op.create_table(
        "candidate",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("target_id", sa.String(length=40), nullable=False),
        sa.Column("measurement_id", sa.String(length=40), nullable=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("operator", sa.String(length=20), nullable=False),
        sa.Column("parents", JSON, nullable=False),
        sa.Column("genome", JSON, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("architecture", JSON, nullable=False),
        sa.Column("decoder_parameters", sa.BigInteger(), nullable=False),
        sa.Column("total_parameters", sa.BigInteger(), nullable=False),
        sa.Column("weight_bytes", sa.BigInteger(), nullable=False),
        sa.Column("flops", sa.BigInteger(), nullable=False),
        sa.Column("proxy", sa.Double(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=15), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("latency_half_width_ms", sa.Double(), nullable=True),
        sa.Column("latency_p90_ms", sa.Double(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("build_peak_bytes", sa.BigInteger(), nullable=True),
        sa.Column("launches", sa.Integer(), nullable=False),
        sa.Column("on_frontier", sa.Boolean(), nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("measured_at", UTC, nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_candidate_job_id_job"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["measurement_id"], ["measurement.id"], name=op.f("fk_candidate_measurement_id_measurement")
        ),
        sa.ForeignKeyConstraint(
            ["target_id"], ["target.id"], name=op.f("fk_candidate_target_id_target"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidate")),
        sa.UniqueConstraint("target_id", "digest", "role", name=op.f("uq_candidate_target_id_digest_role")),
        sa.UniqueConstraint("target_id", "number", name=op.f("uq_candidate_target_id_number")),
    )
    with op.batch_alter_table("candidate", schema=None) as batch_op:
        batch_op.create_index(
            "ix_candidate_frontier",
            ["target_id"],
            unique=False,
            postgresql_where=sa.text("on_frontier"),
            sqlite_where=sa.text("on_frontier = 1"),
        )
        batch_op.create_index(batch_op.f("ix_candidate_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_candidate_measurement_id"), ["measurement_id"], unique=False)
        batch_op.create_index("ix_candidate_target_state", ["target_id", "state"], unique=False)

    op.create_table(
        "generation",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("target_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("snapshot", JSON, nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.ForeignKeyConstraint(
            ["target_id"], ["target.id"], name=op.f("fk_generation_target_id_target"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generation")),
        sa.UniqueConstraint("target_id", "number", name=op.f("uq_generation_target_id_number")),
    )
    with op.batch_alter_table("generation", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_generation_target_id"), ["target_id"], unique=False)

    op.create_table(
        "launch",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("measurement_id", sa.String(length=40), nullable=False),
        sa.Column("target_id", sa.String(length=40), nullable=True),
        sa.Column("device_key", sa.String(length=120), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("purpose", sa.String(length=10), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_id", sa.String(length=40), nullable=True),
        sa.Column("device_id", sa.String(length=40), nullable=True),
        sa.Column("started_at", UTC, nullable=True),
        sa.Column("result", JSON, nullable=True),
        sa.Column("reports", JSON, nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("finished_at", UTC, nullable=True),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_launch_device_id_device")),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name=op.f("fk_launch_lease_id_lease")),
        sa.ForeignKeyConstraint(
            ["measurement_id"],
            ["measurement.id"],
            name=op.f("fk_launch_measurement_id_measurement"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["target_id"], ["target.id"], name=op.f("fk_launch_target_id_target"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_launch")),
    )
    with op.batch_alter_table("launch", schema=None) as batch_op:
        batch_op.create_index(
            "ix_launch_device",
            ["device_id"],
            unique=False,
            postgresql_where=sa.text("state = 'leased'"),
            sqlite_where=sa.text("state = 'leased'"),
        )
        batch_op.create_index(
            "ix_launch_lease",
            ["lease_id"],
            unique=False,
            postgresql_where=sa.text("lease_id IS NOT NULL"),
            sqlite_where=sa.text("lease_id IS NOT NULL"),
        )
        batch_op.create_index(batch_op.f("ix_launch_measurement_id"), ["measurement_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_launch_target_id"), ["target_id"], unique=False)
        batch_op.create_index("ix_launch_wanted", ["state", "device_key", "priority", "id"], unique=False)

    op.create_table(
        "web_session",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("api_key_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", UTC, nullable=False),
        sa.Column("expires_at", UTC, nullable=False),
        sa.ForeignKeyConstraint(
            ["api_key_id"], ["api_key.id"], name=op.f("fk_web_session_api_key_id_api_key"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_web_session")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_web_session_secret_hash")),
    )
    with op.batch_alter_table("web_session", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_web_session_api_key_id"), ["api_key_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("web_session", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_web_session_api_key_id"))

    op.drop_table("web_session")
    with op.batch_alter_table("launch", schema=None) as batch_op:
        batch_op.drop_index("ix_launch_wanted")
        batch_op.drop_index(batch_op.f("ix_launch_target_id"))
        batch_op.drop_index(batch_op.f("ix_launch_measurement_id"))
        batch_op.drop_index(
            "ix_launch_lease",
            postgresql_where=sa.text("lease_id IS NOT NULL"),
            sqlite_where=sa.text("lease_id IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_launch_device", postgresql_where=sa.text("state = 'leased'"), sqlite_where=sa.text("state = 'leased'")
        )

    op.drop_table("launch")
    with op.batch_alter_table("generation", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_generation_target_id"))

    op.drop_table("generation")
    with op.batch_alter_table("candidate", schema=None) as batch_op:
        batch_op.drop_index("ix_candidate_target_state")
        batch_op.drop_index(batch_op.f("ix_candidate_measurement_id"))
        batch_op.drop_index(batch_op.f("ix_candidate_job_id"))
        batch_op.drop_index(
            "ix_candidate_frontier", postgresql_where=sa.text("on_frontier"), sqlite_where=sa.text("on_frontier = 1")
        )

    op.drop_table("candidate")
    with op.batch_alter_table("target", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_target_state"))
        batch_op.drop_index(batch_op.f("ix_target_job_id"))
        batch_op.drop_index(batch_op.f("ix_target_device_key"))

    op.drop_table("target")
    with op.batch_alter_table("lease", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_lease_expires_at"))
        batch_op.drop_index(batch_op.f("ix_lease_ended_at"))
        batch_op.drop_index(batch_op.f("ix_lease_device_id"))

    op.drop_table("lease")
    op.drop_table("event")
    with op.batch_alter_table("api_key", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_api_key_owner"))
        batch_op.drop_index(batch_op.f("ix_api_key_device_id"))

    op.drop_table("api_key")
    with op.batch_alter_table("measurement", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_measurement_pooled", postgresql_where=sa.text("launches > 1"), sqlite_where=sa.text("launches > 1")
        )

    op.drop_table("measurement")
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_job_state"))
        batch_op.drop_index(batch_op.f("ix_job_owner"))

    op.drop_table("job")
    with op.batch_alter_table("enrolment_token", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_enrolment_token_owner"))

    op.drop_table("enrolment_token")
    with op.batch_alter_table("device", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_device_owner"))
        batch_op.drop_index(batch_op.f("ix_device_device_class"))

    op.drop_table("device")
    op.drop_table("artifact")
