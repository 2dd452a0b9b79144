"""Workers: Celery tasks that process reports, run searches, and supervise trainings."""

from edgefront.core.common.processes.program import use_one_blas_thread

use_one_blas_thread()
