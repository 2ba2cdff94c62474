"""`python -m tests.cluster COMMAND`: the local cluster from the command line."""

import argparse
import os
import sys

from tests.cluster import local
from tests.cluster.errors import ClusterError
from tests.cluster.progress import Progress


def main(argv: list[str]) -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = {
        "up": "a cluster with Slurm on it, and a first job",
        "down": "take the local cluster away again",
        "kubeconfig": "print the path of the kubeconfig in use",
        "status": "say what runs",
        "start": "the local cluster with the images, without the charts",
        "stop": "the same as down",
    }
    parser.add_argument(
        "command", choices=commands, help="; ".join(f"{name}: {what}" for name, what in commands.items())
    )
    parser.add_argument("--name", default=local.default_name(), help="name of the local cluster (%(default)s)")
    given = parser.parse_args(argv)
    try:
        return _run(given.command, given.name)
    except ClusterError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        return 130


def _run(command: str, name: str) -> int:
    progress = Progress()
    if command == "start":
        cluster = local.cluster_up(name, progress)
        progress.note(f"KUBECONFIG={cluster.kubeconfig}")
    elif command in {"down", "stop"}:
        if not local.cluster_down(name, progress):
            progress.note(f"there is no local cluster {name!r}")
    elif command == "kubeconfig":
        print(os.environ.get("KUBECONFIG") or local.existing(name).kubeconfig)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
