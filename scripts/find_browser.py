"""Prints the Chromium that the browser tests will drive; exits with what to install if there is none.

Order: EDGEFRONT_TEST_BROWSER, then the usual names on PATH. As root on Debian the package is installed, which is
what a fresh container wants; nobody else's system is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    given = os.environ.get("EDGEFRONT_TEST_BROWSER")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


def main() -> int:
    browser = find_browser()
    if browser is None and os.geteuid() == 0 and shutil.which("apt-get"):
        sys.stderr.write("No Chromium here: installing Debian's package for the browser tests ...\n")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]):
            subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)
        browser = find_browser()
    if browser is None:
        sys.stderr.write(
            "The browser tests need Chromium: install it (Debian: apt-get install chromium) "
            "or set EDGEFRONT_TEST_BROWSER to its path.\n"
        )
        return 1
    sys.stdout.write(f"browser: {browser}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
