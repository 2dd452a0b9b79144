"""Names of the background tasks. The API and the services send them by name; the workers implement them.

A task does at most a few seconds of the work that waits (`core.services.work`); what its message names is requested
first.
"""

from __future__ import annotations

ADVANCE = "edgefront.advance"
"""Advances one target as far as possible now. Argument: `target_id`."""

PROCESS_RESULTS = "edgefront.process_results"
"""Processes reports (`measuring.result_processing`). Argument: `target_id`; None for reports of deleted targets."""

WORK = "edgefront.work"
"""Does work that waits, and requests none. Arguments: `queue`, the name of one of `core.services.work.QUEUES`, and
`number`, by which the messages of one transaction differ: as many workers are to take part."""

SWEEP = "edgefront.sweep"
"""Releases expired leases, ends targets whose budget is used up and resends lost tasks. No argument."""

TRAIN = "edgefront.train"
"""Starts waiting trainings, as many as the worker has free slots for. Argument: `queue`, one of `TRAIN_QUEUES`."""

TRAIN_QUEUES = ("cpu", "gpu", "gpus")
"""Queues of trainings without GPU, with one, and with several; workers choose which to serve."""
