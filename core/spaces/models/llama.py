"""Small decoders that run on phones today: MobileLLM, SmolLM2, LFM2, Qwen2.5, Qwen3, TinyLlama and Llama 3.2.

Their fields are those of the published checkpoints' config.json. All have RMS norms before their blocks, rotary
positions, grouped queries and SwiGLU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward, ShortConv
from edgefront.core.spaces.embeddings_and_head import Embedding, Output, RotaryPositions, RotaryScaling
from edgefront.core.spaces.models.named import NamedModel

_SMOLLM2 = "SmolLM2 (arXiv 2502.02737)"


def models() -> Iterator[NamedModel]:
    """Named decoders, from the smallest to the largest."""
    yield NamedModel(
        "mobilellm-125m",
        "MobileLLM (arXiv 2402.14905), without shared layers",
        _decoder(576, 30, Attention(n_head=9, n_kv_head=3, bias="none"), 1536, 32_000, RotaryPositions()),
    )
    for name, d_model, n_layer, n_head, d_inner in (
        ("smollm2-135m", 576, 30, 9, 1536),
        ("smollm2-360m", 960, 32, 15, 2560),
    ):
        attention = Attention(n_head=n_head, n_kv_head=n_head // 3, bias="none")
        positions = RotaryPositions(theta=100_000)
        yield NamedModel(name, _SMOLLM2, _decoder(d_model, n_layer, attention, d_inner, 49_152, positions))
    yield NamedModel("lfm2-350m", "LFM2 (arXiv 2511.23404)", _lfm2())
    yield NamedModel(
        "qwen2.5-0.5b",
        "Qwen2.5 (arXiv 2412.15115)",
        _decoder(
            896,
            24,
            Attention(n_head=14, n_kv_head=2, bias="qkv"),
            4864,
            151_936,
            RotaryPositions(theta=1_000_000),
            norm_eps="1e-6",
        ),
    )
    yield NamedModel(
        "qwen3-0.6b",
        "Qwen3 (arXiv 2505.09388)",
        _decoder(
            1024,
            28,
            Attention(n_head=16, d_head=128, n_kv_head=8, qk_norm=True, bias="none"),
            3072,
            151_936,
            RotaryPositions(theta=1_000_000),
            norm_eps="1e-6",
        ),
    )
    yield NamedModel(
        "tinyllama-1.1b",
        "TinyLlama (arXiv 2401.02385)",
        _decoder(
            2048,
            22,
            Attention(n_head=32, n_kv_head=4, bias="none"),
            5632,
            32_000,
            RotaryPositions(),
            output=Output(tied=False),
        ),
    )
    yield NamedModel(
        "llama-3.2-1b",
        "Llama 3.2 (arXiv 2407.21783 describes the family)",
        _decoder(
            2048,
            16,
            Attention(n_head=32, n_kv_head=8, bias="none"),
            8192,
            128_256,
            RotaryPositions(theta=500_000, scaling=RotaryScaling(factor=32)),
        ),
    )


def _decoder(
    d_model: int,
    n_layer: int,
    attention: Attention,
    d_inner: int,
    vocab_size: int,
    positions: RotaryPositions,
    **changes: Any,
) -> Architecture:
    feed_forward = FeedForward(d_inner=d_inner, gated=True, bias=False)
    return _framed(d_model, (attention, feed_forward) * n_layer, vocab_size, positions, **changes)


def _lfm2() -> Architecture:
    """Sixteen layers, of which six attend."""
    attention = Attention(n_head=16, n_kv_head=8, qk_norm=True, bias="none")
    feed_forward = FeedForward(d_inner=4608, gated=True, bias=False)
    attention_layers: Collection[int] = (2, 5, 8, 10, 12, 14)
    layers = [(attention if layer in attention_layers else ShortConv(), feed_forward) for layer in range(16)]
    blocks = tuple(block for layer in layers for block in layer)
    return _framed(1024, blocks, 65_536, RotaryPositions(theta=1_000_000))


def _framed(
    d_model: int, blocks: tuple[Block, ...], vocab_size: int, positions: RotaryPositions, **changes: Any
) -> Architecture:
    return Architecture(
        d_model=d_model,
        positions=positions,
        norm_kind="rms",
        activation="silu",
        embedding=Embedding(vocab_size=vocab_size),
        blocks=blocks,
        **changes,
    )
