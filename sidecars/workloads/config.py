"""The files of /etc/slurm, composed from a Controller, its NodeSets and the ConfigMaps that it
refers to.

Slurm uses the last of several values of one key (https://slurm.schedmd.com/slurm.conf.html). So the
user's lines come after ours and win; list-valued keys that both set are merged at the end. What
can't be part of a file is left out and reported as a `Problem`. A set of files with problems must
not be published.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sidecars.contract import manifest, paths
from sidecars.slurm import conf
from sidecars.workloads import gres, health, job_logs, slurm_conf_lines, topology
from sidecars.workloads.facts import Facts, combined, digest
from sidecars.workloads.resources import (
    Controller,
    LocalObjectReference,
    NodeSet,
    ResourceError,
)

CGROUP_CONF = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
"""What slurmd needs in a pod. A container has no systemd that slurmd could ask for a scope."""

CONSTRAINTS = (
    "ConstrainCores=yes\nConstrainDevices=yes\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"
)
"""Lines of cgroup.conf that keep a job within the cores, devices and memory that it was given."""

RESERVED_FILES = frozenset(
    {manifest.SLURM_CONF, "slurmdbd.conf", manifest.FILE, *manifest.KEY_FILES}
)
"""Files that no ConfigMap may contain, in any case of letters: the operator or a Secret provides
them.
"""

CLOSED = "INACTIVE"
"""The State of a partition that is being deleted: it accepts no job and starts none."""

OPERATOR = "the operator"
"""Origin of the lines that the operator adds."""

MERGED = "the operator and spec.extraConf"
"""Origin of the lists that both set, followed by the line of spec.extraConf."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the lines of a file come from, up to the next Origin."""

    first: int
    """The first line of the file with this origin, from 1."""

    source: str
    """For messages, such as `spec.extraConf` or `ConfigMap own key gres.conf`."""

    counted: bool = False
    """Whether `source` has several lines, the first of which is line `first`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was left out of the files."""

    file: str
    """The file that lacks it."""

    origin: str
    """Where it is, such as `spec.extraConf line 3`."""

    message: str
    """What is wrong with it, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSet:
    """The files of /etc/slurm by name, without the key files."""

    files: Mapping[str, str]
    """Those that are UTF-8."""

    origins: Mapping[str, tuple[Origin, ...]]
    """Where the lines of each file come from, in the order of the lines."""

    binary_files: Mapping[str, bytes]
    """Those that are not UTF-8."""

    problems: tuple[Problem, ...] = ()
    """What was left out. A set with problems must not be published."""

    def origin(self, file: str, line: int | None = None) -> str:
        """Return the origin of a file, or of one line of it, such as `spec.extraConf line 3`.
        Return "" when unknown.
        """
        origins = self.origins.get(file, ())
        found = next((it for it in reversed(origins) if it.first <= (line or 1)), None)
        if found is None or (line is None and len(origins) > 1):
            return OPERATOR if origins else ""
        return (
            f"{found.source} line {line - found.first + 1}"
            if found.counted and line
            else found.source
        )

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every file by its name, hexadecimal."""
        everything: dict[str, str | bytes] = {**self.files, **self.binary_files}
        return {name: digest(content) for name, content in sorted(everything.items())}

    @property
    def sha256(self) -> str:
        """One digest of the whole."""
        return combined({"": self.digests})


def compose(
    controller: Controller,
    nodesets: Sequence[NodeSet],
    facts: Facts,
    blocks: topology.Blocks = topology.NO_BLOCKS,
) -> ConfigSet:
    """Compose all files of the cluster, or for an external Controller the slurm.conf that its
    clients need.

    `blocks` are those of the block topologies among spec.topologies. The result is deterministic.
    Raises ResourceError for a Controller without a valid slurm.conf, MissingReferenceError for
    referenced ConfigMaps that don't exist.
    """
    composer = _Composer(controller, facts, blocks)
    composer.compose(nodesets)
    return composer.result()


def included(files: Mapping[str, str | bytes]) -> dict[str, str]:
    """slurm.conf and the files that it includes, among the files of /etc/slurm."""
    found, wanted = dict[str, str](), [manifest.SLURM_CONF]
    while wanted:
        name = wanted.pop().removeprefix(f"{paths.SLURM_CONF_FOLDER}/")
        text = files.get(name)
        if isinstance(text, str) and name not in found:
            found[name] = text
            wanted += [
                line.include for line in conf.parse_readable(text).lines if line.include is not None
            ]
    return found


@dataclass(frozen=True, slots=True)
class _Script:
    key: str
    name: str
    source: str


class _Composer:
    """Collects the files of one cluster, where they come from, and what had to be left out."""

    def __init__(self, controller: Controller, facts: Facts, blocks: topology.Blocks) -> None:
        self._controller = controller
        self._facts = facts
        self._blocks = blocks
        self._files: dict[str, str] = {}
        self._binary: dict[str, bytes] = {}
        self._origins: dict[str, tuple[Origin, ...]] = {}
        self._problems: list[Problem] = []
        self._lines: list[str] = []
        self._line_origins: list[Origin] = []

    def compose(self, nodesets: Sequence[NodeSet]) -> None:
        controller, ipv6 = self._controller, self._facts.site.ipv6
        if controller.spec.external:
            self._section(
                "### GENERAL ###", slurm_conf_lines.external_general(controller, ipv6=ipv6)
            )
            self._add(slurm_conf_lines.accounting(self._facts.accounting))
        else:
            extra = conf.parse_readable(controller.spec.extra_conf)
            lists = slurm_conf_lines.lists(controller, nodesets, extra, ipv6=ipv6)
            if job_logs.is_on(nodesets):
                self._files[job_logs.FILE] = self._facts.site.workloads.scripts[job_logs.SCRIPT]
                self._origins[job_logs.FILE] = (Origin(1, OPERATOR),)
            prologs = self._scripts(
                "Prolog", "spec.prologScriptRefs", controller.spec.prolog_script_refs
            )
            epilogs = self._scripts(
                "Epilog", "spec.epilogScriptRefs", controller.spec.epilog_script_refs
            )
            ctld_prologs = self._scripts(
                "PrologSlurmctld",
                "spec.prologSlurmctldScriptRefs",
                controller.spec.prolog_slurmctld_script_refs,
            )
            ctld_epilogs = self._scripts(
                "EpilogSlurmctld",
                "spec.epilogSlurmctldScriptRefs",
                controller.spec.epilog_slurmctld_script_refs,
            )
            for reference in controller.spec.config_file_refs or ():
                self._bring(reference, "spec.configFileRefs")
            if controller.spec.topologies:
                self._topology()
            general = slurm_conf_lines.general(controller, nodesets)
            updates = slurm_conf_lines.group_updates(controller, extra)
            self._section(
                "### GENERAL ###", [*general, *slurm_conf_lines.return_to_service(extra), *updates]
            )
            self._section("### LOGGING ###", slurm_conf_lines.LOGGING)
            self._section(
                "### PLUGINS & PARAMETERS ###", slurm_conf_lines.plugins(controller, lists)
            )
            constrained = self._constraints(extra)
            if constrained:
                self._section("### JOB CONSTRAINTS ###", constrained)
            checked = health.slurm_conf(extra, nodesets)
            if checked:
                self._section("### HEALTH ###", checked)
            saved = slurm_conf_lines.power_saving(extra, nodesets)
            if saved:
                self._section("### POWER SAVING ###", saved)
            self._section("### ACCOUNTING ###", slurm_conf_lines.accounting(self._facts.accounting))
            self._script_section(
                "### SLURMCTLD PROLOG & EPILOG ###",
                ctld_prologs + ctld_epilogs,
                f"{paths.SLURM_CONF_FOLDER}/",
            )
            if slurm_conf_lines.saving_power(nodesets):
                # After the site's, which run when the job has its nodes.
                self._await_nodes()
            if job_logs.is_on(nodesets):
                # Before the site's, whose output it prepares for.
                self._section(
                    "### JOB LOGS ###", [f"Prolog={job_logs.FILE}", f"Epilog={job_logs.FILE}"]
                )
            # Bare names: slurmctld hands these files to every slurmd (configless).
            self._script_section("### PROLOG & EPILOG ###", prologs + epilogs, "")
            self._nodesets(nodesets)
            self._extra(lists)
            self._gres_conf(nodesets)
        self._files["slurm.conf"] = "".join(f"{line}\n" for line in self._lines)
        self._origins["slurm.conf"] = tuple(self._line_origins)
        if not controller.spec.external and not {"cgroup.conf"} & (
            self._files.keys() | self._binary.keys()
        ):
            self._files["cgroup.conf"] = CGROUP_CONF + (
                CONSTRAINTS if controller.spec.constrain_jobs else ""
            )
            self._origins["cgroup.conf"] = (Origin(1, OPERATOR),)

    def result(self) -> ConfigSet:
        return ConfigSet(
            files=dict(sorted(self._files.items())),
            binary_files=dict(sorted(self._binary.items())),
            origins=dict(sorted(self._origins.items())),
            problems=tuple(self._problems),
        )

    # Lines of slurm.conf

    def _add(self, lines: Sequence[str], source: str = OPERATOR, *, counted: bool = False) -> None:
        if counted or not self._line_origins or self._line_origins[-1].source != source:
            self._line_origins.append(Origin(len(self._lines) + 1, source, counted))
        self._lines += lines

    def _section(self, title: str, lines: Sequence[str]) -> None:
        if not self._lines:
            owner = f"{self._controller.namespace}/{self._controller.name}"
            self._add(
                [f"# Composed by slurm-operator for Controller {owner}; changes here are lost."]
            )
        self._add(["#", title, *lines])

    def _constraints(self, extra_conf: conf.Conf) -> list[str]:
        """Return the plugins that apply cgroup.conf to jobs. With CgroupPlugin=disabled slurmd
        would end on them.
        """
        own = conf.parse_readable(self._files.get("cgroup.conf", ""))
        if not self._controller.spec.constrain_jobs or own.get("CgroupPlugin") == "disabled":
            return []
        return slurm_conf_lines.constraints(extra_conf)

    def _script_section(self, title: str, scripts: Sequence[_Script], folder: str) -> None:
        if not scripts:
            return
        self._section(title, [])
        problem = None
        for script in scripts:
            if script.source != problem:
                self._add([f"# {script.source}"])
                problem = script.source
            self._add([f"{script.key}={folder}{script.name}"], script.source)

    def _await_nodes(self) -> None:
        """Add the script that waits until the nodes of a job have registered."""
        name = slurm_conf_lines.AWAIT_FILE
        self._files[name] = self._facts.site.workloads.scripts[slurm_conf_lines.AWAIT_SCRIPT]
        self._origins[name] = (Origin(1, OPERATOR),)
        line = f"PrologSlurmctld={paths.SLURM_CONF_FOLDER}/{name}"
        self._section("### NODES OF JOBS ###", [line])

    def _nodesets(self, nodesets: Sequence[NodeSet]) -> None:
        """NodeSets in the order of their names; a name is declared once, for slurmctld dies of a
        second partition.
        """
        declared: dict[str, str] = {}
        for nodeset in sorted(nodesets, key=lambda nodeset: nodeset.name):
            source = f"NodeSet {nodeset.namespace}/{nodeset.name}"
            name = nodeset.slurm_name
            if not slurm_conf_lines.is_word(name):
                place = f"{source} spec.template.spec.hostname"
                self._problem(
                    place,
                    f"{name!r} can't be the name of a set of nodes: use letters, digits and `-`",
                )
                continue
            if name in declared:
                problem = (
                    f"the name {name!r} is taken by {declared[name]}: set another "
                    "template.spec.hostname"
                )
                self._problem(source, problem)
                continue
            if not declared:
                self._section("### NODESET & PARTITION ###", [])
            declared[name] = source
            self._add([f"# {source}"])
            self._add([f"NodeSet={name} Feature={name}"], source)
            # One that is to go stays, closed, while jobs name it; the last of two values of a key
            # counts.
            closed = (
                nodeset.metadata.deletion_timestamp is not None
                or not nodeset.spec.partition.enabled
            )
            if nodeset.spec.partition.enabled or name in nodeset.status.partitions:
                place = f"{source} spec.partition.config"
                rest = nodeset.spec.partition.config.strip()
                reason = slurm_conf_lines.unfit(rest)
                if reason:
                    self._problem(place, f"{rest!r} {reason}")
                    rest = ""
                if closed:
                    # Its own State would contradict that.
                    rest = f"{conf.without(rest, 'State')} State={CLOSED}".lstrip()
                if not reason or closed:
                    self._add([f"PartitionName={name} Nodes={name} {rest}".rstrip()], place)
        for nodeset in sorted(nodesets, key=lambda nodeset: nodeset.name):
            source = f"NodeSet {nodeset.namespace}/{nodeset.name}"
            for former in nodeset.status.partitions:
                if former not in declared and slurm_conf_lines.is_word(former):
                    declared[former] = source
                    self._add([f"# {source}, a former partition that jobs still name"])
                    self._add([f"NodeSet={former} Feature={former}"], source)
                    self._add([f"PartitionName={former} Nodes={former} State={CLOSED}"], source)

    def _gres_conf(self, nodesets: Sequence[NodeSet]) -> None:
        """gres.conf of NodeSets with GPUs. A file of the user replaces it."""
        if "gres.conf" in self._files or "gres.conf" in self._binary:
            return
        lines: list[str] = []
        origins: list[Origin] = []
        if gres.detects(nodesets):
            origins.append(Origin(1, OPERATOR))
            lines.append("AutoDetect=nvidia")
        for nodeset in sorted(nodesets, key=lambda nodeset: nodeset.name):
            source = f"NodeSet {nodeset.namespace}/{nodeset.name}"
            try:
                own = gres.gres_conf(nodeset)
            except ResourceError as error:
                self._problem(source, str(error), "gres.conf")
                continue
            if own:
                origins.append(Origin(len(lines) + 1, source))
                lines += own
        if lines:
            self._files["gres.conf"] = "".join(f"{line}\n" for line in lines)
            self._origins["gres.conf"] = tuple(origins)

    def _topology(self) -> None:
        for name in sorted(
            {topology.FILE, topology.FORMER_FILE} & (self._files.keys() | self._binary.keys())
        ):
            remedy = (
                f"the operator writes {topology.FILE} for spec.topologies: remove one of the two"
            )
            self._problem(self._origins[name][0].source, remedy, name)
        self._files[topology.FILE] = topology.render(self._controller.spec.topologies, self._blocks)
        self._origins[topology.FILE] = (Origin(1, "spec.topologies"),)

    def _extra(self, lists: Mapping[str, str]) -> None:
        extra = self._controller.spec.extra_conf.rstrip("\n")
        if not extra.strip():
            return
        self._section("### EXTRA CONFIG ###", ["# spec.extraConf"])
        lines = extra.split("\n")
        if slurm_conf_lines.continued(lines[-1]):
            where = f"spec.extraConf line {len(lines)}"
            self._problem(
                where, "the backslash at its end would swallow the line that follows: remove it"
            )
            lines[-1] = lines[-1].rstrip().rstrip("\\")
        self._add(lines, "spec.extraConf", counted=True)
        try:
            parsed = conf.parse(extra)
            merged = conf.merge_lists(lists, parsed)
        except conf.ConfError as error:
            self._problem(f"spec.extraConf line {error.line}", error.reason)
            return
        if merged:
            self._section(
                "### MERGED CONFIG ###", ["# lists of the operator and of spec.extraConf"]
            )
            for key, value in sorted(merged.items()):
                self._add([conf.render(key, value)], f"{MERGED} line {parsed.all(key)[-1].number}")

    def _problem(self, origin: str, message: str, file: str = "slurm.conf") -> None:
        self._problems.append(Problem(file, origin, message))

    # Other files

    def _scripts(
        self, key: str, place: str, references: Sequence[LocalObjectReference] | None
    ) -> list[_Script]:
        found = {
            name: _Script(key, name, f"ConfigMap {reference.name} of {place}")
            for reference in references or ()
            for name in self._bring(reference, place)
        }
        return [found[name] for name in sorted(found)]

    def _bring(self, reference: LocalObjectReference, place: str) -> list[str]:
        """Take in the files of a ConfigMap; their names, without those that had to be refused."""
        [content] = self._facts.files([reference], place).values()
        return [
            name
            for name in sorted(content)
            if self._take(name, content[name], reference.name, place)
        ]

    def _take(self, name: str, content: str | bytes, config_map: str, place: str) -> bool:
        source = f"ConfigMap {config_map} key {name}"
        if name.lower() in RESERVED_FILES:
            remedy = (
                "put its lines into spec.extraConf"
                if name.lower() == manifest.SLURM_CONF
                else "remove the key"
            )
            self._problem(
                source, f"{place} may not bring {name}, which the operator provides: {remedy}", name
            )
            return False
        unfit = manifest.unfit_file_name(name)
        if unfit:
            self._problem(
                source,
                f"{name!r} can't be a file of /etc/slurm, because {unfit}: rename the key",
                name,
            )
            return False
        here: str | bytes | None = self._files.get(name, self._binary.get(name))
        text = _text(content)
        if here is not None and here != text:
            [other] = self._origins[name]
            self._problem(
                source, f"{other.source} brings another {name}: rename one of the two", name
            )
        elif here is None:
            self._origins[name] = (Origin(1, source),)
            if isinstance(text, str):
                self._files[name] = text
            else:
                self._binary[name] = text
        return True


def _text(content: str | bytes) -> str | bytes:
    if isinstance(content, str):
        return content
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
