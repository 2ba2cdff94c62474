"""What is wrong with a cluster's configuration, as far as can be told without running slurmctld.

Looks only for what Slurm would refuse, die of, or silently take otherwise than it was meant; the rest is left to the
dry run by a slurmctld of the same version. The rules: docs/configuration.md.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sidecars.slurm import conf, hostlists, keys, nodeconf, versions
from sidecars.slurm.versions import Version
from sidecars.workloads import config
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, NodeSet, ResourceError

Severity = Literal["error", "warning"]

RESTART_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "AuthType": "the daemons can't authenticate the reconfigure itself",
        "CommunicationParameters": "slurmctld keeps the sockets that it listens on",
        "HashPlugin": "the daemons can't check the reconfigure itself",
        "SlurmctldHost": "slurmctld must find its own host among them",
        "SlurmctldPort": "slurmctld keeps listening on the port that it has",
        "TLSParameters": "the daemons can't speak to each other meanwhile",
        "TLSType": "the daemons can't speak to each other meanwhile",
    }
)
"""Keys of slurm.conf that Slurm takes only on a restart of slurmctld, and why.

`scontrol reconfigure` makes slurmctld execute itself anew, so that it takes nearly everything, MaxNodeCount and plugins
such as SelectType and TopologyPlugin included. Seen with slurmctld 26.05.5: AuthType and HashPlugin make the
reconfigure fail, SlurmctldPort leaves scontrol asking at the new port, another SlurmctldHost ends the daemon. That
listening settings need a restart is from https://slurm.schedmd.com/slurm.conf.html.
"""

MAX_CLUSTER_NAME = 40

_OWNED_ERRORS: Mapping[str, str] = {
    "clustername": "slurmctld refuses state of another cluster: set spec.clusterName of a new Controller",
    "slurmctldhost": "the operator names its own pods: remove the line; backups are spec.ha",
    "controlmachine": "the operator names its own pods: remove the line; backups are spec.ha",
    "backupcontroller": "the operator names its own pods: remove the line; backups are spec.ha",
    "slurmctldport": "Services and probes use 6817: remove the line; spec.service.port changes what clients use",
    "statesavelocation": "the volume of the state is mounted elsewhere, all jobs would be lost: remove the line",
    "slurmuser": "slurmctld runs as the user slurm: remove the line",
    "authtype": "slurm.key is the key of auth/slurm: remove the line",
    "credtype": "slurm.key is the key of cred/slurm: remove the line",
    "slurmdport": "the probes of the workers use 6818: remove the line",
}
_OWNED_WARNINGS: Mapping[str, str] = {
    "slurmctldaddr": "clients outside of Kubernetes only",
    "slurmctldlogfile": "the log won't show in the pod's log",
    "slurmschedlogfile": "the log won't show in the pod's log",
    "slurmdlogfile": "the log won't show in the workers' pod log",
    "slurmdspooldir": "the workers' volumes are made for /var/spool/slurmd",
    "slurmduser": "the workers' slurmd runs as root",
    "slurmctldpidfile": "the pod's root file system may not be writable there",
    "accountingstoragetype": "spec.accountingRef decides about accounting",
    "accountingstoragehost": "spec.accountingRef decides about accounting",
    "accountingstorageport": "spec.accountingRef decides about accounting",
}
_NEEDED_ITEMS: Mapping[str, str] = {"authalttypes": "auth/jwt"}
_SCRIPTS = frozenset({"prolog", "epilog", "prologslurmctld", "epilogslurmctld"})
_SAME_LANGUAGE = frozenset(
    {"acct_gather.conf", "burst_buffer.conf", "cgroup.conf", "gres.conf", "helpers.conf", "job_container.conf",
     "mpi.conf", "namespace.conf", "oci.conf", "topology.conf"}
)  # fmt: skip
_FOLDER = "/etc/slurm/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: in which file and line (None: the file as a whole), and where that comes from.

    An `error` keeps the files from being published, a `warning` is only told. `message` names the value and the remedy.
    """

    file: str
    line: int | None
    origin: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file} line {self.line}"
        return f"{place} ({self.origin}): {self.message}" if self.origin else f"{place}: {self.message}"


def review(
    controller: Controller,
    nodesets: Sequence[NodeSet],
    facts: Facts,
    version: Version | None = None,
    known_nodes: Collection[str] | None = (),
) -> tuple[ConfigSet | None, tuple[Finding, ...]]:
    """Compose and lint at once; no set of files where none can be made.

    Raises MissingReferenceError for referenced ConfigMaps that aren't there.
    """
    try:
        config_set = config.compose(controller, nodesets, facts)
    except ResourceError as error:
        return None, (_error("slurm.conf", None, error.field, error.problem),)
    return config_set, lint(config_set, nodesets, version, known_nodes)


def lint(
    config_set: ConfigSet,
    nodesets: Sequence[NodeSet] = (),
    version: Version | None = None,
    known_nodes: Collection[str] | None = (),
) -> tuple[Finding, ...]:
    """All findings, errors first, then by file and line.

    `nodesets` are those that the files were composed of, `version` is that of slurmctld (None: unknown), `known_nodes`
    are names of Slurm nodes that are registered. What isn't a key of a known version is an error; of an unknown or
    newer version, a warning. So is a partition of what may be a node where `known_nodes` is None, unknown. Those are
    left to the dry run.
    """
    linter = _Linter(config_set, nodesets, version, known_nodes)
    linter.run()
    placed = {(finding.origin, finding.message) for finding in linter.findings if finding.line is not None}
    return tuple(
        sorted(
            {it: None for it in linter.findings if it.line is not None or (it.origin, it.message) not in placed},
            key=lambda it: (it.severity != "error", it.file != "slurm.conf", it.file, it.line or 0, it.message),
        )
    )


def _error(file: str, line: int | None, origin: str, message: str) -> Finding:
    return Finding(file=file, line=line, origin=origin, severity="error", message=message)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A line of slurm.conf or of a file that it includes. `ours`: the operator wrote it."""

    file: str
    line: conf.Line
    ours: bool

    @property
    def key(self) -> str:
        return self.line.pairs[0].key.lower()

    @property
    def value(self) -> str:
        return self.line.pairs[0].value


@dataclass(slots=True)
class _Linter:
    files: ConfigSet
    nodesets: Sequence[NodeSet]
    version: Version | None
    known_nodes: Collection[str] | None
    findings: list[Finding] = field(default_factory=list)

    def run(self) -> None:
        for problem in self.files.problems:
            self.findings.append(_error(problem.file, None, problem.origin, problem.message))
        try:
            config.spread(self.files)
        except ResourceError as error:
            self.findings.append(_error("slurm.conf", None, error.field, error.problem))
        for name in self.files.binary_files:
            self._binary(name)
        lines = list(self._read("slurm.conf", ()))
        for name in sorted(_SAME_LANGUAGE & self.files.files.keys()):
            self._other(name)
        self._keys(lines)
        self._duplicates(lines)
        self._owned(lines)
        self._scripts(lines)
        self._names(lines)
        self._gres(lines)

    def _tell(self, severity: Severity, at: _Placed, message: str) -> None:
        origin = self.files.origin(at.file, at.line.number)
        finding = Finding(file=at.file, line=at.line.number, origin=origin, severity=severity, message=message)
        self.findings.append(finding)

    def _binary(self, name: str) -> None:
        origin = self.files.origin(name)
        if name.endswith((".conf", ".yaml")):
            said = f"{name} isn't UTF-8: save it as UTF-8"
            self.findings.append(_error(name, None, origin, said))
        elif b"\0" in self.files.binary_files[name]:
            said = f"{name} has NUL bytes, at which Slurm cuts it when it hands it to the workers: bring it by a volume"
            finding = Finding(file=name, line=None, origin=origin, severity="warning", message=said)
            self.findings.append(finding)

    # Reading

    def _parse(self, name: str) -> conf.Conf | None:
        try:
            return conf.parse(self.files.files[name])
        except conf.ConfError as error:
            origin = self.files.origin(name, error.line)
            self.findings.append(_error(name, error.line, origin, error.reason))
            return None

    def _read(self, name: str, including: tuple[str, ...]) -> Iterator[_Placed]:
        """The lines of a file with those that it includes, in the order in which Slurm reads them."""
        parsed = self._parse(name)
        for line in parsed.lines if parsed is not None else ():
            ours = self.files.origin(name, line.number) in {config.OPERATOR, config.MERGED}
            placed = _Placed(name, line, ours)
            if line.include is not None:
                yield from self._included(placed, line.include, (*including, name))
            elif line.pairs:
                yield placed

    def _included(self, at: _Placed, path: str, including: tuple[str, ...]) -> Iterator[_Placed]:
        cluster = conf.parse_readable(self.files.files["slurm.conf"]).get("ClusterName") or ""
        name = path.replace("%c", cluster)
        if name.startswith("/") and not name.startswith(_FOLDER):
            said = f"Include {path}: the operator doesn't know files outside of /etc/slurm, and workers don't get them"
            self._tell("warning", at, f"{said}: bring the file by spec.configFileRefs")
            return
        name = name.removeprefix(_FOLDER)
        if name in including:
            self._tell("error", at, f"Include {path}: the file includes itself: remove the line")
        elif name not in self.files.files:
            said = f"Include {path}: there is no such file: bring it by a ConfigMap of spec.configFileRefs"
            self._tell("error", at, said)
        else:
            yield from self._read(name, including)

    def _other(self, name: str) -> None:
        parsed = self._parse(name)
        for line in parsed.lines if parsed is not None else ():
            for pair in line.pairs:
                self._key(_Placed(name, line, ours=False), name, pair)

    # Rules

    def _keys(self, lines: Sequence[_Placed]) -> None:
        """Keys that Slurm doesn't know, and values of the wrong kind."""
        for at in lines:
            if at.ours:
                continue
            first, *rest = at.line.pairs
            self._key(at, "slurm.conf", first)
            scope = next((key for key in keys.spelled("slurm.conf") if key.lower() == at.key), "")
            inner = scope if (keys.of("slurm.conf", keys.KNOWN[-1]) or {}).get(at.key) == "line" else "slurm.conf"
            for pair in rest:
                self._key(at, inner, pair)

    def _key(self, at: _Placed, scope: str, pair: conf.Pair) -> None:
        known = keys.of(scope, self.version or keys.KNOWN[-1])
        if known is None:
            return
        kind = known.get(pair.key.lower())
        if kind is None:
            where = scope if scope.endswith(".conf") else f"a line of {scope}"
            near = difflib.get_close_matches(pair.key.lower(), known, 1, 0.75)
            spelled = next((key for key in keys.spelled(scope) if near and key.lower() == near[0]), None)
            hint = f"did you mean {spelled}?" if spelled else "remove it or correct its spelling"
            certain = self.version is not None and keys.KNOWN[0] <= self.version <= keys.KNOWN[-1]
            which = f"Slurm {versions.text(self.version or keys.KNOWN[-1])}"
            self._tell("error" if certain else "warning", at, f"{pair.key} is no key of {where} in {which}: {hint}")
            return
        wanted = keys.unfit(kind, pair.value)
        if wanted:
            self._tell("error", at, f"{pair.key}={pair.value}: its value must be {wanted}")

    def _duplicates(self, lines: Sequence[_Placed]) -> None:
        """A key that counts once, set more than once by the user; and a key twice in one line."""
        kinds = keys.of("slurm.conf", keys.KNOWN[-1]) or {}
        seen: dict[str, _Placed] = {}
        for at in lines:
            if kinds.get(at.key) == "line":
                self._twice_in_line(at)
                continue
            if at.ours:
                continue
            before = seen.setdefault(at.key, at)
            if before is at:
                continue
            pair = at.line.pairs[0]
            place = f"{before.file} line {before.line.number}"
            origin = self.files.origin(before.file, before.line.number)
            if before.value == at.value:
                self._tell("warning", at, f"{pair.key} is set already in {place} ({origin}): remove one of the two")
            else:
                said = f"{pair.key}={pair.value} contradicts {pair.key}={before.value} in {place} ({origin})"
                self._tell("error", at, f"{said}: remove one of the two")

    def _twice_in_line(self, at: _Placed) -> None:
        seen: dict[str, str] = {}
        for pair in at.line.pairs:
            before = seen.setdefault(pair.key.lower(), pair.value)
            if before != pair.value:
                said = f"{pair.key}={pair.value} contradicts {pair.key}={before} of the same line: remove one of them"
                self._tell("error", at, said)

    def _owned(self, lines: Sequence[_Placed]) -> None:
        """Keys that are the operator's."""
        ours = {at.key: at.value for at in lines if at.ours}
        merged = {key.lower() for key in conf.LIST_KEYS}
        kinds = keys.of("slurm.conf", keys.KNOWN[-1]) or {}
        for at in lines:
            for pair in at.line.pairs if kinds.get(at.key) != "line" else at.line.pairs[:1]:
                key = pair.key.lower()
                if at.ours or (ours.get(key) == pair.value and key != "slurmctldhost"):
                    continue
                if key in _OWNED_ERRORS:
                    self._tell("error", at, f"{pair.key}={pair.value}: {_OWNED_ERRORS[key]}")
                elif key in _OWNED_WARNINGS:
                    said = f"{pair.key}={pair.value} overrides the operator's {ours.get(key, 'line')}"
                    self._tell("warning", at, f"{said}: {_OWNED_WARNINGS[key]}")
                elif key in merged and any(space in pair.value for space in " \t"):
                    said = f"{pair.key}: a list with spaces isn't merged with the operator's: write {pair.key}="
                    self._tell("error", at, f"{said}{','.join(pair.value.replace(',', ' ').split())}")
                elif key in _NEEDED_ITEMS and _NEEDED_ITEMS[key] not in pair.value.lower().split(","):
                    said = f"{pair.key}={pair.value}: the operator and slurmrestd need {_NEEDED_ITEMS[key]}: add it"
                    self._tell("error", at, said)
                elif key == "selecttype" and pair.value.lower() != "select/cons_tres":
                    said = f"{pair.key}={pair.value}: workers are dynamic nodes, which need select/cons_tres"
                    self._tell("error", at, f"{said}: remove the line")
                elif key == "maxnodecount" and pair.value.isdecimal() and int(pair.value) < _int(ours.get(key)):
                    said = f"{pair.key}={pair.value}: nodes beyond it are lost when slurmctld reads it"
                    self._tell("warning", at, f"{said}; the operator's is {ours.get(key)}: remove the line")
        cluster = next((at for at in lines if at.key == "clustername" and at.ours), None)
        if cluster is not None and len(cluster.value) > MAX_CLUSTER_NAME:
            said = f"ClusterName={cluster.value} has {len(cluster.value)} characters, more than {MAX_CLUSTER_NAME}"
            self._tell("error", cluster, f"{said}: set a shorter spec.clusterName")

    def _scripts(self, lines: Sequence[_Placed]) -> None:
        """Prolog and epilog scripts in /etc/slurm that aren't there: slurmctld dies of some of them."""
        for at in lines:
            value = at.value.removeprefix(_FOLDER)
            if at.key not in _SCRIPTS or "/" in value or any(mark in value for mark in "*?["):
                continue
            if value not in self.files.files and value not in self.files.binary_files:
                pair = at.line.pairs[0]
                said = f"{pair.key}={pair.value}: there is no such script: bring it by a ConfigMap of the scriptRefs"
                self._tell("error", at, said)

    def _names(self, lines: Sequence[_Placed]) -> None:
        """Nodes, sets of nodes and partitions: defined once, and what they refer to is there."""
        nodes: dict[str, _Placed] = {}
        sets: dict[str, _Placed] = {}
        partitions: dict[str, _Placed] = {}
        for at in lines:
            if at.value.upper() == "DEFAULT":
                continue
            if at.key == "nodename":
                for name in self._expanded(at, at.value):
                    self._once(nodes, name, at, "node")
            elif at.key == "nodeset":
                self._once(sets, at.value, at, "set of nodes")
            elif at.key == "partitionname":
                for name in at.value.split(","):
                    self._once(partitions, name, at, "partition")
        for name in nodes.keys() & sets.keys():
            said = f"the node {name} has the name of a set of nodes, which Slurm refuses: rename one of them"
            self._tell("error", nodes[name], said)
        known = nodes.keys() | set(self.known_nodes or ())
        for at in lines:
            if at.key in {"partitionname", "nodeset"}:
                allowed = known | sets.keys() if at.key == "partitionname" else known
                for name in self._expanded(at, at.line.get("Nodes") or ""):
                    if name.upper() != "ALL" and name not in allowed:
                        self._absent(at, name, sorted(sets))

    def _once(self, seen: dict[str, _Placed], name: str, at: _Placed, what: str) -> None:
        before = seen.setdefault(name, at)
        if before is not at:
            origin = self.files.origin(before.file, before.line.number)
            said = f"the {what} {name} is defined already in {before.file} line {before.line.number} ({origin})"
            self._tell("error", at, f"{said}: rename or remove one of them")

    def _expanded(self, at: _Placed, value: str) -> list[str]:
        if value.startswith("-"):
            return []
        try:
            return hostlists.expand(value)
        except hostlists.HostlistError as error:
            self._tell("error", at, f"{value[:100]} is no list of nodes: {error}")
            return []

    def _absent(self, at: _Placed, name: str, sets: Sequence[str]) -> None:
        about = at.line.pairs[0]
        said = f"{about.key}={about.value} names {name}, which is neither a node nor a NodeSet"
        worker = next((it for it in self.nodesets if _may_be_worker(name, it)), None)
        if at.key == "nodeset":
            said = f"NodeSet={about.value} names {name}, of which no NodeName line tells: correct its spelling"
            self._tell("warning", at, f"{said}, or leave it if it registers by itself")
        elif worker is None:
            severity: Severity = "warning" if self.known_nodes is None else "error"
            self._tell(severity, at, f"{said}: there are {', '.join(sets) or 'none'}")
        else:
            said = (
                f"{about.key}={about.value} names {name}, a worker, of which slurmctld dies while it isn't registered"
            )
            self._tell("warning", at, f"{said}: name the NodeSet {worker.slurm_name} instead")

    def _gres(self, lines: Sequence[_Placed]) -> None:
        """GRES of nodes and of gres.conf that GresTypes doesn't declare."""
        values = [pair.value for at in lines for pair in at.line.pairs if pair.key.lower() == "grestypes"]
        declared = {item.strip().lower() for item in (values[-1].split(",") if values else [])}

        def check(place: tuple[str, int | None, str], item: str) -> None:
            name = item.partition(":")[0].strip().lower()
            if name and name not in declared:
                wanted = ",".join(sorted(declared | {name}))
                said = f"Gres {item}: {name} isn't declared: add GresTypes={wanted} to spec.extraConf"
                self.findings.append(_error(*place, said))

        for at in lines:
            gres = at.line.get("Gres") if at.key == "nodename" else None
            for item in (gres or "").split(","):
                check((at.file, at.line.number, self.files.origin(at.file, at.line.number)), item)
        for nodeset in self.nodesets:
            source = f"NodeSet {nodeset.namespace}/{nodeset.name} spec.extraConf"
            for item in (nodeconf.parse(nodeset.spec.extra_conf).get("Gres") or "").split(","):
                check(("slurm.conf", None, source), item)
        gres_conf = self._quietly("gres.conf")
        for line in gres_conf.lines if gres_conf is not None else ():
            name = line.get("Name")
            if name is not None:
                check(("gres.conf", line.number, self.files.origin("gres.conf", line.number)), name)

    def _quietly(self, name: str) -> conf.Conf | None:
        """A file that may not be there, or whose syntax errors are told elsewhere."""
        try:
            return conf.parse(self.files.files.get(name, ""))
        except conf.ConfError:
            return None


def _may_be_worker(name: str, nodeset: NodeSet) -> bool:
    if nodeset.spec.scaling_mode == "DaemonSet":
        return True
    prefix = str(nodeset.spec.template.spec.get("hostname") or "") or f"{nodeset.name}-"
    return name.startswith(prefix) and name.removeprefix(prefix).isdecimal()


def _int(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
