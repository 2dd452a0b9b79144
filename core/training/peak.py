"""What a device can compute at most, to which model-FLOP utilisation is set (Chowdhery et al. 2022, appendix B)."""

from __future__ import annotations

import time

import torch

from edgefront.core.recipes.recipe import Precision

# Dense FLOP/s of the data sheets: (16 bit, TensorFloat-32).
_GPUS = {
    "H200": (989e12, 495e12),
    "H100 PCIe": (756e12, 378e12),
    "H100": (989e12, 495e12),
    "A100": (312e12, 156e12),
    "L40S": (362e12, 183e12),
    "L4": (121e12, 60e12),
    "A10G": (70e12, 35e12),
    "RTX 4090": (165e12, 83e12),
    "RTX 3090": (71e12, 36e12),
}
_SIZE, _ROUNDS = 1024, 10


def peak_flops(device: torch.device, precision: Precision) -> float | None:
    """FLOP/s of one device in this precision: a GPU's by its data sheet, a CPU's by large matrix products now.

    None for a GPU that is not listed.
    """
    if device.type != "cuda":
        return _measured(device)
    name = torch.cuda.get_device_name(device)
    for known, (half, single) in _GPUS.items():
        if all(word in name for word in known.split()):
            return single if precision == "float32" else half
    return None


def _measured(device: torch.device) -> float:
    one = torch.ones(_SIZE, _SIZE, device=device)
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        one @ one
        times.append(time.perf_counter() - begun)
    return 2 * _SIZE**3 / min(times)  # what else the machine does only ever slows one down
