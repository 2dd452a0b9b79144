"""State that the blocks of one ONNX graph share: masks, distances, the encoder's output, input and output state."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from onnx import TensorProto

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attends, Parallel
from edgefront.core.architectures.embeddings_and_head import RelativePositions, RotaryPositions
from edgefront.core.model_files.positions import rotary_frequencies, write_rotations, write_sinusoids
from edgefront.core.model_files.state import (
    CAPACITY,
    CacheType,
    GraphOptions,
    Mode,
    StateSpec,
    axis_of,
    state_specs,
    writes_in_place,
)
from edgefront.core.model_files.writer import GraphWriter

Project = Callable[[str], tuple[str, str]]
"""Function from raw layer inputs [batch·n, d_model] to keys and values, [batch, head, n, d_head] each, with norms."""

NEXT = "next."
"""Prefix of the names of output state."""

# Cache type of the state that a graph of each mode takes, and of the state that the graph returns.
_INCOMING: dict[Mode, CacheType | None] = {"forward": None, "segment": "memory", "prefill": None, "decode": "cache"}
_OUTGOING: dict[Mode, CacheType | None] = {"forward": None, "segment": "memory", "prefill": "cache", "decode": "cache"}


class GraphContext:
    """One forward pass over the `sequence` tokens of a graph: the twin of `core.nn.context`.

    Args:
        source: the encoder's output, [batch·source, d_model]; None in a decode graph, where the state has its keys.
        options: `in_place` and `fused` apply only to a decode graph.
        prefix: prefix of the names of the graph's parameters: "source." in an encoder.
    """

    def __init__(
        self,
        graph: GraphWriter,
        architecture: Architecture,
        options: GraphOptions = GraphOptions(),  # noqa: B008  (frozen)
        *,
        source: str | None = None,
        prefix: str = "",
    ) -> None:
        self.architecture = architecture
        self.mode = options.mode
        self.prefix = prefix
        self.fused = options.fused
        self.source = source
        self.graph = graph
        self._window = options.window
        self._incoming = self._specs(_INCOMING[options.mode])
        self._outgoing = self._specs(_OUTGOING[options.mode])
        in_place = options.in_place and options.mode == "decode"
        self._in_place = {
            name for name, spec in self._incoming.items() if in_place and writes_in_place(architecture, spec)
        }
        self._next_state: dict[str, str] = {}
        self.parallel_inputs: dict[Parallel, str] = {}
        """Inputs of a feed-forward block that is parallel to the preceding attention."""
        for spec in self._incoming.values():
            graph.input(spec.name, self._axes(spec), TensorProto.INT64 if spec.integer else None)

    def keys_values(
        self,
        name: str,
        attends: Attends,
        hidden: str,
        own: tuple[str, str] | None,
        project: Project,
        window: int | None = None,
    ) -> tuple[str, str]:
        """All keys and values of the block `name`, [batch, head, keys, d_head]: encoder, past, segment.

        `hidden` are the block's inputs [batch·sequence, d_model]. `own` are the keys and values of `hidden`; None
        projects `hidden` together with the past inputs. The next state keeps only the keys that a later token sees.
        """
        if self.in_place(name):
            assert own is not None
            for part, value in zip(("keys", "values"), own, strict=True):
                self._next_state[f"{name}.{part}"] = self._written(f"{name}.{part}", value)
            return self._next_state[f"{name}.keys"], self._next_state[f"{name}.values"]
        graph, d_model = self.graph, self.architecture.d_model
        source = self.source if attends in ("source", "both") else None
        raw = [graph.unflatten(source, d_model)] if source is not None else []
        if self.mode == "segment":
            raw.append(f"{name}.memory")
        if own is None and attends != "source":
            raw.append(graph.unflatten(hidden, d_model))
        pairs: list[tuple[str, str]] = []
        if self.mode == "decode":
            pairs.append((f"{name}.keys", f"{name}.values"))
        if raw:
            inputs = raw[0] if len(raw) == 1 else graph.op("Concat", *raw, axis=1)
            pairs.append(project(graph.flatten(inputs, d_model)))
            if self.mode == "segment":
                whole = inputs if own is None else graph.op("Concat", inputs, graph.unflatten(hidden, d_model), axis=1)
                self._next_state[f"{name}.memory"] = self._seen_later(whole, window, axis=1)
        if own is not None and attends != "source":
            pairs.append(own)
        keys, values = (
            parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=2) for parts in zip(*pairs, strict=True)
        )
        if f"{name}.keys" in self._outgoing:
            for part, value in (("keys", keys), ("values", values)):
                self._next_state[f"{name}.{part}"] = self._seen_later(value, window, axis=2)
        return keys, values

    def in_place(self, name: str) -> bool:
        """Whether the keys and values of this block are written in place."""
        return f"{name}.keys" in self._in_place

    def _written(self, entry: str, value: str) -> str:
        """Writes the input tokens' keys or values [batch, head, sequence, width] into the cache entry."""
        graph, axes = self.graph, self._incoming[entry].axes

        def make() -> str:
            positions = graph.op("Unsqueeze", self.positions(), graph.integers(0, 1, 3))
            return graph.op("Expand", positions, graph.op("Shape", value))

        positions = graph.memoized(f"written {axes[1]} {axes[3]}", make)
        return graph.op("ScatterElements", entry, positions, value, axis=2)

    def _seen_later(self, value: str, window: int | None, axis: int) -> str:
        """Slices `value` along `axis` to the tokens that a later token sees: all, or the final `window - 1`."""
        graph = self.graph
        if window is None:
            return value
        return graph.op("Slice", value, graph.integers(1 - window), graph.integers(2**63 - 1), graph.integers(axis))

    def projects_earlier(self, attends: Attends) -> bool:
        """Whether this graph also projects inputs before the segment: the memory or the encoder's output."""
        return self.mode == "segment" or (attends != "self" and self.source is not None)

    def mask(self, attends: Attends, window: int | None = None) -> str | None:
        """Additive causal mask, [sequence, keys]: 0 for keys up to the query in the window, else -∞; or None."""
        if attends == "source" or not self.architecture.causal:
            return None
        graph = self.graph
        least = min((size for size in (window, self._window) if size is not None), default=None)

        def make() -> str:
            # Indices of the segment's tokens among the keys, [sequence, 1], and of the keys, [1, keys]; both int64.
            earlier = self._earlier(attends, window)
            last = graph.steps() if earlier is None else graph.op("Add", graph.steps(), earlier)
            last = graph.op("Unsqueeze", last, graph.integers(1))
            keys = graph.op("Unsqueeze", graph.range(self.keys(attends, window)), graph.integers(0))
            visible = graph.op("LessOrEqual", keys, last)
            if least is not None:
                near = graph.op("Greater", keys, graph.op("Sub", last, graph.integer(least)))
                visible = graph.op("And", visible, near)
            return graph.op("Where", visible, graph.number(0.0), graph.number(-math.inf))

        return graph.memoized(f"causal mask {attends} {window}", make)

    def keys(self, attends: Attends, window: int | None = None) -> str:
        """Number of keys of a block with this window, a vector of one element."""
        graph = self.graph
        if attends == "source":
            return self._earlier(attends) or graph.integers(0)
        room = self._room(attends, window)
        if room is not None:
            return graph.memoized("room", lambda: graph.op("Shape", room, start=2, end=3))
        earlier = self._earlier(attends, window)
        if earlier is None:
            return graph.sequence()
        return graph.memoized(f"keys {attends} {window}", lambda: graph.op("Add", earlier, graph.sequence()))

    def positions(self) -> str:
        """Position of each of the segment's tokens in the whole sequence: int64 [sequence]."""
        graph = self.graph
        if "position" not in self._incoming:
            return graph.steps()
        return graph.memoized("place", lambda: graph.op("Add", graph.steps(), "position"))

    def rotations(
        self, rotary: RotaryPositions, d_head: int, window: int | None = None
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Rotations (`write_rotations`) of the queries, and of the keys that this forward pass projects."""
        graph = self.graph
        frequencies = rotary_frequencies(rotary, d_head)
        in_memory = self.mode == "segment"
        key = f"rotations {rotary} {d_head} {window if in_memory else None}"
        made: list[str] = []

        def part(index: int, last: bool) -> str:
            def make() -> str:
                if not made:  # sines and cosines share their angles
                    # Only distances matter, so positions are counted from the start of the memory.
                    positions = graph.range(self.keys("self", window)) if in_memory else self.positions()
                    made.extend(write_rotations(graph, frequencies, positions))
                return made[index]

            whole = graph.memoized(f"{key} {index}", make)
            earlier = self._earlier("self", window) if in_memory and last else None
            if earlier is None:
                return whole
            end = graph.integers(2**63 - 1)
            return graph.memoized(
                f"{key} {index} last", lambda: graph.op("Slice", whole, earlier, end, graph.integers(0))
            )

        return (part(0, True), part(1, True)), (part(0, False), part(1, False))

    def distances(self, window: int | None = None) -> str:
        """Distances of relative attention before clamping, int64 [keys + 1]: keys, keys - 1, …, 0.

        The shift in `core.model_files.blocks.attention` needs one distance more than there are keys.
        """
        graph = self.graph

        def make() -> str:
            keys = graph.op("Squeeze", self.keys("self", window))
            return graph.op("Range", keys, graph.integer(-1), graph.integer(-1))

        return graph.memoized(f"distances {window}", make)

    def sinusoids(self, window: int | None = None) -> str:
        """Sinusoids of the distances, [rows, d_model], in the order of `distances`. With a maximum distance the rows
        are those of 0, 1, … up to the maximum, and `clamped` brings them into that order.
        """
        graph, positions = self.graph, self.architecture.positions
        assert isinstance(positions, RelativePositions)

        def make() -> str:
            if positions.clamp is None:
                return write_sinusoids(graph, self.architecture, self.distances(window))
            count = graph.op("Min", self.keys("self", window), graph.integers(positions.clamp))
            return write_sinusoids(graph, self.architecture, graph.range(graph.op("Add", count, graph.integers(1))))

        return graph.memoized(f"sinusoids {window}", make)

    def clamped(self, rows: str, axis: int, window: int | None = None) -> str:
        """Orders rows of `sinusoids`, or of a result along `axis`: row i belongs to element i of `distances`."""
        graph, positions = self.graph, self.architecture.positions
        assert isinstance(positions, RelativePositions)
        clamp = positions.clamp
        if clamp is None:
            return rows
        index = graph.memoized(
            f"clamped {window}", lambda: graph.op("Min", self.distances(window), graph.integer(clamp))
        )
        return graph.op("Gather", rows, index, axis=axis)

    def normed(self, prefix: str, hidden: str) -> str:
        """Input of a block's function: norm(x) if the architecture's norm is pre or both, else x."""
        return self.graph.norm(hidden, f"{prefix}.norm") if self.architecture.norms_input else hidden

    def added(self, prefix: str, hidden: str, update: str) -> str:
        """Adds a block's update to the residual stream x, multiplied by the residual multiplier.

        Norm post gives norm(x + update), branch and both give x + norm(update), pre gives x + update.
        """
        graph, architecture = self.graph, self.architecture
        if architecture.norms_update:
            update = graph.norm(update, f"{prefix}.{'norm' if architecture.norm == 'branch' else 'after_norm'}")
        if float(architecture.residual_multiplier) != 1:
            update = graph.op("Mul", update, graph.number(float(architecture.residual_multiplier)))
        total = graph.op("Add", hidden, update)
        return graph.norm(total, f"{prefix}.norm") if architecture.norm == "post" else total

    def cell(self, name: str) -> str:
        """State of the recurrence before the segment, [batch, d_model]; zeros at the beginning of the sequence."""
        return self._carried(f"{name}.cell", self.architecture.d_model)

    def inputs(self, name: str, count: int) -> str:
        """Inputs of the short convolution before the segment, [batch, count, d_model]; zeros at the beginning."""
        return self._carried(f"{name}.inputs", count, self.architecture.d_model)

    def carry(self, entry: str, value: str) -> None:
        """Sets this entry of the state for the next forward pass."""
        self._next_state[entry] = value

    def emit_state(self) -> None:
        """Declares the output state as outputs of the graph, each entry under its name with the prefix `NEXT`."""
        graph = self.graph
        for name, spec in self._outgoing.items():
            if name == "position":
                value = graph.op("Squeeze", graph.sequence())
                if name in self._incoming:
                    value = graph.op("Add", name, value)
            else:
                value = self._next_state[name]
            graph.output(value, f"{NEXT}{name}", self._axes(spec, NEXT), TensorProto.INT64 if spec.integer else None)

    def _axes(self, spec: StateSpec, prefix: str = "") -> tuple[str | int, ...]:
        """Declared axes of a state entry; `prefix` is put before the growing axis's name, because lengths differ."""

        def name(axis: str | int) -> str:
            return CAPACITY if spec.name in self._in_place else f"{prefix}{axis}"

        return tuple(name(axis) if at == spec.growing else axis for at, axis in enumerate(spec.axes))

    def _carried(self, entry: str, *shape: int) -> str:
        graph = self.graph
        if entry in self._incoming:
            return entry

        def make() -> str:
            sizes = graph.op("Concat", graph.batch(), graph.integers(*shape), axis=0)
            return graph.op("Expand", graph.number(0.0), sizes)

        return graph.memoized(f"zeros {shape}", make)

    def _specs(self, cache_type: CacheType | None) -> dict[str, StateSpec]:
        return {} if cache_type is None else {spec.name: spec for spec in state_specs(self.architecture, cache_type)}

    def _earlier(self, attends: Attends, window: int | None = None) -> str | None:
        """Number of keys before the segment's keys, a vector of one element; None if no keys precede."""
        graph = self.graph
        if self._room(attends, window) is not None:
            return graph.memoized("earlier in place", lambda: graph.op("Unsqueeze", "position", graph.integers(0)))
        for spec in self._incoming.values():
            axis, name = spec.growing, spec.name
            if axis is not None and spec.axes[axis] == axis_of(attends, window):
                key = f"earlier {attends} {window}"
                return graph.memoized(key, partial(graph.op, "Shape", name, start=axis, end=axis + 1))
        if attends == "self" or self.source is None:
            return None
        source, d_model = self.source, self.architecture.d_model
        return graph.memoized(
            "source length", lambda: graph.op("Shape", graph.unflatten(source, d_model), start=1, end=2)
        )

    def _room(self, attends: Attends, window: int | None) -> str | None:
        """Name of a state entry with the in-place cache's size; None if no block with this window writes in place."""
        return None if attends != "self" or window is not None else next(iter(sorted(self._in_place)), None)
