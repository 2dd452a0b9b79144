"""Names of the background tasks. The API and the services send them by name; the workers implement them."""

from __future__ import annotations

ADVANCE = "edgefront.advance"
"""Moves one target on as far as it can go now. Argument: `target_id`."""

SWEEP = "edgefront.sweep"
"""Returns expired leases, ends what ran out of budget and re-sends what a crash swallowed. No argument."""
