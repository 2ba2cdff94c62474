"""Everything that a check reads from Slurm and writes to it."""

import contextlib
from collections.abc import Callable, Collection, Sequence

from sidecars.checks.core import nodes as rules
from sidecars.policy.checks.declared import Check
from sidecars.slurm import hostlists, protocol
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.checks import CheckJob, CheckRequest, WaitingJob
from sidecars.slurm.errors import NotFound
from sidecars.slurm.job_states import has_ended
from sidecars.slurm.news import read_news
from sidecars.slurm.records import Node, Partition, Reservation

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_READS = 50
"""Jobs that wait, of which each needs a request of its own, in one look."""
REREAD_SECONDS = 5.0
FULL_EVERY = 60.0
"""Seconds between requests for all nodes, and not just for changes."""
RESERVED_MINUTES = 365 * 24 * 60
"""Of a reservation for a test. It ends with the test, or with the next run after one that was cut
off.
"""


class Slurm:
    """Slurm for one check. `admin` sends with a token of SlurmUser, `submitter` with one of the
    jobs' user.

    `checks` are the names of all checks, whose jobs are no users' jobs. All methods raise
    SlurmError.
    """

    def __init__(
        self,
        check: Check,
        admin: Carrier,
        submitter: Carrier,
        username: str,
        *,
        now: Callable[[], float],
        checks: Collection[str] = (),
    ) -> None:
        self._check = check
        self._admin = admin
        self._submitter = submitter
        self._username = username
        self._now = now
        self.job_name = f"check-{check.name}"
        self._job_names = {self.job_name, *(f"check-{name}" for name in checks)}
        self._waiting: dict[int, tuple[WaitingJob, float]] = {}
        """By id, and when each was read."""
        self._nodes: dict[str, Node] = {}
        self._updated = 0
        self._full_at = 0.0

    async def nodes(self) -> dict[str, Node]:
        """Return all nodes by name, as they are now."""
        # A change later in the same second is only in an answer to a request from one second
        # earlier.
        # A slurmctld whose clock was set back reports no change for so long.
        now = self._now()
        changes = self._updated and 0 <= now - self._full_at < FULL_EVERY
        since = self._updated - 1 if changes else None
        found = await read_news(self._admin, protocol.get_nodes, since)
        if found is not None:
            self._nodes, self._updated = (
                {node.name: node for node in found.nodes},
                found.last_update,
            )
        if since is None:
            self._full_at = now
        return dict(self._nodes)

    async def partitions(self) -> tuple[Partition, ...]:
        """Return all partitions."""
        return await self._admin.call(protocol.get_partitions())

    async def submit(
        self, script: str, names: Sequence[str], partition: str, seconds: float, reservation: str
    ) -> int:
        """Submit a job for these nodes, which must have ended after so many seconds; its id."""
        minutes = -(-self._check.timeout // 60) + 1
        deadline = int(self._now() + seconds + minutes * 60)
        environment = (f"PATH={PATH}", *(f"{key}={text}" for key, text in self._check.env.items()))
        request = CheckRequest(
            self.job_name,
            script,
            tuple(names),
            partition,
            minutes,
            deadline,
            reservation,
            environment,
        )
        return await self._submitter.call(protocol.submit_check(request))

    async def job(self, job_id: int) -> CheckJob | None:
        """Return the job, or None if Slurm has no record of it."""
        try:
            return await self._admin.call(protocol.get_check_job(job_id))
        except NotFound:
            return None

    async def cancel(self, job_id: int) -> None:
        """Cancel a job. One that has ended, or none, is no error."""
        with contextlib.suppress(NotFound):
            await self._admin.call(protocol.cancel_job(job_id))

    async def waiting(self) -> list[WaitingJob] | None:
        """Users' jobs that wait; None while too many of them are unread.

        The newest are read first. One that may wait for nodes is read again after `REREAD_SECONDS`,
        another one after a second: its reason may have changed.
        """
        pending = await self._admin.call(protocol.get_waiting_ids())
        now = self._now()
        self._waiting = {it: known for it, known in self._waiting.items() if it in pending}
        due = [it for it in sorted(pending, reverse=True) if self._is_due(it, now)]
        for job_id in due[:MOST_READS]:
            try:
                self._waiting[job_id] = (
                    await self._admin.call(protocol.get_waiting_job(job_id)),
                    now,
                )
            except NotFound:
                self._waiting.pop(job_id, None)
        if any(it not in self._waiting for it in due[MOST_READS:]):
            return None
        return [job for job, _ in self._waiting.values() if job.name not in self._job_names]

    def _is_due(self, job_id: int, now: float) -> bool:
        known = self._waiting.get(job_id)
        if known is None:
            return True
        job, read = known
        return job.name != self.job_name and now - read >= (
            REREAD_SECONDS if rules.wants_nodes(job) else 1.0
        )

    async def leftovers(self) -> list[int]:
        """Return the check's jobs that have not ended: those of a run that was cut off."""
        jobs = await self._admin.call(protocol.get_jobs())
        own = (self.job_name, self._username)
        found = () if jobs is None else jobs.jobs
        return [
            it.job_id for it in found if (it.name, it.user_name) == own and not has_ended(it.states)
        ]

    def reservation(self, names: Sequence[str]) -> str:
        """Return the name of the reservation in which these nodes are tested."""
        return f"check-{self._check.name}.{'.'.join(names)}"

    async def reservations(self) -> list[Reservation]:
        """Return the check's reservations. One whose name doesn't consist of its nodes is someone
        else's.
        """
        found = await self._admin.call(protocol.get_reservations())
        return [
            it
            for it in found
            if it.name in {self.reservation(names) for names in _orders(names_of(it))}
        ]

    def lifted(self, reservation: Reservation) -> list[str]:
        """Return the nodes of a reservation of the check whose drain was lifted: all but the second
        one of a pair.
        """
        rest = reservation.name.removeprefix(f"check-{self._check.name}.")
        return [it for it in names_of(reservation) if rest == it or rest.startswith(f"{it}.")]

    async def reserve(self, names: Sequence[str]) -> str:
        """Reserve the nodes for the jobs' user; the reservation."""
        name = self.reservation(names)
        await self._admin.call(
            protocol.save_reservation(
                name,
                start_time=int(self._now()),
                minutes=RESERVED_MINUTES,
                nodes=names,
                users=[self._username],
            )
        )
        return name

    async def release(self, reservation: str) -> None:
        """Delete the reservation, if it exists."""
        with contextlib.suppress(NotFound):
            await self._admin.call(protocol.delete_reservation(reservation))

    async def drain(self, name: str, reason: str) -> None:
        """Drain the node with this reason."""
        await self._admin.call(protocol.update_nodes([name], state=["DRAIN"], reason=reason))

    async def undrain(self, name: str) -> None:
        """Lift the node's drain."""
        await self._admin.call(protocol.update_nodes([name], state=["UNDRAIN"]))

    async def comment(self, name: str, text: str) -> None:
        """Set the node's comment."""
        await self._admin.call(protocol.update_nodes([name], comment=text))


def _orders(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    return names, names[::-1]


def names_of(reservation: Reservation) -> list[str]:
    """Return the nodes of a reservation, [] if Slurm's text is no hostlist."""
    try:
        return hostlists.expand(reservation.node_list)
    except hostlists.HostlistError:
        return []
