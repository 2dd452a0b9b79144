"""Cheap scores that stand for quality: counts, measures of an untrained model, and training for a few steps."""
