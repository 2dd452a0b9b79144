"""docs/running-models.md, as it is: a trained model in llama.cpp and in transformers."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import edgefront
from packages import lively

from edgefront.cli import exits
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.training.evaluation.package import write_package

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)
DOCUMENT = Path(__file__).parents[2] / "docs" / "running-models.md"
TEXTS = ["Once upon a time there was a café, κόσμε\n" * 5]


def test_the_page_runs_as_it_is(tmp_path: Path) -> None:
    tokenizer = BPETokenizer.train(iter(TEXTS), 280)
    block = {"kind": "attention", "n_head": 2, "n_kv_head": 1, "bias": "none"}
    inner = {"kind": "feed_forward", "d_inner": 64, "gated": True, "bias": False}
    model = lively(
        {
            "d_model": 32,
            "positions": {"kind": "rotary"},
            "norm_kind": "rms",
            "activation": "silu",
            "embedding": {"vocab_size": tokenizer.vocab_size},
            "blocks": [block, inner] * 2,
        }
    )
    write_package(tmp_path / "mine", model, tokenizer, {"name": "mine"})
    shell, python = 0, []
    for kind, text in re.findall(r"^```(sh|python)\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL):
        if kind == "python":
            ran = subprocess.run(
                [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
            )
            assert ran.returncode == 0, ran.stderr
            python.append(ran.stdout)
            continue
        for line in text.splitlines():
            words = line.partition("#")[0].split()
            if "TRAINING" in words:
                continue  # the service is not running here
            if words[0] == "edgefront":
                edgefront(*words[1:], cwd=tmp_path, code=exits.OK)
            else:
                subprocess.run(words, cwd=tmp_path, check=True)
            shell += 1
    assert shell == 3
    in_llama_cpp, in_transformers = python
    assert in_llama_cpp.strip()
    assert in_transformers.startswith("Once upon a time")
