"""The faults of a cluster's configuration that can be found without running slurmctld.

Looks only for what Slurm would refuse, die of, or silently take otherwise than it was meant. The
rest is left to the dry run by a slurmctld of the same version. The rules: docs/configuration.md.
"""

from collections.abc import Collection, Sequence

from sidecars.policy.configuration import cgroups, keys, names, power, slurmd
from sidecars.policy.configuration.reading import Finding, Placed, Reading, error
from sidecars.slurm.versions import Version
from sidecars.workloads import config_maps
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.resources import NodeSet, ResourceError

_SAME_LANGUAGE = frozenset(
    {
        "acct_gather.conf", "burst_buffer.conf", "cgroup.conf", "gres.conf", "helpers.conf",
        "job_container.conf", "mpi.conf", "namespace.conf", "oci.conf", "topology.conf",
    }
)  # fmt: skip


def lint(
    config_set: ConfigSet,
    nodesets: Sequence[NodeSet] = (),
    version: Version | None = None,
    known_nodes: Collection[str] | None = (),
) -> tuple[Finding, ...]:
    """Return all findings, errors first, then by file and line.

    `nodesets`: those that the files were composed of. `version`: slurmctld's, None if unknown.
    `known_nodes`: names of the registered Slurm nodes, None if unknown. An unknown key is an error
    for a known version, and a warning for an unknown or newer one. A partition with an unknown name
    is a warning where the nodes are unknown. The dry run decides about warnings.
    """
    reading = Reading(config_set)
    for problem in config_set.problems:
        reading.findings.append(error(problem.file, None, problem.origin, problem.message))
    try:
        config_maps.spread(config_set)
    except ResourceError as found:
        reading.findings.append(error("slurm.conf", None, found.field, found.problem))
    for name in config_set.binary_files:
        _binary(reading, name)
    lines = list(reading.lines("slurm.conf"))
    for name in sorted(_SAME_LANGUAGE & config_set.files.keys()):
        parsed = reading.parse(name)
        for line in parsed.lines if parsed is not None else ():
            for pair in line.pairs:
                keys.key(reading, version, Placed(name, line, ours=False), name, pair)
    keys.known(reading, version, lines)
    keys.duplicates(reading, lines)
    keys.owned(reading, lines)
    names.scripts(reading, lines)
    names.names(reading, lines, nodesets, known_nodes)
    names.gres(reading, lines, nodesets)
    if nodesets:
        cgroups.systemd(reading)
        slurmd.rules(reading, lines)
        power.rules(reading, lines, nodesets)
    return _ordered(reading.findings)


def _ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings without duplicates, and without what is found about a line and about its
    file.
    """
    placed = {(finding.origin, finding.message) for finding in findings if finding.line is not None}
    return tuple(
        sorted(
            {
                it: None
                for it in findings
                if it.line is not None or (it.origin, it.message) not in placed
            },
            key=lambda it: (
                it.severity != "error",
                it.file != "slurm.conf",
                it.file,
                it.line or 0,
                it.message,
            ),
        )
    )


def _binary(reading: Reading, name: str) -> None:
    origin = reading.config_set.origin(name)
    if name.endswith((".conf", ".yaml")):
        text = f"{name} isn't UTF-8: save it as UTF-8"
        reading.findings.append(error(name, None, origin, text))
    elif b"\0" in reading.config_set.binary_files[name]:
        text = (
            f"{name} has NUL bytes, at which Slurm cuts it when it hands it to the workers: bring "
            "it by a volume"
        )
        finding = Finding(file=name, line=None, origin=origin, severity="warning", message=text)
        reading.findings.append(finding)
