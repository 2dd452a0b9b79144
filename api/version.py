"""The release that runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("edgefront-lm")
except PackageNotFoundError:  # run from a source tree without an installation
    VERSION = "0"
