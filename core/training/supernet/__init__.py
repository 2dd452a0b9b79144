"""Differentiable architecture search of PAR: one model contains all candidates (Mandava et al. 2020, §2)."""
