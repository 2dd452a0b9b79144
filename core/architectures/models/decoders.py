"""Named decoders: published checkpoints of GPT-2, OPT and models for phones, and the reference models of LTS
(arXiv 2203.02094)."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.architectures.embeddings_and_head import Embedding, LearnedPositions
from edgefront.core.architectures.models.published import NamedModel, published_architecture
from edgefront.core.architectures.published import shipped_models

_GPT2 = "GPT-2 (Radford et al. 2019)"
_OPT = "OPT (arXiv 2205.01068)"
_SMOLLM2 = "SmolLM2 (arXiv 2502.02737)"
_PUBLISHED = (
    ("gpt2-small", _GPT2, "openai-community/gpt2"),
    ("gpt2-medium", _GPT2, "openai-community/gpt2-medium"),
    ("gpt2-large", _GPT2, "openai-community/gpt2-large"),
    ("gpt2-xl", _GPT2, "openai-community/gpt2-xl"),
    ("opt-125m", _OPT, "facebook/opt-125m"),
    # The only OPT model with post-norm and an embedding of another width; LTS counted `lts-opt-baseline` instead.
    ("opt-350m", _OPT, "facebook/opt-350m"),
    ("opt-1.3b", _OPT, "facebook/opt-1.3b"),
    ("mobilellm-125m", "MobileLLM (arXiv 2402.14905), without shared layers", "facebook/MobileLLM-125M"),
    ("smollm2-135m", _SMOLLM2, "HuggingFaceTB/SmolLM2-135M"),
    ("smollm2-360m", _SMOLLM2, "HuggingFaceTB/SmolLM2-360M"),
    ("lfm2-350m", "LFM2 (arXiv 2511.23404)", "LiquidAI/LFM2-350M"),
    ("qwen2.5-0.5b", "Qwen2.5 (arXiv 2412.15115)", "Qwen/Qwen2.5-0.5B"),
    ("qwen3-0.6b", "Qwen3 (arXiv 2505.09388)", "Qwen/Qwen3-0.6B"),
    ("tinyllama-1.1b", "TinyLlama (arXiv 2401.02385)", "TinyLlama/TinyLlama_v1.1"),
    ("llama-3.2-1b", "Llama 3.2 (arXiv 2407.21783 describes the family)", "meta-llama/Llama-3.2-1B"),
)


def models() -> Iterator[NamedModel]:
    """Yields the published checkpoints (without a context length), then the reference models of the LTS paper."""
    yield NamedModel(
        "distilgpt2", "DistilGPT2 (Sanh et al. 2019)", _gpt2(768, Embedding(vocab_size=50257), 12, 3072, 6)
    )
    for name, source, hub_id in _PUBLISHED:
        canonical = published_architecture(shipped_models()[hub_id]).canonical
        yield NamedModel(name, source, Architecture.parse({**canonical, "context_length": None}))
    yield NamedModel(
        "lts-gpt2-baseline",
        "LTS (arXiv 2203.02094) Tables 6 and 7: the baseline at 16 layers, with 8 heads (12 do not divide 1024)",
        _gpt2(1024, Embedding(vocab_size=50264, cutoffs=(19997, 39997), div=4), 8, 3072, 16),
    )
    yield NamedModel(
        "lts-opt-baseline",
        "LTS (arXiv 2203.02094) Table 3: OPT-350M as its authors built it",
        Architecture(
            d_model=1024,
            positions=LearnedPositions(length=2048, offset=2),
            activation="relu",
            embedding=Embedding(vocab_size=50272),
            blocks=(Attention(n_head=16), FeedForward(d_inner=4096)) * 24,
        ),
    )


def _gpt2(d_model: int, embedding: Embedding, n_head: int, d_inner: int, n_layer: int) -> Architecture:
    return Architecture(
        d_model=d_model,
        positions=LearnedPositions(length=1024),
        embedding=embedding,
        blocks=(Attention(n_head=n_head), FeedForward(d_inner=d_inner)) * n_layer,
    )
