"""Splits a text generation into forward passes: one over the prompt, then one for each later token."""

from __future__ import annotations

from edgefront.core.measurement.protocol import Latency, MeasurementProtocol


def parts(protocol: MeasurementProtocol) -> tuple[tuple[int, MeasurementProtocol], ...]:
    """The forward passes whose times add up to the protocol's latency, each with the number of runs.

    A protocol of another mode is one pass. Every later token counts as the token in the middle of the generation, whose
    time is about the mean of all later tokens.
    """
    if protocol.mode != "generate":
        return ((1, protocol),)
    if protocol.latency == "first_token":
        return ((1, prompt_pass(protocol)),)
    if protocol.latency == "token":
        return ((1, token_pass(protocol)),)
    return ((1, prompt_pass(protocol)), (protocol.new_tokens - 1, token_pass(protocol)))


def prompt_pass(protocol: MeasurementProtocol) -> MeasurementProtocol:
    """Protocol of the forward pass over the prompt, in mode decode, which permits any number of tokens and context."""
    return protocol.model_copy(update={"mode": "decode", **_NO_GENERATION})


def token_pass(protocol: MeasurementProtocol) -> MeasurementProtocol:
    """Protocol of the forward pass of one later token, in the middle of the generation."""
    before = protocol.memory_length + protocol.sequence_length + (protocol.new_tokens - 1) // 2
    return protocol.model_copy(
        update={"mode": "decode", "sequence_length": 1, "memory_length": before, **_NO_GENERATION}
    )


def with_latency(protocol: MeasurementProtocol, latency: Latency) -> MeasurementProtocol:
    """Returns the protocol with this time of the generation as the latency."""
    return MeasurementProtocol.model_validate({**protocol.model_dump(), "latency": latency})


def last_length(protocol: MeasurementProtocol) -> int:
    """Number of tokens of context, prompt and generation together."""
    return protocol.memory_length + protocol.sequence_length + protocol.new_tokens


_NO_GENERATION = {"new_tokens": 0, "latency": "total"}
