"""Role `ldap`: keeps a Secret in step with the directory: `slurm-sidecars ldap`.

Between two passes nothing is remembered but what was logged: what is in effect is in the Secret. A
pass that fails changes nothing, so that users and their jobs outlive any outage of the directory.
"""

import asyncio
import base64
import binascii
import contextlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sidecars.contract import environment as variables
from sidecars.kube import (
    SECRETS,
    ApiError,
    Client,
    CredentialsError,
    KubeError,
    NotFound,
    load_credentials,
)
from sidecars.ldap import search
from sidecars.ldap.directory import DirectoryError, merge, users_of
from sidecars.ldap.search import SearchError
from sidecars.ldap.settings import Settings, read
from sidecars.policy.users import report
from sidecars.policy.users.declared import Declared, DeclaredError, faults, parse
from sidecars.program import log_to_stderr, stop_signal

log = logging.getLogger(__name__)

KEY = "users.yaml"
MOST_LINES = 20
"""Of entries that are left out. The others are counted."""


class OwnUsersError(Exception):
    """The users that the site declares beside the directory can't be read."""


@dataclass(frozen=True, slots=True)
class Places:
    """The environment."""

    settings: Settings
    target: tuple[str, str]
    """Namespace and name of the Secret."""
    own: tuple[str, str] | None
    """Name and key of the Secret with the users that the site declares beside the directory."""
    password: Path | None
    ca: Path | None
    ready: Path
    """Exists while the last pass succeeded."""


@dataclass(slots=True)
class Logged:
    """What was logged last: nothing is repeated while it stays."""

    left_out: list[str] = field(default_factory=list)
    fault: str | None = None


def parse_environment(environment: Mapping[str, str]) -> Places:
    """Read the variables. Raises ValueError, which names the variable, the value and the remedy."""
    for name in (variables.LDAP_SETTINGS, variables.LDAP_TARGET, variables.LDAP_READY):
        if not environment.get(name):
            raise ValueError(f"{name} is missing: set it as charts/slurm does")
    namespace, _, target = environment[variables.LDAP_TARGET].partition("/")
    own, _, key = environment.get(variables.LDAP_OWN, "").partition("/")
    if not target:
        raise ValueError(
            f"{variables.LDAP_TARGET} is {namespace!r}: give NAMESPACE/NAME of a Secret"
        )
    if own and not key:
        raise ValueError(f"{variables.LDAP_OWN} is {own!r}: give NAME/KEY of a Secret")

    def path(name: str) -> Path | None:
        return Path(environment[name]) if environment.get(name) else None

    return Places(
        read(Path(environment[variables.LDAP_SETTINGS])),
        (namespace, target),
        (own, key) if own else None,
        path(variables.LDAP_PASSWORD_FILE),
        path(variables.LDAP_CA_FILE),
        Path(environment[variables.LDAP_READY]),
    )


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM: 0 then, 3 when it can't begin, 2 for usage."""
    log_to_stderr()
    if arguments:
        print("usage: slurm-sidecars ldap", file=sys.stderr)
        return 2
    try:
        asyncio.run(_run(parse_environment(os.environ)))
    except (ValueError, CredentialsError) as error:
        log.error("%s", error)
        return 3
    return 0


async def _run(places: Places) -> None:
    stop = stop_signal()
    logged = Logged()
    async with Client.connect(load_credentials()) as kube:
        while not stop.is_set():
            await attempt(kube, places, logged)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), places.settings.interval_seconds)


async def attempt(kube: Client, places: Places, logged: Logged) -> None:
    """Attempt one pass, and log its result. The file by which the pod is ready shows it, too."""
    try:
        await once(kube, places, logged)
    except (
        SearchError,
        DirectoryError,
        OwnUsersError,
        KubeError,
        ApiError,
        CredentialsError,
    ) as error:
        places.ready.unlink(missing_ok=True)
        if logged.fault != str(error):
            log.error("%s. The pods keep the users that they have.", str(error).rstrip("."))
            logged.fault = str(error)
        return
    if logged.fault is not None:
        log.info("the directory is read again")
        logged.fault = None
    places.ready.touch()


async def once(kube: Client, places: Places, logged: Logged) -> None:
    """Run one pass. Raises SearchError, DirectoryError, OwnUsersError, KubeError and
    CredentialsError.
    """
    namespace, name = places.target
    own = await _own(kube, places)
    people, wrong_people = await search.people(places.settings, places.password, places.ca)
    teams, wrong_teams = await search.teams(places.settings, places.password, places.ca)
    secret = await kube.get(SECRETS, namespace, name)
    former = _former(_content(secret, KEY))
    merged = merge(own, people, teams, former)
    left_out = sorted([*wrong_people, *wrong_teams, *merged.left_out])
    wanted = {
        KEY: msgspec.json.encode(merged.declared, order="sorted"),
        report.LEFT_OUT: report.left_out(left_out),
    }
    changed = {key: content for key, content in wanted.items() if _content(secret, key) != content}
    if changed:
        data = {
            key: content and base64.b64encode(content).decode() for key, content in changed.items()
        }
        await kube.merge_patch(SECRETS, namespace, name, {"data": data})
    if KEY in changed:
        log.info(
            "Secret %s: %d users of the directory (%d before), %d declared ones, %d groups",
            name,
            users_of(merged.declared.users, own),
            users_of(former.users, own),
            len(own.users),
            len(merged.declared.groups),
        )
    if left_out != logged.left_out:
        for line in left_out[:MOST_LINES]:
            log.warning("left out: %s", line)
        if len(left_out) > MOST_LINES:
            log.warning("left out: %d more", len(left_out) - MOST_LINES)
        logged.left_out = left_out


async def _own(kube: Client, places: Places) -> Declared:
    if places.own is None:
        return Declared()
    name, key = places.own
    try:
        text = _content(await kube.get(SECRETS, places.target[0], name), key)
        if text is None:
            raise OwnUsersError(f"Secret {name!r} has no key {key!r}; add it")
        found = parse(text)
    except NotFound:
        raise OwnUsersError(f"Secret {name!r} does not exist; create it") from None
    except DeclaredError as error:
        raise OwnUsersError(f"Secret {name!r}, key {key!r}: {error}") from None
    if wrong := next(faults(found), None):
        raise OwnUsersError(f"Secret {name!r}, key {key!r}: {wrong}")
    return found


def _content(secret: Mapping[str, object], key: str) -> bytes | None:
    data = secret.get("data")
    found = data.get(key) if isinstance(data, Mapping) else None
    try:
        return base64.b64decode(found) if isinstance(found, str) else None
    except binascii.Error:
        return None


def _former(text: bytes | None) -> Declared:
    """Read what is in effect. Return nothing where this role has not written it, which is JSON:
    YAML would take 70 times longer.
    """
    try:
        return msgspec.json.decode(text or b"{}", type=Declared)
    except msgspec.DecodeError:
        return Declared()
