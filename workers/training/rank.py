"""Runs one rank of a training under torchrun: `python -m edgefront.workers.training.rank MODULE ARGUMENTS…`.

torchrun starts each rank in a separate session, so ranks would continue without a supervisor if torchrun was killed.
Therefore each rank, before it runs the module, asks the kernel to be killed when torchrun ends.
"""

from __future__ import annotations

import os
import runpy
import sys

from edgefront.core.common.processes.child import die_with_parent


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m edgefront.workers.training.rank MODULE ARGUMENTS…")
    die_with_parent(os.getppid())
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
