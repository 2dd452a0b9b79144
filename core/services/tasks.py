"""Names of the background tasks. API and services send them by name; the workers implement them.

A task first requests the work that its message names, then does waiting work (`core.services.work`) for a few seconds.
"""

from __future__ import annotations

ADVANCE = "edgefront.advance"
"""Advances one target as far as possible now. Argument: `target_id`."""

PROCESS_RESULTS = "edgefront.process_results"
"""Processes reports (`measuring.result_processing`). Argument: `target_id`; None for reports of deleted targets."""

WORK = "edgefront.work"
"""Does waiting work. Arguments: `queue`, the name of one of `core.services.work.QUEUES`, and `number`, which makes the
messages of one transaction distinct: each wakes one worker."""

SWEEP = "edgefront.sweep"
"""Releases expired leases, ends targets whose budget is used up and resends lost tasks. No argument."""

TRAIN = "edgefront.train"
"""Starts waiting trainings in the worker's free slots. Argument: `queue`, one of `TRAIN_QUEUES`."""

TRAIN_QUEUES = ("cpu", "gpu", "gpus")
"""Queues of trainings without GPU, with one, and with several; workers choose which to serve."""
