"""ONNX Runtime: an architecture that generates, token by token, with its state bound on the provider's device."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from edgefront.agents.measuring.inputs import random_state, random_tokens
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.runtimes import Generated
from edgefront.agents.measuring.runtimes.onnx_graph import generating, is_finite, likeliest, with_room
from edgefront.agents.measuring.runtimes.onnx_runtime import (
    array_of,
    session_of,
    session_options,
    value_of,
    versions,
)
from edgefront.core.measurement.provider import Provider

_NEXT = "next."


class OnnxGenerator:
    """A session of the decode graph. What a pass puts out as state is what the next takes in: nothing is copied between
    passes. Keys and values are in buffers as long as the whole generation, bound as input and output, into which the
    graph writes (`core.graph.state.writes_in_place`); where it cannot, it copies them into longer ones.
    """

    def __init__(self, request: LaunchRequest) -> None:
        self._architecture = generating(request)
        protocol = request.protocol
        self._protocol, self._seed = protocol, request.seed
        self._session = session_of(request, session_options(protocol))
        self._place = "cuda" if Provider(protocol.provider).on_nvidia else "cpu"
        self._binding = self._session.io_binding()
        self._types = {item.name: item.type for item in self._session.get_inputs()}
        outputs = self._session.get_outputs()
        self._outputs = [item.name for item in outputs]
        # Counts of tokens, which have no axes, are used in shape arithmetic, which runs on the CPU.
        self._places = [self._place if item.shape else "cpu" for item in outputs]
        self._scores = next(index for index, name in enumerate(self._outputs) if not name.startswith(_NEXT))
        self._prompt = self._tokens(random_tokens(protocol, self._architecture.embedding.vocab_size, request.seed))
        self._buffers, self._kept = self._in_place()
        self._state: dict[str, Any] = {}
        self._after: list[Any] = []
        self.tokens = np.zeros((protocol.batch, protocol.new_tokens), np.int64)
        self.starts: dict[str, int] = {}
        self.versions = versions(protocol)

    def prepare(self) -> None:
        self._state = self._context()

    def generate(self) -> Generated:
        state = self._state
        started = time.perf_counter_ns()
        self._pass(self._prompt, state)
        chosen = self._chosen(0)
        first = time.perf_counter_ns()
        state.clear()
        for index in range(1, self._protocol.new_tokens):
            self._pass(self._tokens(chosen), self._next())
            chosen = self._chosen(index)
        return Generated((first - started) / 1e6, (time.perf_counter_ns() - first) / 1e6)

    def release(self) -> None:
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        self._after = []

    def finite(self) -> bool:
        return is_finite(array_of(self._after[self._scores]))

    def _context(self) -> dict[str, Any]:
        return dict(self._kept) if self._buffers else self._values(self._random_state())

    def _random_state(self) -> dict[str, Any]:
        return dict(random_state(self._architecture, self._protocol, self._seed))

    def _values(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        return {
            name: value_of(array, self._types[name], self._place if array.ndim else "cpu")
            for name, array in arrays.items()
            if name in self._types
        }

    def _in_place(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The buffers with the context at their beginning, where no generation writes, so that each finds it; and with
        them the rest of the state, which is small then. Both empty where the graph copies.
        """
        state = self._random_state()
        longer = with_room(self._architecture, self._protocol, state)
        if not longer:
            return {}, {}
        kept = self._values({**state, **longer})
        return {name: kept[name] for name in longer}, kept

    def _next(self) -> dict[str, Any]:
        """The state that the last pass put out."""
        state = {name.removeprefix(_NEXT): value for name, value in zip(self._outputs, self._after, strict=True)}
        return {name: value for name, value in state.items() if name in self._types}

    def _tokens(self, tokens: np.ndarray[Any, Any]) -> Any:
        return ort.OrtValue.ortvalue_from_numpy(tokens, self._place, 0)

    def _pass(self, tokens: Any, state: Mapping[str, Any]) -> None:
        self._binding.bind_ortvalue_input("tokens", tokens)
        for name, value in state.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, place in zip(self._outputs, self._places, strict=True):
            buffer = self._buffers.get(name.removeprefix(_NEXT))
            if buffer is not None:
                self._binding.bind_ortvalue_output(name, buffer)
            else:
                self._binding.bind_output(name, place)  # again: the last pass's outputs are this one's inputs
        self._session.run_with_iobinding(self._binding)
        self._after = self._binding.get_outputs()

    def _chosen(self, index: int) -> np.ndarray[Any, Any]:
        tokens = likeliest(array_of(self._after[self._scores]))
        self.tokens[:, index] = tokens[:, 0]
        return tokens
