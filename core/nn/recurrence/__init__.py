"""The elementwise recurrence of SRU and SRU++ (Lei 2021, §2), forward and backward, fast on CPUs and GPUs.

Shapes, in all files here: u [batch, sequence, 3, d] (candidate, forget, reset), x [batch, sequence, d], v and b [2, d]
(forget, reset), cell and mask [batch, d].
"""

from edgefront.core.nn.recurrence.backends import prepare
from edgefront.core.nn.recurrence.function import sru_recurrence

__all__ = ["prepare", "sru_recurrence"]
