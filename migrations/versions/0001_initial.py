"""All tables of release 0.1.0.

Revision: 0.1.0
Follows:
"""

from __future__ import annotations

from functools import partial

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

required = partial(sa.Column, nullable=False)


def states(length: int, *values: str, name: str = "state") -> sa.Enum:
    """Text, which a CHECK called `name` keeps to these values."""
    return sa.Enum(*values, name=name, length=length, native_enum=False, create_constraint=True)


def key(target: str, ondelete: str | None = None) -> sa.ForeignKey:
    return sa.ForeignKey(target, ondelete=ondelete)


def partial_index(name: str, *columns: str, where: str, sqlite_where: str | None = None) -> sa.Index:
    return sa.Index(name, *columns, postgresql_where=sa.text(where), sqlite_where=sa.text(sqlite_where or where))


sa.Table(
    "access_version",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    required("number", sa.BigInteger),
)
sa.Table(
    "artifact",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("digest", sa.String(64)),
    required("seed", sa.BigInteger),
    required("format", sa.String(20)),
    required("path", sa.String(300)),
    required("size", sa.BigInteger),
    required("sha256", sa.String(64)),
    required("created_at", UTC),
    sa.UniqueConstraint("digest", "seed", "format"),
)
sa.Table(
    "device",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("name", sa.String(100), unique=True),
    required("device_class", sa.String(100), index=True),
    required("owner", sa.String(100), index=True),
    required("state", states(10, "active", "draining", "revoked")),
    required("facts", JSON),
    sa.Column("facts_digest", sa.String(16)),
    required("protocol_version", sa.Integer),
    required("enrolled_at", UTC),
    sa.Column("last_seen_at", UTC),
    sa.Column("reported_at", UTC),
    required("busy_s", sa.Double),
    required("measuring_s", sa.Double),
    sa.Column("instances", JSON),
    sa.Column("quarantine", sa.Text),
    sa.Column("failing", JSON),
    sa.Column("trusted_at", UTC),
)
sa.Table(
    "job",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("name", sa.String(100)),
    required("owner", sa.String(100), index=True),
    required("request", JSON),
    required("request_digest", sa.String(64)),
    sa.Column("idempotency_key", sa.String(200)),
    required("state", states(10, "running", "paused", "cancelled", "finished", "failed"), index=True),
    sa.Column("reason", sa.Text),
    sa.Column("law", sa.Text),
    required("last_event", sa.Integer),
    required("created_at", UTC),
    required("updated_at", UTC),
    sa.Column("finished_at", UTC),
    sa.UniqueConstraint("owner", "idempotency_key"),
)
sa.Table(
    "measurement",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("digest", sa.String(64)),
    required("device_key", sa.String(120)),
    required("protocol_digest", sa.String(64)),
    required("protocol", JSON),
    required("architecture", JSON),
    required("seed", sa.BigInteger),
    required("state", states(12, "wanted", "measured", "infeasible", "failed")),
    sa.Column("reason", sa.Text),
    required("launches", sa.Integer),
    sa.Column("latency_ms", sa.Double),
    sa.Column("latency_p90_ms", sa.Double),
    sa.Column("log_mean", sa.Double),
    sa.Column("log_m2", sa.Double),
    sa.Column("memory_bytes", sa.BigInteger),
    sa.Column("build_peak_bytes", sa.BigInteger),
    sa.Column("first_token_ms", sa.Double),
    sa.Column("token_ms", sa.Double),
    sa.Column("total_ms", sa.Double),
    sa.Column("tokens_per_s", sa.Double),
    sa.Column("energy_token_mj", sa.Double),
    sa.Column("measured_at", UTC),
    sa.UniqueConstraint("digest", "device_key", "protocol_digest", "seed"),
    sa.Index("ix_measurement_device", "device_key", "protocol_digest", "state", "id"),
    partial_index("ix_measurement_pooled", "device_key", "protocol_digest", "id", where="launches > 1"),
)
sa.Table(
    "proxy_score",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("digest", sa.String(64)),
    required("proxy", sa.String(32)),
    required("settings_digest", sa.String(64)),
    required("seed", sa.BigInteger),
    required("settings", JSON),
    required("architecture", JSON),
    required("state", states(10, "wanted", "done", "infeasible")),
    sa.Column("value", sa.Double),
    sa.Column("reason", sa.Text),
    required("created_at", UTC),
    sa.Column("settled_at", UTC),
    sa.UniqueConstraint("digest", "proxy", "settings_digest", "seed"),
    partial_index("ix_proxy_score_open", "id", where="state = 'wanted'"),
)
sa.Table(
    "owner_law",
    METADATA,
    sa.Column("owner", sa.String(100), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    required("base", sa.String(64)),
    required("document", sa.Text),
    required("digest", sa.String(64)),
    required("summary", JSON),
    required("left_out", JSON),
    required("updated_at", UTC),
)
sa.Table(
    "work_item",
    METADATA,
    sa.Column("kind", states(10, "results", "advance", "search", "score", "learn", name="kind"), primary_key=True),
    sa.Column("subject", sa.String(120), primary_key=True),
    required("owner", sa.String(100)),
    required("turn", sa.Double),
    required("again", sa.Boolean),
    sa.Column("holder", sa.String(120)),
    required("fence", sa.Integer),
    required("attempts", sa.Integer),
    sa.Column("claimed_until", UTC),
    required("requested_at", UTC),
    sa.Index("ix_work_item_owner", "owner", "kind"),
    sa.Index("ix_work_item_turn", "kind", "turn"),
)
sa.Table(
    "enrolment_token",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("name", sa.String(100)),
    required("owner", sa.String(100), index=True),
    sa.Column("device_id", sa.String(40), key("device.id", "CASCADE"), index=True),
    required("secret_hash", sa.String(64), unique=True),
    required("created_at", UTC),
    required("expires_at", UTC),
    required("max_uses", sa.Integer),
    required("uses", sa.Integer),
    sa.Column("revoked_at", UTC),
)
sa.Table(
    "event",
    METADATA,
    sa.Column("id", AUTO_ID, primary_key=True, autoincrement=True),
    required("job_id", sa.String(40), key("job.id", "CASCADE")),
    required("number", sa.Integer),
    required(
        "kind",
        states(20, "job_state", "target_state", "generation", "candidate", "frontier", "launch", name="kind"),
    ),
    sa.Column("target_id", sa.String(40)),
    required("data", JSON),
    required("created_at", UTC),
    sa.UniqueConstraint("job_id", "number"),
)
sa.Table(
    "lease",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("device_id", sa.String(40), key("device.id", "CASCADE"), index=True),
    required("created_at", UTC),
    required("expires_at", UTC, index=True),
    sa.Column("ended_at", UTC, index=True),
)
sa.Table(
    "target",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("job_id", sa.String(40), key("job.id", "CASCADE"), index=True),
    required("position", sa.Integer),
    required("name", sa.String(200)),
    required("device_key", sa.String(120), index=True),
    required("protocol", JSON),
    required("protocol_digest", sa.String(64)),
    required("limits", JSON),
    required("seed", sa.BigInteger),
    required("proxy", sa.String(32), server_default="decoder_parameters"),
    sa.Column("proxy_data", sa.String(64)),
    required("state", states(10, "baselines", "searching", "refining", "finished", "cancelled", "failed"), index=True),
    required("note", sa.Text),
    required("generation", sa.Integer),
    sa.Column("reference", JSON),
    required("hypervolume", sa.Double),
    required("frontier_size", sa.Integer),
    required("candidates", sa.Integer),
    required("settled", sa.Integer),
    required("launches_done", sa.Integer),
    required("refinements", sa.Integer),
    required("busy_s", sa.Double),
    required("measuring_s", sa.Double),
    sa.Column("started_at", UTC),
    sa.Column("finished_at", UTC),
    sa.UniqueConstraint("job_id", "position"),
)
sa.Table(
    "api_key",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("name", sa.String(100)),
    required("owner", sa.String(100), index=True),
    required("role", states(10, "admin", "user", "viewer", "agent", name="role")),
    required("prefix", sa.String(16)),
    required("secret_hash", sa.String(64), unique=True),
    sa.Column("device_id", sa.String(40), key("device.id", "CASCADE"), index=True),
    required("created_at", UTC),
    sa.Column("expires_at", UTC),
    sa.Column("revoked_at", UTC),
    required("pending", sa.Boolean, server_default=sa.false()),
    sa.Column("token_id", sa.String(40), key("enrolment_token.id", "SET NULL")),
    sa.Column("enrolment_nonce", sa.String(64)),
)
sa.Table(
    "candidate",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("job_id", sa.String(40), key("job.id", "CASCADE"), index=True),
    required("target_id", sa.String(40), key("target.id", "CASCADE")),
    sa.Column("measurement_id", sa.String(40), key("measurement.id"), index=True),
    required("number", sa.Integer),
    required("role", states(10, "baseline", "search", name="role")),
    required("generation", sa.Integer),
    required("operator", sa.String(20)),
    required("parents", JSON),
    required("genome", JSON),
    required("digest", sa.String(64)),
    required("architecture", JSON),
    required("decoder_parameters", sa.BigInteger),
    required("total_parameters", sa.BigInteger),
    required("weight_bytes", sa.BigInteger),
    required("flops", sa.BigInteger),
    required("proxy", sa.Double),
    sa.Column("predicted", JSON),
    sa.Column("predicted_perplexity", sa.Double),
    required("seed", sa.BigInteger),
    required("state", states(15, "waiting", "measured", "out_of_bounds", "infeasible", "failed", "cancelled")),
    sa.Column("reason", sa.Text),
    sa.Column("latency_ms", sa.Double),
    sa.Column("latency_half_width_ms", sa.Double),
    sa.Column("latency_p90_ms", sa.Double),
    sa.Column("memory_bytes", sa.BigInteger),
    sa.Column("build_peak_bytes", sa.BigInteger),
    sa.Column("first_token_ms", sa.Double),
    sa.Column("token_ms", sa.Double),
    sa.Column("total_ms", sa.Double),
    sa.Column("tokens_per_s", sa.Double),
    sa.Column("energy_token_mj", sa.Double),
    required("launches", sa.Integer),
    required("marked", sa.Boolean, server_default=sa.false()),
    required("on_frontier", sa.Boolean),
    required("created_at", UTC),
    sa.Column("measured_at", UTC),
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
sa.Table(
    "generation",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("target_id", sa.String(40), key("target.id", "CASCADE"), index=True),
    required("number", sa.Integer),
    required("snapshot", JSON),
    sa.Column("device_data", JSON),
    sa.Column("proposals", sa.Integer),
    required("stored", sa.Integer, server_default="0"),
    required("created_at", UTC),
    sa.UniqueConstraint("target_id", "number"),
)
sa.Table(
    "launch",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("measurement_id", sa.String(40), key("measurement.id", "CASCADE"), index=True),
    sa.Column("target_id", sa.String(40), key("target.id", "SET NULL"), index=True),
    required("device_key", sa.String(120)),
    required(
        "state", states(12, "wanted", "leased", "reported", "done", "infeasible", "failed", "cancelled", "implausible")
    ),
    required("purpose", states(10, "first", "refinement", "repeat", "anchor", name="purpose")),
    required("turn", sa.Double, server_default="0"),
    required("attempts", sa.Integer),
    required("fence", sa.Integer),
    sa.Column("lease_id", sa.String(40), key("lease.id")),
    sa.Column("device_id", sa.String(40), key("device.id")),
    sa.Column("former_device_id", sa.String(40)),
    sa.Column("started_at", UTC),
    sa.Column("result", JSON),
    required("reports", JSON),
    sa.Column("reason", sa.Text),
    sa.Column("mark", sa.Text),
    required("busy_s", sa.Double, server_default="0"),
    required("created_at", UTC),
    sa.Column("finished_at", UTC),
    partial_index("ix_launch_device", "device_id", where="state = 'leased'"),
    partial_index("ix_launch_implausible", "device_id", "finished_at", where="state = 'implausible'"),
    partial_index("ix_launch_lease", "lease_id", where="lease_id IS NOT NULL"),
    partial_index("ix_launch_reported", "finished_at", where="state = 'reported'"),
    partial_index("ix_launch_wanted", "device_key", "turn", "id", where="state = 'wanted'"),
)
sa.Table(
    "proxy_wait",
    METADATA,
    sa.Column("target_id", sa.String(40), key("target.id", "CASCADE"), primary_key=True),
    sa.Column("score_id", sa.String(40), key("proxy_score.id", "CASCADE"), primary_key=True, index=True),
)
sa.Table(
    "training",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("owner", sa.String(100), index=True),
    required("name", sa.String(100)),
    required("kind", states(10, "training", "supernet", "import", name="kind")),
    required("request", JSON),
    required("request_digest", sa.String(64)),
    sa.Column("idempotency_key", sa.String(200)),
    required("position", sa.Integer),
    sa.Column("import_digest", sa.String(64)),
    required("architecture", JSON),
    sa.Column("digest", sa.String(64), index=True),
    sa.Column("decoder_parameters", sa.BigInteger),
    sa.Column("trained", JSON),
    sa.Column("job_id", sa.String(40), key("job.id", "SET NULL"), index=True),
    sa.Column("target_id", sa.String(40), key("target.id", "SET NULL"), index=True),
    sa.Column("candidate_id", sa.String(40), key("candidate.id", "SET NULL"), index=True),
    sa.Column("dataset", sa.String(200)),
    sa.Column("dataset_digest", sa.String(64)),
    sa.Column("recipe_name", sa.String(64)),
    sa.Column("recipe", JSON),
    sa.Column("budget", JSON),
    sa.Column("supernet", JSON),
    sa.Column("seed", sa.BigInteger),
    sa.Column("device", sa.String(10)),
    sa.Column("gpus", sa.Integer),
    sa.Column("memory_bytes", sa.BigInteger),
    sa.Column("queue", sa.String(10)),
    sa.Column("turn", sa.Double),
    required(
        "state", states(10, "queued", "starting", "training", "evaluating", "paused", "cancelled", "done", "failed")
    ),
    required("wanted", states(10, "run", "pause", "cancel", name="wanted")),
    sa.Column("reason", sa.Text),
    required("note", sa.Text),
    required("attempts", sa.Integer),
    sa.Column("failed_at_checkpoint", sa.BigInteger),
    required("fence", sa.Integer),
    sa.Column("worker", sa.String(200)),
    required("gpu_numbers", JSON),
    sa.Column("lease_expires_at", UTC),
    sa.Column("running_since", UTC),
    required("step", sa.BigInteger),
    required("steps", sa.BigInteger),
    sa.Column("checkpoint", sa.BigInteger),
    required("tokens", sa.BigInteger),
    required("seconds", sa.Double),
    sa.Column("seconds_left", sa.Double),
    sa.Column("last_metric", JSON),
    sa.Column("result", JSON),
    required("created_at", UTC),
    sa.Column("started_at", UTC),
    required("updated_at", UTC),
    sa.Column("finished_at", UTC),
    required("last_event", sa.Integer),
    sa.UniqueConstraint("owner", "idempotency_key", "position"),
    sa.UniqueConstraint("owner", "import_digest"),
    sa.CheckConstraint(
        f"kind = 'import' OR ({' AND '.join(f'{column} IS NOT NULL' for column in TRAINED)})", name="trained"
    ),
    sa.Index("ix_training_state", "state", "queue", "turn"),
    partial_index("ix_training_worker", "worker", where="state IN ('starting', 'training', 'evaluating')"),
)
sa.Table(
    "web_session",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("secret_hash", sa.String(64), unique=True),
    required("api_key_id", sa.String(40), key("api_key.id", "CASCADE"), index=True),
    required("created_at", UTC),
    required("expires_at", UTC),
)
sa.Table(
    "evaluation",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    required("owner", sa.String(100)),
    required("digest", sa.String(64)),
    sa.Column("training_id", sa.String(40), key("training.id", "SET NULL")),
    sa.Column("recipe_key", sa.String(16)),
    required("dataset", sa.String(200)),
    required("split", sa.String(40)),
    required("metric", sa.String(64)),
    required("value", sa.Double),
    required("details", JSON),
    required("created_at", UTC),
    sa.UniqueConstraint("training_id", "dataset", "split", "metric"),
    sa.Index("ix_evaluation_digest", "owner", "digest", "metric"),
    sa.Index("ix_evaluation_recipe_key", "owner", "recipe_key"),
)
sa.Table(
    "training_event",
    METADATA,
    sa.Column("id", AUTO_ID, primary_key=True, autoincrement=True),
    required("training_id", sa.String(40), key("training.id", "CASCADE")),
    required("number", sa.Integer),
    required("kind", states(20, "state", "metric", "rewound", "checkpoint", "note", "evaluation", name="kind")),
    required("data", JSON),
    required("created_at", UTC),
    sa.UniqueConstraint("training_id", "number"),
)
sa.Table(
    "training_metric",
    METADATA,
    sa.Column("id", AUTO_ID, primary_key=True, autoincrement=True),
    required("training_id", sa.String(40), key("training.id", "CASCADE")),
    required("step", sa.BigInteger),
    required("data", JSON),
    sa.UniqueConstraint("training_id", "step"),
)


def upgrade() -> None:
    METADATA.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    METADATA.drop_all(op.get_bind(), checkfirst=False)
