"""Pods and node records that the tests of the decisions start from."""

from dataclasses import replace

from hypothesis import strategies as st

from sidecars.policy.nodeset.records import SlurmView, WorkerPod
from sidecars.slurm.records import Node

NOW = 1_000_000.0
SCALE_IN = "slurm-operator: Pod (slurm/slinky-{}) is pending termination for scale-in"


def worker(ordinal: int, **changes: object) -> WorkerPod:
    """A healthy worker that has been ready for ten minutes."""
    pod = WorkerPod(
        name=f"slinky-{ordinal}",
        uid=f"uid-{ordinal}",
        ordinal=ordinal,
        slurm_node=f"slinky-{ordinal}",
        kube_node=f"kube-{ordinal}",
        revision="new",
        phase="Running",
        ready=True,
        available=True,
        started=True,
        created=NOW - 700,
        ready_since=NOW - 600,
    )
    return replace(pod, **changes)  # type: ignore[arg-type]  # keyword bundle of a test builder


def slurm(*nodes: Node, problem: str | None = None) -> SlurmView:
    return SlurmView({node.name: node for node in nodes}, problem)


def node(ordinal: int, *words: str, reason: str = "", reservation: str = "") -> Node:
    return Node(
        f"slinky-{ordinal}", states=frozenset(words), reason=reason, reservation=reservation
    )


NODE_WORDS = st.builds(
    lambda base, flags: (base, *flags),
    st.sampled_from(["IDLE", "IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"]),
    st.sampled_from(
        [
            ("DRAIN",),
            ("DRAIN",),
            ("DRAIN", "COMPLETING"),
            ("DRAIN", "NOT_RESPONDING"),
            ("DRAIN", "UNDRAIN"),
            (),
        ]
    ),
)
"""States of nodes, most of them drained: only then a test of what is deleted sees deletions."""


def may_have_a_job(record: Node) -> bool:
    """Whether a job may be on the node, or start at any moment. Not by the product's own reading of
    the states.
    """
    work = not record.states.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING", "UNKNOWN"})
    return work or "DRAIN" not in record.states or "UNDRAIN" in record.states
