"""Role `register`, an init container: writes shape for `node`, conf, extra and instance-id for
slurmd, then ends.

It also creates the folders of which slurmd mounts a subPath, so that no job can enter them.

Before that it waits, for a bounded time, for `node` to have settled what an earlier pod of this
name left in Slurm: a record that exists keeps its old registration. It never fails for the lack of
that answer. A pod that is not to register logs the reason, which is also its termination message.
The kubelet restarts it with growing pauses.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sidecars.contract import podfiles, shape
from sidecars.register import annotations, facts
from sidecars.register.facts import read_facts, read_gpus, read_host
from sidecars.register.gpus import GpuMismatchError, Vendor
from sidecars.register.registration import BadFact, Host, registration

RECORD_WAIT = 5.0
"""Seconds that slurmd may be delayed for the record; more than `node` may spend on it."""
_STEP = 0.02


def main(
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] = os.environ,
    host: Callable[[], Host] = read_host,
    annotations_file: Path = annotations.FILE,
    vendor: Callable[[str], Vendor] = facts.vendor,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run the role. Return 0, or 1 if the pod must not register, because of a value that slurmd
    can't read, or its GPUs. Return 2 for arguments, as it takes none. `vendor` finds the GPUs where
    the environment asks for them.
    """
    if arguments:
        print(
            f"register: unexpected argument {arguments[0]!r}; it is configured by its environment",
            file=sys.stderr,
        )
        return 2
    folder = podfiles.folder(environment)
    try:
        environment = annotations.with_topology(environment, annotations_file, clock, sleep)
        found = registration(read_facts(environment, host(), read_gpus(environment, vendor)))
        podfiles.create_private(folder / podfiles.HOOK)
        podfiles.create_private(folder / podfiles.LOG)
        if (folder / podfiles.JOBS).parent.is_dir():
            podfiles.create_private(folder / podfiles.JOBS)
        # Before slurmd's configuration is deleted: `node` must not take the shape of an earlier
        # start for this one's.
        podfiles.write(folder / podfiles.SHAPE, shape.encode(found.shape))
        for name in (podfiles.CONF, podfiles.STOP):
            (folder / name).unlink(missing_ok=True)
        record = _wait_for_record(folder, clock, sleep)
        podfiles.write(folder / podfiles.EXTRA, found.extra)
        podfiles.write(folder / podfiles.INSTANCE_ID, found.instance_id)
        podfiles.write(folder / podfiles.CONF, found.conf)
    except (BadFact, GpuMismatchError, OSError) as fault:
        print(f"register: {fault}", file=sys.stderr)
        return 1
    print(f"register: slurmd starts with {found.summary}; {record}", flush=True)
    return 0


def _wait_for_record(
    folder: Path, clock: Callable[[], float], sleep: Callable[[float], None]
) -> str:
    """Wait for what `node` reports about the record of this name. Returns a line for the log."""
    path = folder / podfiles.RECORD
    deadline = clock() + RECORD_WAIT
    while clock() < deadline:
        try:
            return f"record in Slurm: {path.read_text().strip()}"
        except FileNotFoundError:
            sleep(_STEP)
    return f"record in Slurm: unknown, the container node didn't report it within {RECORD_WAIT:g} s"
