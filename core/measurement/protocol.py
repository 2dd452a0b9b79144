"""The measurement protocol: how a number was made, so that only like is compared with like."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    model_validator,
)

from edgefront.core.common.canonical import digest
from edgefront.core.common.errors import ProtocolError
from edgefront.core.common.number_formats import (
    BLOCK_SIZE,
    KV_CACHE_DEFAULT,
    GgufFormat,
    GgufQuantisation,
    KvCache,
    NumberFormat,
    Quantisation,
)
from edgefront.core.common.validation import form
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.runtimes import Runtime as Runtime

MemoryMethod = Literal["anonymous", "allocator", "device", "resident"]
Mode = Literal["forward", "prefill", "decode", "generate"]
Latency = Literal["total", "first_token", "token"]
Dtype = Literal["float32", "bfloat16", "float16"]
BlockSize = Literal[16, 32, 64, 128, 256]
WhenBusy = Literal["mark", "wait"]

DECODE_MEMORY_LENGTH = 192
NEW_TOKENS = 64
LATENCY_NAMES: Mapping[Latency, str] = {
    "total": "time of the generation",
    "first_token": "time to the first token",
    "token": "time for each further token",
}
_LATER_FIELDS: Mapping[str, Any] = {"memory_length": 0, "weights": "full"}
"""Fields that came after protocols were first stored, with their defaults: at those they leave digests as they were."""
_WEIGHTS_OF: Mapping[Runtime, tuple[Quantisation, ...]] = {
    "onnxruntime": ("full", "int8", "int4"),
    "pytorch": ("full", "int8"),
    "openvino": ("full", "int8", "int4"),
    "llamacpp": ("full", *get_args(GgufQuantisation)),
}
_LLAMACPP: Mapping[str, tuple[Any, ...]] = {
    "logits": ("last",),
    "batch": (1,),
    "memory_length": (0,),
    "dtype": ("float32", "float16"),
}
"""What it measures of fields that others take any value of; a segment memory it does not have."""


class MeasurementProtocol(BaseModel):
    """What is run, and how it is measured.

    The fields up to `memory` make the identity (`digest`): a measurement belongs to an architecture, a device and a
    protocol digest. Those after it determine the number of repeats, not what is measured.

    What a pass is, by `mode`:

    - forward: the whole sequence at once. With a `memory_length`, one segment of `sequence_length` tokens after a
      segment memory of so many, as Transformer-XL and SRU++ are evaluated.
    - prefill: the whole sequence at once, returning the state with which decoding continues.
    - decode: one token after `memory_length` others, whose keys, values and cells are at hand.
    - generate: `new_tokens` tokens, one after another: the first from a prompt of `sequence_length` tokens, each of
      the others from the token before it. `memory_length` tokens of context are in the state before the prompt.

    The source of a translation model is as long as the sequence, in decode as long as the memory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: Runtime = "onnxruntime"
    provider: Annotated[str, Field(pattern=form(r"^[a-z0-9_]{1,40}$", "1 to 40 small letters, digits and _"))] = "cpu"
    """Execution provider (ONNX Runtime) or device (PyTorch, OpenVINO) in lower case: cpu, cuda, xnnpack, gpu, npu …"""
    mode: Mode = "forward"
    logits: Literal["none", "last", "all"] = "last"
    batch: Annotated[StrictInt, Field(ge=1, le=1024)] = 1
    sequence_length: Annotated[StrictInt, Field(ge=1, le=65536)] = 192
    """Tokens of one pass; 1 in decode; in generate those of the prompt."""
    memory_length: Annotated[StrictInt, Field(ge=0, le=65536)] = 0
    """Tokens before them; 192 in decode if absent."""
    new_tokens: Annotated[StrictInt, Field(ge=0, le=65536, exclude_if=lambda tokens: tokens == 0)] = 0
    """In generate the tokens that are generated, the first included; 64 if absent. 0 in other modes, where it is
    neither sent nor part of the identity, as `latency`."""
    latency: Annotated[Latency, Field(exclude_if=lambda latency: latency == "total")] = "total"
    """Which time of a generation counts as its latency: from the prompt to the last token, to the first, or the time
    of each further token in the mean. The others are measured beside it."""
    dtype: Dtype = "float32"
    """Number format of weights, activations and state."""
    weights: Quantisation = "full"
    """int8: the linear layers of the blocks hold int8, and their inputs are quantised at run time. int4: they hold four
    bits a weight, and a scale for each block of weights. q8_0, q4_0, q4_k_m, q5_k_m, q6_k, iq4_nl: llama.cpp's, of all
    matrices."""
    block_size: Annotated[BlockSize, Field(exclude_if=lambda size: size == BLOCK_SIZE)] = BLOCK_SIZE
    """With weights int4: weights of one output that share a scale. At its default it is neither sent nor part of the
    identity: agents and digests from before it came know no such field."""
    kv_cache: Annotated[KvCache | None, Field(exclude_if=lambda held: held is None)] = None
    """Of llamacpp alone, what its cache of keys and values holds, f16 if absent. f32: without flash attention, which
    would convert it in every pass. Others: with flash attention wherever llama.cpp has it."""
    threads: Annotated[StrictInt, Field(ge=1, le=1024)] = 1
    warmup: Annotated[StrictInt, Field(ge=2, le=100)] = 2
    """Untimed passes before the timed ones, over which peak memory is taken: that takes two."""
    repeats: Annotated[StrictInt, Field(ge=1, le=1000)] = 5
    memory: MemoryMethod | None = None
    """How peak memory is taken. None: what suits the provider (on an NVIDIA GPU `allocator` with PyTorch, `device`
    with ONNX Runtime; else `anonymous`)."""

    precision: Annotated[StrictFloat, Field(gt=0, le=1)] = 0.02
    """Target 95 % half-width of the median latency, relative to it."""
    max_launches: Annotated[StrictInt, Field(ge=1, le=100)] = 5
    """Launches of one candidate at most."""
    time_limit_s: Annotated[StrictFloat, Field(gt=0, le=3600)] = 60.0
    """Wall-clock limit of one launch; over it the candidate is infeasible on this device."""
    when_busy: Annotated[WhenBusy, Field(exclude_if=lambda choice: choice == "mark")] = "mark"
    """On battery, in a power-saving mode, under other load or throttled, an agent measures and marks the launch, or
    waits up to five minutes for better conditions first."""

    @model_validator(mode="before")
    @classmethod
    def _lengths_of_mode(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("mode") == "decode":
            return {"sequence_length": 1, "memory_length": DECODE_MEMORY_LENGTH, **value}
        if isinstance(value, Mapping) and value.get("mode") == "generate":
            return {"new_tokens": NEW_TOKENS, **value}
        return value

    @model_validator(mode="after")
    def _lengths_fit_mode(self) -> MeasurementProtocol:
        if self.mode == "decode" and self.sequence_length != 1:
            raise ProtocolError(
                f"sequence_length: a pass of decode is one token, not {self.sequence_length}; "
                "memory_length is the number of tokens before it",
                field="sequence_length",
                value=self.sequence_length,
                allowed="1, or no value",
            )
        if self.mode == "decode" and self.memory_length == 0:
            raise ProtocolError(
                "memory_length: decode needs at least one token before it",
                field="memory_length",
                value=0,
                allowed="1 to 65536",
            )
        if self.mode == "prefill" and self.memory_length:
            raise ProtocolError(
                f"memory_length: prefill starts without memory, not with {self.memory_length} tokens",
                field="memory_length",
                value=self.memory_length,
                allowed="0, or mode forward or decode",
            )
        return self

    @model_validator(mode="after")
    def _generation_fits_mode(self) -> MeasurementProtocol:
        wrong: tuple[str, str, str] | None = None
        if self.mode != "generate":
            if self.new_tokens:
                wrong = "new_tokens", f"{self.new_tokens} tokens are generated in mode generate alone", "0"
            elif self.latency != "total":
                wrong = "latency", f"{self.latency} is a time of mode generate alone", "no value"
        elif self.new_tokens < 2:
            wrong = (
                "new_tokens",
                f"after the first token there is a further one, so not {self.new_tokens}",
                "2 to 65536",
            )
        elif self.logits != "last":
            wrong = "logits", f"a token is chosen by the scores of the last position, not of {self.logits}", "last"
        if wrong is not None:
            field, text, allowed = wrong
            raise ProtocolError(f"{field}: {text}", field=field, value=getattr(self, field), allowed=allowed)
        return self

    @model_validator(mode="after")
    def _quantised_from_float32(self) -> MeasurementProtocol:
        if self.weights in ("int8", "int4") and self.dtype != "float32":
            raise ProtocolError(
                f"weights: {self.weights} needs dtype float32, in which the rest is computed, not {self.dtype}",
                field="weights",
                value=self.weights,
                allowed="full, or dtype float32",
            )
        if self.block_size != BLOCK_SIZE and self.weights != "int4":
            raise ProtocolError(
                f"block_size: {self.block_size} means nothing with weights {self.weights}, which have no blocks",
                field="block_size",
                value=self.block_size,
                allowed=f"{BLOCK_SIZE}, or weights int4",
            )
        return self

    @model_validator(mode="after")
    def _runtime_has_weights(self) -> MeasurementProtocol:
        formats = _WEIGHTS_OF[self.runtime]
        if self.weights not in formats:
            raise ProtocolError(
                f"weights: {self.runtime} has no {self.weights}; it has {', '.join(formats)}",
                field="weights",
                value=self.weights,
                allowed=", ".join(formats),
            )
        return self

    @model_validator(mode="after")
    def _only_llamacpp_has_a_kv_cache(self) -> MeasurementProtocol:
        if self.runtime == "llamacpp":
            if self.kv_cache is None:
                object.__setattr__(self, "kv_cache", KV_CACHE_DEFAULT)
        elif self.kv_cache is not None:
            raise ProtocolError(
                f"kv_cache: {self.runtime} keeps keys and values in its dtype; only llamacpp has {self.kv_cache}",
                field="kv_cache",
                value=self.kv_cache,
                allowed="no value, or runtime llamacpp",
            )
        return self

    @model_validator(mode="after")
    def _llamacpp_can_pass(self) -> MeasurementProtocol:
        """What its server runs and times: the prompt of one sequence, of which it scores the last token."""
        if self.runtime != "llamacpp":
            return self
        for field, allowed in _LLAMACPP.items():
            value = getattr(self, field)
            if value not in allowed and not (field == "memory_length" and self.mode in ("decode", "generate")):
                raise ProtocolError(
                    f"{field}: llamacpp measures {field} {' or '.join(map(str, allowed))}, not {value}",
                    field=field,
                    value=value,
                    allowed=" or ".join(map(str, allowed)),
                )
        return self

    @model_validator(mode="after")
    def _memory_method_fits_provider(self) -> MeasurementProtocol:
        if self.memory is None:
            of_gpu = {"pytorch": "allocator", "onnxruntime": "device"} if Provider(self.provider).on_nvidia else {}
            object.__setattr__(self, "memory", of_gpu.get(self.runtime, "anonymous"))
        if self.memory == "allocator" and self.runtime != "pytorch":
            raise ProtocolError(
                "memory: the method allocator needs PyTorch",
                field="memory",
                value=self.memory,
                allowed="anonymous, device or resident",
            )
        return self

    @property
    def number_format(self) -> NumberFormat:
        """What a provider has to be able to compute in: `dtype`, or the weights' format where they are quantised."""
        return self.dtype if self.weights == "full" else self.weights

    @property
    def gguf_format(self) -> GgufFormat:
        """What the matrices of the file hold that llamacpp reads."""
        return cast(GgufFormat, self.number_format)

    @property
    def one_pass(self) -> str:
        """What one pass is, in words: `forward pass of 192 tokens`."""
        if self.mode == "decode":
            return f"decode of 1 token after {self.memory_length}"
        if self.mode == "generate":
            context = f" after {self.memory_length}" if self.memory_length else ""
            return f"generation of {self.new_tokens} tokens from a prompt of {self.sequence_length}{context}"
        name = "prefill" if self.mode == "prefill" else "forward pass"
        after = f" after a memory of {self.memory_length}" if self.memory_length else ""
        return f"{name} of {self.sequence_length} token{'s' if self.sequence_length > 1 else ''}{after}"

    @property
    def setup(self) -> str:
        """The pass and what runs it, in words: `forward pass of 192 tokens with onnxruntime, 1 thread`."""
        parts = [f"{self.one_pass} with {self.runtime}" + (f" on {self.provider}" if self.provider != "cpu" else "")]
        parts.append(f"{self.threads} thread{'s' if self.threads > 1 else ''}")
        parts += [f"batch {self.batch}"] * (self.batch > 1) + [self.dtype] * (self.dtype != "float32")
        parts += [f"weights {self.weights}"] * (self.weights != "full")
        parts += [f"key/value cache {self.kv_cache}"] * (self.kv_cache is not None)
        return ", ".join(parts)

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that decide which measurements may be compared; `int8` goes by its range, seven bits."""
        fields = self.model_dump(mode="json", exclude={"precision", "max_launches", "time_limit_s", "when_busy"})
        fields["weights"] = "int8_7bit" if self.weights == "int8" else self.weights
        later = {**_LATER_FIELDS, "kv_cache": "f32" if self.dtype == "float32" else "f16"}
        return {name: value for name, value in fields.items() if later.get(name, ...) != value}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over `identity`."""
        return digest(self.identity)
