"""Whatever package an extra brings, a command that misses it names the extra."""

from __future__ import annotations

import re

import pytest

from edgefront.client.extras import install_hint


@pytest.mark.parametrize(
    "module", ["torch", "onnxruntime", "numba", "gguf", "sklearn", "lm_eval", "pandas", "xllamacpp"]
)
def test_a_missing_package_gives_its_line(module: str) -> None:
    said = install_hint(ModuleNotFoundError(name=f"{module}.part"))
    assert said is not None
    assert re.search(r"pip install 'edgefront-lm\[[\w-]+\]'$", said)
