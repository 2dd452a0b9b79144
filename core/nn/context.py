"""State that the blocks of one forward pass share: masks, distances, the encoder's output, and the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from edgefront.core.architectures import embeddings_and_head
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attends, Parallel
from edgefront.core.model_files.state import CacheType, StateSpec, state_specs
from edgefront.core.nn.dropout import NO_DROPOUT, Dropout
from edgefront.core.nn.embedding import RelativePositionEmbedding, RotaryEmbedding
from edgefront.core.nn.layers import drop


class Cache(dict[str, Tensor]):
    """Tensors by name (`core.model_files.state`): keys and values or layer inputs, and the cells of recurrences and
    convolutions. A forward pass leaves its cache unchanged and returns a new cache.
    """

    def __init__(self, architecture: Architecture, cache_type: CacheType) -> None:
        super().__init__()
        self.architecture = architecture
        self.cache_type: CacheType = cache_type

    @classmethod
    def empty(cls, architecture: Architecture, cache_type: CacheType, batch: int, like: Tensor) -> Cache:
        """Cache before the first token, with cells of zeros, in the type and on the device of `like`."""
        cache = cls(architecture, cache_type)
        for spec in state_specs(architecture, cache_type):
            sizes = spec.sizes(batch, 0)
            # A count stays on the CPU, because reading the count must not wait for a device.
            cache[spec.name] = (
                torch.zeros(sizes, dtype=torch.int64)
                if spec.integer
                else torch.zeros(sizes, dtype=like.dtype, device=like.device)
            )
        return cache

    def detach(self) -> Cache:
        """Returns a cache with the same values, but detached from gradients; training passes it to the next segment."""
        return self._each(lambda _, tensor: tensor.detach())

    def keep(self, length: int) -> Cache:
        """Returns a cache of only the latest `length` past tokens; entries of the encoder stay complete."""

        def last(spec: StateSpec, tensor: Tensor) -> Tensor:
            axis = spec.growing
            if axis is None or spec.holds_source or tensor.shape[axis] <= length:
                return tensor
            return tensor.narrow(axis, tensor.shape[axis] - length, length)

        return self._each(last)

    def rows(self, start: int, stop: int) -> Cache:
        """Returns a cache of only the sequences `start` to `stop` - 1 of the batch."""
        return self._each(lambda _, tensor: tensor[start:stop] if tensor.ndim else tensor)

    def take(self, rows: Tensor) -> Cache:
        """Returns a cache of the sequences with the indices `rows`, int64 [n], in this order; indices may repeat."""
        return self._each(lambda _, tensor: tensor.index_select(0, rows) if tensor.ndim else tensor)

    @classmethod
    def concatenate(cls, caches: Sequence[Cache]) -> Cache:
        """Joins caches of the same architecture, type and number of past tokens to one cache of all sequences."""
        if len(caches) == 1:
            return caches[0]
        return caches[0]._each(
            lambda spec, tensor: torch.cat([cache[spec.name] for cache in caches]) if tensor.ndim else tensor
        )

    def _each(self, change: Callable[[StateSpec, Tensor], Tensor]) -> Cache:
        new = Cache(self.architecture, self.cache_type)
        for spec in state_specs(self.architecture, self.cache_type):
            new[spec.name] = change(spec, self[spec.name])
        return new


Project = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Function from raw layer inputs [batch, n, d_model] to keys and values, [batch, head, n, d_head] each, with norms."""


class Context:
    """Shared state of one forward pass over a segment of `sequence` tokens.

    Args:
        device: device of the forward pass, and of its masks.
        cache: cache of the preceding tokens; None without a cache. Blocks fill `next_cache`.
        encoder: the encoder's output [batch, source, d_model]; given only on the first forward pass with a cache.
        mask: bool [batch, sequence], False where the batch is padded; only without a cache.
        source_mask: bool [batch, source], False where the source is padded; needed on every forward pass.
        window: maximum number of keys that a token sees, itself included (Transformer-XL's same-length mask).
        positions: the model's positions module, whose relative or rotary positions attention uses.
        dropout: dropout rates of this forward pass; none unless the model trains.
    """

    def __init__(
        self,
        architecture: Architecture,
        sequence: int,
        *,
        device: torch.device | None = None,
        cache: Cache | None = None,
        encoder: Tensor | None = None,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        window: int | None = None,
        positions: nn.Module | None = None,
        dropout: Dropout = NO_DROPOUT,
    ) -> None:
        self.architecture = architecture
        self.sequence = sequence
        self.cache = cache
        self.next_cache = None if cache is None else Cache(architecture, cache.cache_type)
        self.encoder = encoder
        self.relative = positions if isinstance(positions, RelativePositionEmbedding) else None
        self.start = 0
        """Position of the segment's first token, if the cache counts tokens; else 0."""
        if cache is not None and self.next_cache is not None and "position" in cache:
            self.start = int(cache["position"])
            self.next_cache["position"] = torch.tensor(self.start + sequence)
        self._rotary = positions if isinstance(positions, RotaryEmbedding) else None
        self._device = device
        self.padding = mask
        """Padding mask, bool [batch, sequence], False where the batch is padded; None without padding."""
        self._source_mask, self._window = source_mask, window
        self._visible: dict[tuple[int, Attends, int | None], Tensor | None] = {}
        self._distances: dict[int, Tensor] = {}
        self._sinusoids: dict[int, Tensor] = {}
        self._for_parallel: dict[Parallel, Tensor] | None = None
        self.dropout = dropout
        self.attention_dropout = dropout.attention
        """Dropout rate for attention's probabilities."""

    def drop_hidden(self, x: Tensor) -> Tensor:
        """Applies dropout to a block's update, or to the input of SRU++'s final linear layer."""
        return drop(x, self.dropout.hidden)

    def drop_inner(self, x: Tensor) -> Tensor:
        """Applies dropout to a feed-forward block's inner activations."""
        return drop(x, self.dropout.hidden if self.dropout.inner is None else self.dropout.inner)

    def keep_for_parallel(self, x: Tensor, read: Tensor) -> None:
        """Stores an attention's input `x` and its normed input `read` for a parallel feed-forward block."""
        if self.architecture.has_parallel_blocks:
            self._for_parallel = {"own_norm": x, "shared_norm": read}

    def parallel_input(self, parallel: Parallel) -> Tensor:
        """Input of a feed-forward block that is parallel to the preceding attention; releases the stored inputs."""
        assert self._for_parallel is not None
        inputs, self._for_parallel = self._for_parallel, None
        return inputs[parallel]

    def highway_mask(self, name: str, x: Tensor) -> Tensor | None:
        """Dropout mask for the recurrence of the block `name`, [batch, d_model]: the same for all tokens of a sequence.

        `x` are the block's inputs. None if the rate is 0, and in the final block.
        """
        rate = self.dropout.highway
        if not rate or name == f"blocks.{len(self.architecture.blocks) - 1}":
            return None
        return drop(x.new_ones(x.shape[0], x.shape[-1]), rate)

    def keys_values(
        self,
        name: str,
        attends: Attends,
        x: Tensor,
        own: tuple[Tensor, Tensor] | None,
        project: Project,
        window: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """All keys and values of the block `name`, [batch, head, keys, d_head]: encoder, past, segment.

        `x` are the block's inputs. `own` are the keys and values of `x` (None in pure cross-attention). `project` is
        applied to past inputs and the encoder's output. The next cache keeps only the keys that a later token sees.
        """
        earlier: list[tuple[Tensor, Tensor]] = []
        first = self.encoder if attends in ("source", "both") else None
        if self.cache is not None and self.next_cache is not None and self.cache.cache_type == "memory":
            inputs = [part for part in (first, self.cache[f"{name}.memory"]) if part is not None and part.shape[1]]
            if inputs:
                earlier.append(project(torch.cat(inputs, 1) if len(inputs) > 1 else inputs[0]))
            if own is not None:
                inputs.append(x)
            self.next_cache[f"{name}.memory"] = _seen_later(torch.cat(inputs, 1), window, 1)
        else:
            if self.cache is not None and self.cache[f"{name}.keys"].shape[2]:
                earlier.append((self.cache[f"{name}.keys"], self.cache[f"{name}.values"]))
            if first is not None:
                earlier.append(project(first))
        parts = earlier if own is None else [*earlier, own]
        keys, values = (torch.cat(pair, 2) if len(pair) > 1 else pair[0] for pair in zip(*parts, strict=True))
        if self.next_cache is not None and self.next_cache.cache_type == "cache":
            for part, value in (("keys", keys), ("values", values)):
                self.next_cache[f"{name}.{part}"] = _seen_later(value, window, 2)
        return keys, values

    def visible(self, keys: int, attends: Attends, window: int | None = None) -> Tensor | None:
        """Whether a query sees a key: bool, broadcastable to [batch, head, sequence, keys]; None if all see all keys.

        `window` is the block's window; the forward pass may have a smaller window.
        """
        window = self._least(window, keys)
        key = keys, attends, window
        if key not in self._visible:
            masks = self._causal(keys, attends, window), self._unpadded(keys, attends)
            parts = [part for part in masks if part is not None]
            self._visible[key] = parts[0] & parts[-1] if parts else None
        return self._visible[key]

    def is_plain_causal(self, keys: int, attends: Attends, window: int | None = None) -> bool:
        """Whether the mask is plain causal, without window, padding or past, so a faster kernel can be used."""
        square = keys == self.sequence and attends == "self" and self.architecture.causal
        return square and self.padding is None and self._least(window, keys) is None

    def past(self, name: str) -> int:
        """Position of the segment's first token for the block `name`, counted from the start of memory or sequence.

        Both starts give the same result, because rotary attention depends only on distances.
        """
        if self.cache is not None and self.cache.cache_type == "memory":
            return int(self.cache[f"{name}.memory"].shape[1])
        return self.start

    def apply_rotary(self, x: Tensor, start: int, rotary: embeddings_and_head.RotaryPositions | None) -> Tensor:
        """Rotates queries or keys [batch, head, n, d_head] from position `start` on; returns `x` without `rotary`."""
        if rotary is None:
            return x
        assert self._rotary is not None
        return self._rotary.apply_rotary(x, start, rotary)

    def distances(self, keys: int) -> Tensor:
        """Row in `sinusoids` of each of the distances keys, keys - 1, …, 0: int64 [keys + 1]."""
        assert self.relative is not None
        if keys not in self._distances:
            self._distances[keys] = self.relative.distances(keys, self._device or torch.device("cpu"))
        return self._distances[keys]

    def sinusoids(self, keys: int, like: Tensor) -> Tensor:
        """Sinusoids of all distances: [rows, d_model], type and device of `like`. All blocks share one dropout mask."""
        assert self.relative is not None
        if keys not in self._sinusoids:
            self._sinusoids[keys] = self.drop_hidden(self.relative.sinusoids(keys, like))
        return self._sinusoids[keys]

    def cell(self, name: str, like: Tensor) -> Tensor:
        """State of the recurrence before the segment, [batch, d_model]; zeros without a cache, with `like`'s type."""
        if self.cache is not None:
            return self.cache[f"{name}.cell"]
        return like.new_zeros(like.shape[0], like.shape[-1])

    def inputs(self, name: str, count: int, like: Tensor) -> Tensor:
        """Inputs of the short convolution before the segment, [batch, count, d_model]; zeros without a cache.

        `like`: the inputs of the segment.
        """
        if self.cache is not None:
            return self.cache[f"{name}.inputs"]
        return like.new_zeros(like.shape[0], count, like.shape[-1])

    def carry(self, entry: str, value: Tensor) -> None:
        """Sets this entry of the next cache, if there is a cache."""
        if self.next_cache is not None:
            self.next_cache[entry] = value

    def _least(self, window: int | None, keys: int) -> int | None:
        """The smaller of this window and the forward pass's window; None if this smaller window includes all keys."""
        least = min(limit if limit is not None else keys for limit in (window, self._window))
        return least if least < keys else None

    def _causal(self, keys: int, attends: Attends, window: int | None) -> Tensor | None:
        """Causal mask of the segment, [sequence, keys]; keys before the segment are visible within the window."""
        if attends == "source" or not self.architecture.causal:
            return None
        if self.sequence == 1 and window is None:
            return None
        last = torch.arange(keys - self.sequence, keys, device=self._device).unsqueeze(1)
        key = torch.arange(keys, device=self._device)
        return key <= last if window is None else (key <= last) & (key > last - window)

    def _unpadded(self, keys: int, attends: Attends) -> Tensor | None:
        """Padding mask of the keys, [batch, 1, 1, keys], False where the key is padding; None without padding."""
        source = self._source_mask if attends in ("source", "both") else None
        own = self.padding if attends != "source" else None
        if source is None and own is None:
            return None
        masks = [part for part in (source, own) if part is not None]
        rest = keys - sum(part.shape[1] for part in masks)
        if rest:
            tokens = masks[0].new_ones(masks[0].shape[0], rest)
            masks = [tokens, *masks] if source is None else [*masks, tokens]
        return torch.cat(masks, 1)[:, None, None, :]


def _seen_later(x: Tensor, window: int | None, axis: int) -> Tensor:
    """Slices `x` along `axis` to the tokens that a later token sees: all, or the final `window - 1`."""
    if window is None or x.shape[axis] < window:
        return x
    return x.narrow(axis, x.shape[axis] - window + 1, window - 1)
