"""The state of a torch model between passes (see `core.graph.state` for its entries and two forms)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.state import Form, StateSpec, state_specs
from edgefront.core.spaces.architecture import Architecture


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
