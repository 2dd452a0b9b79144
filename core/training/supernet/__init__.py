"""Differentiable search of PAR, by one model of shared weights that contains every stack (Mandava et al. 2020, §2)."""
