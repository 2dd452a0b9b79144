"""Data sets: what there are, how they are prepared, and how they become batches. Needs no torch."""
