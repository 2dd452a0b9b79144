"""Names of the background tasks, which API and services send and the workers implement.

A task first requests the work that its message names, then does waiting work (`core.services.work`) for a few seconds.
"""

from __future__ import annotations

ADVANCE = "edgefront.advance"
"""Task that advances the search of one target as far as possible now. Argument: `target_id`."""

PROCESS_RESULTS = "edgefront.process_results"
"""Task that processes reports (`measuring.result_processing`). Argument: `target_id`, None for deleted targets."""

WORK = "edgefront.work"
"""Task that does waiting work. Argument: `queue`, a name in `core.services.work.QUEUES`."""

SWEEP = "edgefront.sweep"
"""Task that releases expired leases, ends targets whose budget is used up and resends lost tasks. No argument."""

SERVED = "edgefront.served"
"""Task that stores that a worker serves a queue. Argument: `queue`, the queue's name without a prefix."""

TRAIN = "edgefront.train"
"""Task that starts waiting trainings in the worker's free slots. Argument: `queue`, one of `TRAIN_QUEUES`."""

TRAIN_QUEUES = ("cpu", "gpu", "gpus")
"""Queues of trainings without a GPU, with one GPU, and with several; each worker serves some of them."""
