"""What an architecture costs, exactly and without running it: parameters, FLOPs and weight bytes.

Closed formulas over the description. D is d_model, E is d_embed, V the vocabulary, f a layer's d_inner:

- decoder parameters: attention 4·D² + 4·D, feed-forward 2·D·f + f + D, a norm of 2·D before each block and a final one.
  For GPT-2 layers that is Σ(4·D² + 9·D + 2·D·f + f) + 2·D, the proxy of LTS (arXiv 2203.02094, Tables 6 and 7).
- position parameters: (length + offset)·D.
- embedding parameters: everything else, which is what touches tokens: the tied tables and projections, and what the
  output layer has of its own (the head's projection; with cut-offs a bias a token, a row and a bias for each tail).

FLOPs count two for each multiply-accumulate of the matrix products of one forward pass, as both builders run them:

- the linear maps of attention and feed-forward at all batch·sequence positions;
- attention's scores and weighted values over the full sequence × sequence square: causal masks hide half of it, but
  ordinary kernels compute it all the same;
- the embedding's projections, for every cluster at every position (each cluster looks all tokens up, masked);
- the output layer with its projections and cluster rows, at the positions that `logits` names: all, the last one of
  each sequence, or none.

Left out: gathers, biases and other additions, norms, activations, softmaxes, masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from core.errors import InvalidInput
from core.spaces.architecture import Architecture, Attention, Block

Dtype = Literal["float64", "float32", "bfloat16", "float16"]
Logits = Literal["all", "last", "none"]

BYTES: dict[Dtype, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one weight."""
MAX_BATCH = 1 << 16


@dataclass(frozen=True)
class Costs:
    """Exact costs of an architecture; the fields are those of `core.wire.service.Costs`."""

    digest: str
    decoder_parameters: int
    position_parameters: int
    embedding_parameters: int
    total_parameters: int
    flops: int
    weight_bytes: int
    sequence_length: int
    batch: int
    dtype: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def costs(
    architecture: Architecture,
    *,
    sequence_length: int = 192,
    batch: int = 1,
    dtype: str = "float32",
    logits: str = "all",
) -> Costs:
    """The costs of one forward pass over `batch` sequences of `sequence_length` tokens.

    Raises `InvalidInput` that names the option, also where the position table is shorter than the sequence.
    """
    _between("sequence_length", sequence_length, architecture.positions.length)
    _between("batch", batch, MAX_BATCH)
    width = BYTES[_one_of("dtype", dtype, Dtype)]
    rows = {"all": batch * sequence_length, "last": batch, "none": 0}[_one_of("logits", logits, Logits)]
    decoder = decoder_parameters(architecture)
    position = position_parameters(architecture)
    embedding = embedding_parameters(architecture)
    total = decoder + position + embedding
    tokens = batch * sequence_length
    multiplications = (
        tokens * _embedding_products(architecture)
        + sum(_block_products(block, architecture.d_model, batch, sequence_length) for block in architecture.blocks)
        + rows * _output_products(architecture)
    )
    return Costs(
        digest=architecture.digest,
        decoder_parameters=decoder,
        position_parameters=position,
        embedding_parameters=embedding,
        total_parameters=total,
        flops=2 * multiplications,
        weight_bytes=total * width,
        sequence_length=sequence_length,
        batch=batch,
        dtype=dtype,
    )


def decoder_parameters(architecture: Architecture) -> int:
    """Parameters of the blocks, with the norm before each, and of the final norm: LTS's proxy for quality."""
    width = architecture.d_model
    return sum(_block_parameters(block, width) + 2 * width for block in architecture.blocks) + 2 * width


def position_parameters(architecture: Architecture) -> int:
    """Parameters of the table of learned positions."""
    return (architecture.positions.length + architecture.positions.offset) * architecture.d_model


def embedding_parameters(architecture: Architecture) -> int:
    """Parameters of the token tables, their projections and the output layer."""
    d_model, d_embed = architecture.d_model, architecture.d_embed
    count = sum(size * width for size, width in _tables(architecture))
    if _projected(architecture):
        # One for each table, tied to the output for the tails, and the head's own on the way out.
        count += sum(width * d_model for _, width in _tables(architecture)) + d_embed * d_model
    tails = len(architecture.embedding.cutoffs)
    if tails:
        count += architecture.embedding.vocab_size + tails * d_embed + tails
    return count


def _block_parameters(block: Block, width: int) -> int:
    if isinstance(block, Attention):
        return 4 * width * width + 4 * width
    return 2 * width * block.d_inner + block.d_inner + width


def _block_products(block: Block, width: int, batch: int, length: int) -> int:
    """Multiply-accumulates of one block."""
    if isinstance(block, Attention):
        return batch * (length * 4 * width * width + 2 * length * length * width)
    return batch * length * 2 * width * block.d_inner


def _embedding_products(architecture: Architecture) -> int:
    """Multiply-accumulates for one token on the way in."""
    if not _projected(architecture):
        return 0
    return sum(width * architecture.d_model for _, width in _tables(architecture))


def _output_products(architecture: Architecture) -> int:
    """Multiply-accumulates for one position on the way out."""
    d_model, d_embed = architecture.d_model, architecture.d_embed
    count = sum(size * width for size, width in _clusters(architecture))
    tails = len(architecture.embedding.cutoffs)
    count += tails * d_embed
    if _projected(architecture):
        count += d_model * d_embed
        # With one table, the tails share one projected hidden state.
        shared = tails > 0 and architecture.embedding.div == 1
        count += d_model * (d_embed if shared else sum(width for _, width in list(_clusters(architecture))[1:]))
    return count


def _clusters(architecture: Architecture) -> Iterator[tuple[int, int]]:
    """(tokens, embedding width) of each cluster of the vocabulary; one without cut-offs."""
    embedding = architecture.embedding
    for index, (start, stop) in enumerate(pairwise((0, *embedding.cutoffs, embedding.vocab_size))):
        yield stop - start, architecture.d_embed // embedding.div**index


def _tables(architecture: Architecture) -> tuple[tuple[int, int], ...]:
    """(tokens, width) of each token table: one a cluster with div > 1, else one in all."""
    if architecture.embedding.div == 1:
        return ((architecture.embedding.vocab_size, architecture.d_embed),)
    return tuple(_clusters(architecture))


def _projected(architecture: Architecture) -> bool:
    return architecture.embedding.div > 1 or architecture.d_embed != architecture.d_model


def _between(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        reason = " (the rows of its position table)" if name == "sequence_length" else ""
        raise InvalidInput(
            f"{name} must be 1 to {most}{reason}, not {value!r}", field=name, value=value, allowed=f"1 to {most}"
        )


def _one_of(name: str, value: str, choices: Any) -> Any:
    allowed = get_args(choices)
    if value not in allowed:
        words = ", ".join(allowed)
        raise InvalidInput(f"{name} must be one of {words}, not {value!r}", field=name, value=value, allowed=words)
    return value
