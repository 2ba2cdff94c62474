"""The users and groups of a directory beside those that the site declares: what both make together,
and what can't be.

The declared ones are taken as they are. An entry of the directory that can't exist beside them, or
beside an entry that is in effect already, is left out with the reason: a new entry can never
replace another user.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from sidecars.policy.users.declared import Declared, Group, User, faults, files

MOST_BYTES = 16_384
"""Of one user: often users change entries of their own, and all users together have a limit."""

_SYSTEM = re.compile(
    r"/(?:bin|boot|etc|lib[0-9]*|root|run|sbin|usr|var/(?:cache|lib|log|run|spool))(?:/.*)?"
)
"""Folders that root reads programs or settings from. At login a missing home directory is created
as the user's own.
"""
_NAMELESS = "gid-{}"
"""The name of a primary group that the directory doesn't have."""
_LIKE_NAMELESS = re.compile(r"gid-[0-9]+")
_SAME_TWICE = (
    "another entry has the same name and {}, so that what is in effect stays as it is; remove one"
)
_NAMELESS_TAKEN = "names like this one are of primary groups that have no entry; rename it"


class DirectoryError(Exception):
    """The directory's answer as a whole can't be right, or is too much: what is in effect stays."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user as the directory has it."""

    dn: str
    name: str
    uid: int
    gid: int
    full_name: str = ""
    home: str | None = None
    """None: the user's name below /home."""
    shell: str = "/bin/bash"
    ssh_keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Team:
    """A group as the directory has it."""

    dn: str
    name: str
    gid: int | None
    """None: the pods can't have it, and groups that contain it have its members."""
    members: frozenset[str] = frozenset()
    """Names of users."""
    member_dns: frozenset[str] = frozenset()
    """Of users and of groups. Normalized, see `normalized`."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The declaration for the pods."""

    declared: Declared
    left_out: list[str] = field(default_factory=list)
    """Each with the entry, the reason and the remedy, in the order of names."""


def normalized(dn: str) -> str:
    """Return a distinguished name so that equal ones have equal texts, save for rare escapes."""
    return ",".join(part.strip() for part in dn.lower().split(","))


def merge(
    own: Declared, people: Iterable[Person], teams: Iterable[Team], former: Declared
) -> Merged:
    """`own`: what the site declares, without faults. `former`: what is in effect.

    Raises DirectoryError when the directory has no user but had some, and when the pods can't have
    so many.
    """
    people, teams = (
        sorted(people, key=lambda it: (it.name, it.dn)),
        sorted(teams, key=lambda it: (it.name, it.dn)),
    )
    if not people and former.users.keys() - own.users.keys():
        raise DirectoryError(
            "the directory has no users now, and had some. Check ldap.userFilter, ldap.base and "
            "ldap.bindDn"
        )
    left_out: list[str] = []
    groups, taken = _groups(own, teams, former, left_out)
    users = _users(own, people, former, groups, left_out)
    memberships: dict[str, list[str]] = {}
    inner = {normalized(team.dn): team for team in teams}
    by_dn = {normalized(person.dn): person.name for person in people if person.name in users}
    for team in taken:
        for name in _members(team, inner, by_dn):
            memberships.setdefault(name, []).append(team.name)
    users = {
        name: msgspec.structs.replace(user, groups=memberships.get(name, []))
        for name, user in users.items()
    }
    found = Declared({**own.users, **users}, groups)
    if wrong := next(faults(found), None):
        raise DirectoryError(f"{wrong}, or narrow ldap.userFilter")
    return Merged(found, left_out)


def _members(team: Team, inner: Mapping[str, Team], by_dn: Mapping[str, str]) -> set[str]:
    """Return the names of its members and of those of the groups in it, at any depth. Groups can
    contain each other.

    `inner` (all groups) and `by_dn` (names of users) are by normalized DN, which identifies the
    entry: whether the pods can have an inner group of this name and gid doesn't matter. What is
    neither is ignored.
    """
    found: set[str] = set()
    seen: set[str] = set()
    ahead = [team]
    while ahead:
        group = ahead.pop()
        new = group.member_dns - seen
        seen |= new
        found.update(group.members, (by_dn[it] for it in new if it in by_dn))
        ahead += [inner[it] for it in new if it in inner]
    return found


def _groups(
    own: Declared, teams: Sequence[Team], former: Declared, left_out: list[str]
) -> tuple[dict[str, Group], list[Team]]:
    """Return the declared groups and those of the directory that can exist beside them, and the
    entries whose members count.
    """
    groups = dict(own.groups)
    taken: dict[str, Team] = {}
    own_gids = {group.gid: f"the declared group `{name}`" for name, group in own.groups.items()}
    private = {name: user.uid for name, user in own.users.items() if user.group is None}
    own_gids |= {gid: f"the group of the declared user `{name}`" for name, gid in private.items()}
    kept = {(name, group.gid) for name, group in former.groups.items()}
    numbered = [(it, it.gid) for it in teams if it.gid is not None]
    names, gids = Counter(it.name for it, _ in numbered), Counter(gid for _, gid in numbered)
    same = Counter((it.name, gid) for it, gid in numbered)
    for team, gid in numbered:
        place = f"group `{team.name}` ({team.dn})"
        declared = own.groups.get(team.name)
        twice = names[team.name] > 1 or gids[gid] > 1
        one_of_ours = declared is not None and declared.gid == gid
        if _LIKE_NAMELESS.fullmatch(team.name) and not one_of_ours:
            left_out.append(f"{place}: {_NAMELESS_TAKEN}")
        elif (declared is not None and not one_of_ours) or team.name in private:
            left_out.append(
                f"{place}: a group of this name is declared with another gid; rename one"
            )
        elif gid in own_gids and not one_of_ours:
            left_out.append(f"{place}: {gid} is the gid of {own_gids[gid]}; change one")
        elif same[(team.name, gid)] > 1 and (one_of_ours or (team.name, gid) in kept):
            left_out.append(f"{place}: {_SAME_TWICE.format('gid')}")
            groups[team.name] = Group(gid)
            members = frozenset(
                name for name, user in former.users.items() if team.name in user.groups
            )
            taken[team.name] = Team(team.dn, team.name, gid, members)
        elif one_of_ours:  # One group, of which both know members.
            taken[team.name] = team
        elif twice and (team.name, gid) not in kept:
            left_out.append(
                f"{place}: another group of the directory has its name or its gid {gid}; change one"
            )
        elif wrong := next(faults(Declared({}, {team.name: Group(gid)})), None):
            left_out.append(f"{place}: {_reason(wrong)}")
        else:
            groups[team.name], taken[team.name] = Group(gid), team
    contained = frozenset(dn for it in teams for dn in it.member_dns)
    if alone := [it for it in teams if it.gid is None and normalized(it.dn) not in contained]:
        left_out.append(
            f"group `{alone[0].name}` ({alone[0].dn}): it has no gid, and no group contains it; "
            f"add one, or narrow ldap.groupFilter. Number of such groups: {len(alone)}"
        )
    return groups, list(taken.values())


def _users(
    own: Declared,
    people: Sequence[Person],
    former: Declared,
    groups: dict[str, Group],
    left_out: list[str],
) -> dict[str, User]:
    """Return the users of the directory that can exist. Adds groups for primary gids that no group
    has.
    """
    accepted = list(_accepted(own, people, former, left_out))
    primary = Counter(it.gid for it in accepted)
    by_gid = {group.gid: name for name, group in groups.items()}
    users: dict[str, User] = {}
    for person in accepted:
        place = _place(person)
        group = by_gid.get(person.gid)
        if group is None and not (
            person.gid == person.uid and primary[person.gid] == 1 and person.name not in groups
        ):
            group = _NAMELESS.format(person.gid)
            if group in groups or group in own.users:
                left_out.append(
                    f"{place}: `{group}` is declared, and the user's primary group has no other "
                    "name; rename it"
                )
                continue
        keys, wrong_keys = _keys(person)
        full_name = "".join(
            it if it.isprintable() and it != ":" else " " for it in person.full_name
        ).strip()
        user = User(person.uid, group, [], full_name, person.shell, person.home, keys)
        alone = Declared(
            {person.name: user}, {group: Group(person.gid)} if group is not None else {}
        )
        if (size := sum(len(text.encode()) for text in files(alone).values())) > MOST_BYTES:
            left_out.append(
                f"{place}: it has {size} bytes, and may have {MOST_BYTES}; remove keys, or "
                "shorten them"
            )
            continue
        if wrong := next(faults(alone), None):
            left_out.append(f"{place}: {_reason(wrong)}")
            continue
        if not f"{person.home or ''}{person.shell}".isprintable():
            left_out.append(
                f"{place}: its home directory and its shell may contain printable characters "
                "only; correct them"
            )
            continue
        if person.home is not None and (
            ".." in person.home.split("/") or _SYSTEM.fullmatch(re.sub("/[./]*/", "/", person.home))
        ):
            left_out.append(
                f"{place}: its home directory `{person.home}` is one of the system; correct it, "
                "or set ldap.home"
            )
            continue
        left_out += [
            f"{place}: key {number} is not a public key in one line" for number in wrong_keys
        ]
        users[person.name] = user
        if group is not None:
            groups[group], by_gid[person.gid] = Group(person.gid), group
    return users


def _accepted(
    own: Declared, people: Sequence[Person], former: Declared, left_out: list[str]
) -> Iterator[Person]:
    """Yield the people whose name and numbers are their own."""
    own_uids = {user.uid: name for name, user in own.users.items()}
    private = {user.uid: name for name, user in own.users.items() if user.group is None}
    kept = {(name, user.uid) for name, user in former.users.items()}
    names, uids = Counter(it.name for it in people), Counter(it.uid for it in people)
    same = Counter((it.name, it.uid) for it in people)
    seen: set[str] = set()
    for person in people:
        place = _place(person)
        twice = names[person.name] > 1 or uids[person.uid] > 1
        if _LIKE_NAMELESS.fullmatch(person.name):
            left_out.append(f"{place}: {_NAMELESS_TAKEN}")
        elif person.name in own.users:
            left_out.append(f"{place}: a user of this name is declared; remove one")
        elif person.uid in own_uids:
            left_out.append(
                f"{place}: the declared user `{own_uids[person.uid]}` has the uid {person.uid}; "
                "change one"
            )
        elif twice and (person.name, person.uid) not in kept:
            left_out.append(
                f"{place}: another user of the directory has its name or its uid {person.uid}; "
                "change one"
            )
        elif person.gid in private:
            owner = private[person.gid]
            left_out.append(
                f"{place}: the group of the declared user `{owner}` has the gid {person.gid}; "
                "change one"
            )
        elif same[(person.name, person.uid)] > 1:
            # Whose entry it is that was in effect, nobody knows: the other one may have keys of
            # another person.
            left_out.append(f"{place}: {_SAME_TWICE.format('uid')}")
            if person.name not in seen:
                seen.add(person.name)
                yield _as_it_is(person, former)
        else:
            yield person


def _as_it_is(person: Person, former: Declared) -> Person:
    """Return the user in effect."""
    user = former.users[person.name]
    gid = former.groups[user.group].gid if user.group in former.groups else user.uid
    return replace(
        person,
        gid=gid,
        full_name=user.full_name,
        home=user.home,
        shell=user.shell,
        ssh_keys=user.ssh_keys,
    )


def _place(person: Person) -> str:
    return f"user `{person.name}` ({person.dn})"


def _keys(person: Person) -> tuple[list[str], list[int]]:
    """Return the keys that sshd understands, and the places of the others."""
    keys, wrong = [], []
    for number, key in enumerate(person.ssh_keys):
        trial = Declared({"someone": User(1000, ssh_keys=[key.strip()])}, {})
        # What isn't printable, YAML can't contain, and the Secret would be unreadable as a whole.
        if next(faults(trial), None) is None and key.strip().isprintable():
            keys.append(key.strip())
        else:
            wrong.append(number)
    return keys, wrong


def _reason(fault: str) -> str:
    """Return a fault without its place, which is one of a declaration."""
    return fault.partition(": ")[2]


def users_of(found: Mapping[str, User], own: Declared) -> int:
    """Count the users that come from the directory."""
    return len(found.keys() - own.users.keys())
