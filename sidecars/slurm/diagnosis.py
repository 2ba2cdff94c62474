"""Why a daemon of Slurm refused a configuration or ended, from what it logged, and the line at
fault. Pure.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sidecars.contract.manifest import SLURM_CONF
from sidecars.slurm import conf


@dataclass(frozen=True, slots=True)
class Culprit:
    """Why a configuration was refused. `file` is empty and `line` None where the daemon doesn't
    tell.
    """

    reason: str
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if not self.file:
            return self.reason
        return f"{self.file}{'' if self.line is None else f' line {self.line}'}: {self.reason}"


def diagnose(output: str, files: Mapping[str, bytes], daemon: str = "slurmctld") -> Culprit:
    """Find what was wrong, from the output of a daemon or scontrol that refused `files`."""
    logged = [message for message in map(_message, output.splitlines()) if message]
    errors = [text for level, text in logged if level == "error" and not _HARMLESS.search(text)]
    fatal = [
        text for level, text in logged if level == "fatal" and not (errors and _VAGUE.search(text))
    ]
    for text in errors:
        place = _PARSE_ERROR.search(text)
        if place:
            others = [it for it in errors if not _PARSE_ERROR.search(it)]
            reason = "; ".join([*others[:1], f"can't parse {place[3].strip()}"])
            return Culprit(reason, place[1].rpartition("/")[2], int(place[2]))
    for text in errors:
        missing = _MISSING.search(text)
        if missing:
            return Culprit(
                f"{daemon} needs the file {missing[1]}, which does not exist",
                missing[1].rpartition("/")[2],
            )
    # The errors just before the end are why. A plugin that can't be used has one from each layer
    # that knows of it.
    reasons = list(dict.fromkeys([*fatal, *errors[-2:]] if fatal else errors[-3:]))
    reason = (
        "; ".join(reasons)
        or (output.strip().splitlines() or [f"{daemon} ended without a message"])[-1]
    )
    file, line = _locate("; ".join([*reasons, *errors]), files)
    return Culprit(reason, file, line)


def quoted(log: str, files: Mapping[str, bytes], daemon: str) -> Culprit | None:
    """Quote why a daemon that runs with `files` ended last, with its level, as `fatal: …`. Return
    None if its log has no end.
    """
    end = last_end(log)
    if not end:
        return None
    found = diagnose(end, files, daemon)
    level, _ = _message(end.splitlines()[-1]) or ("fatal", "")
    return Culprit(f"{level}: {found.reason}", found.file, found.line)


def last_end(log: str) -> str:
    """Return what a daemon logged from its last start to the end of it, "" if it logged no end. The
    log may contain several starts, the last of which may continue.
    """
    lines = log.splitlines()
    ends = [number for number, line in enumerate(lines) if _is_end(line)]
    if not ends:
        return ""
    return "\n".join(lines[ends[-2] + 1 if len(ends) > 1 else 0 : ends[-1] + 1])


def _is_end(line: str) -> bool:
    level, text = _message(line) or ("", "")
    return level == "fatal" or (level == "error" and _NOT_STARTED in text)


_STAMP = re.compile(r"^(?:\[[^\]]*\]\s*)?(?:(?:slurmctld|slurmd|scontrol):\s*)?")
_LEVEL = re.compile(r"(fatal|error):\s*(?:_*[a-z0-9]+(?:_[a-z0-9]+)+:\s+)*(.*)")
"""After the level often the name of a function of Slurm's, which does not help an administrator."""
_PARSE_ERROR = re.compile(r"Parse error in file (\S+) line (\d+):(.*)")
_MISSING = re.compile(r"cannot stat file (\S+): No such file")
_HARMLESS = re.compile(
    r"state file|usage file|No last decay|Information may be lost|recover|Job accounting "
    r"information|specified more than|MailProg|default partition not set|calls to "
    r"gettimeofday|HealthCheckTimeout|not responding|ping|slurm_receive|slurm_msg|support glob "
    r"parsing|\"Include\" failed in file \S*plugstack[.]conf|please ignore error",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"Unable to process configuration file|failed to initialize|can not open the \S+ plugin",
    re.IGNORECASE,
)
_NOT_STARTED = "slurmd initialization failed"
_WORD = re.compile(r"[A-Za-z0-9_./:-]+")
_PLUGIN = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")


def _message(line: str) -> tuple[str, str] | None:
    found = _LEVEL.match(_STAMP.sub("", line))
    return (found[1], found[2].strip()) if found else None


def _locate(message: str, files: Mapping[str, bytes]) -> tuple[str, int | None]:
    """Return the last line of a .conf file that has the most specific word of the message, if any
    has one.
    """
    best: tuple[int, str, int | None] = (0, "", None)
    words = {word.strip(".:").lower() for word in _WORD.findall(message)} - _COMMON
    plugins = [word.split("/") for word in words if _PLUGIN.fullmatch(word)]
    for name in [SLURM_CONF, *sorted(set(files) - {SLURM_CONF})]:
        if name in message and best[0] < 1:
            best = (1, name, None)
        if not name.endswith(".conf"):
            continue
        for line in conf.parse_readable(files[name].decode(errors="surrogateescape")).lines:
            values = {
                value.lower() for pair in line.pairs for value in re.split(r"[,\s=]+", pair.value)
            }
            keys = {pair.key.lower() for pair in line.pairs}
            named = sum(plugin in values and _is_of(keys, kind) for kind, plugin in plugins)
            score = 8 * named + 4 * len(words & values) + 2 * len(words & keys)
            if score and score >= best[0]:
                best = (score, name, line.number)
    return best[1], best[2]


def _is_of(keys: AbstractSet[str], kind: str) -> bool:
    """Return whether one of the keys selects plugins of a kind, as JobSubmitPlugins does for
    job_submit.
    """
    return any(key.startswith(kind.replace("_", "")) for key in keys)


_UNSPECIFIC = """
a an and any are as at be by can cannot check configuration could does error failed fatal file find
for from has in invalid is it name names node nodes not of on or partition plugin slurm slurm.conf
slurmctld such the this to type unable was with yes no all up default
"""
_COMMON = frozenset(_UNSPECIFIC.split())
