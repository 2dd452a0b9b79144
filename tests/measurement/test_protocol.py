"""The measurement protocol: what it permits, what it is named by, and which architectures it suits."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput, ProtocolError
from edgefront.core.common.number_formats import GgufQuantisation
from edgefront.core.common.validation import invalid_input
from edgefront.core.measurement.passes import protocol_costs, source_length
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.runtimes import INSTALLATIONS, Runtime, not_installed

WORDS = {"vocab_size": 100}
ATTENTION = {"kind": "attention", "n_head": 2}
GPT = Architecture.parse(
    {"d_model": 8, "positions": {"kind": "learned", "length": 256}, "embedding": WORDS, "blocks": [ATTENTION]}
)
ENCODER = Architecture.parse({"d_model": 8, "causal": False, "embedding": WORDS, "blocks": [ATTENTION]})
UNBOUNDED = Architecture.parse(
    {"d_model": 8, "positions": {"kind": "none"}, "embedding": WORDS, "blocks": [{"kind": "srupp", "d_attn": 4}]}
)
TRANSLATION = Architecture.parse(
    {
        "d_model": 8,
        "positions": {"kind": "none"},
        "embedding": WORDS,
        "blocks": [{"kind": "srupp", "d_attn": 4, "attends": "both"}],
        "source": {
            "d_model": 8,
            "positions": {"kind": "learned", "length": 100},
            "causal": False,
            "embedding": WORDS,
            "blocks": [ATTENTION],
            "output": {"kind": "none"},
        },
    }
)


def wrong(**fields: Any) -> InvalidInput:
    """The one error of a protocol with these fields."""
    with pytest.raises(ValidationError) as caught:
        MeasurementProtocol(**fields)
    return invalid_input(caught.value, ProtocolError)


def test_digests_of_protocols_that_were_stored_before_modes_came() -> None:
    assert MeasurementProtocol().digest == "e571dce06a1f0031a74912e05a4956ea302370f7944f6c3cc1d85f4e94d86618"
    cuda = MeasurementProtocol(runtime="pytorch", provider="cuda", batch=2)
    assert cuda.digest == "9b1760d33eab091128c6d33382f3652e1d748e9b22a4c5521dc3286bd38deee5"
    spelled_out = MeasurementProtocol(mode="forward", memory_length=0, dtype="float32", weights="full")
    assert spelled_out.digest == MeasurementProtocol().digest


def test_agents_that_know_no_blocks_are_sent_none() -> None:
    for protocol in (MeasurementProtocol(), MeasurementProtocol(weights="int4")):
        assert "block_size" not in protocol.model_dump(mode="json")
    wide = MeasurementProtocol(weights="int4", block_size=128)
    assert wide.model_dump(mode="json")["block_size"] == 128
    assert MeasurementProtocol.model_validate_json(wide.model_dump_json()) == wide


def test_a_runtime_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefront.core.measurement.runtimes.find_spec", lambda package: None)
    for runtime in get_args(Runtime):
        extra = INSTALLATIONS[runtime].extra
        assert f"pip install 'edgefront-lm[{extra}]'" in (not_installed(runtime) or "")


def test_every_choice_has_a_digest_of_its_own() -> None:
    choices: list[dict[str, Any]] = [
        {},
        {"mode": "prefill"},
        {"mode": "decode"},
        {"mode": "decode", "memory_length": 10},
        {"memory_length": 10},
        {"dtype": "bfloat16"},
        {"dtype": "float16"},
        {"weights": "int8"},
        {"mode": "decode", "weights": "int8"},
        {"weights": "int4"},
        {"weights": "int4", "block_size": 64},
        {"runtime": "openvino"},
        {"runtime": "openvino", "weights": "int4"},
        {"runtime": "llamacpp"},
        {"runtime": "llamacpp", "weights": "q8_0"},
        *({"runtime": "llamacpp", "weights": weights} for weights in get_args(GgufQuantisation) if weights != "q8_0"),
        {"runtime": "llamacpp", "weights": "q4_0", "dtype": "float16"},
    ]
    assert len({MeasurementProtocol(**choice).digest for choice in choices}) == len(choices)


def llamacpp(**fields: Any) -> MeasurementProtocol:
    return MeasurementProtocol.model_validate({"runtime": "llamacpp", **fields})


LLAMA = {
    "positions": {"kind": "rotary"},
    "norm_kind": "rms",
    "activation": "silu",
    "embedding": {"vocab_size": 320},
    "blocks": [
        {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"},
        {"kind": "feed_forward", "d_inner": 96, "gated": True, "bias": False},
    ],
}
FORMER = {
    "f32": [
        ({}, "ab3467c94b3d97b9706555e1ca781d4e3e153ff0f196c79c3a5fe80951a37291"),
        ({"weights": "q8_0"}, "b124bbb908db9075b63997ebb08c707e46bd8cc43c84b639c3b202442e5c5336"),
        ({"weights": "q4_0", "mode": "decode"}, "995d3083da4f279fd3d104fd8164f9b2d78bbbf819ef7a3a7f8442c60ac9d26d"),
    ],
    "f16": [({"dtype": "float16"}, "289e1433cf20e5815061ab2bb12f89fa90a49be1fdfaabafd0856e71ac00b97f")],
}
"""What llama.cpp's cache held, and the digest, of protocols from before `kv_cache`."""


@pytest.mark.parametrize(
    ("held", "fields", "digest"),
    [(held, *fields_and_digest) for held, some in FORMER.items() for fields_and_digest in some],
)
def test_the_kv_caches_of_before_there_was_a_choice_keep_their_digests(
    held: str, fields: dict[str, Any], digest: str
) -> None:
    assert llamacpp(**fields, kv_cache=held).digest == digest


@pytest.mark.parametrize("fields", [{}, {"dtype": "float16"}, {"weights": "q8_0"}])
def test_every_kv_cache_has_a_digest_of_its_own_and_f16_is_the_default(fields: dict[str, Any]) -> None:
    protocols = [llamacpp(**fields, kv_cache=held) for held in ("f32", "f16", "q8_0", "q4_0")]
    assert len({protocol.digest for protocol in protocols}) == 4
    for protocol in protocols:
        assert MeasurementProtocol.model_validate_json(protocol.model_dump_json()) == protocol
    assert llamacpp(**fields) == llamacpp(**fields, kv_cache=None) == protocols[1]
    assert "kv_cache" not in MeasurementProtocol().model_dump()


def test_quantised_caches_need_heads_that_blocks_fill() -> None:
    smollm, narrow = named_model("smollm2-135m").architecture, Architecture.parse({**LLAMA, "d_model": 96})
    for held in ("q8_0", "q4_0"):
        assert protocol_costs(smollm, llamacpp(kv_cache=held)).flops
        with pytest.raises(InvalidInput, match=r"^kv_cache: .* the heads of blocks\.0 have 24 features") as caught:
            protocol_costs(narrow, llamacpp(kv_cache=held))
        assert (caught.value.field, caught.value.value) == ("kv_cache", held)
    for held in ("f16", "f32"):
        assert protocol_costs(narrow, llamacpp(kv_cache=held)).flops


def test_decode_is_one_token_after_192_by_default() -> None:
    decode = MeasurementProtocol(mode="decode")
    assert (decode.sequence_length, decode.memory_length) == (1, 192)
    assert MeasurementProtocol(mode="decode", sequence_length=1, memory_length=7).memory_length == 7
    for protocol in (decode, MeasurementProtocol(mode="prefill"), MeasurementProtocol(memory_length=5)):
        assert MeasurementProtocol.model_validate_json(protocol.model_dump_json()) == protocol
        assert MeasurementProtocol.model_validate(protocol.model_dump(mode="json")).digest == protocol.digest


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({"mode": "decode", "sequence_length": 192}, "sequence_length", "1, or no value"),
        ({"mode": "decode", "memory_length": 0}, "memory_length", "1 to 65536"),
        ({"mode": "prefill", "memory_length": 64}, "memory_length", "0, or mode forward or decode"),
        ({"weights": "int8", "dtype": "bfloat16"}, "weights", "full, or dtype float32"),
        ({"mode": "backward"}, "mode", "'forward', 'prefill', 'decode' or 'generate'"),
        ({"memory_length": -1}, "memory_length", "greater than or equal to 0"),
        ({"dtype": "float64"}, "dtype", "'float32', 'bfloat16' or 'float16'"),
        (
            {"weights": "int3"},
            "weights",
            "'full', 'int8', 'int4', 'q8_0', 'q4_0', 'q4_k_m', 'q5_k_m', 'q6_k' or 'iq4_nl'",
        ),
        ({"weights": "int4", "runtime": "pytorch"}, "weights", "full, int8"),
        ({"weights": "q4_0"}, "weights", "full, int8, int4"),
        ({"weights": "int4", "dtype": "float16"}, "weights", "full, or dtype float32"),
        ({"weights": "int4", "block_size": 24}, "block_size", "16, 32, 64, 128 or 256"),
        ({"block_size": 64}, "block_size", "32, or weights int4"),
        ({"runtime": "tensorflow"}, "runtime", "'onnxruntime', 'pytorch', 'openvino' or 'llamacpp'"),
        ({"runtime": "llamacpp", "batch": 2}, "batch", "1"),
        ({"runtime": "llamacpp", "kv_cache": "q5_0"}, "kv_cache", "'f32', 'f16', 'q8_0' or 'q4_0'"),
        ({"kv_cache": "f16"}, "kv_cache", "no value, or runtime llamacpp"),
        ({"runtime": "llamacpp", "memory_length": 8}, "memory_length", "0"),
        ({"runtime": "llamacpp", "dtype": "bfloat16"}, "dtype", "float32 or float16"),
    ],
)
def test_one_error_names_the_field(fields: dict[str, Any], field: str, allowed: str) -> None:
    error = wrong(**fields)
    assert isinstance(error, ProtocolError)
    assert (error.field, error.allowed) == (field, allowed)
    assert field in error.detail


def test_which_architectures_a_protocol_suits() -> None:
    forward, prefill, decode = (MeasurementProtocol(mode=mode) for mode in ("forward", "prefill", "decode"))
    for protocol in (forward, prefill, decode, MeasurementProtocol(memory_length=64)):
        protocol_costs(GPT, protocol)
        protocol_costs(UNBOUNDED, protocol)
    protocol_costs(ENCODER, forward)
    protocol_costs(UNBOUNDED, MeasurementProtocol(sequence_length=60_000, memory_length=60_000))


@pytest.mark.parametrize(
    ("architecture", "fields", "field", "allowed"),
    [
        (ENCODER, {"mode": "decode"}, "mode", "forward"),
        (ENCODER, {"mode": "prefill"}, "mode", "forward"),
        (ENCODER, {"memory_length": 3}, "memory_length", "0"),
        (GPT, {"sequence_length": 257}, "sequence_length", "1 to 256"),
        (GPT, {"mode": "decode", "memory_length": 256}, "memory_length", "1 to 255"),
        (GPT, {"sequence_length": 200, "memory_length": 57}, "memory_length", "0 to 56"),
        (TRANSLATION, {"memory_length": 3, "sequence_length": 3}, "memory_length", "0"),
        (TRANSLATION, {"sequence_length": 101}, "sequence_length", "1 to 100"),
        (TRANSLATION, {"mode": "decode", "memory_length": 101}, "memory_length", "1 to 100"),
    ],
)
def test_and_which_not(architecture: Architecture, fields: dict[str, Any], field: str, allowed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        protocol_costs(architecture, MeasurementProtocol(**fields))
    assert (caught.value.field, caught.value.allowed) == (field, allowed)
    assert field in caught.value.detail


@pytest.mark.parametrize(
    ("runtime", "architecture", "said"),
    [
        ("llamacpp", UNBOUNDED, "positions.kind none"),
        ("llamacpp", TRANSLATION, "positions.kind none"),
        ("llamacpp", GPT, "blocks.0.kind attention"),
        ("openvino", UNBOUNDED, "recurrence of SRU"),
        ("openvino", TRANSLATION, "recurrence of SRU"),
    ],
)
def test_a_runtime_that_cannot_run_an_architecture_says_why(
    runtime: Any, architecture: Architecture, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        protocol_costs(architecture, MeasurementProtocol(runtime=runtime, sequence_length=20))
    assert caught.value.field == "runtime"
    assert "runtime" in caught.value.detail


def test_the_source_is_as_long_as_what_is_translated_at_once() -> None:
    assert source_length(MeasurementProtocol(sequence_length=30)) == 30
    assert source_length(MeasurementProtocol(mode="prefill", sequence_length=30)) == 30
    assert source_length(MeasurementProtocol(mode="decode", memory_length=40)) == 40


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"memory_length": 640, "sequence_length": 64},
        {"mode": "prefill", "logits": "last", "batch": 2},
        {"mode": "decode", "dtype": "bfloat16"},
        {"mode": "decode", "memory_length": 1000, "weights": "int8"},
    ],
)
def test_costs_are_those_of_the_pass_that_is_measured(options: dict[str, Any]) -> None:
    protocol = MeasurementProtocol(**options)
    architecture = named_model("par-base").architecture
    expected = costs(architecture, CostOptions(**{"logits": "last", **options}))
    assert protocol_costs(architecture, protocol) == expected
    assert (expected.sequence_length, expected.memory_length) == (protocol.sequence_length, protocol.memory_length)
