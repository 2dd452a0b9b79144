"""The measurement protocol says how a figure is measured. Only figures of equal protocols are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
"""Fields added after the first stored protocols, with their defaults. A default does not change the digest."""
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
"""Field → values that llamacpp supports, for fields that only llamacpp restricts. llamacpp has no segment memory."""


class MeasurementProtocol(BaseModel):
    """What a device runs, and how the device measures it.

    The fields up to `memory` are the identity (`digest`): a measurement belongs to an architecture, a device and a
    protocol digest. The later fields determine the number of launches, not what is measured.

    The computation that is measured, by `mode`:

    - forward: one forward pass over the whole sequence. With a `memory_length`, over one segment of `sequence_length`
      tokens after a segment memory of `memory_length` tokens, as Transformer-XL and SRU++ are evaluated.
    - prefill: one forward pass over the whole sequence, which returns the state with which decoding continues.
    - decode: one forward pass of one token, after `memory_length` tokens whose keys, values and cells are cached.
    - generate: generation of `new_tokens` tokens. The first token follows a prompt of `sequence_length` tokens. Before
      the prompt, the state contains `memory_length` tokens of context.

    The source of a translation model is as long as the sequence, or as long as the memory in mode decode.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: Runtime = "onnxruntime"
    provider: Annotated[str, Field(pattern=form(r"^[a-z0-9_]{1,40}$", "1 to 40 small letters, digits and _"))] = "cpu"
    """Execution provider (ONNX Runtime) or device (PyTorch, OpenVINO) in lower case: cpu, cuda, xnnpack, gpu, npu …"""
    mode: Mode = "forward"
    logits: Literal["none", "last", "all"] = "last"
    batch: Annotated[StrictInt, Field(ge=1, le=1024)] = 1
    sequence_length: Annotated[StrictInt, Field(ge=1, le=65536)] = 192
    """Tokens of one forward pass; 1 in mode decode; tokens of the prompt in mode generate."""
    memory_length: Annotated[StrictInt, Field(ge=0, le=65536)] = 0
    """Tokens before the sequence; 192 in mode decode if absent."""
    new_tokens: Annotated[StrictInt, Field(ge=0, le=65536, exclude_if=lambda tokens: tokens == 0)] = 0
    """Number of generated tokens in mode generate, including the first; 64 if absent. 0 in other modes; then neither
    `new_tokens` nor `latency` is sent or part of the identity.
    """
    latency: Annotated[Latency, Field(exclude_if=lambda latency: latency == "total")] = "total"
    """Time of a generation that counts as the latency: from the prompt to the final token, from the prompt to the first
    token, or the mean time of each later token. All three times are measured."""
    dtype: Dtype = "float32"
    """Number format of weights, activations and state."""
    weights: Quantisation = "full"
    """int8: the blocks' linear layers have int8 weights, and inputs are quantised at run time. int4: the blocks' linear
    layers have four bits per weight and a scale for each block of weights. q8_0, q4_0, q4_k_m, q5_k_m, q6_k, iq4_nl:
    llama.cpp's formats of all matrices."""
    block_size: Annotated[BlockSize, Field(exclude_if=lambda size: size == BLOCK_SIZE)] = BLOCK_SIZE
    """Number of int4 weights of one output that share a scale. The default is neither sent nor part of the identity,
    because older agents and digests lack this field."""
    kv_cache: Annotated[KvCache | None, Field(exclude_if=lambda held: held is None)] = None
    """Format of llamacpp's key/value cache, f16 if absent; None for other runtimes. f32 runs without flash attention,
    which would convert the cache in every forward pass. Other formats use flash attention where llama.cpp has it."""
    threads: Annotated[StrictInt, Field(ge=1, le=1024)] = 1
    warmup: Annotated[StrictInt, Field(ge=2, le=100)] = 2
    """Number of untimed passes before the timed passes. At least two untimed passes are needed, because peak memory is
    measured over these passes.
    """
    repeats: Annotated[StrictInt, Field(ge=1, le=1000)] = 5
    memory: MemoryMethod | None = None
    """Method of measuring peak memory. None selects the provider's default: on an NVIDIA GPU `allocator` with PyTorch
    and `device` with ONNX Runtime; otherwise `anonymous`."""

    precision: Annotated[StrictFloat, Field(gt=0, le=1)] = 0.02
    """Target half-width of the median latency's 95 % interval, relative to the latency."""
    max_launches: Annotated[StrictInt, Field(ge=1, le=100)] = 5
    """Maximum number of launches of one candidate."""
    time_limit_s: Annotated[StrictFloat, Field(gt=0, le=3600)] = 60.0
    """Wall-clock limit of one launch. If a launch exceeds the limit, the candidate is infeasible on this device."""
    when_busy: Annotated[WhenBusy, Field(exclude_if=lambda choice: choice == "mark")] = "mark"
    """Behaviour of an agent on battery, in a power-saving mode, under other load or throttled: `mark` measures at once
    and marks the launch, `wait` first waits up to five minutes for better conditions."""

    @model_validator(mode="before")
    @classmethod
    def _lengths_of_mode(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("mode") == "decode":
            return {"sequence_length": 1, "memory_length": DECODE_MEMORY_LENGTH, **value}
        if isinstance(value, Mapping) and value.get("mode") == "generate":
            return {"new_tokens": NEW_TOKENS, **value}
        return value

    @model_validator(mode="after")
    def _checked(self) -> MeasurementProtocol:
        if self.kv_cache is None and self.runtime == "llamacpp":
            object.__setattr__(self, "kv_cache", KV_CACHE_DEFAULT)
        if self.memory is None:
            of_gpu = {"pytorch": "allocator", "onnxruntime": "device"} if Provider(self.provider).on_nvidia else {}
            object.__setattr__(self, "memory", of_gpu.get(self.runtime, "anonymous"))
        for field, is_wrong, fault, allowed in self._rules():
            if is_wrong:
                raise ProtocolError(f"{field}: {fault}", field=field, value=getattr(self, field), allowed=allowed)
        return self

    def _rules(self) -> Iterator[tuple[str, bool, str, str]]:
        """Yields the rules between fields: field, whether the rule is broken, fault, allowed values."""
        generates, runtime, weights = self.mode == "generate", self.runtime, self.weights
        formats = _WEIGHTS_OF[runtime]
        yield (
            "sequence_length",
            self.mode == "decode" and self.sequence_length != 1,
            f"must be 1 in mode decode, not {self.sequence_length}; memory_length is the number of tokens before this "
            "token",
            "1, or no value",
        )
        no_past = self.mode == "decode" and self.memory_length == 0
        yield "memory_length", no_past, "must be at least 1 in mode decode", "1 to 65536"
        past = self.mode == "prefill" and self.memory_length > 0
        fault = f"must be 0 in mode prefill, not {self.memory_length}"
        yield "memory_length", past, fault, "0, or mode forward or decode"
        new, latency = self.new_tokens, self.latency
        fault = f"{new} tokens can be generated only in mode generate"
        yield "new_tokens", new > 0 and not generates, fault, "0"
        fault = f"{latency} can be measured only in mode generate"
        yield "latency", latency != "total" and not generates, fault, "no value"
        fault = f"must be at least 2 in mode generate, not {new}"
        yield "new_tokens", generates and new < 2, fault, "2 to 65536"
        fault = f"must be last in mode generate, not {self.logits}"
        yield "logits", generates and self.logits != "last", fault, "last"
        yield (
            "weights",
            weights in ("int8", "int4") and self.dtype != "float32",
            f"{weights} needs dtype float32 for the rest of the computation, not {self.dtype}",
            "full, or dtype float32",
        )
        yield (
            "block_size",
            self.block_size != BLOCK_SIZE and weights != "int4",
            f"{self.block_size} has no effect on weights {weights}, which have no blocks",
            f"{BLOCK_SIZE}, or weights int4",
        )
        fault = f"{runtime} has no {weights}; {runtime} has {', '.join(formats)}"
        yield "weights", weights not in formats, fault, ", ".join(formats)
        yield (
            "kv_cache",
            self.kv_cache is not None and runtime != "llamacpp",
            f"only llamacpp has {self.kv_cache}; {runtime} stores keys and values in dtype",
            "no value, or runtime llamacpp",
        )
        for field, values in _LLAMACPP.items() if runtime == "llamacpp" else ():
            value, allowed = getattr(self, field), " or ".join(map(str, values))
            keeps_past = field == "memory_length" and self.mode in ("decode", "generate")
            fault = f"llamacpp measures {field} {allowed}, not {value}"
            yield field, value not in values and not keeps_past, fault, allowed
        needs_torch = self.memory == "allocator" and runtime != "pytorch"
        yield "memory", needs_torch, "the method allocator needs PyTorch", "anonymous, device or resident"

    @property
    def number_format(self) -> NumberFormat:
        """Number format that a provider must support: the weights' format if quantised, otherwise `dtype`."""
        return self.dtype if self.weights == "full" else self.weights

    @property
    def gguf_format(self) -> GgufFormat:
        """Format of the matrices in the GGUF file that llamacpp reads."""
        return cast(GgufFormat, self.number_format)

    @property
    def one_pass(self) -> str:
        """Description of the measured computation, such as `forward pass of 192 tokens`."""
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
        """Description of the protocol, such as `forward pass of 192 tokens with onnxruntime, 1 thread`."""
        parts = [f"{self.one_pass} with {self.runtime}" + (f" on {self.provider}" if self.provider != "cpu" else "")]
        parts.append(f"{self.threads} thread{'s' if self.threads > 1 else ''}")
        parts += [f"batch {self.batch}"] * (self.batch > 1) + [self.dtype] * (self.dtype != "float32")
        parts += [f"weights {self.weights}"] * (self.weights != "full")
        parts += [f"key/value cache {self.kv_cache}"] * (self.kv_cache is not None)
        return ", ".join(parts)

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that must be equal for measurements to be comparable. `int8` is named by its range of seven bits."""
        fields = self.model_dump(mode="json", exclude={"precision", "max_launches", "time_limit_s", "when_busy"})
        fields["weights"] = "int8_7bit" if self.weights == "int8" else self.weights
        later = {**_LATER_FIELDS, "kv_cache": "f32" if self.dtype == "float32" else "f16"}
        return {name: value for name, value in fields.items() if later.get(name, ...) != value}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the protocol's `identity` as canonical JSON."""
        return digest(self.identity)
