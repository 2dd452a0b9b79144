"""Values and names of the genes that spaces of layers (`core.spaces.layers`) have."""

from __future__ import annotations

ATTENTION, SHORT_CONV = "attention", "short_conv"
"""Values of the gene `mixer`."""
PER_LAYER, UNIFORM = "own", "alike"
"""Values of the gene `layers`: each layer has its own widths, or all have those of the first."""
TIED, UNTIED = "tied", "untied"
"""Values of the gene `output`."""
ENDS = ("vocab_size", "output")
"""Genes of what is no block, beside d_model."""
UNIFORM_GENES = ("n_head", "n_kv_head", "d_inner")
"""Genes that are the same in all layers unless `layers` says that each has its own."""
