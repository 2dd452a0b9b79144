"""Proxies: cheap scores that estimate quality by counts, by an untrained model, or by a few steps of training."""
