"""Reading Slurm's jobs: the states of all, then the details of what has changed."""

import asyncio
import logging
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress

from sidecars.bridge.parts import Books, Clock
from sidecars.bridge.slurm import Slurm
from sidecars.slurm import protocol
from sidecars.slurm.errors import NotFound, SlurmError

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks at Slurm's jobs."""
_LEAST_READS, _MOST_READS = 5, 20
"""How many waiting jobs are read again each second for Slurm's reason. slurmrestd takes some
hundreds.
"""
_STORED_READS = 5
"""How many ended jobs are asked of slurmdbd at once."""
STORED_SECONDS = 60.0
"""Seconds after which slurmdbd is asked again about a job whose end it has not had."""
_STORED_TIMEOUT = 5.0


class JobReader:
    """Keeps the book of jobs up to date. A fault of Slurm is logged, and the book doesn't count as
    known then.
    """

    def __init__(self, slurm: Slurm, books: Books, clock: Clock) -> None:
        self._slurm = slurm
        self._memory = books.memory
        self._book = books.jobs
        self._now = clock.now
        self._begun: set[int] = set()
        """The jobs that were read, and may have begun to run, since the jobs beside them were read.
        """
        self.listed_at = clock.now()
        """When the last list of states was asked for."""
        self._answered_at: float | None = None
        self._confirmed_at = float("-inf")
        self._read_again_at = float("-inf")
        self._fault = ""
        self._asked: dict[int, float] = {}
        """When slurmdbd was asked about a job that Slurm doesn't list."""
        self._unstored_until = float("-inf")
        """slurmdbd isn't asked before."""

    async def read(self) -> bool:
        """Read the states, then the details of what has changed and of what is beside it, and then
        the states again. Return whether anything has changed, or can't be read.
        """
        try:
            changed = await self._list()
            due = {*self._book.to_read(), *self._due_again()}
            # Until all of this has been answered: a failure must not leave out the jobs beside
            # them.
            self._begun |= due
            new = bool(due) and await self._details(due)
            beside = self._book.beside(self._begun)
            await self._details(beside)
            self._begun.clear()
            if new or beside:
                changed = True
                await self._list(again=True)
        except SlurmError as error:
            self._fail(error)
            return True
        if self._fault:
            log.info("Slurm's jobs can be read again")
        self._fault = ""
        return changed

    async def confirm(self) -> bool:
        """Discard the details of jobs that an earlier slurmctld has given, so that nothing is
        decided by them. Return whether slurmctld has started again.
        """
        self._confirmed_at = self._now()
        try:
            start = await self._slurm.call(protocol.slurmctld_start())
        except SlurmError as error:
            self._fail(error)
            return False
        self._memory.started_at(start)
        started = self._book.started_at(start)
        if started:
            log.info("slurmctld has started again: all jobs are read again")
        return started

    async def recover(self, unlisted: AbstractSet[int]) -> bool:
        """Ask slurmdbd about some of the jobs that slurmctld doesn't list: it has the end of those
        that slurmctld has forgotten. Return whether the end of any is known now.

        A cluster may have no slurmdbd. That, and a fault of it, costs no other knowledge.
        """
        now = self._now()
        self._asked = {it: at for it, at in self._asked.items() if it in unlisted}
        if not self._book.known or now < self._unstored_until:
            return False
        oldest = sorted(unlisted, key=lambda it: self._asked.get(it, float("-inf")))
        due = [it for it in oldest if now - self._asked.get(it, float("-inf")) >= STORED_SECONDS]
        found = False
        for job_id in due[:_STORED_READS]:
            try:
                record = await self._slurm.call(
                    protocol.get_stored_job(job_id), timeout=_STORED_TIMEOUT
                )
            except SlurmError as error:
                log.info("slurmdbd doesn't report whether job %d has ended: %s", job_id, error)
                self._unstored_until = now + STORED_SECONDS
                break
            self._asked[job_id] = now
            if record is not None and self._book.stored(record):
                log.info(
                    "job %d has ended (%s), as slurmdbd knows",
                    job_id,
                    ",".join(sorted(record.states)),
                )
                found = True
        return found

    def unanswered(self, unlisted: AbstractSet[int]) -> frozenset[int]:
        """Return those of these jobs about which slurmdbd is to be asked for the first time. None
        while it doesn't answer.
        """
        if self._now() < self._unstored_until:
            return frozenset()
        return frozenset(unlisted - self._asked.keys())

    def since_confirmed(self) -> float:
        """Return the seconds since the last `confirm`."""
        return self._now() - self._confirmed_at

    def answer_age(self) -> float | None:
        """Return the seconds since Slurm's last good answer about its jobs; None without one."""
        return None if self._answered_at is None else self._now() - self._answered_at

    def _fail(self, error: SlurmError) -> None:
        self._book.fail()
        if str(error) != self._fault:
            log.warning("Slurm's jobs can't be read, so nothing is decided: %s", error)
        self._fault = str(error)

    async def _list(self, *, again: bool = False) -> bool:
        self.listed_at = self._now()
        listed = await self._slurm.call(protocol.get_job_states())
        self._answered_at = self.listed_at
        return self._book.states(listed, self.listed_at, again=again)

    def _due_again(self) -> list[int]:
        now = self._now()
        if now - self._read_again_at < INTERVAL:
            return []
        self._read_again_at = now
        return self._book.next_waiting(_LEAST_READS, _MOST_READS)

    async def _details(self, due: Iterable[int]) -> bool:
        """Read the details of these jobs, some at the same time. Whether they are new."""
        answers = await asyncio.gather(*map(self._detail, due), return_exceptions=True)
        fault = next((it for it in answers if isinstance(it, BaseException)), None)
        if fault is not None:
            raise fault
        return any(answers)

    async def _detail(self, job_id: int) -> bool:
        record = None
        with suppress(NotFound):
            record = await self._slurm.call(protocol.get_external_job(job_id))
        return self._book.details(job_id, record)
