"""The embedded service: API, worker and one agent on this machine, with SQLite in a data folder."""

from edgefront.core.common.processes.program import use_one_blas_thread

use_one_blas_thread()
