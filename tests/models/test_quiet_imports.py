"""What may be imported before a fork."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def test_importing_the_torch_builder_runs_no_operator_and_starts_no_thread() -> None:
    # A process that imported it must stay fit to be forked.
    program = textwrap.dedent(
        """
        import os, torch, onnxruntime
        from torch.utils._python_dispatch import TorchDispatchMode

        class Record(TorchDispatchMode):
            ran = []
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                self.ran.append(str(function))
                return function(*args, **(kwargs or {}))

        threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else []
        with Record():
            from edgefront.core.model_files import build, export
            from edgefront.core.nn import model, weights
        assert Record.ran == [], Record.ran
        if threads:
            assert os.listdir("/proc/self/task") == threads
        """
    )
    subprocess.run([sys.executable, "-c", program], check=True)
