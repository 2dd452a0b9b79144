"""Names of the background tasks. The API and the services send them by name; the workers implement them."""

from __future__ import annotations

ADVANCE = "edgefront.advance"
"""Moves one target on as far as it can go now. Argument: `target_id`."""

SETTLE = "edgefront.settle"
"""Derives what follows from reports (`measuring.settling`). Argument: `target_id`; None: those of deleted targets."""

SWEEP = "edgefront.sweep"
"""Returns expired leases, ends what ran out of budget and re-sends what a crash swallowed. No argument."""

SCORE = "edgefront.score"
"""Computes scores of proxies until none is left. Argument: `lane`, a number that tells messages of one time apart."""

TRAIN = "edgefront.train"
"""Starts trainings that wait, as many as the worker has room for. Argument: `queue`, one of `TRAIN_QUEUES`."""

TRAIN_QUEUES = ("cpu", "gpu", "gpus")
"""Trainings without GPU, with one, and with several: each has a queue of its own, which workers choose to serve."""
