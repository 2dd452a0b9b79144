"""Searches for examples on which a property or schema test fails, in rounds with different random seeds.

`make fuzz MINUTES=60` runs rounds until one fails or the time is over; `make fuzz SEED=…` repeats the round of a seed.
ARGS are pytest's: the files or folders to search in, instead of all.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def property_tests() -> list[str]:
    """Returns the test files that use Hypothesis. Collecting all test files would take longer than some rounds."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file) for file in files if "from hypothesis" in file.read_text(encoding="utf-8")]


def run_round(seed: int, arguments: list[str]) -> int:
    """Runs pytest and returns its exit code. The seed also decides the order of sets."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "--numprocesses", "auto", "--dist", "loadfile"]
    command += ["--hypothesis-profile", "fuzz", "--hypothesis-seed", str(seed), *(arguments or property_tests())]
    return subprocess.call(command, env={**os.environ, "PYTHONHASHSEED": str(seed)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no round after this long")
    parser.add_argument("--seed", type=int, help="one round from this seed")
    options, arguments = parser.parse_known_args()
    end = time.monotonic() + 60 * options.minutes
    rounds = 0
    while True:
        seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
        print(f"== seed {seed}", flush=True)  # noqa: T201
        if code := run_round(seed, arguments):
            print(f"Failed; the same again: make fuzz SEED={seed} ARGS='{' '.join(arguments)}'")  # noqa: T201
            return code
        rounds += 1
        if options.seed is not None or time.monotonic() >= end:
            print(f"Nothing found in {rounds} round{'s' if rounds > 1 else ''}.")  # noqa: T201
            return 0


if __name__ == "__main__":
    sys.exit(main())
