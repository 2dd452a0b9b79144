"""The agent: enrols with a server, runs launches (runs of a model in a fresh process) that it leases one after another,
and reports the results.

One event loop handles all communication with the server; launches run in a thread that blocks on the measuring process.
The next lease is requested when the final launch of the current lease begins, so the device does not wait for the
network.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median
from typing import Any

from edgefront.agents.device.cores import Conditions, CorePlan, keep_to
from edgefront.agents.device.probe import probe
from edgefront.agents.measuring.failures import failure
from edgefront.agents.measuring.measure import Aborted, Measurer
from edgefront.agents.options import AgentOptions
from edgefront.agents.server import credential
from edgefront.agents.server.client import AgentClient
from edgefront.agents.server.leasing import Leasing
from edgefront.agents.server.spool import Sender, Spool
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import EdgefrontError, InvalidInput, MeasurementError, Unavailable
from edgefront.core.common.states import WAITS
from edgefront.core.common.units import MB
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.agent import DeviceFacts, LaunchReport, LeaseItem

_log = logging.getLogger(__name__)

WAIT_S = 25.0
"""Seconds for which the server may delay its answer while there is no work."""
_SHUTDOWN_S = 10.0
"""Maximum seconds for sending results and returning launches at the start and the end of an agent's run."""
_RETRY_DELAY_S = 30.0
"""Seconds before the next launch if the device cannot measure now."""
_FLUSH_S = 2.0
"""Maximum seconds for sending unsent results before a launch that uses every core."""
_BUSY_WAIT_S = 300.0
_BUSY_REST_S = 1800.0
"""Maximum seconds for which a launch waits for good conditions; and seconds without waiting after a futile wait."""
_CONDITIONS_INTERVAL_S = 2.0


class Agent:
    """One run of an agent. `run` returns when the agent has drained; `stop` may be called from any thread and from
    signal handlers.

    `facts`: description of the device; if absent, the device is probed. `wait_s`: how long the server may delay its
    answer to a request for work.
    """

    def __init__(self, options: AgentOptions, facts: DeviceFacts | None = None, *, wait_s: float = WAIT_S) -> None:
        self.options = options
        self._wait_s = wait_s
        self._facts = facts
        self.plan = CorePlan.of_device(options.measuring_cores)
        self.conditions = Conditions(self.plan)
        self._waits_again = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._measurer: Measurer | None = None
        self._leasing: Leasing | None = None

    def run(self) -> None:
        """Runs launches until the agent is drained.

        Raises the server's permanent errors (`Unauthenticated`, `Forbidden`, `Gone`, `ProtocolMismatch` or
        `CopiedDataFolder`), and `InvalidInput`.
        """
        keep_to(self.plan.home())
        asyncio.run(self._run())

    def stop(self) -> None:
        """Finishes the current launch, returns the other leased launches to the server, delivers the results, and ends
        the agent. A second call also aborts the current launch and returns it to the server.
        """
        self._started.wait(10)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_signal)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._draining = asyncio.Event()
        self._fatal: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(name, self._on_signal)
        self._started.set()
        refused = credential.CredentialFile(self.options.folder).refused_instance()
        async with AgentClient(self.options.server, insecure=self.options.insecure, instance=refused) as client:
            facts = await self._until_drained(self._join(client))
            if facts is not None:
                await self._serve(client, facts)
        if self._fatal is not None:
            raise self._fatal

    async def _join(self, client: AgentClient) -> DeviceFacts:
        """Authenticates with the stored credential, or enrols the device. Returns the device's description."""
        facts = self._facts
        if facts is None:
            ending = threading.Event()
            try:
                facts = await asyncio.to_thread(probe, self.plan, ending)
            finally:
                ending.set()  # stops the probing thread if this agent ends meanwhile
        if not facts.runtimes:
            raise InvalidInput(
                "no runtime works on this device: pip install 'edgefront-lm[agent]' (ONNX Runtime) or "
                "'edgefront-lm[agent,torch]'"
            )
        stored = credential.CredentialFile(self.options.folder).read(client.server)
        if stored is None:
            stored = await credential.enrol(client, self.options, facts)
        client.use(stored.credential)
        cores = ",".join(str(core) for core in self.plan.measuring(self.plan.count))
        versions = " and ".join(f"{runtime.runtime} {runtime.version}" for runtime in facts.runtimes)
        _log.info("%s at %s: %s, cores %s measure with %s", stored.name, client.server, facts.cpu, cores, versions)
        if self.plan.quota is not None and self.plan.quota.cores < len(self.plan.cores):
            _log.warning("%s limits launches to %d threads", self.plan.quota, self.plan.count)
        return facts

    async def _serve(self, client: AgentClient, facts: DeviceFacts) -> None:
        async def rejoin(error: EdgefrontError) -> None:
            await credential.enrol_again(client, self.options, facts, error)

        spool = Spool(self.options.folder / "spool")
        if len(spool):
            _log.info("%d results of an earlier run are waiting to be sent", len(spool))
        leasing = self._leasing = Leasing(self.options, client, spool, facts, rejoin, self._wait_s, self._spawn)
        sender = Sender(client, spool, leasing.leased.finish)
        limit, weights = self.options.memory_limit_bytes, self.options.folder / "weights"
        loop = asyncio.get_running_loop()

        def waits() -> None:
            _log.info("this agent %s", WAITS)
            loop.call_soon_threadsafe(lambda: self._spawn(leasing.tell_start(leasing.leased.current, WAITS)))

        with Measurer(weights, self.plan, memory_limit_bytes=limit, runtimes=facts.runtimes, waits=waits) as measurer:
            self._measurer = measurer
            sending = self._spawn(sender.run())
            # Before work is requested: otherwise a launch whose result is waiting here would be leased again.
            await sender.flush(_SHUTDOWN_S)
            asking = self._spawn(leasing.run())
            launching = self._spawn(self._run_launches(leasing, sender, measurer))
            await self._draining.wait()
            asking.cancel()
            releasing = self._spawn(leasing.release(leasing.close()))
            await asyncio.wait([launching])
            if self._fatal is None:
                await asyncio.wait([releasing], timeout=_SHUTDOWN_S)
                if not await sender.flush(_SHUTDOWN_S):
                    _log.warning("%d results stay in the spool and are sent at the next start", len(spool))
            sending.cancel()
            self._measurer = None

    async def _run_launches(self, leasing: Leasing, sender: Sender, measurer: Measurer) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="measuring") as thread:
            while (item := await self._next(leasing, sender)) is not None:
                try:
                    await self._wait_while_busy(item)
                    await self._run_launch(item, leasing, sender, lambda item: _measure(measurer, item), thread)
                except Aborted:
                    await leasing.release(leasing.unload(item))
                except Exception as error:
                    # Nothing can be measured on this device now, independently of the model.
                    trace = None if isinstance(error, (Unavailable, OSError)) else error
                    what = error if trace is None else type(error).__name__
                    _log.error(
                        "cannot measure now: %s. Returning work; retrying in %.0f s",
                        what,
                        _RETRY_DELAY_S,
                        exc_info=trace,
                    )
                    await leasing.release(leasing.unload(item))
                    await self._pause(_RETRY_DELAY_S)
                finally:
                    leasing.leased.end()

    async def _next(self, leasing: Leasing, sender: Sender) -> LeaseItem | None:
        if leasing.leased.waiting == 0:
            sender.clock.stop()
        item = await leasing.next()
        sender.clock.go()
        return item

    async def _run_launch(
        self,
        item: LeaseItem,
        leasing: Leasing,
        sender: Sender,
        measure: Callable[[LeaseItem], LaunchResult],
        thread: ThreadPoolExecutor,
    ) -> None:
        sent = self._spawn(leasing.tell_start(item))
        if not self.plan.others(item.protocol.threads):
            # The launch uses every core: finish all other work before it is measured.
            await asyncio.wait([sent], timeout=_FLUSH_S)
            await sender.flush(_FLUSH_S)
        begun = time.monotonic()
        result = await asyncio.get_running_loop().run_in_executor(thread, measure, item)
        leasing.took(time.monotonic() - begun)
        bad = await asyncio.to_thread(self.conditions.after, item.protocol.threads)
        if bad:
            said = "; ".join(str(text) for text in (*bad, result.environment.get("conditions")) if text)
            result = result.model_copy(update={"environment": {**result.environment, "conditions": said}})
        sender.put(LaunchReport(launch_id=item.launch_id, fence=item.fence, result=result))
        _log_result(item, result)

    async def _wait_while_busy(self, item: LeaseItem) -> None:
        """Waits for good conditions if the launch requests that, unless an earlier wait was recently in vain."""
        began, threads = time.monotonic(), item.protocol.threads
        if item.protocol.when_busy == "mark" or began < self._waits_again:
            return
        while not self._draining.is_set() and (bad := await asyncio.to_thread(self.conditions.before, threads)):
            if time.monotonic() - began >= _BUSY_WAIT_S:
                self._waits_again = time.monotonic() + _BUSY_REST_S
                _log.warning(
                    "conditions did not improve: %s. For now, launches are measured and marked", "; ".join(bad)
                )
                return
            await self._pause(_CONDITIONS_INTERVAL_S)

    async def _pause(self, seconds: float) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._draining.wait(), seconds)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._noticed)
        return task

    def _noticed(self, task: asyncio.Task[None]) -> None:
        """Ends the agent if the ended task failed with an error from the server; logs any other error of the task."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, EdgefrontError):
            self._fatal = self._fatal or error
            self._abandon()
        else:
            _log.error("a task of the agent failed", exc_info=error)

    async def _until_drained(self, work: Coroutine[Any, Any, DeviceFacts]) -> DeviceFacts | None:
        joining, draining = asyncio.ensure_future(work), asyncio.ensure_future(self._draining.wait())
        await asyncio.wait([joining, draining], return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        if not joining.done():
            joining.cancel()
            return None
        return joining.result()

    def _begin_drain(self) -> None:
        if not self._draining.is_set():
            _log.info("draining: no new work; finishing the current launch")
            self._draining.set()

    def _abandon(self) -> None:
        self._begin_drain()
        if self._measurer is not None and self._leasing is not None and self._leasing.leased.current is not None:
            _log.info("the current launch is aborted")
            self._measurer.abort()

    def _on_signal(self) -> None:
        if self._draining.is_set():
            self._abandon()
        else:
            self._begin_drain()


def _measure(measurer: Measurer, item: LeaseItem) -> LaunchResult:
    try:
        return measurer.measure(Architecture.parse(item.architecture), item.protocol, item.seed)
    except InvalidInput as error:  # from a newer server
        return failure("unsupported", f"this agent cannot read the architecture: {error}")
    except MeasurementError as error:
        return failure(error.extra["reason"], str(error))
    except (EdgefrontError, OSError):  # errors of the device
        raise
    except Exception as error:  # uses up an attempt; otherwise the launch would be leased forever
        _log.exception("launch %s failed in the agent", item.launch_id)
        return failure("crashed", f"internal error of the agent ({type(error).__name__}); see its log")


def _log_result(item: LeaseItem, result: LaunchResult) -> None:
    share = result.measuring_s / result.wall_s if result.wall_s else 0.0
    if result.latency is not None and result.memory is not None:
        _log.info(
            "%s %s: %.2f ms, %.1f MB; %.2f s, %.0f %% of it measuring",
            *(item.digest[:8], item.protocol.runtime, median(result.latency.samples_ms)),
            *(result.memory.peak_bytes / MB, result.wall_s, 100 * share),
        )
    else:
        _log.info("%s %s: %s, %s", item.digest[:8], item.protocol.runtime, result.reason, result.message[:200])
