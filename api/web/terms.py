"""Words that the pages explain where they stand, with the sentences of `docs/concepts.md`, `frontiers.md` and
`measuring.md`, to which a test holds them.
"""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

WORDS: Mapping[str, str] = {
    "anchor": "a small fixed model that every device measures regularly; its history shows drift",
    "baseline": "the stock model of the space at several depths (layer-scaled, as the LTS paper calls it), or my "
    "model, from which a job starts. It is measured first, fixes the reference point, and is what every "
    "candidate is compared with",
    "frontier": "A candidate is on the frontier when no other candidate of its target dominates it: none is at least "
    "as good by the proxy, in latency and in peak memory, and better in one of them. So every gain along "
    "the frontier costs something: a faster model there is worse by the proxy or needs more memory.",
    "hypervolume": "Hypervolume is the part of the box between the ideal corner and the reference point that the "
    "frontier covers.",
    "interval": "The ± of a latency is half of the 95 % interval. Two candidates whose intervals overlap may change "
    "places.",
    "launch": "one fresh process that builds and times one architecture once",
    "measuring_share": "Measuring share is the part of the agent's wall time that was spent in warm-up and timed "
    "passes.",
    "out_of_bounds": "measured, kept and shown, but outside the job's limits",
    "passes": "what a latency is of: all tokens at once (forward), a prompt and the state after it (prefill), one "
    "further token (decode), or a whole generation (generate)",
    "peak_memory": "It is the high-water mark of the measuring process, not a file size and not a sum of allocations.",
    "perplexity": "how uncertain a model is of the next token of held-out text: the exponential of its mean loss. "
    "Lower is better",
    "proxy": "a cheap score used in place of quality",
    "quality_law": "what predicts perplexity from an architecture, learnt from trained models: with an interval, and "
    "where it holds",
    "quarantine": "of a device whose anchor failed or was off three times in a row, or on which five more models "
    "failed, or had a result that cannot be true, than were measured since: it gets no launches until its owner or an "
    "admin trusts it again",
    "speedup": "Speed-up and memory ratio compare a candidate with the baseline at equal decoder parameters: the "
    "baseline's figures are interpolated between its two nearest depths. 1.5 means that the baseline "
    "takes one and a half times as long, or as much memory.",
}

words = {name: f"{text[:1].upper()}{text[1:].removesuffix('.')}." for name, text in WORDS.items()}
"""Each as a sentence."""


def term(shown: str, says: str) -> Markup:
    """`shown`, marked as a word that has an explanation: `shared/terms.js` shows it, and a pointer over it does."""
    return Markup('<button type="button" class="term" title="{}">{}</button>').format(says, shown)
