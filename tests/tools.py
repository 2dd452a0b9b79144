"""What the suite needs beside Python, in one table. `scripts/get_test_tools.py` gets what is missing."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """A program. Its Debian package, its usual names, a folder that is not on PATH (as a pattern), and the variable
    that holds the path of another.
    """

    package: str
    names: tuple[str, ...]
    folder: str | None = None
    variable: str | None = None

    def find(self) -> str | None:
        """The path of the program, or none."""
        given = os.environ.get(self.variable) if self.variable else None
        on_path = given or next((path for name in self.names if (path := shutil.which(name))), None)
        if on_path or not self.folder:
            return on_path
        return max((path for name in self.names for path in glob.glob(f"{self.folder}/{name}")), default=None)

    def path(self) -> str:
        """The same; raises RuntimeError that says how to get it."""
        path = self.find()
        if path is None:
            raise RuntimeError(how_to_get([self]))
        return path


@dataclass(frozen=True)
class Library:
    """A shared library of Linux that a Python package loads and does not bring. Its Debian package, and its file."""

    package: str
    file: str

    def find(self) -> str | None:
        """Its file, where it can be loaded or is of no use."""
        if sys.platform != "linux":
            return self.file
        with suppress(OSError):
            ctypes.CDLL(self.file)
            return self.file
        return None


POSTGRES = Tool("postgresql", ("initdb",), folder="/usr/lib/postgresql/*/bin")
REDIS = Tool("redis-server", ("redis-server",))
CURL = Tool("curl", ("curl",))
CHROMIUM = Tool(
    "chromium-headless-shell",
    # Without the windows of a browser its pages take a third less processor time.
    (
        "chromium-headless-shell",
        "chrome-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ),
    variable="EDGEFRONT_TEST_BROWSER",
)
NGINX = Tool("nginx", ("nginx",), folder="/usr/sbin")
PROMTOOL = Tool("prometheus", ("promtool",))
OPENMP = Library("libgomp1", "libgomp.so.1")  # for llama.cpp
TOOLS = (POSTGRES, NGINX, REDIS, CURL, CHROMIUM, PROMTOOL, OPENMP)


def how_to_get(missing: Sequence[Tool | Library]) -> str:
    """One line that names all of them at once."""
    packages = " ".join(tool.package for tool in missing)
    return f"The tests need what is not here. On Debian: apt-get install {packages}"
