"""Splits a text generation into forward passes: one over the prompt, then one for each later token."""

from __future__ import annotations

from edgefront.core.measurement.protocol import Latency, MeasurementProtocol


def parts(protocol: MeasurementProtocol) -> tuple[tuple[int, MeasurementProtocol], ...]:
    """Splits the protocol's latency into forward passes: pairs of a number of runs and the protocol of one pass.

    A protocol of a mode other than generate is one pass. Every token after the first is replaced by the token in the
    middle of the generation, because the middle token's time is about the mean.
    """
    if protocol.mode != "generate":
        return ((1, protocol),)
    if protocol.latency == "first_token":
        return ((1, prompt_pass(protocol)),)
    if protocol.latency == "token":
        return ((1, token_pass(protocol)),)
    return ((1, prompt_pass(protocol)), (protocol.new_tokens - 1, token_pass(protocol)))


def prompt_pass(protocol: MeasurementProtocol) -> MeasurementProtocol:
    """Protocol of the forward pass over the prompt, with mode decode because decode permits any numbers of tokens."""
    return protocol.model_copy(update={"mode": "decode", **_NO_GENERATION})


def token_pass(protocol: MeasurementProtocol) -> MeasurementProtocol:
    """Protocol of the forward pass of the token in the middle of the generation."""
    before = protocol.memory_length + protocol.sequence_length + (protocol.new_tokens - 1) // 2
    return protocol.model_copy(
        update={"mode": "decode", "sequence_length": 1, "memory_length": before, **_NO_GENERATION}
    )


def with_latency(protocol: MeasurementProtocol, latency: Latency) -> MeasurementProtocol:
    """Returns the protocol with another time of the generation as the latency, such as `first_token`."""
    return MeasurementProtocol.model_validate({**protocol.model_dump(), "latency": latency})


def last_length(protocol: MeasurementProtocol) -> int:
    """Number of tokens at the end of a generation: context, prompt and new tokens together."""
    return protocol.memory_length + protocol.sequence_length + protocol.new_tokens


_NO_GENERATION = {"new_tokens": 0, "latency": "total"}
