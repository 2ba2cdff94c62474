"""`python -m tests.contract URL KEYFILE NODE NODE [--cluster NAME] [--run COMMAND]`: the scenarios
on a Slurm at hand.

It needs two idle nodes that nobody else uses meanwhile. COMMAND is what sbatch and scontrol are run
by, such as `chroot /path`. Exits with 1 when a scenario fails.
"""

import argparse
import asyncio
import shlex
import subprocess
import sys
import time
import traceback
from pathlib import Path

from sidecars.slurm.protocol import VERSIONS
from tests.contract.commands import CommandJobs
from tests.contract.scenarios import ACCOUNTING, SCENARIOS
from tests.contract.target import Target


async def check(target: Target, only: str) -> int:
    """How many scenarios fail."""
    failed = 0
    await target.settle()
    for scenario in [*SCENARIOS, *(ACCOUNTING if target.cluster else [])]:
        if only not in scenario.__name__:
            continue
        start = time.monotonic()
        try:
            await scenario(target)
        except Exception:  # noqa: BLE001 - whatever it is, the other scenarios still run
            traceback.print_exc(limit=-1)
            failed += 1
            print("FAILED", end=" ")
        await target.settle()
        print(
            f"{target.version} {time.monotonic() - start:5.1f} s  {scenario.__name__}", flush=True
        )
    return failed


def main() -> int:
    """Run them in both API versions."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("key", type=Path)
    parser.add_argument("nodes", nargs=2)
    parser.add_argument("--cluster", help="the cluster's name in slurmdbd")
    parser.add_argument("--run", default="", help="command to run sbatch and scontrol by")
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    given = parser.parse_args()

    def run(*words: str, stdin: str = "") -> str:
        command = [*shlex.split(given.run), *words]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    key, nodes, jobs = given.key.read_bytes(), tuple(given.nodes), CommandJobs(run)
    targets = [Target(given.url, key, nodes, jobs, version, given.cluster) for version in VERSIONS]
    return 1 if sum(asyncio.run(check(target, given.only)) for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
