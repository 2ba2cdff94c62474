"""A local cluster with Slurm on it, installed by Helm as a user would."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.cluster.addresses import IPV4
from tests.cluster.local import cluster_down, cluster_up
from tests.cluster.tools import tool
from tests.support.real.harness import CHARTS, VALUES, Kubernetes, Slurm, condition, until


@contextmanager
def cluster(name: str, versions: tuple[int, ...] = (IPV4,)) -> Iterator[Kubernetes]:
    """A local cluster with nothing of ours on it, which ends with the block. `versions` are those
    of IP, the preferred one first.
    """
    # One that was killed has left its own behind, with everything on it.
    cluster_down(name)
    try:
        started = cluster_up(name, versions=versions)
        with closing(Kubernetes(started.kubeconfig, tool("kubectl"), tool("helm"))) as found:
            yield found
    finally:
        cluster_down(name)


def install_operator(
    kubernetes: Kubernetes, watched: str = "namespaces={slurm}", definitions: str = ""
) -> None:
    """CRDs and operator, as described in the README. `watched`: the value that selects the watched
    namespaces.

    The chart creates the named namespaces that don't exist. `definitions`: a value of the CRDs'
    chart.
    """
    of_definitions = ("--set", definitions) if definitions else ()
    for release, values in (
        ("slurm-operator-crds", of_definitions),
        ("slurm-operator", ("--set", f"operator.{watched}")),
    ):
        kubernetes.helm(
            *(
                "upgrade",
                "--install",
                release,
                str(CHARTS / release),
                "-n",
                "slinky",
                "--create-namespace",
            ),
            *("--wait", "--timeout", "3m", *values),
        )


def install_slurm(kubernetes: Kubernetes, *values: str) -> Slurm:
    """A Slurm cluster with two workers, ready for jobs. `values` are further options of Helm."""
    kubernetes.helm(
        *(
            "upgrade",
            "--install",
            "slurm",
            str(CHARTS / "slurm"),
            "-n",
            "slurm",
            "--create-namespace",
        ),
        *("-f", str(VALUES), "--set", "nodesets.slinky.oversubscribeNode=true"),
        *values,
    )
    for kind, name in (
        ("controllers.slinky.slurm.net", "slurm"),
        ("restapis.slinky.slurm.net", "slurm"),
        ("loginsets.slinky.slurm.net", "slurm-login-slinky"),
        ("nodesets.slinky.slurm.net", "slurm-worker-slinky"),
    ):

        def ready(kind: str = kind, name: str = name) -> bool | None:
            return (
                condition(kubernetes.get("-n", "slurm", kind, name), "Ready").get("status")
                == "True"
                or None
            )

        until(f"{kind} {name} to be Ready", ready)
    slurm = Slurm(kubernetes)
    slurm.until_idle(2)
    return slurm
