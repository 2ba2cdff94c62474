"""`python -m tests.cluster COMMAND`: the local cluster from the command line."""

import argparse
import errno
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster import cache, elsewhere, guest, install, local
from tests.cluster.addresses import IPV4, IPV6
from tests.cluster.errors import ClusterError
from tests.cluster.progress import Progress


def main(argv: list[str]) -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = {
        "up": "a cluster with Slurm on it, and a first job",
        "down": "delete the local cluster",
        "kubeconfig": "print the path of the kubeconfig in use",
        "status": "say what runs",
        "start": "the local cluster with the images, without the charts",
        "stop": "the same as down",
        "boot": "boot the kernel of the node with cgroup v2 alone, with one job each time",
    }
    parser.add_argument(
        "command",
        choices=commands,
        help="; ".join(f"{name}: {what}" for name, what in commands.items()),
    )
    parser.add_argument(
        "--name", default=local.default_name(), help="name of the local cluster (%(default)s)"
    )
    parser.add_argument(
        "--cgroup2", action="store_true", help="of up and start: a fourth node, which has cgroup v2"
    )
    parser.add_argument(
        "--ipv6",
        action="store_true",
        help="of up and start: a new cluster has IPv6 addresses alone",
    )
    parser.add_argument(
        "--times", type=int, default=20, help="of boot: how many times (%(default)s)"
    )
    given = parser.parse_args(argv)
    if given.ipv6 and given.cgroup2:
        parser.error("the node with cgroup v2 has IPv4 addresses alone")
    versions = (IPV6,) if given.ipv6 else (IPV4,)
    try:
        if given.command == "boot":
            return _boot(given.times)
        return _run(given.command, given.name, versions, cgroup2=given.cgroup2)
    except ClusterError as error:
        print(f"\n{error}{disk_remedy(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        print(f"\n{error}{disk_remedy(_FULL)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: the same command continues from here", file=sys.stderr)
        return 130


_FULL = "No space left on device"


def disk_remedy(message: str) -> str:
    """What to do about a full disk, if the message is about one; empty otherwise."""
    if not any(text in message for text in (_FULL, "Disk quota exceeded")):
        return ""
    return (
        "\nThe disk is full: free some of it, or set SLURM_CHARTS_CACHE to a folder on a larger "
        f"one instead of {cache.root()}. Then run the same command again: it continues from here."
    )


def _run(command: str, name: str, versions: tuple[int, ...], *, cgroup2: bool) -> int:
    progress = Progress()
    if command == "up":
        _up(name, progress, versions, cgroup2=cgroup2)
    elif command == "status":
        return _status(name)
    elif command == "start":
        cluster = local.cluster_up(name, progress, versions=versions)
        if cgroup2:
            guest.start(cluster, progress)
        progress.note(f"KUBECONFIG={cluster.kubeconfig}")
    elif command in {"down", "stop"}:
        if not local.cluster_down(name, progress):
            progress.note(f"no local cluster exists: {name!r}")
    elif command == "kubeconfig":
        print(os.environ.get("KUBECONFIG") or local.existing(name).kubeconfig)
    return 0


def _boot(times: int) -> int:
    """Boot so many times; 0 if the job was confined each time."""
    failed = 0
    for number in range(1, times + 1):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="slurm-charts-") as folder:
            Path(folder).chmod(0o755)
            try:
                wrong = guest.unconfined(guest.boot(Path(folder)))
            except ClusterError as error:
                wrong = str(error)
        failed += bool(wrong)
        print(
            f"boot {number}: {wrong or 'the job was confined'} ({time.monotonic() - started:.1f} "
            "s)",
            flush=True,
        )
    print(f"{times - failed} of {times} boots with a confined job")
    return 1 if failed else 0


def _up(name: str, progress: Progress, versions: tuple[int, ...], *, cgroup2: bool) -> None:
    named = os.environ.get("KUBECONFIG")
    own = local.named_by(named) if named else None
    if own is not None:
        # The kubeconfig that an earlier run printed, still set in this shell.
        named, name = None, own
    if named:
        elsewhere.up(named, progress)
        return
    if os.environ.get("REGISTRY"):
        raise ClusterError(
            "REGISTRY is set, and KUBECONFIG names no cluster that pulls from it: set KUBECONFIG "
            "to the kubeconfig of your cluster, or unset REGISTRY for the local cluster, which "
            "needs no registry"
        )
    values = install.chosen_values(local=True)
    cluster = local.cluster_up(
        name,
        progress,
        check=lambda progress: install.check_charts(values, progress),
        versions=versions,
    )
    if cgroup2:
        guest.start(cluster, progress)
    target = install.Target(str(cluster.kubeconfig), cluster.images(), _down_command(name))
    if install.install(target, install.releases(values), progress):
        output = install.first_job(target, progress)
        progress.note(f"\n{output or ''}")
    else:
        progress.note("\nSlurm is up already, as the charts and values say: nothing was done.\n")
    progress.note(install.how_to(target))


def _down_command(name: str) -> str:
    return (
        "make down"
        if name == local.default_name()
        else f"python -m tests.cluster down --name {name}"
    )


def _status(name: str) -> int:
    """Print what runs; 0 if all of it does."""
    cluster = local.existing(name)
    for daemon in cluster.daemons():
        print(f"{daemon.name:26} {'runs' if daemon.pid() is not None else 'ended'}")
    if not cluster.running():
        print("not complete: make up starts what is missing")
        return 1
    target = install.Target(str(cluster.kubeconfig), down=_down_command(name))
    print(target.kubectl("get", "nodes"))
    print(target.helm("list", "--all", "--all-namespaces"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
