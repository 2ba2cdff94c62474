"""A real slurmctld takes the topology.yaml and the lines that are derived from labels, and finds
them again.

slurmctld runs alone, outside of the Kubernetes cluster: its nodes need no slurmd.
"""

from contextlib import closing
from pathlib import Path

import pytest

from sidecars.policy.topology import blocks, line, lost, positions
from sidecars.workloads import topology as files
from sidecars.workloads.resources import Block, Topology, Tree
from tests.cluster.waiting import until
from tests.support.real import ports
from tests.support.real.daemons import Daemons
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
