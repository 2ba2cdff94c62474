"""Reads the part of the Containerfile language that images/ uses.

Pure: text in, values out. It neither builds nor looks at files. What it does not know is refused,
never passed over, so that a Containerfile that an engine builds one way can't be built another way
here.

Language: https://docs.docker.com/reference/dockerfile/
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace


class ContainerfileError(Exception):
    """A Containerfile that can't be read: the message has file, line, text and what is
    understood.
    """


@dataclass(frozen=True)
class Mount:
    """A file or folder of the build context, seen under `target` during a step."""

    source: str
    target: str


@dataclass(frozen=True)
class Run:
    """A shell command run in the image, with what ENV set before it."""

    command: str
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Copy:
    """A file or folder laid into the image at `target`: of the build context, or of the stage
    `stage`.
    """

    source: str
    target: str
    stage: str | None = None


Step = Run | Copy


@dataclass(frozen=True)
class Config:
    """How a container of the image is run; the words are those of the OCI image configuration."""

    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    working_directory: str = ""
    ports: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def on(self, below: "Config") -> "Config":
        """This configuration where it sets something, and that of the image `below` elsewhere."""
        return Config(
            environment={**below.environment, **self.environment},
            labels={**below.labels, **self.labels},
            user=self.user or below.user,
            working_directory=self.working_directory or below.working_directory,
            ports=self.ports or below.ports,
            entrypoint=self.entrypoint or below.entrypoint,
            command=self.command or below.command,
        )


@dataclass(frozen=True)
class Stage:
    """One FROM and what follows it. `base` is an image or the name of an earlier stage, whose
    `config` it continues.
    """

    name: str
    base: str
    steps: tuple[Step, ...]
    config: Config


def parse(text: str, origin: str) -> tuple[Stage, ...]:
    """The stages of a Containerfile in order; the last one is the image.

    `origin` names the file in errors. Raises ContainerfileError.
    """
    defaults: dict[str, str] = {}
    stages: list[Stage] = []
    for line, instruction in _instructions(text):
        try:
            keyword, _, rest = instruction.partition(" ")
            keyword, rest = keyword.upper(), rest.strip()
            if keyword == "ARG" and not stages:
                name, _, value = rest.partition("=")
                defaults[name] = value
            elif keyword == "FROM":
                stages.append(_from(_substitute(rest, defaults), stages))
            elif stages:
                stages[-1] = _continue(stages[-1], keyword, rest)
            else:
                _refuse("an instruction before FROM")
        except _RefusedError as error:
            raise ContainerfileError(f"{origin}:{line}: {instruction!r}: {error}") from None
    if not stages:
        raise ContainerfileError(f"{origin}: no FROM")
    return tuple(stages)


class _RefusedError(Exception):
    """Why one instruction can't be read."""


def _refuse(reason: str) -> None:
    raise _RefusedError(reason)


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with the number of their first physical line; comments and blank lines are
    gone.
    """
    pending: list[str] = []
    first = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        first = first if pending else number
        pending.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            yield first, " ".join(pending)
            pending = []
    if pending:
        yield first, " ".join(pending)


def _substitute(text: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            _refuse(f"no ARG {name} with a default before it")
        return values[name]

    return re.sub(r"\$\{(\w+)\}", value, text)


def _from(rest: str, stages: list[Stage]) -> Stage:
    words = rest.split()
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        _refuse("FROM is understood as FROM IMAGE [AS NAME]")
    base = words[0]
    name = words[2] if len(words) == 3 else str(len(stages))
    config = next((stage.config for stage in stages if stage.name == base), Config())
    return Stage(name, base, (), config)


def _continue(stage: Stage, keyword: str, rest: str) -> Stage:
    config = stage.config
    match keyword:
        case "RUN":
            return replace(stage, steps=(*stage.steps, _run(rest, config)))
        case "COPY":
            return replace(stage, steps=(*stage.steps, _copy(rest)))
        case "ENV":
            config = replace(config, environment={**config.environment, **_pairs(rest)})
        case "LABEL":
            config = replace(config, labels={**config.labels, **_pairs(rest)})
        case "USER":
            config = replace(config, user=rest)
        case "WORKDIR":
            config = replace(config, working_directory=rest)
        case "EXPOSE":
            config = replace(
                config, ports=(*config.ports, *(f"{port}/tcp" for port in rest.split()))
            )
        case "ENTRYPOINT":
            config = replace(config, entrypoint=_exec_form(rest), command=())
        case "CMD":
            config = replace(config, command=_exec_form(rest))
        case _:
            _refuse(
                "not one of ARG, FROM, RUN, COPY, ENV, LABEL, USER, WORKDIR, EXPOSE, ENTRYPOINT, "
                "CMD"
            )
    return replace(stage, config=config)


def _flags(rest: str) -> tuple[list[tuple[str, str]], str]:
    """Leading --NAME=VALUE words, and what follows them."""
    flags = []
    while match := re.match(r"--(\w+)=(\S+)\s+", rest):
        flags.append((match[1], match[2]))
        rest = rest[match.end() :]
    return flags, rest


def _run(rest: str, config: Config) -> Run:
    flags, command = _flags(rest)
    mounts = []
    for name, value in flags:
        options = dict(option.partition("=")[::2] for option in value.split(","))
        if (
            name != "mount"
            or options.pop("type", "") != "bind"
            or options.keys() != {"source", "target"}
        ):
            _refuse("of RUN's flags, --mount=type=bind,source=…,target=… alone is understood")
        mounts.append(Mount(options["source"], options["target"]))
    return Run(command, tuple(mounts), tuple(config.environment.items()))


def _copy(rest: str) -> Copy:
    flags, paths = _flags(rest)
    words = paths.split()
    if len(words) != 2 or any(name != "from" for name, _ in flags) or len(flags) > 1:
        _refuse("COPY is understood as COPY [--from=STAGE] SOURCE TARGET")
    if not words[1].startswith("/") or words[1].endswith("/"):
        _refuse("COPY's target must be an absolute path that does not end in /")
    return Copy(words[0], words[1], flags[0][1] if flags else None)


def _pairs(rest: str) -> dict[str, str]:
    pairs = {}
    for word in shlex.split(rest):
        name, separator, value = word.partition("=")
        if not separator:
            _refuse("pairs are understood as NAME=VALUE")
        pairs[name] = value
    return pairs


def _exec_form(rest: str) -> tuple[str, ...]:
    try:
        words = json.loads(rest)
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        _refuse('commands are understood in the exec form: ["program", "argument"]')
    return tuple(words or ())
