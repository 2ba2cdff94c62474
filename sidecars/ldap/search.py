"""Asks the directory with OpenLDAP's ldapsearch. The password is in no argument and no file of
ours.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from sidecars.ldap.directory import Person, Team, normalized
from sidecars.ldap.ldif import Entry, LdifError, entries
from sidecars.ldap.settings import Settings

CONNECT_SECONDS = 10
SEARCH_SECONDS = 60.0
"""Of one search as a whole."""
_PAGE = 500
_SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")

T = TypeVar("T")


class SearchError(Exception):
    """The directory gave no complete answer. The message names the server and the remedy, and never
    the password.
    """


async def people(
    settings: Settings, password: Path | None, ca: Path | None
) -> tuple[list[Person], list[str]]:
    """Return the users, and why some are none. Raises SearchError."""
    names = settings.attributes
    wanted = [
        names.name,
        names.uid,
        names.gid,
        names.full_name,
        names.home,
        names.shell,
        names.ssh_keys,
    ]
    base = settings.user_base or settings.base
    return _read(
        settings, await _search(settings, password, ca, base, settings.user_filter, wanted), _person
    )


async def teams(
    settings: Settings, password: Path | None, ca: Path | None
) -> tuple[list[Team], list[str]]:
    """Return the groups, and why some are none. Raises SearchError."""
    names = settings.attributes
    wanted = [names.group_name, names.group_gid, names.members, names.member_dns]
    base = settings.group_base or settings.base
    return _read(
        settings, await _search(settings, password, ca, base, settings.group_filter, wanted), _team
    )


def _read(
    settings: Settings, found: Iterable[Entry], reader: Callable[[Settings, Entry], T]
) -> tuple[list[T], list[str]]:
    """Return what `reader` returns for each entry, and why it refused others, with ValueError."""
    read, wrong = [], []
    for entry in found:
        try:
            read.append(reader(settings, entry))
        except ValueError as error:
            wrong.append(f"{entry['dn'][0]}: {error}")
    return read, wrong


def _person(settings: Settings, entry: Entry) -> Person:
    names = settings.attributes
    name = _first(entry, names.name)
    home = settings.home.replace("%u", name) if settings.home else _optional(entry, names.home)
    return Person(
        dn=entry["dn"][0],
        name=name,
        uid=_number(entry, names.uid),
        gid=_number(entry, names.gid),
        full_name=_optional(entry, names.full_name) or "",
        home=home,
        shell=settings.shell or _optional(entry, names.shell) or "/bin/bash",
        ssh_keys=entry.get(names.ssh_keys.lower(), []),
    )


def _team(settings: Settings, entry: Entry) -> Team:
    names = settings.attributes
    for attribute in (names.members, names.member_dns):
        if any(it.startswith(f"{attribute.lower()};range=") for it in entry):
            raise ValueError(
                f"the server gives only a part of `{attribute}`; split the group, or have the "
                "server give all"
            )
    return Team(
        dn=entry["dn"][0],
        name=_first(entry, names.group_name),
        gid=_number(entry, names.group_gid) if entry.get(names.group_gid.lower()) else None,
        members=frozenset(entry.get(names.members.lower(), ())),
        member_dns=frozenset(normalized(it) for it in entry.get(names.member_dns.lower(), ())),
    )


def _optional(entry: Entry, attribute: str) -> str | None:
    return next(iter(entry.get(attribute.lower(), ())), None) or None


def _first(entry: Entry, attribute: str) -> str:
    found = _optional(entry, attribute)
    if found is None:
        raise ValueError(f"it has no attribute `{attribute}`; add it, or narrow the filter")
    return found


def _number(entry: Entry, attribute: str) -> int:
    found = _first(entry, attribute)
    if not (found.isascii() and found.isdigit()):
        raise ValueError(f"`{attribute}` is {found!r}, and must be a number")
    return int(found)


async def _search(
    settings: Settings,
    password: Path | None,
    ca: Path | None,
    base: str,
    where: str,
    attributes: Sequence[str],
) -> list[Entry]:
    words = [
        "ldapsearch",
        "-x",
        "-LLL",
        "-o",
        "ldif-wrap=no",
        "-o",
        f"nettimeout={CONNECT_SECONDS}",
    ]
    words += [
        "-H",
        settings.uri,
        "-b",
        base,
        "-E",
        f"pr={_PAGE}/noprompt",
        "-l",
        str(int(SEARCH_SECONDS)),
    ]
    words += ["-ZZ"] if settings.start_tls else []
    secret = b""
    if settings.bind_dn is not None:
        # Its standard input: an argument would show in the list of processes.
        words += ["-D", settings.bind_dn, "-y", "/dev/stdin"]
        secret = _password(password)
    code, out, error = await _run(
        [*words, "--", where, *dict.fromkeys(attributes)], secret, _environment(ca)
    )
    if code != 0:
        if secret:
            # The server chooses the words, and has got the password.
            error = error.replace(secret.decode(errors="replace"), "***")
        reason = " ".join(error.split()) or f"ldapsearch ended with {code}"
        raise SearchError(f"{settings.uri}, {base}: {reason}{_remedy(code)}")
    try:
        return list(entries(out))
    except LdifError as fault:
        raise SearchError(
            f"{settings.uri}, {base}: the answer of ldapsearch can't be read: {fault}"
        ) from None


def _remedy(code: int) -> str:
    """Return what to do about the more frequent results. 4 is a partial answer, which could remove
    users.
    """
    remedies = {
        4: ". The server gives no more entries at once: raise its size limit for the bind DN, "
        "or narrow the filters",
        32: ". Set ldap.base to an entry that exists and that the bind DN may read",
        49: ". Correct ldap.bindDn, or the password in ldap.passwordSecretRef",
        50: ". Have the directory permit the bind DN to read the users and groups",
        255: ". Check ldap.uri, that the pod may connect to it, and that ldap.caSecretRef has the "
        "CA of the server",
    }
    return remedies.get(code, "")


def _password(path: Path | None) -> bytes:
    """Read the password, without the line break that an editor adds."""
    try:
        found = path.read_bytes() if path is not None else b""
    except OSError as error:
        raise SearchError(
            f"the password of the bind DN: {error.strerror}. Check ldap.passwordSecretRef"
        ) from None
    if not (found := found.rstrip(b"\r\n")):
        raise SearchError("the password of the bind DN is empty. Check ldap.passwordSecretRef")
    return found


def _environment(ca: Path | None) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LDAPTLS_REQCERT": "demand",
        "LDAPTLS_CACERT": str(ca if ca is not None else _SYSTEM_CA),
        "LC_ALL": "C.UTF-8",
    }


async def _run(
    words: Sequence[str], secret: bytes, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )
    except OSError as error:
        raise SearchError(f"ldapsearch: {error.strerror}") from None
    try:
        async with asyncio.timeout(SEARCH_SECONDS):
            out, error_text = await process.communicate(secret)
    except TimeoutError:
        raise SearchError(
            f"ldapsearch had no answer after {SEARCH_SECONDS:.0f} s. Check ldap.uri"
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return (
        process.returncode or 0,
        out.decode(errors="replace"),
        error_text.decode(errors="replace"),
    )
