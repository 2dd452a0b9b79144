"""What counts as better in a job."""

from __future__ import annotations

from edgefront.core.pareto.dominance import Dominance
from edgefront.core.proxies.registry import proxies
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.store.tables import Job


def dominance_of(job: Job) -> Dominance:
    """Dominance by the job's ε and proxy; without an ε where its request cannot be read (`advance` ends such a job)."""
    request = JOB_REQUEST.read_or(job.request, None)
    if request is None:
        return Dominance()
    proxy = proxies().get(request.proxy)
    return Dominance(request.epsilon, logarithmic=proxy is not None and proxy.logarithmic)
