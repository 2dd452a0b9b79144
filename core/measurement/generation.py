"""Splits a generation into its passes: the prompt, then one token after another."""

from __future__ import annotations

from edgefront.core.measurement.protocol import Latency, MeasurementProtocol


def parts(protocol: MeasurementProtocol) -> tuple[tuple[int, MeasurementProtocol], ...]:
    """The passes whose times add up to the protocol's latency, each with how often it runs.

    A protocol of another mode is its own only part. All further tokens are counted as the one in the middle of the
    generation, whose time is about their mean.
    """
    if protocol.mode != "generate":
        return ((1, protocol),)
    if protocol.latency == "first_token":
        return ((1, prompt_pass(protocol)),)
    if protocol.latency == "token":
        return ((1, token_pass(protocol)),)
    return ((1, prompt_pass(protocol)), (protocol.new_tokens - 1, token_pass(protocol)))


def prompt_pass(protocol: MeasurementProtocol) -> MeasurementProtocol:
    """The pass over the prompt. Its mode is decode, where a pass may have any number of tokens after any context."""
    return protocol.model_copy(update={"mode": "decode", **_NO_GENERATION})


def token_pass(protocol: MeasurementProtocol) -> MeasurementProtocol:
    """The pass of one further token in the middle of the generation."""
    before = protocol.memory_length + protocol.sequence_length + (protocol.new_tokens - 1) // 2
    return protocol.model_copy(
        update={"mode": "decode", "sequence_length": 1, "memory_length": before, **_NO_GENERATION}
    )


def with_latency(protocol: MeasurementProtocol, latency: Latency) -> MeasurementProtocol:
    """The same generation with another of its times as the latency."""
    return MeasurementProtocol.model_validate({**protocol.model_dump(), "latency": latency})


def last_length(protocol: MeasurementProtocol) -> int:
    """Tokens of context, prompt and generation together."""
    return protocol.memory_length + protocol.sequence_length + protocol.new_tokens


_NO_GENERATION = {"new_tokens": 0, "latency": "total"}
