"""What may be imported before a fork, and what the device and the service need not have."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_importing_the_torch_builder_runs_no_operator_and_starts_no_thread() -> None:
    # A process that imported it must stay fit to be forked.
    _run(
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
            from edgefront.core.graph import build, export
            from edgefront.core.nn import model, weights
        assert Record.ran == [], Record.ran
        if threads:
            assert os.listdir("/proc/self/task") == threads
        """
    )


def test_a_forked_child_builds_and_runs_both() -> None:
    _run(
        """
        import os, sys, numpy, onnxruntime, torch
        from edgefront.core.graph.build import build
        from edgefront.core.nn.model import LanguageModel
        from edgefront.core.nn.weights import fill
        from edgefront.core.spaces.architecture import Architecture
        for _ in range(2):
            child = os.fork()
            if child == 0:
                torch.set_num_threads(2)
                model = Architecture.parse(
                    {"d_model": 64, "embedding": {"vocab_size": 99}, "blocks": [{"kind": "attention", "n_head": 2}] * 3}
                )
                tokens = numpy.arange(99)[None]
                session = onnxruntime.InferenceSession(build(model).SerializeToString())
                with torch.inference_mode():
                    ours = fill(LanguageModel(model), 0)(torch.from_numpy(tokens)).numpy()
                os._exit(int(abs(session.run(None, {"tokens": tokens})[0] - ours).max() > 1e-4))
            assert os.waitpid(child, 0)[1] == 0
        """
    )
