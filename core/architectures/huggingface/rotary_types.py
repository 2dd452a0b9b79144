"""Model types of transformers with rotary positions. The same declaration reads and writes configurations of a type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefront.core.architectures.architecture import MAX_LAYER_PAIRS, Architecture, NormKind, NormPlace
from edgefront.core.architectures.block import Attention, Biases, FeedForward, Parallel, QkNorm, ShortConv
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.huggingface import layouts
from edgefront.core.architectures.huggingface.fields import REQUIRED, WRITTEN, Fields
from edgefront.core.architectures.huggingface.layouts import FULL, SLIDING, Block, Layout
from edgefront.core.architectures.numbers import as_number

Config = dict[str, Any]


@dataclass(frozen=True)
class FirstBlocks:
    """A model with its first attention and first feed_forward block; a configuration describes only these two."""

    architecture: Architecture
    attention: Attention
    feed_forward: FeedForward

    @property
    def layers(self) -> int:
        return max(1, len(self.architecture.blocks) // 2)

    @property
    def mixers(self) -> list[Any]:
        """First block of each layer: attention or convolution."""
        return list(self.architecture.blocks[::2][: self.layers])


def bounded(fields: Fields, name: str) -> int:
    """Number of layers in the field `name`; 1 and a fault if the number exceeds a description's maximum."""
    layers = fields.count(name)
    if layers > MAX_LAYER_PAIRS:
        fields.fault(name, layers, f"a description has at most {MAX_LAYER_PAIRS} layers", f"1 to {MAX_LAYER_PAIRS}")
        return 1
    return layers


def tokens(architecture: Architecture) -> Config:
    """Vocabulary fields of a configuration; ids of special tokens are null, because the tokenizer defines the ids."""
    return {
        "vocab_size": architecture.embedding.vocab_size,
        "tie_word_embeddings": architecture.output.tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


# The types --------------------------------------------------------------------------------------------------------

_ALL_OR_NONE: tuple[str | None, Biases, bool] = ("attention_bias", "all", False)


@dataclass(frozen=True)
class RotaryType:
    """Properties of a model type of transformers. Numbers and flags are the defaults of missing fields."""

    name: str
    """Prefix of the type's class names."""
    layout: Layout = layouts.same
    context: int = 2048
    eps: float = 1e-6
    theta: int = 10_000
    tied: bool = False
    bias: tuple[str | None, Biases, bool] = _ALL_OR_NONE
    """Field, biases of attention if the field is true, and the field's default; without a field always these biases."""
    mlp_bias: bool = False
    """Whether the type has a field mlp_bias."""
    grouped: bool = True
    """Whether the type has a field num_key_value_heads."""
    groups: int | None = None
    """Default of num_key_value_heads; None for the value of num_attention_heads."""
    d_head: int | None = None
    qk_norm: QkNorm = False
    norm: NormPlace = "pre"
    norm_kind: NormKind = "rms"
    gated: bool = True
    parallel: tuple[str | None, Parallel, bool] | None = None
    """Field, value of `parallel` if the field is true, and the field's default."""
    share: float | None = None
    """Default share of each head that is rotated; None for whole heads, and for a type with head_dim."""
    activation: str = "silu"
    multipliers: bool = False
    scaled: bool = False
    """Whether the embedding is multiplied by √d_model and layers with a window have their own rotary base."""
    output_bias: bool = False
    epsilon_name: str = "rms_norm_eps"
    activation_name: str | None = "hidden_act"
    tie_names: tuple[str, ...] = ("tie_word_embeddings",)
    rope_names: tuple[str, str] = ("rope_theta", "partial_rotary_factor")
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields with only one value that a description can express."""

    def read(self, fields: Fields) -> Config:
        """Converts a configuration of this type to a description."""
        for name, only in self.fixed.items():
            fields.fixed(name, only)
        layers, heads = bounded(fields, "num_hidden_layers"), fields.count("num_attention_heads")
        width, context = fields.count("hidden_size"), fields.count("max_position_embeddings", self.context)
        if self.norm_kind == "rms":
            fields.fixed("max_sequence_length", context, f"must equal max_position_embeddings {context}")
        positions, local = self._rotary(fields, context)
        attention: Block = {"kind": "attention", "n_head": heads, "qk_norm": self.qk_norm, **local}
        attention["bias"] = _where_true(fields, self.bias) or "none"
        if self.grouped:
            attention["n_kv_head"] = fields.count("num_key_value_heads", self.groups or heads, null=heads)
        if self.share is None and (d_head := fields.count("head_dim", self.d_head)) is not None:  # type: ignore[arg-type]
            attention["d_head"] = d_head
        if self.multipliers:
            attention["scale"] = as_number(fields.positive("attention_multiplier", 1.0))
        feed_forward = {
            "kind": "feed_forward",
            "d_inner": layouts.lfm2_inner(fields) if self.name == "Lfm2" else fields.count("intermediate_size"),
            "gated": self.gated,
            "bias": fields.flag("mlp_bias", False) if self.mlp_bias else not self.gated,
            "parallel": None if self.parallel is None else _where_true(fields, self.parallel),
        }
        model: Config = {
            "d_model": width,
            "positions": positions,
            "context_length": context,
            "norm": self.norm,
            "norm_kind": self.norm_kind,
            "norm_eps": fields.epsilon(self.epsilon_name, self.eps),
            "activation": "silu"
            if self.activation_name is None
            else fields.activation(self.activation_name, self.activation),
            "embedding": {"vocab_size": fields.count("vocab_size", *([262_208] * self.scaled)), "scaled": self.scaled},
            "blocks": [block for mixer in self.layout(fields, layers, attention) for block in (mixer, feed_forward)],
            "output": {"kind": "tokens", "tied": fields.flag(fields.either(*self.tie_names), self.tied)},
        }
        model["output"]["bias"] = self.output_bias
        if self.multipliers:
            model["embedding"]["multiplier"] = as_number(fields.positive("embedding_multiplier", 1.0))
            model["residual_multiplier"] = as_number(fields.positive("residual_multiplier", 1.0))
            model["output"]["logits_scaling"] = as_number(fields.positive("logits_scaling", 1.0))
        return model

    def _rotary(self, fields: Fields, context: int) -> tuple[Config, Block]:
        """Returns a pair: the description's `positions`, and additional fields for the attention of local layers."""
        if not self.scaled:
            return fields.rotary(self.theta, context, self.share, self.rope_names), {}
        by_type = fields.rotary_by_type(
            {FULL: (self.theta, "rope_theta"), SLIDING: (10_000, "rope_local_base_freq")}, context
        )
        if "scaling" in by_type[SLIDING]:
            name = "rope_parameters.sliding_attention.rope_type"
            fields.fault(name, "llama3", "local layers have no scaled positions", "default")
        return by_type[FULL], {"theta": by_type[SLIDING]["theta"]}

    def write(self, parts: FirstBlocks) -> Config:
        """Returns the configuration of this type that is nearest to a model."""
        architecture, attention = parts.architecture, parts.attention
        positions = architecture.positions
        assert isinstance(positions, RotaryPositions)
        theta, scaling = float(positions.theta), positions.scaling
        share = {} if self.share is None else {"partial_rotary_factor": positions.percent / 100}
        # transformers reads rope_parameters from version 5 on, earlier versions rope_theta and rope_scaling.
        stretched = scaling and {
            "rope_type": "llama3",
            "factor": float(scaling.factor),
            "original_max_position_embeddings": scaling.length,
            "low_freq_factor": float(scaling.low),
            "high_freq_factor": float(scaling.high),
        }
        config: Config = {
            "architectures": [f"{self.name}ForCausalLM"],
            "hidden_size": architecture.d_model,
            "intermediate_size": parts.feed_forward.d_inner,
            "max_position_embeddings": architecture.stated_length,
            "num_attention_heads": attention.n_head,
            "num_hidden_layers": parts.layers,
            self.epsilon_name: float(architecture.norm_eps),
            "rope_parameters": {"rope_theta": theta, **(stretched or {"rope_type": "default"}), **share},
            "rope_scaling": stretched and {"rope_theta": theta, **stretched, **share},
            self.rope_names[0]: theta,
            **tokens(architecture),
        }
        if self.share is None:
            config["head_dim"] = architecture.d_head(attention)
        else:
            config[self.rope_names[1]] = positions.percent / 100
        if self.grouped:
            config["num_key_value_heads"] = attention.kv_heads
        if self.activation_name is not None:
            config[self.activation_name] = WRITTEN[architecture.activation]
        if self.bias[0] is not None:
            config[self.bias[0]] = architecture.attention_bias(attention) == self.bias[1]
        if self.mlp_bias:
            config["mlp_bias"] = parts.feed_forward.bias
        if self.parallel is not None and self.parallel[0] is not None:
            config[self.parallel[0]] = parts.feed_forward.parallel is not None
        if self.multipliers:
            config |= {
                "embedding_multiplier": float(architecture.embedding.multiplier),
                "attention_multiplier": architecture.attention_scale(attention),
                "residual_multiplier": float(architecture.residual_multiplier),
                "logits_scaling": float(architecture.output.logits_scaling),
            }
        return config | self._layers_written(parts, config)

    def _layers_written(self, parts: FirstBlocks, config: Config) -> Config:
        """Fields of the configuration that describe single layers."""
        if self.layout is layouts.mistral:
            return {"sliding_window": parts.attention.window}
        if self.layout is layouts.lfm2:
            conv = next((block for block in parts.mixers if isinstance(block, ShortConv)), ShortConv())
            return {
                "block_auto_adjust_ff_dim": False,
                "conv_L_cache": conv.kernel,
                "conv_bias": conv.bias,
                "layer_types": ["conv" if isinstance(block, ShortConv) else FULL for block in parts.mixers],
            }
        if self.layout is layouts.same:
            return {}
        windows = [getattr(block, "window", None) for block in parts.mixers]
        window = next((window for window in windows if window is not None), None)
        types = [FULL if window is None else SLIDING for window in windows]
        written: Config = {"layer_types": types, "sliding_window": window}
        if not self.scaled:
            written["use_sliding_window"] = window is not None
        if self.layout is layouts.qwen:
            written["max_window_layers"] = 0
        if self.layout is layouts.smollm3:
            written["no_rope_layers"] = [int(getattr(block, "rope", True)) for block in parts.mixers]
        if self.layout is layouts.gemma3:
            attentions = [block for block in parts.architecture.blocks if isinstance(block, Attention)]
            local = next((block for block in attentions if block.window is not None), parts.attention)
            base = config["rope_theta"] if local.theta is None else float(local.theta)
            scale = parts.architecture.attention_scale(parts.attention)
            written |= {
                "query_pre_attn_scalar": max(1, round(scale**-2)),
                "rope_local_base_freq": base,
                "rope_parameters": {
                    FULL: config["rope_parameters"],
                    SLIDING: {"rope_type": "default", "rope_theta": base},
                },
            }
        return written


def _where_true(fields: Fields, declared: tuple[str | None, Any, bool]) -> Any:
    name, value, default = declared
    return value if name is None or fields.flag(name, default) else None


_LAYER_NORMED: dict[str, Any] = {"norm_kind": "layer", "eps": 1e-5, "epsilon_name": "layer_norm_eps"}
TYPES: Mapping[str, RotaryType] = {
    # Falcon 3 has a field `activation`.
    "llama": RotaryType("Llama", mlp_bias=True, fixed={"rope_interleaved": False, "activation": "swiglu"}),
    "mistral": RotaryType(
        "Mistral",
        layout=layouts.mistral,
        context=131_072,
        groups=8,
        bias=(None, "none", False),
        fixed={"attention_bias": False, "mlp_bias": False},
    ),
    "qwen2": RotaryType(
        "Qwen2", layout=layouts.qwen, context=32_768, groups=32, bias=(None, "qkv", True), fixed={"use_mrope": False}
    ),
    "qwen3": RotaryType(
        "Qwen3", layout=layouts.qwen, context=32_768, groups=32, d_head=128, qk_norm=True, fixed={"use_mrope": False}
    ),
    "smollm3": RotaryType(
        "SmolLM3", layout=layouts.smollm3, context=32_768, groups=4, theta=2_000_000, tied=True, mlp_bias=True
    ),
    "olmo2": RotaryType("Olmo2", eps=1e-5, qk_norm="whole", norm="branch"),
    "granite": RotaryType("Granite", mlp_bias=True, multipliers=True),
    "gemma3_text": RotaryType(
        "Gemma3",
        layout=layouts.gemma3,
        context=131_072,
        theta=1_000_000,
        tied=True,
        groups=4,
        d_head=256,
        qk_norm=True,
        norm="both",
        scaled=True,
        activation="gelu_pytorch_tanh",
        activation_name="hidden_activation",
        fixed={"final_logit_softcapping": None, "attn_logit_softcapping": None, "use_bidirectional_attention": False},
    ),
    "gpt_neox": RotaryType(
        "GPTNeoX",
        bias=("attention_bias", "all", True),
        grouped=False,
        gated=False,
        parallel=("use_parallel_residual", "own_norm", True),
        share=0.25,
        activation="gelu",
        rope_names=("rotary_emb_base", "rotary_pct"),
        **_LAYER_NORMED,
    ),
    "stablelm": RotaryType(
        "StableLm",
        context=4096,
        groups=32,
        bias=("use_qkv_bias", "qkv", False),
        parallel=("use_parallel_residual", "shared_norm", False),
        share=0.25,
        fixed={"qk_layernorm": False},
        **_LAYER_NORMED,
    ),
    "phi": RotaryType(
        "Phi",
        bias=(None, "all", True),
        gated=False,
        parallel=(None, "shared_norm", True),
        share=0.5,
        activation="gelu_new",
        output_bias=True,
        fixed={"qk_layernorm": False},
        **_LAYER_NORMED,
    ),
    "lfm2": RotaryType(
        "Lfm2",
        layout=layouts.lfm2,
        context=128_000,
        eps=1e-5,
        theta=1_000_000,
        tied=True,
        groups=8,
        bias=(None, "none", False),
        qk_norm=True,
        epsilon_name="norm_eps",
        activation_name=None,
        tie_names=("tie_embedding", "tie_word_embeddings"),
        fixed={"hidden_act": "silu", "block_use_swiglu": True, "use_pos_enc": True},
    ),
}
"""Types by name, in the order in which their writers are tried."""


def read_lfm2(fields: Fields) -> Config:
    """Reads a configuration of lfm2, and checks fields that published files repeat under other names."""
    model = TYPES["lfm2"].read(fields)
    for name, expected, others in (
        ("hidden_size", model["d_model"], ("block_dim", "conv_dim", "conv_dim_out")),
        ("num_attention_heads", fields.value("num_attention_heads"), ("num_heads",)),
        ("norm_eps", float(model["norm_eps"]), ("block_norm_eps", "rms_norm_eps")),
        ("rope_theta", float(model["positions"]["theta"]), ("theta",)),
    ):
        for other in others:
            fields.fixed(other, expected, f"must equal {name} {expected}")
    return model


def read_mobilellm(fields: Fields) -> Config:
    """Reads a configuration of MobileLLM (Liu et al. 2024, arXiv 2402.14905); `share_embedding` ties the output."""
    fields.fixed("layer_sharing", False, "layers that share weights cannot be expressed")
    tied = fields.flag("share_embedding", REQUIRED) is True
    model = RotaryType("MobileLLM", eps=1e-5, mlp_bias=True).read(fields)
    model["output"]["tied"] |= tied
    return model
