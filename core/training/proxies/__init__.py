"""Proxies: cheap scores that estimate the quality of a model from counts, the untrained model, or a short training."""
