"""Checks for the programs and libraries that the tests need (`tests/tools.py`).

As root on Debian it installs missing packages, as a new container needs; else it prints what to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import servers
import tools


def missing() -> list[tools.Tool | tools.Library]:
    """Returns the missing tools. A running server that the tests may use replaces the Postgres binaries."""
    absent = [tool for tool in tools.TOOLS if tool.find() is None]
    if tools.POSTGRES in absent and servers.running_postgres() is not None:
        absent.remove(tools.POSTGRES)
    return absent


def install(absent: list[tools.Tool | tools.Library]) -> None:
    packages = [tool.package for tool in absent]
    sys.stderr.write(f"Installing {', '.join(packages)} for the tests ...\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages]):
        subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)


def main() -> int:
    absent = missing()
    if absent and os.geteuid() == 0 and shutil.which("apt-get"):
        install(absent)
        absent = missing()
    if absent:
        sys.stderr.write(tools.how_to_get(absent) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
