"""All tables of release 0.1.0.

Revision: 0.1.0
Follows:
"""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0.1.0"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
UTC = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")
AUTO_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
TRAINED = ("dataset", "recipe_name", "recipe", "budget", "seed", "device", "gpus", "queue")

one = partial(sa.Column, nullable=False)


def required(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def optional(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names]


def table(name: str, *parts: Any) -> None:
    sa.Table(name, METADATA, *parts)


def with_id(name: str, *parts: Any, kind: Any = sa.String(40)) -> None:  # noqa: B008
    sa.Table(name, METADATA, sa.Column("id", kind, primary_key=True), *parts)


def states(length: int, *values: str, name: str = "state") -> sa.Enum:
    """Text, which a CHECK called `name` keeps to these values."""
    return sa.Enum(*values, name=name, length=length, native_enum=False, create_constraint=True)


def key(target: str, ondelete: str | None = None) -> sa.ForeignKey:
    return sa.ForeignKey(target, ondelete=ondelete)


def partial_index(name: str, *columns: str, where: str, sqlite_where: str | None = None) -> sa.Index:
    return sa.Index(name, *columns, postgresql_where=sa.text(where), sqlite_where=sa.text(sqlite_where or where))


table(
    "access_version",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    *required(sa.BigInteger, "number"),
)
with_id(
    "artifact",
    *required(sa.String(64), "digest", "sha256"),
    *required(sa.BigInteger, "seed", "size"),
    *required(sa.String(40), "format"),
    *required(sa.String(300), "path"),
    *required(UTC, "created_at"),
    sa.UniqueConstraint("digest", "seed", "format"),
)
with_id(
    "device",
    one("name", sa.String(100), unique=True),
    one("device_class", sa.String(100), index=True),
    one("owner", sa.String(100), index=True),
    one("state", states(10, "active", "draining", "revoked")),
    *required(JSON, "facts"),
    *optional(sa.String(16), "facts_digest"),
    *required(UTC, "enrolled_at"),
    *optional(UTC, "last_seen_at", "reported_at", "trusted_at"),
    *required(sa.Double, "busy_s", "measuring_s"),
    *optional(JSON, "instances", "failing"),
    *optional(sa.Text, "quarantine", "conditions"),
)
with_id(
    "job",
    *required(sa.String(100), "name"),
    one("owner", sa.String(100), index=True),
    *required(JSON, "request"),
    *required(sa.String(64), "request_digest"),
    *optional(sa.String(200), "idempotency_key"),
    one("state", states(10, "running", "paused", "cancelled", "finished", "failed"), index=True),
    *optional(sa.Text, "reason", "law"),
    *required(sa.Integer, "last_event"),
    *required(UTC, "created_at", "updated_at"),
    *optional(UTC, "finished_at"),
    sa.UniqueConstraint("owner", "idempotency_key"),
)
with_id(
    "measurement",
    *required(sa.String(64), "digest", "protocol_digest"),
    *required(sa.String(120), "device_key"),
    *required(JSON, "protocol", "architecture"),
    *required(sa.BigInteger, "seed"),
    one("state", states(12, "wanted", "measured", "infeasible", "failed")),
    *optional(sa.Text, "reason"),
    *required(sa.Integer, "launches"),
    *optional(
        sa.Double,
        "latency_ms",
        "latency_p90_ms",
        "build_s",
        "waited_share",
        "log_m2",
        "first_token_ms",
        "token_ms",
        "total_ms",
        "tokens_per_s",
        "energy_token_mj",
    ),
    *optional(sa.BigInteger, "memory_bytes", "build_peak_bytes"),
    *optional(UTC, "measured_at"),
    sa.UniqueConstraint("digest", "device_key", "protocol_digest", "seed"),
    sa.Index("ix_measurement_device", "device_key", "protocol_digest", "state", "id"),
    partial_index("ix_measurement_pooled", "device_key", "protocol_digest", "id", where="launches > 1"),
)
table(
    "owner_law",
    sa.Column("owner", sa.String(100), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    *required(sa.String(64), "base", "digest"),
    *required(sa.Text, "document"),
    *required(JSON, "summary", "left_out"),
    *required(UTC, "updated_at"),
)
table(
    "work_item",
    sa.Column("kind", states(10, "results", "advance", "search", "learn", name="kind"), primary_key=True),
    sa.Column("subject", sa.String(120), primary_key=True),
    *required(sa.String(100), "owner"),
    *required(sa.Double, "turn"),
    *required(sa.Boolean, "requeue_requested"),
    *optional(sa.String(120), "holder"),
    *required(sa.Integer, "fence", "attempts"),
    *optional(UTC, "claimed_until"),
    *required(UTC, "requested_at"),
    sa.Index("ix_work_item_owner", "owner", "kind"),
    sa.Index("ix_work_item_turn", "kind", "turn"),
)
with_id(
    "enrolment_token",
    *required(sa.String(100), "name"),
    one("owner", sa.String(100), index=True),
    sa.Column("device_id", sa.String(40), key("device.id", "CASCADE"), index=True),
    one("secret_hash", sa.String(64), unique=True),
    *required(UTC, "created_at", "expires_at"),
    *required(sa.Integer, "max_uses", "uses"),
    *optional(UTC, "revoked_at"),
)
with_id(
    "event",
    one("job_id", sa.String(40), key("job.id", "CASCADE")),
    *required(sa.Integer, "number"),
    one(
        "kind",
        states(20, "job_state", "target_state", "generation", "candidate", "frontier", "launch", name="kind"),
    ),
    *optional(sa.String(40), "target_id"),
    *required(JSON, "data"),
    *required(UTC, "created_at"),
    sa.UniqueConstraint("job_id", "number"),
    kind=AUTO_ID,
)
with_id(
    "lease",
    one("device_id", sa.String(40), key("device.id", "CASCADE"), index=True),
    *required(UTC, "created_at"),
    one("expires_at", UTC, index=True),
    sa.Column("ended_at", UTC, index=True),
)
with_id(
    "target",
    one("job_id", sa.String(40), key("job.id", "CASCADE"), index=True),
    *required(
        sa.Integer, "position", "generation", "frontier_size", "candidates", "settled", "launches_done", "refinements"
    ),
    *required(sa.String(200), "name"),
    one("device_key", sa.String(120), index=True),
    *required(JSON, "protocol", "limits"),
    *required(sa.String(64), "protocol_digest"),
    *required(sa.BigInteger, "seed"),
    *required(sa.String(32), "proxy"),
    one("state", states(10, "baselines", "searching", "refining", "finished", "cancelled", "failed"), index=True),
    *required(sa.Text, "note"),
    *optional(JSON, "reference"),
    *required(sa.Double, "hypervolume", "busy_s", "measuring_s"),
    *optional(UTC, "started_at", "finished_at"),
    sa.UniqueConstraint("job_id", "position"),
)
with_id(
    "api_key",
    *required(sa.String(100), "name"),
    one("owner", sa.String(100), index=True),
    one("role", states(10, "admin", "user", "viewer", "agent", name="role")),
    *required(sa.String(16), "prefix"),
    one("secret_hash", sa.String(64), unique=True),
    sa.Column("device_id", sa.String(40), key("device.id", "CASCADE"), index=True),
    *required(UTC, "created_at"),
    *optional(UTC, "expires_at", "revoked_at"),
    one("pending", sa.Boolean, server_default=sa.false()),
    sa.Column("token_id", sa.String(40), key("enrolment_token.id", "SET NULL")),
    *optional(sa.String(64), "enrolment_nonce"),
)
with_id(
    "candidate",
    one("job_id", sa.String(40), key("job.id", "CASCADE"), index=True),
    one("target_id", sa.String(40), key("target.id", "CASCADE")),
    sa.Column("measurement_id", sa.String(40), key("measurement.id"), index=True),
    *required(sa.Integer, "number", "generation", "launches"),
    one("role", states(10, "baseline", "search", name="role")),
    *required(sa.String(20), "operator"),
    *required(JSON, "parents", "genome", "architecture"),
    *required(sa.String(64), "digest"),
    *required(sa.BigInteger, "decoder_parameters", "total_parameters", "weight_bytes", "flops", "seed"),
    *required(sa.Double, "proxy"),
    *optional(JSON, "predicted"),
    *optional(
        sa.Double,
        "predicted_perplexity",
        "latency_ms",
        "latency_half_width_ms",
        "first_token_half_width_ms",
        "token_half_width_ms",
        "waited_share",
        "latency_p90_ms",
        "build_s",
        "first_token_ms",
        "token_ms",
        "total_ms",
        "tokens_per_s",
        "energy_token_mj",
    ),
    one("state", states(15, "waiting", "measured", "out_of_bounds", "infeasible", "failed", "cancelled")),
    *optional(sa.Text, "reason"),
    *optional(sa.BigInteger, "memory_bytes", "build_peak_bytes"),
    one("marked", sa.Boolean, server_default=sa.false()),
    *required(sa.Boolean, "on_frontier"),
    *required(UTC, "created_at"),
    *optional(UTC, "measured_at"),
    sa.UniqueConstraint("target_id", "digest", "role"),
    sa.UniqueConstraint("target_id", "number"),
    sa.Index("ix_candidate_by_decoder_parameters", "target_id", "decoder_parameters", "id"),
    partial_index("ix_candidate_by_latency_ms", "target_id", "latency_ms", "id", where="latency_ms IS NOT NULL"),
    partial_index("ix_candidate_by_memory_bytes", "target_id", "memory_bytes", "id", where="memory_bytes IS NOT NULL"),
    partial_index(
        "ix_candidate_by_predicted_perplexity",
        "target_id",
        "predicted_perplexity",
        "id",
        where="predicted_perplexity IS NOT NULL",
    ),
    sa.Index("ix_candidate_by_proxy", "target_id", "proxy", "id"),
    partial_index("ix_candidate_frontier", "target_id", where="on_frontier", sqlite_where="on_frontier = 1"),
    sa.Index(
        "ix_candidate_target_state",
        "target_id",
        "state",
        "role",
        "on_frontier",
        "latency_ms",
        "memory_bytes",
        "proxy",
        "predicted_perplexity",
        "number",
    ),
)
with_id(
    "generation",
    one("target_id", sa.String(40), key("target.id", "CASCADE"), index=True),
    *required(sa.Integer, "number"),
    *required(JSON, "snapshot"),
    *optional(JSON, "device_data"),
    *optional(sa.Integer, "proposals"),
    one("stored", sa.Integer, server_default="0"),
    *required(UTC, "created_at"),
    sa.UniqueConstraint("target_id", "number"),
)
with_id(
    "launch",
    one("measurement_id", sa.String(40), key("measurement.id", "CASCADE"), index=True),
    sa.Column("target_id", sa.String(40), key("target.id", "SET NULL"), index=True),
    *required(sa.String(120), "device_key"),
    one(
        "state", states(12, "wanted", "leased", "reported", "done", "infeasible", "failed", "cancelled", "implausible")
    ),
    one("purpose", states(10, "first", "refinement", "repeat", "anchor", name="purpose")),
    one("turn", sa.Double, server_default="0"),
    *required(sa.Integer, "attempts", "fence"),
    sa.Column("lease_id", sa.String(40), key("lease.id")),
    sa.Column("device_id", sa.String(40), key("device.id")),
    *optional(sa.String(40), "former_device_id"),
    *optional(UTC, "started_at", "finished_at"),
    *optional(JSON, "result"),
    *required(JSON, "reports"),
    *optional(sa.Text, "reason", "mark"),
    one("busy_s", sa.Double, server_default="0"),
    *required(UTC, "created_at"),
    partial_index("ix_launch_device", "device_id", where="state = 'leased'"),
    partial_index("ix_launch_implausible", "device_id", "finished_at", where="state = 'implausible'"),
    partial_index("ix_launch_lease", "lease_id", where="lease_id IS NOT NULL"),
    partial_index("ix_launch_reported", "finished_at", where="state = 'reported'"),
    partial_index("ix_launch_wanted", "device_key", "turn", "id", where="state = 'wanted'"),
)
with_id(
    "training",
    one("owner", sa.String(100), index=True),
    *required(sa.String(100), "name"),
    one("kind", states(10, "training", "supernet", "import", name="kind")),
    *required(JSON, "request", "architecture", "gpu_numbers"),
    *required(sa.String(64), "request_digest"),
    *optional(sa.String(200), "idempotency_key", "dataset", "worker"),
    *required(sa.Integer, "position", "attempts", "fence", "last_event"),
    *optional(sa.String(64), "import_digest", "dataset_digest", "recipe_name"),
    sa.Column("digest", sa.String(64), index=True),
    *optional(sa.BigInteger, "decoder_parameters", "seed", "memory_bytes", "failed_at_checkpoint", "checkpoint"),
    *optional(JSON, "trained", "recipe", "budget", "supernet", "last_metric", "result"),
    sa.Column("job_id", sa.String(40), key("job.id", "SET NULL"), index=True),
    sa.Column("target_id", sa.String(40), key("target.id", "SET NULL"), index=True),
    sa.Column("candidate_id", sa.String(40), key("candidate.id", "SET NULL"), index=True),
    *optional(sa.String(10), "device", "queue"),
    *optional(sa.Integer, "gpus"),
    *optional(sa.Double, "turn", "seconds_left"),
    one("state", states(10, "queued", "starting", "training", "evaluating", "paused", "cancelled", "done", "failed")),
    one("wanted", states(10, "run", "pause", "cancel", name="wanted")),
    *optional(sa.Text, "reason"),
    *required(sa.Text, "note"),
    *optional(UTC, "lease_expires_at", "running_since", "started_at", "finished_at"),
    *required(sa.BigInteger, "step", "steps", "tokens"),
    *required(sa.Double, "seconds"),
    *required(UTC, "created_at", "updated_at"),
    sa.UniqueConstraint("owner", "idempotency_key", "position"),
    sa.UniqueConstraint("owner", "import_digest"),
    sa.CheckConstraint(
        f"kind = 'import' OR ({' AND '.join(f'{column} IS NOT NULL' for column in TRAINED)})", name="trained"
    ),
    sa.Index("ix_training_state", "state", "queue", "turn"),
    partial_index("ix_training_worker", "worker", where="state IN ('starting', 'training', 'evaluating')"),
)
with_id(
    "web_session",
    one("secret_hash", sa.String(64), unique=True),
    one("api_key_id", sa.String(40), key("api_key.id", "CASCADE"), index=True),
    *required(UTC, "created_at", "expires_at"),
)
with_id(
    "evaluation",
    *required(sa.String(100), "owner"),
    *required(sa.String(64), "digest", "metric"),
    sa.Column("training_id", sa.String(40), key("training.id", "SET NULL")),
    *optional(sa.String(16), "recipe_key"),
    *required(sa.String(200), "dataset"),
    *required(sa.String(40), "split"),
    *required(sa.Double, "value"),
    *required(JSON, "details"),
    *required(UTC, "created_at"),
    sa.UniqueConstraint("training_id", "dataset", "split", "metric"),
    sa.Index("ix_evaluation_digest", "owner", "digest", "metric"),
    sa.Index("ix_evaluation_recipe_key", "owner", "recipe_key"),
)
with_id(
    "training_event",
    one("training_id", sa.String(40), key("training.id", "CASCADE")),
    *required(sa.Integer, "number"),
    one("kind", states(20, "state", "metric", "rewound", "checkpoint", "note", "evaluation", name="kind")),
    *required(JSON, "data"),
    *required(UTC, "created_at"),
    sa.UniqueConstraint("training_id", "number"),
    kind=AUTO_ID,
)
with_id(
    "training_metric",
    one("training_id", sa.String(40), key("training.id", "CASCADE")),
    *required(sa.BigInteger, "step"),
    *required(JSON, "data"),
    sa.UniqueConstraint("training_id", "step"),
    kind=AUTO_ID,
)


def upgrade() -> None:
    METADATA.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    METADATA.drop_all(op.get_bind(), checkfirst=False)
