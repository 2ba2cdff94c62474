"""Whether what `doctor` reports of a broken cluster is true: each finding is compared with what
Slurm's own commands print, and the commands of its remedies are run.
"""

from sidecars.explain.core.records import Answer, Finding, Level
from tests.support.real.queue_faults import Cluster, Situation, healthy

STATES = {"Drained": ("drained", "draining"), "Down": ("down",)}
"""What `sinfo` prints of nodes with these findings."""
OF_SLURM = ("scontrol", "scancel")
"""Programs whose commands are run here. Nothing of Kubernetes runs."""


def refuted(of: Cluster, found: Situation, answer: Answer) -> list[str]:
    """What of the answer is wrong while the situation lasts."""
    wrong = [f"not read: {it}" for it in answer.missing]
    blocks = any(it.level is Level.BLOCKS for it in answer.findings)
    if found.person is not None and blocks != found.person:
        wrong.append(f"it needs {'a' if found.person else 'no'} person, and doctor: {answer.state}")
    return wrong + [
        f"{why}: {it}" for it in answer.findings if (why := _untrue(of, found, it)) is not None
    ]


def left(of: Cluster, found: Situation, answer: Answer) -> list[str]:
    """Findings that stay although their commands were run. Those that have ended meanwhile need
    none.
    """
    stays = []
    for it in answer.findings:
        words = [command.split() for command in it.commands if command.startswith(OF_SLURM)]
        if not words or it.level is not Level.BLOCKS or not _has(of, found, it):
            continue
        for each in words:
            of.run(*each)
        try:
            of.until(f"the end of {it}", lambda it=it: not _has(of, found, it))  # type: ignore[misc]
        except AssertionError as error:
            stays.append(str(error))
    return stays


def _has(of: Cluster, found: Situation, finding: Finding) -> bool:
    key = finding.code, finding.about
    return key in {(it.code, it.about) for it in of.doctor(found.kube).findings}


def _untrue(of: Cluster, found: Situation, finding: Finding) -> str | None:
    kind, _, name = finding.about.partition(" ")
    if kind == "node":
        return _of_node(of, finding, name)
    if kind == "partition":
        return _of_partition(of, finding, name)
    if finding.about == "the queue":
        jobs = finding.cause.rpartition(": ")[2].rstrip(".").split(", ")
        others = [it for it in jobs if of.state(it) != ("PENDING", finding.code)]
        return f"not so: {others}" if others or not jobs else None
    broken = _broken(found)
    return None if name.rpartition("/")[2].rpartition(" ")[2] in broken else f"not in {broken}"


def _of_node(of: Cluster, finding: Finding, name: str) -> str | None:
    # One line for each of its partitions.
    lines = of.run("sinfo", "-h", "-N", f"--nodes={name}", "-o%T|%E").splitlines()
    state, _, reason = lines[0].partition("|")
    if state.rstrip("*") not in STATES.get(finding.code, ()):
        return f"it is {state}"
    return None if reason in finding.cause else f"its reason is {reason}"


def _of_partition(of: Cluster, finding: Finding, name: str) -> str | None:
    shown = dict(
        it.partition("=")[::2]
        for it in of.run("scontrol", "-o", "show", "partition", name).split()
        if "=" in it
    )
    waits = of.run("squeue", "-h", "--states=PENDING", f"--partition={name}", "-o%i")
    if finding.level is Level.BLOCKS and not waits:
        return "no job waits in it"
    if finding.code == "PartitionNotUp":
        return None if shown["State"] in finding.cause else f"it is {shown['State']}"
    return None if shown["TotalNodes"] == "0" else f"it has {shown['TotalNodes']} nodes"


def _broken(found: Situation) -> set[str]:
    """Names of objects that Kubernetes reports otherwise than in a healthy cluster."""
    usual = healthy()
    return {
        it["metadata"]["name"]
        for field, objects in found.kube.items()
        if field != "events"
        for it in objects
        if it not in getattr(usual, field)
    }
