"""What the blocks of one forward pass share: masks, distances, the source, and the state that they read and write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from edgefront.core.architectures import embeddings_and_head
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Parallel
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.state import Attends, Form, StateSpec, state_specs
from edgefront.core.nn.dropout import NO_DROPOUT, Dropout
from edgefront.core.nn.embedding import RelativePositions, RotaryPositions
from edgefront.core.nn.layers import drop


class State(dict[str, Tensor]):
    """Entries by name, for one architecture and form. Created empty by `State.empty`; every pass creates a new one."""

    def __init__(self, architecture: Architecture, form: Form) -> None:
        super().__init__()
        self.architecture = architecture
        self.form: Form = form

    @classmethod
    def empty(cls, architecture: Architecture, form: Form, batch: int, like: Tensor) -> State:
        """The state before the first token: nothing seen, cells of zeros; type and device of `like`."""
        state = cls(architecture, form)
        for spec in state_specs(architecture, form):
            sizes = spec.sizes(batch, 0)
            # A count stays on the CPU: reading it must not wait for a device.
            state[spec.name] = (
                torch.zeros(sizes, dtype=torch.int64)
                if spec.integer
                else torch.zeros(sizes, dtype=like.dtype, device=like.device)
            )
        return state

    @property
    def batch(self) -> int | None:
        """Number of sequences; None if no entry has a batch axis."""
        return next((tensor.shape[0] for tensor in self.values() if tensor.ndim), None)

    @property
    def holds_source(self) -> bool:
        """Whether a pass with the source went before."""
        for spec in state_specs(self.architecture, self.form):
            if spec.growing is not None and spec.holds_source:
                return bool(self[spec.name].shape[spec.growing])
        return False

    def detach(self) -> State:
        """The same numbers without their history: what training carries into the next segment."""
        return self._each(lambda _, tensor: tensor.detach())

    def keep(self, length: int) -> State:
        """Keeps at most the last `length` tokens of the past, from 0; entries that hold a source stay whole."""
        if length < 0:
            raise InvalidInput(f"length must be at least 0, not {length}", field="length", value=length, allowed=">= 0")

        def last(spec: StateSpec, tensor: Tensor) -> Tensor:
            axis = spec.growing
            if axis is None or spec.holds_source or tensor.shape[axis] <= length:
                return tensor
            return tensor.narrow(axis, tensor.shape[axis] - length, length)

        return self._each(last)

    def rows(self, start: int, stop: int) -> State:
        """State of some of the sequences."""
        return self._each(lambda _, tensor: tensor[start:stop] if tensor.ndim else tensor)

    def take(self, rows: Tensor) -> State:
        """State of the sequences of these numbers, int64 [n], in this order and as often as they are named."""
        return self._each(lambda _, tensor: tensor.index_select(0, rows) if tensor.ndim else tensor)

    @classmethod
    def joined(cls, states: Sequence[State]) -> State:
        """State of all sequences of several states of one architecture and form, which have seen as many tokens."""
        if len(states) == 1:
            return states[0]
        return states[0]._each(
            lambda spec, tensor: torch.cat([state[spec.name] for state in states]) if tensor.ndim else tensor
        )

    def _each(self, change: Callable[[StateSpec, Tensor], Tensor]) -> State:
        new = State(self.architecture, self.form)
        for spec in state_specs(self.architecture, self.form):
            new[spec.name] = change(spec, self[spec.name])
        return new


Project = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Raw layer inputs [batch, n, d_model] to keys and values, [batch, head, n, d_head] each (norms included)."""


class Context:
    """One pass over a segment of `sequence` tokens.

    Args:
        device: where the pass runs; of masks that it makes itself.
        state: what came before, or None for a pass that carries nothing. Blocks leave `next_state` behind.
        source: the encoder's states [batch, source, d_model]; given on the first pass only when there is a state.
        mask: bool [batch, sequence], False where the batch is padded; without state only.
        source_mask: bool [batch, source], the same for the source; on every pass.
        window: each token sees so many keys at most, itself included (Transformer-XL's same-length mask).
        positions: the model's; attention shares those that are relative or rotary.
        dropout: the rates of this pass; none unless the model trains.
    """

    def __init__(
        self,
        architecture: Architecture,
        sequence: int,
        *,
        device: torch.device | None = None,
        state: State | None = None,
        source: Tensor | None = None,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        window: int | None = None,
        positions: nn.Module | None = None,
        dropout: Dropout = NO_DROPOUT,
    ) -> None:
        self.architecture = architecture
        self.sequence = sequence
        self.state = state
        self.next_state = None if state is None else State(architecture, state.form)
        self.source = source
        self.relative = positions if isinstance(positions, RelativePositions) else None
        self.start = 0
        """Place of the segment's first token, as far as the state counts tokens."""
        if state is not None and self.next_state is not None and "position" in state:
            self.start = int(state["position"])
            self.next_state["position"] = torch.tensor(self.start + sequence)
        self._rotary = positions if isinstance(positions, RotaryPositions) else None
        self._device = device
        self.padding = mask
        """bool [batch, sequence], False where the batch is padded; None where it is not."""
        self._source_mask, self._window = source_mask, window
        self._visible: dict[tuple[int, Attends, int | None], Tensor | None] = {}
        self._distances: dict[int, Tensor] = {}
        self._sinusoids: dict[int, Tensor] = {}
        self._for_parallel: dict[Parallel, Tensor] | None = None
        self.dropout = dropout
        self.attention_dropout = dropout.attention
        """Rate for attention's probabilities."""

    def drop_hidden(self, x: Tensor) -> Tensor:
        """Dropout of a block's update, or of the input of SRU++'s last linear layer."""
        return drop(x, self.dropout.hidden)

    def drop_inner(self, x: Tensor) -> Tensor:
        """Dropout of a feed-forward block's inner activations."""
        return drop(x, self.dropout.hidden if self.dropout.inner is None else self.dropout.inner)

    def keep_for_parallel(self, x: Tensor, read: Tensor) -> None:
        """Keeps an attention's input, and what its norm made of it, for a parallel feed_forward."""
        if self.architecture.has_parallel_blocks:
            self._for_parallel = {"own_norm": x, "shared_norm": read}

    def parallel_input(self, parallel: Parallel) -> Tensor:
        """What a feed_forward reads that is parallel to the attention before it; kept for it alone."""
        assert self._for_parallel is not None
        inputs, self._for_parallel = self._for_parallel, None
        return inputs[parallel]

    def highway_mask(self, name: str, x: Tensor) -> Tensor | None:
        """Dropout mask for the recurrence of the block `name`, [batch, d_model]: the same for all tokens of a row.

        `x` are its inputs. None where nothing is dropped, as in the last block.
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
        """Everything that the block `name` may see, as keys and values [batch, head, keys, d_head].

        `x` are its raw inputs and `own` the keys and values of them (none where it attends to the source alone);
        earlier inputs are projected by `project`. The order is source, past, segment. What a block of this window
        leaves to the next pass is no more than that will see.
        """
        earlier: list[tuple[Tensor, Tensor]] = []
        first = self.source if attends in ("source", "both") else None
        if self.state is not None and self.next_state is not None and self.state.form == "memory":
            inputs = [part for part in (first, self.state[f"{name}.memory"]) if part is not None and part.shape[1]]
            if inputs:
                earlier.append(project(torch.cat(inputs, 1) if len(inputs) > 1 else inputs[0]))
            if own is not None:
                inputs.append(x)
            self.next_state[f"{name}.memory"] = _seen_later(torch.cat(inputs, 1), window, 1)
        else:
            if self.state is not None and self.state[f"{name}.keys"].shape[2]:
                earlier.append((self.state[f"{name}.keys"], self.state[f"{name}.values"]))
            if first is not None:
                earlier.append(project(first))
        parts = earlier if own is None else [*earlier, own]
        keys, values = (torch.cat(pair, 2) if len(pair) > 1 else pair[0] for pair in zip(*parts, strict=True))
        if self.next_state is not None and self.next_state.form == "cache":
            for part, value in (("keys", keys), ("values", values)):
                self.next_state[f"{name}.{part}"] = _seen_later(value, window, 2)
        return keys, values

    def visible(self, keys: int, attends: Attends, window: int | None = None) -> Tensor | None:
        """Bool, broadcastable to [batch, head, sequence, keys]: what a query may see. None: all of it.

        `window` is the block's own, beside that of the pass.
        """
        window = self._least(window, keys)
        key = keys, attends, window
        if key not in self._visible:
            masks = self._causal(keys, attends, window), self._real(keys, attends)
            parts = [part for part in masks if part is not None]
            self._visible[key] = parts[0] & parts[-1] if parts else None
        return self._visible[key]

    def is_plain_causal(self, keys: int, attends: Attends, window: int | None = None) -> bool:
        """Whether the mask is the ordinary causal square, for which kernels have a path of their own."""
        square = keys == self.sequence and attends == "self" and self.architecture.causal
        return square and self.padding is None and self._least(window, keys) is None

    def past(self, name: str) -> int:
        """Place of the segment's first token, as the block `name` counts: from the beginning of its memory, or of all.

        Rotary attention reads nothing of it but distances.
        """
        if self.state is not None and self.state.form == "memory":
            return int(self.state[f"{name}.memory"].shape[1])
        return self.start

    def apply_rotary(self, x: Tensor, place: int, by: embeddings_and_head.RotaryPositions | None) -> Tensor:
        """Queries or keys [batch, head, n, d_head], the first of them at this place, turned as `by` says."""
        if by is None:
            return x
        assert self._rotary is not None
        return self._rotary.apply_rotary(x, place, by)

    def distances(self, keys: int) -> Tensor:
        """Rows of relative attention's sinusoids, the farthest distance first: int64 [keys + 1]."""
        assert self.relative is not None
        if keys not in self._distances:
            self._distances[keys] = self.relative.distances(keys, self._device or torch.device("cpu"))
        return self._distances[keys]

    def sinusoids(self, keys: int, like: Tensor) -> Tensor:
        """What `distances` count: [rows, d_model], type and device of `like`; dropped out once for all blocks."""
        assert self.relative is not None
        if keys not in self._sinusoids:
            self._sinusoids[keys] = self.drop_hidden(self.relative.sinusoids(keys, like))
        return self._sinusoids[keys]

    def cell(self, name: str, like: Tensor) -> Tensor:
        """The recurrence's state before the segment, [batch, d_model]; zeros at the beginning. `like`: the inputs."""
        if self.state is not None:
            return self.state[f"{name}.cell"]
        return like.new_zeros(like.shape[0], like.shape[-1])

    def inputs(self, name: str, count: int, like: Tensor) -> Tensor:
        """The short convolution's last inputs before the segment, [batch, count, d_model]; zeros at the beginning.

        `like`: those of the segment.
        """
        if self.state is not None:
            return self.state[f"{name}.inputs"]
        return like.new_zeros(like.shape[0], count, like.shape[-1])

    def carry(self, entry: str, value: Tensor) -> None:
        """Leave what this entry of the state is to be to the next pass."""
        if self.next_state is not None:
            self.next_state[entry] = value

    def _least(self, window: int | None, keys: int) -> int | None:
        """The smaller of this window and the pass's; None where it shows all of so many keys."""
        least = min(limit if limit is not None else keys for limit in (window, self._window))
        return least if least < keys else None

    def _causal(self, keys: int, attends: Attends, window: int | None) -> Tensor | None:
        """[sequence, keys]; whatever comes before the segment (past, source) is seen, unless the window cuts it."""
        if attends == "source" or not self.architecture.causal:
            return None
        if self.sequence == 1 and window is None:
            return None
        last = torch.arange(keys - self.sequence, keys, device=self._device).unsqueeze(1)
        key = torch.arange(keys, device=self._device)
        return key <= last if window is None else (key <= last) & (key > last - window)

    def _real(self, keys: int, attends: Attends) -> Tensor | None:
        """[batch, 1, 1, keys]: False where the key is padding. Keys without a mask of their own are tokens."""
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
    """What a later token sees of the tokens along this axis: the last of them with a window, else all."""
    if window is None or x.shape[axis] < window:
        return x
    return x.narrow(axis, x.shape[axis] - window + 1, window - 1)
