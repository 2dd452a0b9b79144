"""`python -m edgefront.workers.training.rank MODULE ARGUMENTS…`: runs one rank under torchrun, and ends with it.

torchrun starts its ranks in their own sessions, and cannot end them if it is killed: they would continue without a
supervisor. So each rank asks the kernel to be killed with its parent before it runs the module.
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
