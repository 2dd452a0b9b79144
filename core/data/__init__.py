"""Data sets: sources, tokenizers, preparation as token ids, and batches for training. Does not import torch."""
