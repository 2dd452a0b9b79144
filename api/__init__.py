"""The REST API, its pages, and the server that runs them."""

from edgefront.core.common.processes.program import use_one_blas_thread

use_one_blas_thread()
