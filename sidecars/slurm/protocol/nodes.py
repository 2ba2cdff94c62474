"""Requests about nodes."""

from collections.abc import Iterable, Sequence
from typing import Any

from sidecars.slurm import hostlists, nodeconf, versions
from sidecars.slurm.protocol.fields import Fields, WrongField
from sidecars.slurm.protocol.request import Request, no_news, nothing, segment, since
from sidecars.slurm.records import Node, Nodes

_FAR_FUTURE = 2**32 - 1  # seconds since the epoch: nothing has changed since

ONE_NODES_FAULT = frozenset(
    {
        2016,  # ESLURM_NODES_BUSY
        2018,  # ESLURM_INVALID_NODE_NAME
        2180,  # ESLURM_INVALID_NODE_STATE_TRANSITION
    }
)
"""Error numbers of a write that one of its nodes is responsible for, not the write itself."""


def get_nodes(update_time: int | None = None) -> Request[Nodes | None]:
    """Request all nodes. With `update_time`, the answer is None when no node changed in that second
    or later.
    """
    return Request("GET", "nodes/", since(update_time), read=_nodes, unchanged=no_news)


def count_allocations() -> Request[None]:
    """Make slurmctld count what jobs use on its nodes, so that `get_node` shows it. Cheap."""
    return Request("GET", "nodes/", since(_FAR_FUTURE), read=nothing, unchanged=no_news)


def get_node(name: str) -> Request[Node]:
    """Request one node. An unknown one is NotFound.

    Its states and `alloc_cpus` show the allocations at the last request for the list of nodes,
    whoever sent it: a node whose job has ended stays MIXED until then. Send `count_allocations`
    first where no poller reads the list.
    """
    return Request("GET", f"node/{segment(name)}", read=_one_node)


def update_nodes(
    names: Iterable[str],
    *,
    state: Sequence[str] = (),
    reason: str | None = None,
    comment: str | None = None,
    extra: str | None = None,
    features: Sequence[str] | None = None,
    active_features: Sequence[str] | None = None,
    topology: str | None = None,
) -> Request[None]:
    """Return the same change for all the named nodes, in one call.

    None doesn't change a field, "" clears it (but not a reason).

    NotFound means that at least one of several names is unknown. The others are changed in spite of
    it, unless the unknown one is first in order. Raises HostlistError for a name that no node can
    have.

    What the states do besides setting themselves:
    - DRAIN keeps the old reason unless one is given.
    - UNDRAIN clears the reason unless the node is DOWN, and doesn't change DOWN. It ends FAIL of a
      node without a job.
    - IDLE and RESUME end DOWN and DRAIN and clear the reason.
    - DOWN ends or requeues the node's jobs at once, including those that are COMPLETING.
    - After UNDRAIN, IDLE and RESUME the node is NOT_RESPONDING for about a second.
    - DRAIN of a node that is being powered up requeues its jobs, which wait for it.
    - POWER_UP starts a node that is powered down. POWER_DOWN_FORCE ends or requeues the jobs and
      stops the node; powering down ends a DRAIN.
    """
    body: dict[str, Any] = {"name": [hostlists.compress(names)]}
    if state:
        body["state"] = list(state)
    texts = {"reason": reason, "comment": comment, "extra": extra, "topology_str": topology}
    body.update((key, text) for key, text in texts.items() if text is not None)
    if features is not None:
        body["features"] = list(features)
    if active_features is not None:
        body["features_act"] = list(active_features)
    return Request("POST", "nodes/", body=body, read=nothing)


def create_nodes(conf: str) -> Request[None]:
    """Create node records: `conf` is the line of slurm.conf for them, NodeName a hostlist (scontrol
    create).

    Their State has to be CLOUD, EXTERNAL or FUTURE. Gres needs GresConf, which Slurm refuses in a
    line of several nodes: see `lines_of_nodes`. Rejected if one of the names exists.
    """
    return Request("POST", "new/node/", body={"node_conf": conf}, read=nothing)


def lines_of_nodes(names: Iterable[str], conf: str) -> list[tuple[tuple[str, ...], str]]:
    """Return the nodes and the line of each `create_nodes` for these nodes. `conf` is the rest of
    the line.

    One line serves all, or one each with GresConf, of which slurmctld reads only the first node's
    (gres_add_dynamic_gres of 25.11 and 26.05 cuts up the line).
    """
    wanted = tuple(names)
    alone = nodeconf.parse(conf).get("GresConf") is not None
    return [
        (some, f"NodeName={hostlists.compress(some)} {conf}")
        for some in ([(name,) for name in wanted] if alone else [wanted])
    ]


def delete_node(name: str) -> Request[None]:
    """Delete a dynamic node's record. An unknown one is NotFound, one with a job on it is Rejected
    (number 2016).

    A node in a reservation that has begun is Rejected, too. Slurm does delete the record of a node
    that is DOWN whatever ran there, of one that is reserved for later, and while slurmd runs: that
    slurmd stays unknown until it is restarted or slurmctld is reconfigured.
    """
    return Request("DELETE", f"node/{segment(name)}", read=nothing)


def _nodes(answer: Fields) -> Nodes:
    nodes = answer.records("nodes", Node, node_record)
    return Nodes(nodes, answer.number("last_update"), _release(answer))


def _release(answer: Fields) -> versions.Release | None:
    try:
        return versions.exact(answer.nested("meta").nested("slurm").text("release"))
    except WrongField:
        return None


def _one_node(answer: Fields) -> Node:
    nodes = _nodes(answer).nodes
    if len(nodes) != 1:
        raise WrongField("nodes", f"should contain one node, contains {len(nodes)}")
    return nodes[0]


def node_record(node: Fields) -> Node:
    """Return a node of an answer."""
    weight = node.number_or_none("weight")
    return Node(
        name=node.text("name", required=True),
        states=node.states("state"),
        reason=node.text("reason"),
        reason_changed_at=node.number("reason_changed_at"),
        reason_set_by_user=node.text("reason_set_by_user"),
        comment=node.text("comment"),
        extra=node.text("extra"),
        instance_id=node.text("instance_id"),
        features=node.words("features"),
        active_features=node.words("active_features"),
        partitions=node.words("partitions"),
        topology=node.text("topology"),
        reservation=node.text("reservation"),
        address=node.text("address"),
        hostname=node.text("hostname"),
        port=node.number("port"),
        gres=node.text("gres"),
        gres_used=node.text("gres_used"),
        cpus=node.number("cpus"),
        sockets=node.number("sockets"),
        cores=node.number("cores"),
        threads=node.number("threads"),
        alloc_cpus=node.number("alloc_cpus"),
        real_memory=node.number("real_memory"),
        specialized_memory=node.number("specialized_memory"),
        owner=node.text("owner"),
        specialized_cores=node.number("specialized_cores"),
        alloc_memory=node.number("alloc_memory"),
        temporary_disk=node.number("temporary_disk"),
        weight=1 if weight is None else weight,
        suspend_time=node.number_or_none("suspend_time"),
        boot_time=node.number("boot_time"),
        slurmd_start_time=node.number("slurmd_start_time"),
        last_busy=node.number("last_busy"),
        version=node.text("version"),
    )
