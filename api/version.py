"""The version of the running release."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("edgefront-lm")
except PackageNotFoundError:  # source tree without an installation
    VERSION = "0"
