"""The elementwise recurrence of SRU and SRU++ (Lei 2021, §2), forward and backward: for CPUs (`cpu`, Numba), for NVIDIA
GPUs (`gpu`, Triton) and by PyTorch's operators (`plain`), which run anywhere and to which both are held.

Shapes, in all files here: u [batch, sequence, 3, d] (candidate, forget, reset), x [batch, sequence, d], v and b [2, d]
(forget, reset), cell and mask [batch, d].
"""

from edgefront.core.nn.recurrence.function import prepare, sru_recurrence

__all__ = ["prepare", "sru_recurrence"]
