"""What a dry run reads. Pure.

The dry run is slurmctld itself, of the same image, on the candidate. It must neither touch the
running slurmctld nor anything that this talks to, so the prepared files differ from the candidate
in who it is and where it writes: host, port, state, pid and log files of its own, no accounting (a
primary registers with slurmdbd) or job completion storage, nor what only slurmdbd knows (QOS of
partitions, TRES to track), no programs of a primary, no standbys, and another slurmd port, so that
its pings reach nobody. Line numbers stay those of the candidate.
https://slurm.schedmd.com/slurm.conf.html
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sidecars.contract.manifest import SLURM_CONF
from sidecars.slurm import conf

CLUSTER_FILE = "clustername"
"""In StateSaveLocation: slurmctld ends when it contains another name than ClusterName."""

CLIENT_SECONDS = 60
"""For slurmctld's answer: it answers a reconfigure when it has served all other requests."""

_CLIENT_KEYS = ("ClusterName", "SlurmUser", "AuthType", "AuthInfo", "CredType")
"""A shutdown is signed for SlurmUser's eyes only."""

NOBODYS_PORT = 9
"""The discard port: no slurmd listens there."""

_REPLACED = frozenset(
    {
        "accountingstoragebackuphost",
        "accountingstorageenforce",
        "accountingstoragetres",
        "accountingstoragetype",
        "backupaddr",
        "backupcontroller",
        "controladdr",
        "controlmachine",
        "slurmctldaddr",
        "slurmctlddebug",
        "slurmctldhost",
        "slurmctldlogfile",
        "slurmctldpidfile",
        "slurmctldport",
        "slurmctldprimaryoffprog",
        "slurmctldprimaryonprog",
        "slurmctldsyslogdebug",
        "slurmdport",
        "slurmschedlogfile",
        "statesavelocation",
    }
)
_JOB_COMPLETIONS = frozenset({"elasticsearch", "filetxt", "kafka", "mysql", "script"})
"""Plugins of JobCompType that write to a place, or run a program, that only slurmctld's container
may have.
"""
_RECORDS = frozenset({"nodename", "nodeset", "partitionname", "downnodes", "frontendname"})
"""Keys that begin a record: the other keys of their line are the record's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the dry run takes place. `nodes`: names of the live dynamic nodes, as hostlists."""

    host: str
    port: int
    state: str
    nodes: tuple[str, ...] = ()


def prepare(files: Mapping[str, bytes], place: Place) -> dict[str, bytes]:
    """Return the files of the dry run, the same names as the candidate's."""
    prepared = dict(files)
    dropped = (
        {"qos"} if (setting(files, "AccountingStorageType") or "").endswith("slurmdbd") else set()
    )
    completions = (setting(files, "JobCompType") or "").lower().rpartition("/")[
        2
    ] in _JOB_COMPLETIONS
    replaced = _REPLACED | ({"jobcomptype"} if completions else frozenset())
    for name in _main_files(files):
        text = files[name].decode(errors="surrogateescape")
        prepared[name] = _neutral(text, replaced, dropped).encode(errors="surrogateescape")
    declared = _declared(files)
    lines = [
        f"SlurmctldHost={place.host}(127.0.0.1)",
        f"SlurmctldPort={place.port}",
        f"StateSaveLocation={place.state}",
        "SlurmctldPidFile=/run/slurmctld.pid",
        f"SlurmdPort={NOBODYS_PORT}",
        "AccountingStorageType=accounting_storage/none",
        *(["JobCompType=jobcomp/none"] if completions else []),
        "SlurmctldDebug=info",
        # The running slurmctld knows dynamic nodes from their registration: no file names them.
        *(
            f"NodeName={name} NodeAddr=127.0.0.1 State=UNKNOWN"
            for name in place.nodes
            if name not in declared
        ),
    ]
    main = prepared[SLURM_CONF]
    prepared[SLURM_CONF] = (
        main + (b"" if main.endswith(b"\n") else b"\n") + "\n".join([*lines, ""]).encode()
    )
    return prepared


@dataclass(frozen=True, slots=True)
class Host:
    """One slurmctld of SlurmctldHost: its hostname, and where it is reached."""

    name: str
    address: str


def hosts(files: Mapping[str, bytes]) -> list[Host]:
    """Return the hosts of slurm.conf, in order: the first is the primary
    (https://slurm.schedmd.com/slurm.conf.html).
    """
    found = _parsed(files[SLURM_CONF])
    values = [line.pairs[0].value for line in found.all("SlurmctldHost")] if found else []
    return [
        Host(name, address.rstrip(")") or name)
        for name, _, address in (it.partition("(") for it in values)
    ]


def client_conf(files: Mapping[str, bytes], host: str, port: int) -> bytes:
    """Return a slurm.conf for scontrol that reaches the slurmctld of this pod, and no other, at its
    own address.
    """
    found = _parsed(files[SLURM_CONF])
    kept = {key: found.get(key) for key in _CLIENT_KEYS} if found else {}
    lines = [f"{key}={value}" for key, value in kept.items() if value]
    lines += [
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={port}",
        f"MessageTimeout={CLIENT_SECONDS}",
        "",
    ]
    return "\n".join(lines).encode()


def setting(files: Mapping[str, bytes], key: str) -> str | None:
    """Return the last value of a key in slurm.conf, or None when absent or slurm.conf can't be
    parsed.
    """
    found = _parsed(files[SLURM_CONF])
    return found.get(key) if found else None


def changed(
    before: Mapping[str, bytes], after: Mapping[str, bytes], keys: Iterable[str]
) -> list[str]:
    """Return those of `keys` whose value differs between two sets, as `Key (old → new)`."""
    pairs = ((key, setting(before, key), setting(after, key)) for key in keys)
    return [f"{key} ({old or 'unset'} → {new or 'unset'})" for key, old, new in pairs if old != new]


def dynamic_nodes(listing: str) -> tuple[str, ...]:
    """Return the names of the dynamic nodes in the output of `scontrol -o show nodes`."""
    found = []
    for line in listing.splitlines():
        name = re.match(r"NodeName=(\S+)", line)
        if name and re.search(r"\bState=\S*DYNAMIC", line):
            found.append(name[1])
    return tuple(found)


def _parsed(content: bytes) -> conf.Conf | None:
    try:
        return conf.parse(content.decode(errors="surrogateescape"))
    except conf.ConfError:
        return None


def _main_files(files: Mapping[str, bytes]) -> Iterator[str]:
    """slurm.conf and the files of the set that it includes, directly or not."""
    waiting, seen = [SLURM_CONF], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in files:
            continue
        seen.add(name)
        yield name
        parsed = _parsed(files[name])
        if parsed:
            waiting += [line.include.rpartition("/")[2] for line in parsed.lines if line.include]


def _declared(files: Mapping[str, bytes]) -> set[str]:
    """Return the names after NodeName=, as they are written."""
    found: set[str] = set()
    for name in _main_files(files):
        parsed = _parsed(files[name])
        for line in parsed.all("NodeName") if parsed else ():
            found.update(line.pairs[0].value.split(","))
    return found


def _neutral(text: str, replaced: AbstractSet[str], dropped: AbstractSet[str]) -> str:
    """Return the text without the settings `replaced`, and `dropped` of records, each line where it
    was.
    """
    try:
        lines = conf.parse(text).lines
    except conf.ConfError:
        # slurmctld stops at the same place, before any of them takes effect.
        return text
    return "".join(_neutral_line(line, replaced, dropped) for line in lines)


def _neutral_line(line: conf.Line, replaced: AbstractSet[str], dropped: AbstractSet[str]) -> str:
    without = dropped if line.pairs and line.pairs[0].key.lower() in _RECORDS else replaced
    kept = [pair for pair in line.pairs if pair.key.lower() not in without]
    if len(kept) == len(line.pairs):
        return line.text
    rest = " ".join(
        f'{pair.key}="{pair.value}"' if " " in pair.value else f"{pair.key}={pair.value}"
        for pair in kept
    )
    return rest + "\n" * line.text.count("\n")
