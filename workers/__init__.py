"""Workers: what follows from requests and reports, searches, and trainings."""

from edgefront.core.common.processes.program import use_one_blas_thread

use_one_blas_thread()
