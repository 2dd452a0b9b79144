"""Measurements of a device are found by their state.

Revision: 0020
Follows: 0019
"""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_measurement_device", table_name="measurement")
    op.create_index("ix_measurement_device", "measurement", ["device_key", "protocol_digest", "state"])


def downgrade() -> None:
    op.drop_index("ix_measurement_device", table_name="measurement")
    op.create_index("ix_measurement_device", "measurement", ["device_key", "protocol_digest"])
