"""Tokens for one device, credentials that end the older ones when they are first used, and a count of what has ended.

Revision: 0013
Follows: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("api_key", schema=None) as batch_op:
        batch_op.add_column(sa.Column("pending", sa.Boolean(), server_default=sa.false(), nullable=False))
        batch_op.add_column(sa.Column("token_id", sa.String(length=40), nullable=True))
        batch_op.create_foreign_key(
            batch_op.f("fk_api_key_token_id_enrolment_token"),
            "enrolment_token",
            ["token_id"],
            ["id"],
            ondelete="SET NULL",
        )
    with op.batch_alter_table("enrolment_token", schema=None) as batch_op:
        batch_op.add_column(sa.Column("device_id", sa.String(length=40), nullable=True))
        batch_op.create_foreign_key(
            batch_op.f("fk_enrolment_token_device_id_device"), "device", ["device_id"], ["id"], ondelete="CASCADE"
        )
        batch_op.create_index(batch_op.f("ix_enrolment_token_device_id"), ["device_id"])
    op.create_table(
        "access_version",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_version")),
    )


def downgrade() -> None:
    op.drop_table("access_version")
    with op.batch_alter_table("enrolment_token", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_enrolment_token_device_id"))
        batch_op.drop_constraint(batch_op.f("fk_enrolment_token_device_id_device"), type_="foreignkey")
        batch_op.drop_column("device_id")
    with op.batch_alter_table("api_key", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_api_key_token_id_enrolment_token"), type_="foreignkey")
        batch_op.drop_column("token_id")
        batch_op.drop_column("pending")
