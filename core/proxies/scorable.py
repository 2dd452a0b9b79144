"""The language model that an architecture is scored as."""

from __future__ import annotations

from edgefront.core.spaces.architecture import Architecture


def scorable(architecture: Architecture) -> Architecture:
    """The architecture with an output over its vocabulary, which the losses of proxies need.

    An encoder that is measured with another output (BERT's pooler) is scored as the masked language model that it is
    trained as, a decoder without one as a language model.
    """
    if architecture.output.kind in ("tokens", "masked_tokens"):
        return architecture
    kind = "tokens" if architecture.causal else "masked_tokens"
    return Architecture.parse({**architecture.canonical, "output": {"kind": kind}})
