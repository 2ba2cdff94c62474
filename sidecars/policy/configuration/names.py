"""Rules about names: scripts, nodes, sets of nodes, partitions and GRES are defined once, and
exist.
"""

from collections.abc import Collection, Sequence

from sidecars.policy.configuration.reading import FOLDER, Placed, Reading, Severity, error
from sidecars.slurm import conf, hostlists, nodeconf
from sidecars.workloads.resources import NodeSet

_SCRIPTS = frozenset({"prolog", "epilog", "prologslurmctld", "epilogslurmctld"})


def scripts(reading: Reading, lines: Sequence[Placed]) -> None:
    """Missing prolog and epilog scripts in /etc/slurm: slurmctld ends on some of them."""
    for at in lines:
        value = at.value.removeprefix(FOLDER)
        if at.key not in _SCRIPTS or "/" in value or any(mark in value for mark in "*?["):
            continue
        if value not in reading.config_set.files and value not in reading.config_set.binary_files:
            pair = at.line.pairs[0]
            text = (
                f"{pair.key}={pair.value}: the script doesn't exist: add it to a ConfigMap of the "
                "scriptRefs"
            )
            reading.report("error", at, text)


def names(
    reading: Reading,
    lines: Sequence[Placed],
    nodesets: Sequence[NodeSet],
    known_nodes: Collection[str] | None,
) -> None:
    """Check that nodes, NodeSets and partitions are defined once, and that their references
    exist.
    """
    nodes: dict[str, Placed] = {}
    sets: dict[str, Placed] = {}
    partitions: dict[str, Placed] = {}
    for at in lines:
        if at.value.upper() == "DEFAULT":
            continue
        if at.key == "nodename":
            for name in _expanded(reading, at, at.value):
                _once(reading, nodes, name, at, "node")
        elif at.key == "nodeset":
            _once(reading, sets, at.value, at, "set of nodes")
        elif at.key == "partitionname":
            for name in at.value.split(","):
                _once(reading, partitions, name, at, "partition")
    for name in nodes.keys() & sets.keys():
        text = (
            f"the node {name} has the name of a set of nodes, which Slurm refuses: rename one of "
            "them"
        )
        reading.report("error", nodes[name], text)
    known = nodes.keys() | set(known_nodes or ())
    for at in lines:
        if at.key in {"partitionname", "nodeset"}:
            allowed = known | sets.keys() if at.key == "partitionname" else known
            for name in _expanded(reading, at, at.line.get("Nodes") or ""):
                if name.upper() != "ALL" and name not in allowed:
                    _absent(reading, at, name, sorted(sets), nodesets, known_nodes)


def _once(reading: Reading, seen: dict[str, Placed], name: str, at: Placed, what: str) -> None:
    before = seen.setdefault(name, at)
    if before is not at:
        origin = reading.config_set.origin(before.file, before.line.number)
        text = (
            f"the {what} {name} is defined already in {before.file} line {before.line.number} "
            f"({origin})"
        )
        reading.report("error", at, f"{text}: rename or remove one of them")


def _expanded(reading: Reading, at: Placed, value: str) -> list[str]:
    if value.startswith("-"):
        return []
    try:
        return hostlists.expand(value)
    except hostlists.HostlistError as error:
        reading.report("error", at, f"{value[:100]} is no list of nodes: {error}")
        return []


def _absent(
    reading: Reading,
    at: Placed,
    name: str,
    sets: Sequence[str],
    nodesets: Sequence[NodeSet],
    known_nodes: Collection[str] | None,
) -> None:
    about = at.line.pairs[0]
    text = f"{about.key}={about.value} names {name}, which is neither a node nor a NodeSet"
    worker = next((it for it in nodesets if _may_be_worker(name, it)), None)
    if at.key == "nodeset":
        text = (
            f"NodeSet={about.value} names {name}, which no NodeName line defines: correct its "
            "spelling"
        )
        reading.report("warning", at, f"{text}, or ignore this if it registers automatically")
    elif worker is None:
        severity: Severity = "warning" if known_nodes is None else "error"
        reading.report(severity, at, f"{text}; NodeSets: {', '.join(sets) or 'none'}")
    else:
        text = (
            f"{about.key}={about.value} names {name}, a worker, of which slurmctld dies while it "
            "isn't registered"
        )
        reading.report("warning", at, f"{text}: name the NodeSet {worker.slurm_name} instead")


def gres(reading: Reading, lines: Sequence[Placed], nodesets: Sequence[NodeSet]) -> None:
    """GRES of nodes and of gres.conf that GresTypes doesn't declare."""
    values = [
        pair.value for at in lines for pair in at.line.pairs if pair.key.lower() == "grestypes"
    ]
    declared = {item.strip().lower() for item in (values[-1].split(",") if values else [])}

    def check(place: tuple[str, int | None, str], item: str) -> None:
        name = item.partition(":")[0].strip().lower()
        if name and name not in declared:
            wanted = ",".join(sorted(declared | {name}))
            text = f"Gres {item}: {name} isn't declared: add GresTypes={wanted} to spec.extraConf"
            reading.findings.append(error(*place, text))

    for at in lines:
        declares = at.line.get("Gres") if at.key == "nodename" else None
        for item in (declares or "").split(","):
            check(
                (at.file, at.line.number, reading.config_set.origin(at.file, at.line.number)), item
            )
    for nodeset in nodesets:
        saving = nodeset.spec.power_saving
        declared_by = {
            "extraConf": nodeset.spec.extra_conf,
            "powerSaving.node": saving.node if saving.enabled else "",
        }
        for field, text in declared_by.items():
            source = f"NodeSet {nodeset.namespace}/{nodeset.name} spec.{field}"
            for item in (nodeconf.parse(text).get("Gres") or "").split(","):
                check(("slurm.conf", None, source), item)
    gres_conf = conf.parse_readable(reading.config_set.files.get("gres.conf", ""))
    for line in gres_conf.lines:
        name = line.get("Name")
        if name is not None:
            check(
                ("gres.conf", line.number, reading.config_set.origin("gres.conf", line.number)),
                name,
            )


def _may_be_worker(name: str, nodeset: NodeSet) -> bool:
    if nodeset.spec.scaling_mode == "DaemonSet":
        return True
    prefix = str(nodeset.spec.template.spec.get("hostname") or "") or f"{nodeset.name}-"
    return name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
