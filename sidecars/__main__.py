"""Entry point of the sidecars image: `slurm-sidecars ROLE [options]`.

Only the chosen role is imported, because the roles in worker pods can't afford what the operator
needs.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple


class Role(NamedTuple):
    """A program of the image."""

    module: str
    """Its `main` takes the role's arguments and returns the exit status."""
    about: str
    by_environment: bool = False
    """Whether environment variables configure it, and it takes no arguments."""


ROLES = {
    "operator": Role(
        "sidecars.operator.main", "reconciles the custom resources, worker pods and node drains"
    ),
    "register": Role(
        "sidecars.register.main", "writes the registration with which slurmd starts", True
    ),
    "node": Role("sidecars.node.main", "protects a worker pod's jobs until they have ended", True),
    "reconfigure": Role(
        "sidecars.reconfigure.main", "tests and installs configurations in a slurmctld pod", True
    ),
    "release": Role(
        "sidecars.uninstall.main", "removes finalizers before the operator is uninstalled"
    ),
    "simulate": Role("sidecars.simulate.main", "a simulated Slurm behind slurmrestd's API"),
    "doctor": Role("sidecars.explain.gres.main", "looks at the GPUs of a cluster once"),
    "exporter": Role("sidecars.exporter.main", "serves metrics of a Slurm cluster", True),
    "plugin": Role("sidecars.explain.plugin", "prints the program `kubectl slurm`"),
    "secrets": Role("sidecars.secrets.main", "generates Secrets of clusters without an operator"),
    "backup": Role("sidecars.backup.main", "copies slurmctld's state and restores it"),
    "bridge": Role("sidecars.bridge.main", "has Slurm schedule Kubernetes pods"),
    "webhook": Role("sidecars.bridge.webhook", "adds the scheduling gate to pods of the bridge"),
    "logs": Role("sidecars.logs.main", "prints the output of a worker's jobs as JSON lines", True),
    "checks": Role("sidecars.checks.main", "runs a check on the nodes as Slurm jobs"),
    "ldap": Role("sidecars.ldap.main", "brings users of an LDAP directory into a Secret", True),
}
_USAGE = "usage: slurm-sidecars ROLE [options]"
_HELP = ("-h", "--help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the role that the first argument names with the other arguments.

    Return the exit status: 2 for a wrong role.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    if name in _HELP:
        print("\n".join(_help()))
        return 0
    if arguments in (["--version"], [name, "--version"]) and (name in ROLES or len(arguments) == 1):
        # The import costs memory that the roles of worker pods don't have.
        from sidecars import commandline

        print(commandline.version("slurm-sidecars"))
        return 0
    if name not in ROLES:
        from sidecars import commandline

        fault = (
            f"unknown role {name!r}.{commandline.hint(name, ROLES)}" if name else "no role given"
        )
        print(f"slurm-sidecars: {fault}\n{chr(10).join(_help())}", file=sys.stderr)
        return 2
    if ROLES[name].by_environment and len(arguments) == 2 and arguments[1] in _HELP:
        print("\n".join(_role_help(name)))
        return 0
    run: Callable[[Sequence[str]], int] = import_module(ROLES[name].module).main
    return run(arguments[1:])


def _help() -> Iterator[str]:
    yield from (_USAGE, "", "roles:")
    yield from (f"  {name:<12} {role.about}" for name, role in ROLES.items())
    yield from ("", "options:")
    yield "  -h, --help   print this help; after a role: that of the role"
    yield "  --version    print the version"


def _role_help(name: str) -> Iterator[str]:
    from sidecars.contract import environment

    yield from (f"usage: slurm-sidecars {name}", "", f"{name} {ROLES[name].about}.", "")
    yield "It takes no arguments. These environment variables configure it:"
    for variable, meaning in environment.described(name):
        yield f"  {variable}"
        yield f"      {meaning}"


if __name__ == "__main__":
    sys.exit(main())
