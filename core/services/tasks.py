"""Names of the background tasks. The API and the services send them by name; the workers implement them."""

from __future__ import annotations

ADVANCE = "edgefront.advance"
"""Advances one target as far as possible now. Argument: `target_id`."""

SETTLE = "edgefront.settle"
"""Settles reports (`measuring.settling`). Argument: `target_id`; None for reports of deleted targets."""

SWEEP = "edgefront.sweep"
"""Releases expired leases, ends targets whose budget is used up and resends lost tasks. No argument."""

SCORE = "edgefront.score"
"""Computes scores of proxies until none is left. Argument: `lane`, a number that makes simultaneous messages
different."""

REFIT = "edgefront.refit"
"""Refines quality laws by the trainings of one manner (`quality.refits`). Argument: `manner`."""

MOVE_LAW = "edgefront.move_law"
"""Predicts a job's candidates by the law that it is moved to (`jobs.law`). Argument: `job_id`."""

TRAIN = "edgefront.train"
"""Starts waiting trainings, as many as the worker has free slots for. Argument: `queue`, one of `TRAIN_QUEUES`."""

TRAIN_QUEUES = ("cpu", "gpu", "gpus")
"""Queues of trainings without GPU, with one, and with several; workers choose which to serve."""
