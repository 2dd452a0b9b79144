"""The embedded agent: a child process that is restarted when it ends, and that ends with the embedded service.

The child has the reading end of a pipe whose writing end is in this process. When this process ends, even by `kill -9`,
the pipe closes and the child exits (`end_with_input`).
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edgefront.agents.device.cores import available_cores, keep_to

_log = logging.getLogger(__name__)

_STEADY_S = 60.0
"""An agent that ran for at least this many seconds is restarted without delay."""
_MAX_DELAY_S = 30.0
LOG_LINES = 5


class AgentProcess:
    """Starts `command`, and restarts it when it ends.

    Args:
        command: argument list of the agent.
        log: file to which the agent's output is appended.
        before_start: called before every start, to prepare the agent's credentials.
        final_codes: exit codes after which the agent is not restarted.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        before_start: Callable[[], None],
        final_codes: frozenset[int] = frozenset(),
    ) -> None:
        self._command = list(command)
        self._log_path = log
        self._before_start = before_start
        self._final_codes = final_codes
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._changed = threading.Lock()
        self._thread = threading.Thread(target=self._supervise, name="edgefront-agent", daemon=True)
        self.final_message: str | None = None
        """Why the agent is not restarted; None while it is restarted after each end."""

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Drains the agent (SIGTERM), kills it after `timeout_s` seconds if needed, and waits for the agent's end."""
        self._stopping.set()
        with self._changed:
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                _log.warning(
                    "the agent did not drain within %g s and is killed; its launch is measured again", timeout_s
                )
            finally:  # including a second Ctrl-C during the wait
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if self._thread.is_alive():
            self._thread.join()

    def log_tail(self) -> str:
        """Returns the final lines of the agent's log."""
        try:
            lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-LOG_LINES:])

    def _supervise(self) -> None:
        delay_s = 0.5
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                code = self._run_once()
            except Exception as error:
                _log.warning("the agent could not be started: %s", error)
                code = None
            if self._stopping.is_set():
                return
            if code in self._final_codes:
                self.final_message = self.log_tail() or f"exit code {code}"
                _log.error("the agent has ended permanently: %s", self.final_message)
                return
            delay_s = 0.5 if time.monotonic() - started > _STEADY_S else min(delay_s * 2, _MAX_DELAY_S)
            _log.warning("the agent ended with %s; started again in %g s. See %s", code, delay_s, self._log_path)
            self._stopping.wait(delay_s)

    def _run_once(self) -> int:
        self._before_start()
        with self._log_path.open("ab") as log, self._changed:
            if self._stopping.is_set():
                return 0
            # The service is pinned to few cores; the agent inherits all cores from this thread.
            keep_to(core.number for core in available_cores())
            # A separate session, so that Ctrl-C reaches only this process, which then drains the agent.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        try:
            return self._process.wait()
        finally:
            if self._process.stdin is not None:
                self._process.stdin.close()


def update_server_url(folder: Path, url: str) -> None:
    """Updates the server's URL in the agent's credential, because the service may use another port at each start."""
    from pydantic import ValidationError

    from edgefront.agents.server.credential import Credential, CredentialFile

    file = CredentialFile(folder)
    try:
        credential = Credential.model_validate_json(file.path.read_bytes())
    except (OSError, ValidationError):
        return
    if credential.server != url:
        file.write(credential.model_copy(update={"server": url}))
