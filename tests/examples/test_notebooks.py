"""The notebooks of `examples/`, from top to bottom in a kernel each, with a service that the first of them starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"n_layer": [2], "d_model": [128], "d_inner": [256, 320]}


@contextmanager
def running(name: str, folder: Path, **parameters: object) -> Iterator[NotebookClient]:
    """The notebook in this folder with other parameters, run but for its last cell, which is run at the end."""
    book = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    assert not any(cell.get("outputs") for cell in book.cells), "outputs are cleared before a notebook is committed"
    (given,) = [cell for cell in book.cells if "parameters" in cell.metadata.get("tags", ())]
    given.source += "".join(f"\n{key} = {value!r}" for key, value in parameters.items())
    # Over TCP a kernel binds ports that were free a moment ago, and any other process may have taken one since.
    sockets = Config(KernelManager={"transport": "ipc", "ip": str(folder / name[:4])})
    client = NotebookClient(book, config=sockets, timeout=120, resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel():
        *cells, last = list(enumerate(book.cells))
        for index, cell in cells:
            client.execute_cell(cell, index)
        yield client
        client.execute_cell(last[1], last[0])


def shown(client: NotebookClient, source: str) -> dict[str, str]:
    """What the cell that begins or ends with this shows, by media type; printed text is `stdout`."""
    (cell,) = [cell for cell in client.nb.cells if cell.cell_type == "code" and source in cell.source]
    outputs: dict[str, str] = {}
    for output in cell.outputs:
        outputs |= {output.name: output.text} if output.output_type == "stream" else output.get("data", {})
    return outputs


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory, known_device: dict[str, str]) -> Iterator[NotebookClient]:
    home = tmp_path_factory.mktemp("notebooks") / "home"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("EDGEFRONT_URL", "EDGEFRONT_KEY"):
            patch.delenv(name, raising=False)
        for name, value in {"EDGEFRONT_HOME": str(home), **known_device}.items():
            patch.setenv(name, value)
        parameters = {"limits": {"latency_ms": 20_000.0, "memory_mb": 4000.0}, "budget": {"candidates": 3}}
        with running("find_for_my_laptop", home.parent, **parameters, narrow=SMALL, sequence_length=16) as client:
            assert (home / "server.json").exists()
            yield client
        assert not (home / "server.json").exists()


def test_find_for_my_laptop(laptop: NotebookClient) -> None:
    assert "finished" in shown(laptop, "for event in client.jobs.events")["stdout"]
    assert "<progress" in shown(laptop, "\njob")["text/html"]
    assert "Within 20000 ms and 4000 MB" in shown(laptop, "print(answer.sentence)")["stdout"]
    assert "image/png" in shown(laptop, "job.plot()")
    assert "predicted_perplexity" in shown(laptop, "to_pandas")["text/html"]
    assert ".onnx" in shown(laptop, "models.download")["text/plain"]


def test_compare_two_devices(laptop: NotebookClient, tmp_path: Path) -> None:
    # Two lengths instead of two runtimes: torch takes long to load.
    passes = {"first": {"sequence_length": 16}, "second": {"sequence_length": 32}}
    places = {name: {"device": "local", "protocol": protocol} for name, protocol in passes.items()}
    budget = {"candidates": 2, "refinement": 0.0}
    parameters = {"places": places, "budget": budget, "narrow": SMALL, "baseline_layers": [2]}
    with running("compare_two_devices", tmp_path, **parameters) as client:
        assert "image/png" in shown(client, "job.plot()")
        assert "on the frontier" in shown(client, 'target="second"')["text/html"]
        assert "second (ms)" in shown(client, "table.round(2)")["text/html"]
        assert "second takes" in shown(client, "latency_ratio")["stdout"]
