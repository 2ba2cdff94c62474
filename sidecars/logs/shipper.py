"""Which bytes of which files are printed next: `Shipper`. It opens files through `Files` and has no
clock.

What can't be printed in time is dropped, counted, and reported in a line of its own at its place.
Until then it stays in the file, so that memory has no more than a part of one line for each file:
- A file of which more than `backlog_bytes` wait loses the oldest of them.
- All that waits `END_SECONDS` after its job's end, or `LEAVE_SECONDS` after the pod's, is dropped.

Files are read in turn, so that no job with much output delays the others for long.
"""

from sidecars.logs import lines, tails
from sidecars.logs.records import Files, Job, Missing, Refused, Settings, Source
from sidecars.logs.tails import Counters, JobState, Tail

CHUNK = 65_536
"""Bytes of a file that are read at once."""
PASS_BYTES = 524_288
"""Bytes after which a pass ends, about."""
MAX_OPEN = 1024
"""Open files. Others are read when one of these is closed."""
RETRY_SECONDS = 0.4
"""Pause between attempts to open a file that doesn't exist yet."""
RECHECK_SECONDS = 5.0
"""Pause between two looks whether the file was replaced, and between attempts to open one that was
refused.
"""
LATE_SECONDS = 5.0
"""How long after its job's end a file may appear, as the cache of a network file system may hide
it.
"""
OLD_SECONDS = 30.0
"""How long before its job a file last changed that is read from its end. More than clocks of file
servers differ.
"""
END_SECONDS = 300.0
LEAVE_SECONDS = 10.0
PROGRAM_SECONDS = 20.0
"""How long the output of prolog and epilog is read after the job's end, at least."""
REPORT_SECONDS = 60.0
"""Time from a change to the summary that reports it."""
MAX_PROGRAM_BYTES = 65_536
"""Size of the health checks' output above which its file is deleted. It lies in memory."""
HEALTH = "health"


class Shipper:
    """All files of this node's jobs. Call `announce`, `ended` and `program` for what is found, then
    `step`.
    """

    def __init__(self, settings: Settings, files: Files) -> None:
        self._settings = settings
        self._files = files
        self._jobs: dict[str, JobState] = {}
        self._health: Tail | None = None
        self._allowance = float(settings.bytes_per_second)
        self._allowed_at: float | None = None
        self._open = 0
        self._turn = 0
        self._leaving: float | None = None
        self.counters = Counters()
        self._reported = Counters()
        self._next_report: float | None = None

    # What is found

    def announce(self, job: Job) -> None:
        """Take in a job's record, new or changed."""
        state = self._jobs.setdefault(job.key, JobState(job))
        state.job = job
        known = {tail.output for tail in state.tails}
        state.tails += [
            Tail(
                lines.Lines(tails.fields(self._settings.node, job, output.stream, output.path)),
                output,
            )
            for output in job.outputs
            if output not in known
        ]

    def ended(self, key: str, now: float) -> None:
        """Note that a job's epilog has begun."""
        state = self._jobs.get(key)
        if state is not None and state.ended is None:
            state.ended = now

    def program(self, name: str, key: str, stream: str) -> None:
        """Note that the output of a job's prolog or epilog is in this file of the shared folder."""
        state = self._jobs.get(key)
        if state is not None and all(tail.name != name for tail in state.programs):
            state.programs.append(
                Tail(lines.Lines(tails.fields(self._settings.node, state.job, stream)), None, name)
            )

    def health(self) -> None:
        """Note that the output of health checks exists."""
        if self._health is None:
            self._health = Tail(
                lines.Lines({"node": self._settings.node, "stream": HEALTH}), None, HEALTH
            )

    def leave(self, now: float) -> None:
        """End with the pod, whose jobs have ended. What the files still contain is printed, within
        `LEAVE_SECONDS`.
        """
        if self._leaving is None:
            self._leaving = now
            for state in self._jobs.values():
                state.ended = now if state.ended is None else state.ended

    @property
    def jobs(self) -> frozenset[str]:
        """Keys of the jobs whose files are read."""
        return frozenset(self._jobs)

    # What is printed

    def step(self, now: float, time: str) -> tuple[bytes, float]:
        """Take one step. Return the JSON lines to print now, and after how many seconds to step
        again. `time` is the wall clock as text.
        """
        self._refill(now)
        out: list[bytes] = []
        files = self._tails()
        size = 0
        progress = False
        first = self._turn
        for index in range(len(files)):
            if size >= PASS_BYTES or self._allowance <= 0:
                break
            tail, state = files[(first + index) % len(files)]
            # Those that this step doesn't reach are the first of the next one.
            self._turn = (first + index + 1) % len(files)
            before = tail.offset
            printed = self._advance(tail, state, now, time)
            progress = progress or tail.offset != before
            size += len(printed)
            self._allowance -= len(printed)
            out.append(printed)
        self._finish(now, time, out)
        out.append(self._report(now, time))
        if self._allowance <= 0:
            return b"".join(out), min(
                0.2, -self._allowance / self._settings.bytes_per_second + 0.02
            )
        return b"".join(out), 0.0 if progress else RETRY_SECONDS

    @property
    def is_done(self) -> bool:
        """Whether all has been printed or dropped. Only after `leave`."""
        return self._leaving is not None and not self._jobs and self._health is None

    def drop_all(self, time: str) -> bytes:
        """Close all files and return the lines that report what was dropped."""
        out = [
            self._drop(tail, tail.waiting, time, "the pod has ended")
            for tail, _ in self._tails()
            if self._look(tail) and tail.waiting
        ]
        out += [
            lines.event(
                time, tail.text.fields | {"shipped": False}, "not printed: the pod has ended"
            )
            for tail, _ in self._tails()
            if not tail.tried
        ]
        for tail, _ in self._tails():
            self._close(tail)
        self._jobs.clear()
        self._health = None
        out.append(self._summary(time))
        return b"".join(out)

    # One file

    def _advance(self, tail: Tail, state: JobState | None, now: float, time: str) -> bytes:
        """Return the next lines of one file."""
        if tail.source is None:
            return self._try_open(tail, state, now, time)
        if not self._look(tail):
            self._lose(tail, now)
            return b""
        out: list[bytes] = []
        if tail.known_size < tail.offset:
            out.append(self._restart(tail, time))
        if tail.waiting > self._settings.backlog_bytes:
            surplus = tail.waiting - self._settings.backlog_bytes // 2
            out.append(
                self._drop(
                    tail, surplus, time, "output was written faster than it could be printed"
                )
            )
        if tail.waiting:
            out.append(self._read(tail, now, time))
        elif tail.output is not None and state is not None and now >= tail.next_check:
            tail.next_check = now + RECHECK_SECONDS
            self._check_replaced(tail, state.job)
        return b"".join(out)

    def _read(self, tail: Tail, now: float, time: str) -> bytes:
        try:
            data = tail.following(CHUNK)
        except OSError:
            self._lose(tail, now)
            return b""
        if data is None:
            return self._restart(tail, time)
        if data and data.count(0) == len(data):
            return self._drop(tail, len(data), time, "zero bytes are left out")
        data = data[: lines.consumable(data)]
        if not data:
            # The file became shorter since it was looked at.
            tail.known_size = tail.offset
            return b""
        tail.advance(data)
        self.counters.read_bytes += len(data)
        before = tail.text.count
        printed = tail.text.feed(data, time)
        self.counters.lines += tail.text.count - before
        return printed

    def _restart(self, tail: Tail, time: str) -> bytes:
        tail.begin(0)
        return tail.text.mark(
            time, {"truncated": True}, "the file was truncated: it is read from its start"
        )

    def _flush(self, tail: Tail, time: str) -> bytes:
        before = tail.text.count
        printed = tail.text.flush(time)
        self.counters.lines += tail.text.count - before
        return printed

    def _lose(self, tail: Tail, now: float) -> None:
        """Close a file that can't be read now, to open it again later and continue where it was."""
        if tail.source is not None:
            tail.source.close()
            tail.source = None
            self._open -= 1
        tail.next_try = now + RECHECK_SECONDS

    def _try_open(self, tail: Tail, state: JobState | None, now: float, time: str) -> bytes:
        if tail.done or now < tail.next_try or self._open >= MAX_OPEN:
            return b""
        tail.tried = True
        if tail.output is not None and state is not None:
            found = self._files.open_output(state.job, tail.output)
        else:
            found = self._files.open_program(tail.name)
        if isinstance(found, Missing):
            tail.next_try = now + RETRY_SECONDS
            return b""
        if isinstance(found, Refused):
            tail.next_try = now + RECHECK_SECONDS
            return self._report_refused(tail, found.why, time)
        self._open += 1
        tail.source = found
        tail.next_check = now + RECHECK_SECONDS
        if tail.identity is None:
            tail.begin(self._first_offset(found, state))
        elif tail.identity != found.identity():
            tail.begin(0)
        tail.identity, tail.reported = found.identity(), ""
        return self._advance(tail, state, now, time)

    def _first_offset(self, source: Source, state: JobState | None) -> int:
        """Return the offset to begin at: the end of what was in the file before the job, for a job
        that appends to it.
        """
        try:
            if state is not None and source.changed() < state.job.began - OLD_SECONDS:
                return source.size()
        except OSError:
            pass
        return 0

    def _report_refused(self, tail: Tail, why: str, time: str) -> bytes:
        if tail.reported == why:
            return b""
        if not tail.reported:
            self.counters.refused_files += 1
        tail.reported = why
        return lines.event(time, tail.text.fields | {"shipped": False}, f"not printed: {why}")

    def _check_replaced(self, tail: Tail, job: Job) -> None:
        """Read the file that now has the path, if it is another one. The former is read to its
        end.
        """
        if tail.output is None or tail.source is None:
            return
        found = self._files.open_output(job, tail.output)
        if isinstance(found, Missing | Refused):
            return
        if found.identity() == tail.source.identity():
            found.close()
            return
        tail.source.close()
        tail.source, tail.identity, tail.known_size = found, found.identity(), 0
        tail.begin(0)

    def _look(self, tail: Tail) -> bool:
        """Read the size. Returns whether the file is open and answers."""
        if tail.source is None:
            return False
        try:
            tail.known_size = tail.source.size()
        except OSError:
            return False
        return True

    def _drop(self, tail: Tail, count: int, time: str, why: str) -> bytes:
        tail.begin(min(tail.offset + count, tail.known_size))
        self.counters.dropped_bytes += count
        return tail.text.mark(time, {"droppedBytes": count}, f"{count} bytes were dropped: {why}")

    def _close(self, tail: Tail) -> None:
        if tail.source is not None:
            tail.source.close()
            tail.source = None
            self._open -= 1
        tail.done = True

    # The end of a job

    def _finish(self, now: float, time: str, out: list[bytes]) -> None:
        for key, state in list(self._jobs.items()):
            if state.ended is None:
                continue
            after = now - state.ended
            out += [
                self._finish_output(tail, state.job, after, now, time)
                for tail in state.tails
                if not tail.done
            ]
            if after < PROGRAM_SECONDS and self._leaving is None:
                continue
            for tail in state.programs:
                if not tail.done and (tail.source is None or not tail.waiting):
                    out.append(self._flush(tail, time))
                    self._close(tail)
            if all(tail.done for tail in (*state.tails, *state.programs)):
                self._forget(key)
        if self._health is not None:
            self._finish_health(self._health, now, time, out)

    def _finish_health(self, tail: Tail, now: float, time: str, out: list[bytes]) -> None:
        """Delete the output of health checks when it is long, and at the pod's end."""
        leaving = self._leaving is not None
        if tail.source is None:
            self._health = None if leaving else tail
            return
        if tail.waiting or not (leaving or tail.offset > MAX_PROGRAM_BYTES):
            return
        # A run of the checks that writes meanwhile has written when the file is read again.
        self._files.remove(HEALTH)
        if self._look(tail):
            out.append(self._read(tail, now, time))
        out.append(self._flush(tail, time))
        self._close(tail)
        self._health = None

    def _finish_output(self, tail: Tail, job: Job, after: float, now: float, time: str) -> bytes:
        """Close a file of a job that has ended, if it is at its end or its time is over."""
        leaving = self._leaving is not None
        if tail.source is not None:
            if self._look(tail) and tail.waiting:
                if after < END_SECONDS:
                    return b""
                dropped = self._drop(tail, tail.waiting, time, "the job has ended")
                self._close(tail)
                return dropped
            # One more look: a file that replaced this one, and what a network file system shows
            # late.
            if not leaving and after < 2 * RETRY_SECONDS:
                return b""
            former = tail.identity
            self._check_replaced(tail, job)
            if tail.identity != former:
                return b""
            last = self._flush(tail, time)
            self._close(tail)
            return last
        if after < END_SECONDS and (self._open >= MAX_OPEN or not tail.tried):
            return b""
        if not leaving and after < LATE_SECONDS and not tail.reported:
            return b""
        tail.done = True
        if tail.reported or tail.identity is not None:
            return self._flush(tail, time)
        self.counters.missing_files += 1
        return lines.event(
            time, tail.text.fields | {"shipped": False}, "not printed: the file doesn't exist here"
        )

    def _forget(self, key: str) -> None:
        # The record is last: what is left without one is never read.
        for suffix in ("prolog", "epilog", "end", "job"):
            self._files.remove(f"{key}.{suffix}")
        del self._jobs[key]

    # All of them

    def _tails(self) -> list[tuple[Tail, JobState | None]]:
        found: list[tuple[Tail, JobState | None]] = [
            (tail, state)
            for state in self._jobs.values()
            for tail in (*state.programs, *state.tails)
            if not tail.done
        ]
        return found if self._health is None else [(self._health, None), *found]

    def _refill(self, now: float) -> None:
        rate = self._settings.bytes_per_second
        if self._allowed_at is not None:
            self._allowance = min(float(rate), self._allowance + (now - self._allowed_at) * rate)
        self._allowed_at = now

    def _report(self, now: float, time: str) -> bytes:
        if self.counters == self._reported:
            return b""
        if self._next_report is None:
            self._next_report = now + REPORT_SECONDS
        if now < self._next_report:
            return b""
        self._next_report = None
        return self._summary(time)

    def _summary(self, time: str) -> bytes:
        found = self.counters
        self._reported = found.copy()
        fields = {
            "node": self._settings.node,
            "stream": "logs",
            "lines": found.lines,
            "readBytes": found.read_bytes,
            "droppedBytes": found.dropped_bytes,
            "refusedFiles": found.refused_files,
            "missingFiles": found.missing_files,
            "openFiles": self._open,
        }
        return lines.event(time, fields, "summary since the start of this container")
