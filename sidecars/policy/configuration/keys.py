"""Rules about single keys: those that Slurm doesn't know, those that contradict each other, those
of the operator.
"""

import difflib
from collections.abc import Mapping, Sequence

from sidecars.contract import ports, redaction
from sidecars.policy.configuration.reading import Placed, Reading, is_less
from sidecars.slurm import conf, keys, versions
from sidecars.slurm.versions import Version

MAX_CLUSTER_NAME = 40

_OWNED_ERRORS: Mapping[str, str] = {
    "clustername": "slurmctld refuses state of another cluster: set spec.clusterName of a new "
    "Controller",
    "slurmctldhost": "the operator names its own pods: remove the line; backups are spec.ha",
    "controlmachine": "the operator names its own pods: remove the line; backups are spec.ha",
    "backupcontroller": "the operator names its own pods: remove the line; backups are spec.ha",
    "slurmctldport": (
        f"Services and probes use {ports.SLURMCTLD}: remove the line; spec.service.port changes "
        "what clients use"
    ),
    "statesavelocation": "the volume of the state is mounted elsewhere, all jobs would be lost: "
    "remove the line",
    "slurmuser": "slurmctld runs as the user slurm: remove the line",
    "authtype": "slurm.key is the key of auth/slurm: remove the line",
    "credtype": "slurm.key is the key of cred/slurm: remove the line",
    "slurmdport": f"the probes of the workers use {ports.SLURMD}: remove the line",
}
_OWNED_WARNINGS: Mapping[str, str] = {
    "slurmctldaddr": "clients outside of Kubernetes only",
    "slurmctldlogfile": "the log won't show in the pod's log",
    "slurmschedlogfile": "the log won't show in the pod's log",
    "slurmdlogfile": "the log won't show in the workers' pod log",
    "slurmdspooldir": "the workers' volumes are mounted at /var/spool/slurmd",
    "slurmduser": "the workers' slurmd runs as root",
    "slurmctldpidfile": "the pod's root file system may not be writable there",
    "accountingstoragetype": "spec.accountingRef decides about accounting",
    "accountingstoragehost": "spec.accountingRef decides about accounting",
    "accountingstorageport": "spec.accountingRef decides about accounting",
}
_NEEDED_ITEMS: Mapping[str, str] = {"authalttypes": "auth/jwt"}


def known(reading: Reading, version: Version | None, lines: Sequence[Placed]) -> None:
    """Find keys that Slurm doesn't know, and values of the wrong kind."""
    for at in lines:
        if at.ours:
            continue
        first, *rest = at.line.pairs
        key(reading, version, at, "slurm.conf", first)
        scope = next((key for key in keys.spelled("slurm.conf") if key.lower() == at.key), "")
        inner = (
            scope
            if (keys.of("slurm.conf", keys.KNOWN[-1]) or {}).get(at.key) == "line"
            else "slurm.conf"
        )
        for pair in rest:
            key(reading, version, at, inner, pair)


def key(reading: Reading, version: Version | None, at: Placed, scope: str, pair: conf.Pair) -> None:
    """Check one key of a line. `scope` is the file, or the key that the line begins with."""
    known = keys.of(scope, version or keys.KNOWN[-1])
    if known is None:
        return
    kind = known.get(pair.key.lower())
    if kind is None:
        where = scope if scope.endswith(".conf") else f"a line of {scope}"
        near = difflib.get_close_matches(pair.key.lower(), known, 1, 0.75)
        spelled = next(
            (key for key in keys.spelled(scope) if near and key.lower() == near[0]), None
        )
        hint = f"did you mean {spelled}?" if spelled else "remove it or correct its spelling"
        certain = version is not None and keys.KNOWN[0] <= version <= keys.KNOWN[-1]
        which = f"Slurm {versions.text(version or keys.KNOWN[-1])}"
        reading.report(
            "error" if certain else "warning",
            at,
            f"{pair.key} is no key of {where} in {which}: {hint}",
        )
        return
    wanted = keys.unfit(kind, pair.value)
    if wanted:
        reading.report(
            "error", at, f"{redaction.pair(pair.key, pair.value)}: its value must be {wanted}"
        )


def duplicates(reading: Reading, lines: Sequence[Placed]) -> None:
    """Find a key that counts once, set more than once by the user, and a key twice in one line."""
    kinds = keys.of("slurm.conf", keys.KNOWN[-1]) or {}
    seen: dict[str, Placed] = {}
    for at in lines:
        if kinds.get(at.key) == "line":
            _twice_in_line(reading, at)
            continue
        if at.ours:
            continue
        before = seen.setdefault(at.key, at)
        if before is at:
            continue
        pair = at.line.pairs[0]
        place = f"{before.file} line {before.line.number}"
        origin = reading.config_set.origin(before.file, before.line.number)
        if before.value == at.value:
            reading.report(
                "warning",
                at,
                f"{pair.key} is set already in {place} ({origin}): remove one of the two",
            )
        else:
            one, other = (redaction.pair(pair.key, value) for value in (pair.value, before.value))
            problem = f"{one} contradicts {other} in {place} ({origin})"
            reading.report("error", at, f"{problem}: remove one of the two")


def _twice_in_line(reading: Reading, at: Placed) -> None:
    seen: dict[str, str] = {}
    for pair in at.line.pairs:
        before = seen.setdefault(pair.key.lower(), pair.value)
        if before != pair.value:
            one, other = (redaction.pair(pair.key, value) for value in (pair.value, before))
            reading.report(
                "error", at, f"{one} contradicts {other} of the same line: remove one of them"
            )


def owned(reading: Reading, lines: Sequence[Placed]) -> None:
    """Find keys that are the operator's."""
    ours = {at.key: at.value for at in lines if at.ours}
    merged = {key.lower() for key in conf.LIST_KEYS}
    kinds = keys.of("slurm.conf", keys.KNOWN[-1]) or {}
    for at in lines:
        for pair in at.line.pairs if kinds.get(at.key) != "line" else at.line.pairs[:1]:
            key = pair.key.lower()
            if at.ours or (ours.get(key) == pair.value and key != "slurmctldhost"):
                continue
            if key in _OWNED_ERRORS:
                reading.report("error", at, f"{pair.key}={pair.value}: {_OWNED_ERRORS[key]}")
            elif key in _OWNED_WARNINGS:
                problem = (
                    f"{pair.key}={pair.value} overrides the operator's {ours.get(key, 'line')}"
                )
                reading.report("warning", at, f"{problem}: {_OWNED_WARNINGS[key]}")
            elif key in merged and any(space in pair.value for space in " \t"):
                problem = (
                    f"{pair.key}: a list with spaces isn't merged with the operator's: write "
                    f"{pair.key}="
                )
                reading.report(
                    "error", at, f"{problem}{','.join(pair.value.replace(',', ' ').split())}"
                )
            elif key in _NEEDED_ITEMS and _NEEDED_ITEMS[key] not in pair.value.lower().split(","):
                problem = (
                    f"{pair.key}={pair.value}: the operator and slurmrestd need "
                    f"{_NEEDED_ITEMS[key]}: add it"
                )
                reading.report("error", at, problem)
            elif key == "selecttype" and pair.value.lower() != "select/cons_tres":
                problem = (
                    f"{pair.key}={pair.value}: workers are dynamic nodes, which need "
                    "select/cons_tres"
                )
                reading.report("error", at, f"{problem}: remove the line")
            elif key == "maxnodecount" and is_less(pair.value, _int(ours.get(key))):
                problem = (
                    f"{pair.key}={pair.value}: nodes beyond it are lost when slurmctld reads it"
                )
                reading.report(
                    "warning", at, f"{problem}; the operator's is {ours.get(key)}: remove the line"
                )
    cluster = next((at for at in lines if at.key == "clustername" and at.ours), None)
    if cluster is not None and len(cluster.value) > MAX_CLUSTER_NAME:
        problem = (
            f"ClusterName={cluster.value} has {len(cluster.value)} characters, more than "
            f"{MAX_CLUSTER_NAME}"
        )
        reading.report("error", cluster, f"{problem}: set a shorter spec.clusterName")


def _int(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
