"""Models as files without a server: shown, built, and generating tokens as docs/generate.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from command_line import edgefront, environment

from edgefront.cli import exits
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.model_files.model_file import ModelFormat, check_format, file_name, formats_of, write_model
from edgefront.core.nn.weights import load_safetensors

DOCUMENT = Path(__file__).parents[2] / "docs" / "generate.md"
TINY: dict[str, Any] = {
    "d_model": 32,
    "positions": {"kind": "none"},
    "embedding": {"vocab_size": 99},
    "blocks": {"pattern": "(rs)x2", "r": {"kind": "sru"}, "s": {"kind": "attention", "n_head": 2}},
}
ENCODER: dict[str, Any] = {"d_model": 32, "causal": False, "embedding": {"vocab_size": 99}, "blocks": TINY["blocks"]}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY), encoding="utf-8")
    return path


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def tokens_of(program: str, folder: Path) -> list[int]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [int(token) for token in done.stdout.split()]


@pytest.mark.parametrize("which", [0, 1], ids=["two files", "in place"])
def test_the_documented_loop_generates_what_the_full_pass_would(tmp_path: Path, which: int) -> None:
    """The page's commands and its programs as they stand, against PyTorch over the whole sequence at every step."""
    from_a_search, *from_descriptions = blocks("sh")
    assert "download CANDIDATE" in from_a_search
    commands, program = from_descriptions[which], blocks("python")[which]
    assert len(program.splitlines()) <= 32
    (description,) = re.findall(r"\w+\.json(?= <<)", commands)
    here = Path(sys.executable).parent
    env = environment(None) | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    script = f"set -eu\n{commands}\nedgefront model build {description} --format safetensors --output all\n"
    subprocess.run(["/bin/sh", "-c", script], check=True, capture_output=True, cwd=tmp_path, env=env)
    tokens = tokens_of(program, tmp_path)
    model = load_safetensors(tmp_path / "all").eval()
    with torch.inference_mode():
        scores = model(torch.tensor([tokens]))[0]
    assert len(tokens) == 4 + 20
    assert tokens[4:] == scores[3:-1].argmax(-1).tolist()


ATTENTION: dict[str, Any] = {"kind": "attention", "n_head": 2}
GATED: dict[str, Any] = {"kind": "feed_forward", "d_inner": 48, "gated": True, "bias": False}
IN_PLACE: dict[str, dict[str, Any]] = {
    "learned positions": {"blocks": [ATTENTION, {"kind": "feed_forward", "d_inner": 64}] * 2},
    "recurrences": {"blocks": [{"kind": "srupp", "d_attn": 16}, {"kind": "sru"}, ATTENTION]},
    "convolution and window": {
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "blocks": [{"kind": "short_conv"}, GATED, ATTENTION, {**ATTENTION, "window": 5}, GATED],
    },
}


@pytest.mark.parametrize("numbers", ["float32", "int8", "int4"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_the_documented_program_generates_whatever_the_state_is(
    tmp_path: Path, name: str, numbers: NumberFormat
) -> None:
    """The program of one file, and that of two files with the same weights: the same tokens."""
    model = Architecture.parse(
        {"d_model": 32, "embedding": {"vocab_size": 30000}, "output": {"tied": False}, **IN_PLACE[name]}
    )
    for format_ in ("onnx-prefill", "onnx-decode", "onnx-generate"):
        write_model(model, format_, 3, tmp_path / f"{format_.removeprefix('onnx-')}.onnx", numbers)
    of_two, of_one = (tokens_of(program, tmp_path) for program in blocks("python"))
    assert of_two == of_one
    assert len(set(of_one[4:])) > 1


def test_the_end_of_the_buffers_and_of_the_tables_is_an_error(tmp_path: Path) -> None:
    """Never a wrong token."""
    model = Architecture.parse({"d_model": 32, "embedding": {"vocab_size": 97}, **IN_PLACE["convolution and window"]})
    path = tmp_path / "generate.onnx"
    write_model(model, "onnx-generate", 3, path)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options)

    def one_more(capacity: int, seen: int) -> None:
        feeds: dict[str, Any] = {"tokens": np.zeros((1, 1), np.int64)}
        sizes = {"batch": 1, "capacity": capacity}
        for entry in session.get_inputs()[1:]:
            shape = [sizes.get(size, 0) if isinstance(size, str) else size for size in entry.shape]
            feeds[entry.name] = np.zeros(shape, np.int64 if entry.type == "tensor(int64)" else np.float32)
        binding = session.io_binding()
        feeds["position"] = np.array(seen)
        held = {entry: ort.OrtValue.ortvalue_from_numpy(value) for entry, value in feeds.items()}
        for entry, value in held.items():
            binding.bind_ortvalue_input(entry, value)
            if capacity in value.shape():
                binding.bind_ortvalue_output(f"next.{entry}", value)
        for output in session.get_outputs():
            if "capacity" not in output.shape:
                binding.bind_output(output.name)
        session.run_with_iobinding(binding)

    one_more(capacity=8, seen=7)
    one_more(capacity=5000, seen=4095)
    for capacity, seen in ((8, 8), (5000, 4096)):
        with pytest.raises(Exception, match=r"(?i)shape|total_sequence_length|cos_cache|index"):
            one_more(capacity, seen)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"positions": {"kind": "relative"}}, "rotary positions, not relative"),
        ({"positions": {"kind": "none"}}, "rotary positions, not none"),
        ({"blocks": [{"kind": "attention", "n_head": 2, "window": 4}]}, "needs attention without a window"),
        ({"causal": False}, "needs a causal model"),
        (
            {
                "source": {
                    "d_model": 32,
                    "causal": False,
                    "output": {"kind": "none"},
                    "embedding": {"vocab_size": 99},
                    "blocks": [ATTENTION],
                },
                "blocks": [ATTENTION, {**ATTENTION, "attends": "source"}],
            },
            "does not encode its source",
        ),
    ],
)
def test_models_that_write_nothing_in_place_are_refused_with_the_reason(parts: dict[str, Any], why: str) -> None:
    model = Architecture.parse({"d_model": 32, "embedding": {"vocab_size": 99}, "blocks": [ATTENTION], **parts})
    with pytest.raises(InvalidInput, match=f"format onnx-generate is not for this model: .*{why}") as refused:
        check_format(model, "onnx-generate")
    assert "onnx-generate" not in refused.value.extra["allowed"]
    assert "onnx-generate" not in formats_of(model)


def test_a_shown_description_is_one_that_is_read_again(tmp_path: Path) -> None:
    done = edgefront("model show transformer-iwslt", code=exits.OK)
    named = named_model("transformer-iwslt")
    assert json.loads(done.stdout) == named.architecture.canonical
    assert f"{named.source} · digest {named.architecture.digest}" in done.stderr
    copy = tmp_path / "copy.json"
    copy.write_text(done.stdout, encoding="utf-8")
    output = json.loads(edgefront("model show --json", str(copy)).stdout)
    assert output == {
        "name": None,
        "source": None,
        "digest": named.architecture.digest,
        "architecture": named.architecture.canonical,
    }


def test_patterns_are_shown_written_out(tiny: Path) -> None:
    shown = edgefront("model show", str(tiny)).stdout
    assert shown.splitlines()[1] == '  "version": 1,'
    block = '    {"kind": "sru"},\n    {"kind": "attention", "n_head": 2}'
    assert f"{block},\n{block}\n" in shown


def test_any_description_becomes_a_file_that_says_it_is_untrained(tiny: Path, tmp_path: Path) -> None:
    digest = Architecture.parse(TINY).digest
    folder = tmp_path / "files"
    folder.mkdir()
    modes: dict[ModelFormat, str] = {"onnx": "forward", "onnx-decode": "decode"}
    for format_, mode in modes.items():
        done = edgefront("model build --seed 4", str(tiny), "--format", format_, "--output", str(folder), code=exits.OK)
        path = Path(done.stdout.strip())
        assert path == folder / file_name(digest, 4, format_)
        assert "untrained-seed4" in path.name
        assert "untrained" in done.stderr
        about = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
        assert (about["mode"], about["digest"], about["seed"]) == (mode, digest, "4")
    output = json.loads(edgefront("model build --json", str(tiny), "-o", str(tmp_path / "mine.onnx")).stdout)
    assert output["weights"] == "untrained-random"
    assert output["bytes"] == (tmp_path / "mine.onnx").stat().st_size
    assert (output["format"], output["seed"], output["digest"]) == ("onnx", 0, digest)
    small = edgefront("model build --numbers int8 --json", str(tiny), "-o", str(folder))
    assert json.loads(small.stdout)["numbers"] == "int8"
    assert json.loads(small.stdout)["path"] == str(folder / file_name(digest, 0, "onnx", "int8"))
    described = edgefront("model build --format architecture", str(tiny), "-o", str(folder))
    assert Architecture.parse(Path(described.stdout.strip()).read_text()).digest == digest
    assert "untrained" not in described.stderr


def test_a_model_that_cannot_be_built_names_the_format_and_leaves_no_file(tmp_path: Path) -> None:
    path, folder = tmp_path / "encoder.json", tmp_path / "files"
    path.write_text(json.dumps(ENCODER), encoding="utf-8")
    folder.mkdir()
    done = edgefront("model build --format onnx-decode", str(path), "-o", str(folder), code=exits.REFUSED)
    assert "format onnx-decode is not for this model" in done.stderr
    assert "allowed: onnx, safetensors, architecture" in done.stderr
    assert done.stdout == ""
    assert list(folder.iterdir()) == []
    large = edgefront("model build gpt2-xl", "-o", str(folder), code=exits.REFUSED)
    assert "safetensors" in large.stderr
    assert list(folder.iterdir()) == []
    assert edgefront("model build --format pickle", str(path)).returncode == exits.USAGE
    nowhere = edgefront("model build", str(path), "-o", str(tmp_path / "no" / "such" / "file"), code=exits.ERROR)
    assert nowhere.stderr.strip() == f"error: No such file or directory: {tmp_path / 'no' / 'such'}"
