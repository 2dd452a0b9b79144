"""Predictions: what a model would take on a device, without measuring it."""
