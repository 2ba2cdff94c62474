"""A real slurmctld takes the topology.yaml and the lines that are derived from labels, and finds
them again; and the features of Kubernetes nodes, by which jobs choose workers.

slurmctld runs alone, outside of the Kubernetes cluster: for topologies, its nodes need no slurmd.
"""

from contextlib import closing
from pathlib import Path

import pytest

from sidecars.contract.extra import PodFacts, encode
from sidecars.operator.core.topology import blocks, line, lost, positions
from sidecars.operator.worker_pod import topology as worker_pod
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.records import Job, Node
from sidecars.workloads import names
from sidecars.workloads import topology as files
from sidecars.workloads.resources import Block, Topology, Tree
from tests.cluster.waiting import until
from tests.support.operator_parts import Parts
from tests.support.real import daemons, ports
from tests.support.real.daemons import ADDRESS, ALL, Daemons
from tests.support.real.harness import WILL_COME
from tests.support.real.outside import SLURM

TOPOLOGIES = (
    Topology(name="fabric", cluster_default=True, tree=Tree(labels=["zone", "rack"])),
    Topology(name="nvlink", block=Block(label="domain", sizes=[2])),
)
LABELS = {
    "a": {"zone": "us-east1.b", "rack": "r1", "domain": "0x1f_7"},
    "b": {"zone": "us-east1.b", "rack": "r2"},
    "c": {"zone": "us-west1", "rack": f"r{19 * '1'}", "domain": "d2"},
    "d": {},
}
FILE = files.render(TOPOLOGIES, blocks(TOPOLOGIES, LABELS.values()))

START = """
/usr/sbin/slurmctld -D &
answers() {
  for _ in $(seq 300); do scontrol ping | grep -q 'is UP' && return; sleep 0.1; done
  exit 1
}
add() { scontrol create NodeName=$1 CPUs=1 RealMemory=10 State=CLOUD ${2:+Topology=$2} || exit 1; }
show() {
    echo "BEGIN $1"
    scontrol show topology fabric && scontrol show topology nvlink || echo gone
    echo "END $1"
}
answers
"""


NO_NODE = ("Invalid feature specification", "Requested node configuration is not available")
"""What sbatch reports of features that no node has."""
NAMING = {"r1": "NODE_FAIL", "us-east1.b": "PENDING", "r2": "PENDING"}
"""What becomes of a job that names a switch when node a is gone, the only one of rack r1."""


def after(home: Path, file: str, script: str) -> str:
    """What the script prints between its marks, with this topology.yaml."""
    with closing(Daemons(home, ports.TOPOLOGY)) as daemons:
        files = {**daemons.files, "topology.yaml": file.encode()}
        daemons.add("slurmctld", "slurmctld", SLURM, ["sh", "-c", START + script], files)
        until(lambda: not daemons.runs("slurmctld"), "the script to end", 300, daemons.log)
        return daemons.log()


def between(text: str, mark: str) -> list[str]:
    """The lines of one `show`, without those of slurmctld's log."""
    _, _, rest = text.partition(f"BEGIN {mark}\n")
    shown, end, _ = rest.partition(f"END {mark}\n")
    assert end, text
    return [it for it in shown.splitlines() if not it.startswith("[")]


def lines() -> dict[str, str]:
    """The line of each node."""
    known = {name: found for name, found in (files.places(FILE) or {}).items() if found is not None}
    where = positions(TOPOLOGIES, LABELS.values())
    return {name: line(TOPOLOGIES, labels, where, known).text for name, labels in LABELS.items()}


def switch(shown: list[str], name: str) -> str:
    """The line of a switch or block."""
    [found] = [it for it in shown if it.split()[0] in {f"SwitchName={name}", f"BlockName={name}"}]
    return found


def test_slurmctld_has_the_switches_and_blocks_of_the_labels_and_has_them_after_a_restart(
    tmp_path: Path,
) -> None:
    script = "".join(f"add {name} {text}\n" for name, text in lines().items())
    script += "show first\nscontrol reconfigure\nanswers\nshow again\n"
    text = after(tmp_path / "slurm", FILE, script)
    first, again = between(text, "first"), between(text, "again")
    assert "Nodes=a,b,c,d" in switch(first, "fabric").replace("[a-d]", "a,b,c,d")
    assert "Switches=r1,r2" in switch(first, "us-east1.b")
    assert "Nodes=a" in switch(first, "r1")
    assert "Nodes=d" in switch(first, "fabric-other")
    assert "Nodes=a" in switch(first, "0x1f_7")
    assert "Nodes=c" in switch(first, "d2")
    assert sorted(it.split()[0] for it in again) == sorted(it.split()[0] for it in first)


def test_a_job_that_names_a_switch_is_lost_with_its_last_node_alone(tmp_path: Path) -> None:
    jobs = {f"switch{{{unit}}}": state for unit, state in NAMING.items()}
    script = "".join(f"add {name} '{text}'\n" for name, text in lines().items())
    script += "".join(f"sbatch -H -w '{named}' --wrap true || exit 1\n" for named in jobs)
    script += "scontrol delete nodename=a\nscontrol reconfigure\n"
    script += (
        "for _ in $(seq 300); do\n"
        "  squeue --states=NODE_FAIL -h | grep -q . && break; sleep 0.1\n"
        "done\n"
        "echo JOBS; squeue --states=all --Format=ReqNodes:40,State --noheader; echo END\n"
    )
    text = after(tmp_path / "slurm", FILE, script)
    shown = text.partition("JOBS\n")[2].partition("END\n")[0]
    found = dict(it.split() for it in shown.splitlines() if it.startswith("switch{"))
    assert found == jobs
    naming = [
        Job(number, frozenset({"PENDING"}), required_nodes=named)
        for number, named in enumerate(jobs)
    ]
    nodes = [Node(name, topology=text) for name, text in lines().items()]
    lost_alone = {named for named, state in jobs.items() if state == "NODE_FAIL"}
    kept = {it.required_nodes for it in naming if "a" in named_nodes([it], (), nodes)}
    assert kept >= lost_alone


@pytest.mark.parametrize("item", ["nvlink:d2", "fabric:fabric:us-west1"])
def test_slurmctld_ends_where_the_check_predicts_it(tmp_path: Path, item: str) -> None:
    other = (
        FILE.replace("d2", "d3")
        if item.startswith("nvlink")
        else FILE.replace("switch: fabric", "switch: root")
    )
    assert lost({"a": item}, {"topology.yaml": FILE}) == []
    assert lost({"a": item}, {"topology.yaml": other}) != []
    (tmp_path / "other").write_text(other)
    script = (
        f"add a {item}\ncat > /etc/slurm/topology.yaml <<'EOF'\n{other}EOF\nscontrol reconfigure\n"
    )
    text = after(tmp_path / "slurm", FILE, script + "wait\n")
    assert "fatal: read_slurm_conf reading" in text
    assert f"Invalid node topology specified {item} for a" in text


class Worker:
    """Worker pod slinky-0 on Kubernetes node kube-1, whose slurmd has registered the feature
    `gpu`.
    """

    def __init__(self, found: Daemons) -> None:
        self._daemons = found
        conf = f"NodeAddr={ADDRESS} Port={found.port('slurmd')} CPUs=1 RealMemory=100 Feature=gpu"
        found.slurmd("slinky-0", "-Z", "--conf", conf)
        found.until_idle()
        extra = encode(PodFacts("slinky-0"))
        found.scontrol("update", "nodename=slinky-0", f"extra={extra}", check=True)
        self._parts = Parts(connect=lambda *_: found.client())
        self._nodeset = self._parts.custom(
            "NodeSet", "slinky", {"controllerRef": {"name": "slurm"}}
        )
        self._pod = self._parts.pod("slinky-0")

    async def has(self, annotation: str) -> tuple[set[str], set[str]]:
        """Have the operator see this annotation of the Kubernetes node. What Slurm has then:
        available and active features.
        """
        self._parts.kube_node("kube-1", annotations={names.FEATURES: annotation})
        cluster = await self._parts.connect()
        try:
            node = cluster.poller.nodes["slinky-0"]
            runtime = self._parts.runtime
            await worker_pod.send(runtime, self._pod, self._nodeset, cluster, node)
        finally:
            await self._parts.runtime.clusters.close()
        return self.features()

    def features(self) -> tuple[set[str], set[str]]:
        """Available and active ones in Slurm."""
        self._daemons.until_idle()
        words = ("sinfo", "-h", "-N", "--nodes=slinky-0", "--format=%f %b")
        found = self._daemons.run("slurmctld", *words, check=True).stdout.split()
        return set(found[0].split(",")), set(found[1].split(","))

    def runs(self, constraint: str) -> bool:
        """Whether Slurm takes a job with this constraint; it has run then."""
        words = ("--parsable", "--output=/dev/null", "--chdir=/", f"--constraint={constraint}")
        job = self._daemons.run("slurmctld", "sbatch", *words, "--wrap=true")
        if job.returncode:
            assert any(it in job.stderr for it in NO_NODE), job
            return False
        states = ("squeue", "-h", "--states=all", f"--jobs={job.stdout.strip()}", "-o%T")
        until(
            lambda: self._daemons.run("slurmctld", *states).stdout.strip() == "COMPLETED",
            f"a job with {constraint} to run",
            WILL_COME,
            self._daemons.log,
        )
        return True


async def test_jobs_choose_a_worker_by_features_of_its_kubernetes_node_until_they_are_removed(
    tmp_path: Path,
) -> None:
    with daemons.started(tmp_path, ports.TOPOLOGY, f"{daemons.MEMORY}{ALL}") as found:
        worker = Worker(found)
        given = {"gpu", "k8s/fast", "k8s/zone-a"}
        assert await worker.has("fast, zone-a, b@d") == (given, given)
        assert worker.runs("k8s/fast&gpu")
        assert not worker.runs("k8s/slow")
        # Neither slurmd, which registers without them, nor slurmctld forgets them.
        found.end("slinky-0")
        found.start("slinky-0")
        assert worker.features() == (given, given)
        found.end("slurmctld")
        found.start("slurmctld")
        assert worker.features() == (given, given)
        assert worker.runs("k8s/zone-a")
        assert await worker.has("fast") == ({"gpu", "k8s/fast"}, {"gpu", "k8s/fast"})
        assert not worker.runs("k8s/zone-a")
        assert await worker.has("") == ({"gpu"}, {"gpu"})
        assert worker.runs("gpu")
