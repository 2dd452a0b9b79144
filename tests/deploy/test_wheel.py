"""The wheel: holds nothing but `edgefront`, and works beside foreign packages that have the names of our folders."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "api", "workers", "agents", "migrations")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
_FOREIGN = "raise ImportError('a foreign package was imported in place of edgefront')\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Dockerfile copies before it builds: symbolic links stay links, as with COPY."""
    folder = tmp_path_factory.mktemp("source")
    stage = (ROOT / "Dockerfile").read_text().split("AS source\n")[1].split("\nFROM")[0]
    for line in re.findall(r"^COPY (.+)$", stage, re.MULTILINE):
        *names, _ = shlex.split(line)
        for name in names:
            if (ROOT / name).is_dir():
                unwanted = shutil.ignore_patterns("__pycache__", "*.pyc")
                shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=unwanted)
            else:
                shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without network: setuptools is what the dev extra installed."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [*PIP, "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(source)], check=True, env=_environment())
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel, foreign packages, and the dependencies of this environment.

    The dependencies come by a `.pth` file of our own. Python adds its lines to the path but reads no `.pth` file in the
    folders that they name, so the import hook of an editable install has no effect.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    made = home / "bin" / "python"
    install = [*PIP, "--python", str(made), "install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(wheel)]
    subprocess.run(install, check=True, env=_environment())
    (packages,) = home.glob("lib/python*/site-packages")
    for name in FOLDERS:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(_FOREIGN)
    paths = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in paths))
    return made


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory with packages of its own that have our folders' names."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(_FOREIGN)
    return tmp_path


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith("EDGEFRONT_") and name != "PYTHONPATH"
    } | {"COLUMNS": "200", "NO_COLOR": "1"}


def _output(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_only_edgefront_and_its_metadata(wheel: Path) -> None:
    assert wheel.name.startswith("edgefront_lm-")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        assert "\nLicense-Expression: Apache-2.0\n" in archive.read(metadata).decode()
    assert {name.split("/")[0] for name in names} == {"edgefront", metadata.split("/")[0]}
    assert metadata.replace("METADATA", "licenses/LICENSE") in names


def test_it_holds_every_file_that_the_repository_has_there(wheel: Path, source: Path) -> None:
    kept = {path.relative_to(source).as_posix() for folder in FOLDERS for path in (source / folder).rglob("*.*")}
    files = (path for ending in ("py", "css") for path in (source / "edgefront").rglob(f"*.{ending}"))
    own = {path.relative_to(source / "edgefront").as_posix() for path in files}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("edgefront/")}
        assert not any(entry.external_attr >> 28 == 0o12 for entry in archive.infolist())  # none is a link
    assert packed == {f"edgefront/{name}" for name in kept | own}


def test_it_imports_from_where_it_was_installed(python: Path, elsewhere: Path) -> None:
    code = """if True:
        import edgefront, edgefront.core.common.errors
        from edgefront import Client
        print(edgefront.__file__, edgefront.core.common.errors.__file__)
    """
    for file in _output(elsewhere, python, "-c", code).split():
        assert Path(file).is_relative_to(python.parents[1])


def test_commands_work_beside_foreign_packages(python: Path, elsewhere: Path) -> None:
    command = python.with_name("edgefront")
    assert re.fullmatch(r"edgefront \d+\.\d+\.\d+\n", _output(elsewhere, command, "--version"))
    assert " 62,489,600 " in _output(elsewhere, command, "describe", "par-base")


@pytest.fixture
def log(python: Path, elsewhere: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`edgefront up` on a free port, and the file with its output."""
    path = elsewhere / "up.log"
    command = [str(python.with_name("edgefront")), "up", "--home", str(elsewhere / "home"), "--port", "0"]
    with path.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=elsewhere, env=_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield process, path
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_the_service_and_its_agent_start(log: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, path = log
    end = time.monotonic() + 200  # a fresh environment on a busy machine: its runtimes are compiled and tried first
    while "measures as device 'local'" not in path.read_text():
        assert process.poll() is None, path.read_text()
        assert time.monotonic() < end, path.read_text()
        time.sleep(0.1)
    address = re.search(r"http://127\.0\.0\.1:\d+", path.read_text())
    assert address is not None
    with urllib.request.urlopen(address[0], timeout=20) as answer:
        assert answer.status == 200
        assert "<title>" in answer.read().decode()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, path.read_text()
    assert "Traceback" not in path.read_text()
