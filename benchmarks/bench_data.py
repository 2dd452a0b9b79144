"""Time to prepare a text at level bpe, by its length: DNA as one line, random letters as one line, and words.

    python benchmarks/bench_data.py [--sizes 100000,400000,3000000] [--only dna]

Goal: the time for one line grows no faster than its length.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from record import append, table

from edgefront.core.data.prepared.preparation import prepare


def text(kind: str, size: int) -> str:
    chance = random.Random(0)
    if kind == "words":
        return " ".join("".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 9))) for _ in range(size // 6))
    return "".join(chance.choices("ACGT" if kind == "dna" else "abcdefghijklmnopqrstuvwxyz", k=size))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="100000,400000,3000000")
    parser.add_argument("--only", choices=("dna", "letters", "words"))
    arguments = parser.parse_args()
    rows = []
    for kind in [arguments.only] if arguments.only else ["dna", "letters", "words"]:
        for size in map(int, arguments.sizes.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "text.txt"
                path.write_text(text(kind, size))
                started, used = time.perf_counter(), time.process_time()
                prepare(str(path), Path(folder) / "home")
                row = {
                    "text": kind,
                    "characters": size,
                    "seconds": round(time.perf_counter() - started, 1),
                    "seconds of a core": round(time.process_time() - used, 1),
                }
            rows.append(row)
            append("data", row)
    table("data prepare, 8,192 pieces", rows)


if __name__ == "__main__":
    main()
