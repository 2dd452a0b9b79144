"""Values and names of the genes that spaces of layers (`core.spaces.layers`) have."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.gene import Gene, in_words

# Layers whose widths follow from d_model as in the models that quality laws know (`core.quality.study.gemstones`):
# attention as wide as d_model, half as many heads of keys and values, an inner width of 4·d_model.

Widths = dict[tuple[int, int], dict[str, int]]
"""(d_model, d_head) → gene → width."""
_RULES = {
    "d_model": "a multiple of 2·d_head",
    "n_head": "d_model / d_head",
    "n_kv_head": "n_head / 2",
    "d_inner": "4·d_model",
}


def proportional_widths(genes: Mapping[str, Gene]) -> Widths:
    """The widths of proportional layers, where the genes have these values; nothing where `layers` is not among them
    or cannot be proportional.
    """
    if "layers" not in genes or PROPORTIONAL not in genes["layers"].values:
        return {}
    return {
        pair: widths
        for pair, widths in _of_whole_numbers(genes).items()
        if all(widths[name] in genes[name].values for name in UNIFORM_GENES)
    }


def not_proportional(space: str, genes: Mapping[str, Gene]) -> SpaceError:
    """The refusal of genes that leave no proportional layers; it names the first one that has none of their values."""
    left = list(_of_whole_numbers(genes).values())
    name, allowed = "d_model", _RULES["d_model"]
    for following in UNIFORM_GENES:
        if not left:
            break
        name, allowed = following, in_words(sorted({widths[following] for widths in left}))
        left = [widths for widths in left if widths[following] in genes[following].values]
    values = list(genes[name].values)
    return SpaceError(
        f"no architecture is left in {space}: layers are {PROPORTIONAL}, so {name} is {_RULES[name]}, and not "
        f"{in_words(values)}",
        field=name,
        value=values,
        allowed=allowed,
    )


def _of_whole_numbers(genes: Mapping[str, Gene]) -> Widths:
    """Those that are whole numbers, whether the genes have them or not."""
    d_models, d_heads = ([int(value) for value in genes[name].values] for name in ("d_model", "d_head"))
    return {
        (d_model, d_head): {
            "n_head": d_model // d_head,
            "n_kv_head": d_model // (2 * d_head),
            "d_inner": 4 * d_model,
        }
        for d_model, d_head in product(d_models, d_heads)
        if d_model % (2 * d_head) == 0
    }


ATTENTION, SHORT_CONV = "attention", "short_conv"
"""Values of the gene `mixer`."""
PER_LAYER, UNIFORM, PROPORTIONAL = "own", "alike", "proportional"
"""Values of the gene `layers`: each layer has its own widths, all have those of the first, or all have every part and
the widths that follow from d_model. Each contains the next.
"""
TIED, UNTIED = "tied", "untied"
"""Values of the gene `output`."""
ENDS = ("vocab_size", "output")
"""Genes of what is no block, beside d_model."""
UNIFORM_GENES = ("n_head", "n_kv_head", "d_inner")
"""Genes that are the same in all layers unless `layers` says that each has its own."""
