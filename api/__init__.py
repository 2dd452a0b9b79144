"""The REST API, its pages, and the server that runs them."""

from edgefront.core.common.processes.threads import use_one_blas_thread

use_one_blas_thread()
