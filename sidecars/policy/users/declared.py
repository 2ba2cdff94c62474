"""Users and groups as a Secret declares them, what is wrong with them, and the files that pods read
them from.

The files are those of libnss-extrausers, an NSS module: they add to /etc/passwd and /etc/group of
the image.
"""

import re
from collections.abc import Hashable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
import yaml

from sidecars.contract import paths

MOST_BYTES = 1_000_000
"""Of all files together. A ConfigMap has room for 1 MiB."""

LOWEST_ID = 1000
HIGHEST_ID = 2**32 - 3
"""The next ones are NO_VAL of Slurm, and no user at all."""
RESERVED_IDS = {65532: "the operator's containers", 65534: "nobody", 65535: "no user at all"}
"""What has these IDs in the pods."""

RESERVED_NAMES = frozenset(
    {
        "_apt", "_ssh", "adm", "audio", "backup", "bin", "cdrom", "crontab", "daemon", "dialout",
        "dip", "disk", "fax", "floppy", "games", "input", "irc", "kmem", "kvm", "list", "lp",
        "mail", "man", "messagebus", "munge", "mysql", "news", "nobody", "nogroup", "operator",
        "plugdev", "polkitd", "proxy", "render", "root", "sasl", "sgx", "shadow", "slurm", "src",
        "sshd", "sssd", "staff", "sudo", "sync", "sys", "systemd-journal", "systemd-network",
        "systemd-resolve", "systemd-timesync", "tape", "tty", "users", "utmp", "uucp", "video",
        "voice", "www-data",
    }
)  # fmt: skip
"""Users and groups that images have. The image's would be found first, with another ID."""

_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
_PATH = re.compile(r"/[^\s:\x00-\x1f\x7f]+")
_KEY = re.compile(
    r"(?:ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|"
    r"ecdsa-sha2-nistp256)@openssh\.com) [A-Za-z0-9+/]{16,}={0,3}(?: [^\x00-\x1f\x7f]*)?"
)


_SSHD_CONF = PurePath(paths.USERS_SSHD_CONF).name


class DeclaredError(Exception):
    """The Secret can't be read; the message names the place and never quotes the Secret."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Group(_Part, frozen=True):
    """A group that users share."""

    gid: int


class User(_Part, frozen=True):
    """A user of the operating system."""

    uid: int
    group: str | None = None
    """The primary group; None: one of the user's own, with the user's name and the number `uid`."""
    groups: list[str] = []
    """Further groups."""
    full_name: str = ""
    shell: str = "/bin/bash"
    home: str | None = None
    """None: the user's name below /home."""
    ssh_keys: list[str] = []
    """Public keys for login."""


class Declared(_Part, frozen=True):
    """All of it."""

    users: dict[str, User] = {}
    groups: dict[str, Group] = {}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # one of two classes
    """Refuses a key that a mapping has twice: the first of two users would disappear."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise DeclaredError(f"line {key.start_mark.line + 1}: a key must be a text")
            if name in seen:
                raise DeclaredError(
                    f"line {key.start_mark.line + 1}: `{name}` is declared twice; remove one"
                )
            seen.add(name)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


def parse(text: bytes) -> Declared:
    """Return the declaration, from YAML or JSON. Raises DeclaredError."""
    try:
        found = yaml.load(text, _Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise DeclaredError(f"line {line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise DeclaredError("not YAML in UTF-8") from None
    try:
        return msgspec.convert(found if found is not None else {}, Declared)
    except msgspec.ValidationError as error:
        # A place as msgspec writes it, `$.users[...].uid`, doesn't name the user.
        raise DeclaredError(_place(found, str(error))) from None


def _place(found: object, message: str) -> str:
    for kind, type_ in (("users", User), ("groups", Group)):
        entries = found.get(kind) if isinstance(found, dict) else None
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            try:
                msgspec.convert(entry, type_)
            except msgspec.ValidationError as error:
                return f"{kind}.{name}: {error}"
    return message


def faults(declared: Declared) -> Iterator[str]:
    """Yield why nothing is applied: each with place, value and remedy."""
    owners: dict[int, str] = {}
    gids: dict[int, str] = {}
    for name, group in declared.groups.items():
        place = f"groups.{name}"
        yield from _name(place, name)
        yield from _number(f"{place}.gid", group.gid)
        yield from _unique(f"{place}.gid", group.gid, gids)
    for name, user in declared.users.items():
        place = f"users.{name}"
        yield from _name(place, name)
        yield from _number(f"{place}.uid", user.uid)
        yield from _unique(f"{place}.uid", user.uid, owners)
        if user.group is None and name in declared.groups:
            yield (
                f"{place}.group: a group `{name}` is declared too; set `group: {name}`, or rename "
                "that group"
            )
        elif user.group is None and user.uid in gids:
            yield (
                f"{place}.group: {gids[user.uid].removesuffix('.gid')} has the gid {user.uid}, "
                "which the user's own group would have; set `group`"
            )
        for field, names in (
            ("group", [user.group] if user.group is not None else []),
            ("groups", user.groups),
        ):
            for group_name in names:
                if group_name not in declared.groups:
                    yield (
                        f"{place}.{field}: no group `{group_name}` is declared; add it to groups, "
                        "or correct the name"
                    )
        if ":" in user.full_name or not user.full_name.isprintable():
            yield f"{place}.fullName: may contain no `:` and no line break"
        yield from _path(f"{place}.shell", user.shell)
        if user.home is not None:
            yield from _path(f"{place}.home", user.home)
        for number, key in enumerate(user.ssh_keys):
            if not _KEY.fullmatch(key):
                yield (
                    f"{place}.sshKeys[{number}]: not a public key in one line, such as "
                    "`ssh-ed25519 AAAA… comment`; copy the content of a file ~/.ssh/id_*.pub"
                )
    size = sum(len(name) + len(text.encode()) for name, text in files(declared).items())
    if size > MOST_BYTES:
        yield (
            f"users: the files have {size} bytes, and may have {MOST_BYTES}; use a directory "
            "(SSSD) for so many users"
        )


def files(declared: Declared) -> dict[str, str]:
    """Return the files by name: `passwd`, `group`, `sshd.conf`, and `keys-USER` with the public
    keys of each user who has some. Nobody can log in with a password: `*` is no hash of one, and
    sshd asks for none.
    """
    members: dict[str, list[str]] = {}
    own: list[tuple[str, int]] = []
    lines = []
    for name, user in sorted(declared.users.items()):
        gid = user.uid
        if user.group is None:
            own.append((name, user.uid))
        elif user.group in declared.groups:
            gid = declared.groups[user.group].gid
        for group in dict.fromkeys(user.groups):
            members.setdefault(group, []).append(name)
        home = user.home if user.home is not None else f"/home/{name}"
        lines.append(f"{name}:*:{user.uid}:{gid}:{user.full_name}:{home}:{user.shell}\n")
    groups = sorted([*own, *((name, group.gid) for name, group in declared.groups.items())])
    return {
        "passwd": "".join(lines),
        "group": "".join(
            f"{name}:*:{gid}:{','.join(members.get(name, ()))}\n" for name, gid in groups
        ),
        _SSHD_CONF: _keys_only(sorted(declared.users)),
        **{
            f"keys-{name}": "".join(f"{key}\n" for key in user.ssh_keys)
            for name, user in sorted(declared.users.items())
            if user.ssh_keys
        },
    }


def _keys_only(names: Sequence[str]) -> str:
    if not names:
        return ""
    return (
        f"Match User {','.join(names)}\n"
        "PasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
    )


def _name(place: str, name: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f"{place}: a name has up to 32 of a-z, 0-9 and _.- and begins with a letter or `_`"
    elif name in RESERVED_NAMES:
        yield f"{place}: the images have a user or group of this name; choose another name"


def _number(place: str, number: int) -> Iterator[str]:
    if not LOWEST_ID <= number <= HIGHEST_ID:
        yield (
            f"{place}: {number} is not a number from {LOWEST_ID} to {HIGHEST_ID}; those below "
            "belong to the system"
        )
    elif number in RESERVED_IDS:
        yield f"{place}: {number} belongs to {RESERVED_IDS[number]}; choose another number"


def _unique(place: str, number: int, known: dict[int, str]) -> Iterator[str]:
    if number in known:
        yield f"{place}: {known[number]} is {number} too; each needs a number of its own"
    known.setdefault(number, place)


def _path(place: str, path: str) -> Iterator[str]:
    if not _PATH.fullmatch(path):
        yield f"{place}: must be an absolute path without spaces and `:`"
