"""Runs stages: lanes together, the others one after the other beside them, until all have ended or
one has failed.

What passes is one line. The output of a stage that fails is printed at once. The last lines name
what failed and the commands that repeat it, and the very last one is a total, `N passed, M failed`.
"""

import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.cluster.errors import ClusterError
from tests.cluster.local import cluster_down
from tests.run import processes, times
from tests.run.recorder import PART
from tests.run.stages import ROOT, Stage

PAUSE = 0.1
GRACE = 30.0
"""Seconds that a stage has to end after an interrupt, and with a local cluster to delete:"""
GRACE_WITH_CLUSTER = 120.0
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Result:
    """What became of a stage that has ended."""

    stage: Stage
    code: int
    """Its exit code; negative for a signal."""

    part: times.Part
    log: Path | None

    @property
    def problem(self) -> str | None:
        """Why it counts as failed. None: it passed."""
        if self.code:
            return (
                f"exit code {self.code}"
                if self.code > 0
                else f"ended by {signal.Signals(-self.code).name}"
            )
        if self.stage.pytest and not self.part.counted("passed"):
            return "no test ran"
        return None

    @property
    def failed_tests(self) -> list[str]:
        """The tests that failed, in the order in which they ended."""
        return [test.test for test in self.part.tests if test.outcome == "failed"]

    @property
    def passed(self) -> int:
        """Passed tests; one for a stage without tests."""
        return self.part.counted("passed") if self.stage.pytest else int(self.problem is None)

    @property
    def failed(self) -> int:
        """Failed tests; at least one for a stage that failed."""
        return max(len(self.failed_tests), int(self.problem is not None))


@dataclass
class _Running:
    stage: Stage
    pid: int
    began: float
    log: Path | None
    part: Path


@dataclass
class Runner:
    """A run. `logs` gets what stages print. Without `record` it records no times."""

    logs: Path
    environment: Mapping[str, str]
    parts: Path = times.PARTS
    record: Path | None = times.FILE
    alongside: AbstractContextManager[None] = field(default_factory=nullcontext)
    """What runs until the stages have ended."""

    first: Sequence[Stage] = ()
    """Stages that must have passed before the lanes begin."""

    show: bool = False
    """Stages print while they run, in place of a line at their end."""
    first_failure_ends: bool = False
    report: Callable[[str], None] = lambda text: print(text, flush=True)
    results: list[Result] = field(default_factory=list)
    _running: list[_Running] = field(default_factory=list)
    _signal: int | None = None
    _niced: bool = True
    _began: float = field(default_factory=time.monotonic)

    def run(self, lanes: Sequence[Stage], others: Sequence[Stage] = ()) -> int:
        """The exit code: 0 if all stages passed, 128 and its number after a signal."""
        for folder in (self.parts, self.logs):
            shutil.rmtree(folder, ignore_errors=True)
        self.logs.mkdir(parents=True)
        together, waiting = list(lanes), list(others)
        # With the host for themselves, they need not step back.
        self._niced = bool(lanes)
        with self._signals():
            try:
                with self.alongside:
                    for stage in self.first:
                        self._start(stage)
                    while (self._running or together or waiting) and not self._over():
                        running = [each.stage for each in self._running]
                        built = not any(stage in self.first for stage in running)
                        while together and built:
                            self._start(together.pop(0))
                        if waiting and all(it in lanes or it in self.first for it in running):
                            self._start(waiting.pop(0))
                        self._collect()
                    cut_off = [each.stage for each in self._running]
                    self._end()
            finally:
                self._leave_nothing({stage.cluster for stage in (*lanes, *others)})
        self._conclude(cut_off, [*together, *waiting])
        if self._signal is not None:
            return 128 + self._signal
        return (
            1
            if any(result.problem for result in self.results)
            or cut_off
            or waiting
            or not self.results
            else 0
        )

    def _over(self) -> bool:
        return self._signal is not None or any(
            result.problem and (self.first_failure_ends or result.stage in self.first)
            for result in self.results
        )

    def _start(self, stage: Stage) -> None:
        file = stage.title.replace(" ", "-")
        log = None if self.show or stage.shown else self.logs / f"{file}.log"
        part = self.parts / f"{file}.jsonl"
        times.append(part, times.Begun(stage.name, stage.lane, round(time.time(), 3)))
        environment = {**self.environment, **({PART: str(part)} if stage.pytest else {})}
        words = stage.command
        if self.first_failure_ends and stage.pytest:
            words = (*words, "--exitfirst")
        process = processes.start(words, ROOT, log, stage.nice if self._niced else 0, environment)
        # Its end is collected by `_collect`.
        process.returncode = 0
        self._running.append(_Running(stage, process.pid, time.monotonic(), log, part))
        self.report(f"{self._clock()} {stage.title} begins")

    def _collect(self, pause: float = PAUSE) -> None:
        """Take up the stages that have ended; with none, wait for a moment."""
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            pid = 0
        if not pid:
            time.sleep(pause)
            return
        running = next((each for each in self._running if each.pid == pid), None)
        if running is None:
            return
        result = Result(
            running.stage,
            self._ended(running, status, usage),
            times.read(running.part),
            running.log,
        )
        self.results.append(result)
        self._record()
        self._show(result)

    def _ended(self, running: _Running, status: int, usage: resource.struct_rusage) -> int:
        """Record the end of a stage. Returns its exit code."""
        self._running.remove(running)
        code = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - running.began
        times.append(
            running.part,
            times.Ended(round(wall, 1), round(usage.ru_utime + usage.ru_stime, 1), code),
        )
        return code

    def _show(self, result: Result) -> None:
        part = result.part
        seconds = f"{part.wall:.0f} s, CPU {part.cpu:.0f} s"
        if result.problem is None:
            tests = f"{result.passed} passed, " if result.stage.pytest else ""
            self.report(f"{self._clock()} {result.stage.title} ok: {tests}{seconds}")
            return
        if result.log:
            self.report(
                "\n--- "
                f"{result.stage.title}\n{result.log.read_text(errors='replace').rstrip()}\n---"
            )
        self.report(f"{self._clock()} {result.stage.title} FAILED: {result.problem}, {seconds}")

    def _end(self) -> None:
        """End what runs: interrupted first, so that fixtures delete what they have created."""
        if not self._running:
            return
        self.report(
            f"{self._clock()} ending {', '.join(each.stage.title for each in self._running)}"
        )
        for each in self._running:
            # The programs that a test of a cluster has started are needed to delete the cluster.
            processes.send(each.pid, signal.SIGINT, group=each.stage.cluster is None)
        grace = GRACE_WITH_CLUSTER if any(each.stage.cluster for each in self._running) else GRACE
        for seconds, number in ((grace, signal.SIGTERM), (5, signal.SIGKILL), (5, None)):
            deadline = time.monotonic() + seconds
            while self._running and time.monotonic() < deadline:
                self._await_end()
            for each in self._running:
                if number is not None:
                    processes.send(each.pid, number, group=True)

    def _await_end(self) -> None:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            self._running.clear()
            return
        for each in [each for each in self._running if each.pid == pid]:
            self._ended(each, status, usage)
        if not pid:
            time.sleep(PAUSE)

    def _leave_nothing(self, clusters: Iterable[str | None]) -> None:
        for cluster in clusters:
            with suppress(ClusterError):
                if cluster and cluster_down(cluster):
                    self.report(f"deleted the local cluster {cluster}, which its lane had left")
        for words in processes.end_descendants():
            self.report(f"ended a process that was left: {words[:200]}")

    def _conclude(self, cut_off: Sequence[Stage], waiting: Sequence[Stage]) -> None:
        self._record()
        failed = [result for result in self.results if result.problem]
        if failed:
            self.report("\nfailed:")
        for result in failed:
            for test in result.failed_tests:
                self.report(f"  {test}\n    repeat: {result.stage.again(test)}")
            if not result.failed_tests:
                self.report(
                    f"  {result.stage.title}: {result.problem}\n    repeat: {result.stage.repeat}"
                )
        if cut_off:
            self.report(f"ended before their end: {', '.join(stage.title for stage in cut_off)}")
        if waiting:
            self.report(f"not run: {', '.join(stage.title for stage in waiting)}")
        if self._signal is not None:
            self.report(f"ended by {signal.Signals(self._signal).name}")
        passed, lost = (
            sum(result.passed for result in self.results),
            sum(result.failed for result in self.results),
        )
        self.report(f"{passed} passed, {lost} failed")

    def _record(self) -> None:
        if self.record:
            found = [times.read(path) for path in sorted(self.parts.glob("*.jsonl"))]
            times.write(found, time.monotonic() - self._began, self.record)

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"[{minutes:02}:{seconds:02}]"

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def note(number: int, _: FrameType | None) -> None:
            self._signal = number

        former = {number: signal.signal(number, note) for number in ENDINGS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
