"""Users of a directory beside those that the site declares."""

import dataclasses

import msgspec
import pytest

from sidecars.ldap.directory import (
    DirectoryError,
    Merged,
    Person,
    Team,
    merge,
    normalized,
    users_of,
)
from sidecars.policy.users.declared import Declared, Group, User, faults, parse

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJYs8rTr0Xy1t0m1cT0p0mXvU0mJmM2S2d1o2b1n1vQx"
NOTHING = Declared()


def person(name: str, uid: int, gid: int | None = None, where: str = "people") -> Person:
    return Person(f"uid={name},ou={where},dc=example", name, uid, uid if gid is None else gid)


def team(
    name: str, gid: int | None, *members: str, dns: tuple[str, ...] = (), where: str = "groups"
) -> Team:
    found = frozenset(normalized(it) for it in dns)
    return Team(f"cn={name},ou={where},dc=example", name, gid, frozenset(members), found)


def together(
    *entries: Person | Team, own: Declared = NOTHING, former: Declared = NOTHING
) -> Merged:
    """The result, which the operator would accept."""
    people = [it for it in entries if isinstance(it, Person)]
    found = merge(own, people, [it for it in entries if isinstance(it, Team)], former)
    assert list(faults(found.declared)) == []
    assert parse(msgspec.json.encode(found.declared)) == found.declared
    return found


def test_users_groups_and_members_by_name_and_by_distinguished_name_are_taken() -> None:
    alice = dataclasses.replace(
        person("alice", 10001), full_name="Alice: A\nB", home="/h/a", ssh_keys=[f"{KEY} a\n"]
    )
    found = together(
        alice,
        person("bob", 10002, 20001),
        team("physics", 20001, "alice", "nobody-here"),
        team("gpu", 20002, dns=("UID=Bob, OU=people,DC=example",)),
    )
    assert found.left_out == []
    assert found.declared.groups == {"physics": Group(20001), "gpu": Group(20002)}
    assert found.declared.users["alice"] == User(
        10001, None, ["physics"], "Alice  A B", "/bin/bash", "/h/a", [f"{KEY} a"]
    )
    assert found.declared.users["bob"] == User(10002, "physics", ["gpu"])


def groups_of(found: Merged) -> dict[str, list[str]]:
    return {name: user.groups for name, user in found.declared.users.items()}


def test_members_of_a_group_in_a_group_are_members_of_both_at_any_depth() -> None:
    found = together(
        person("alice", 10001),
        person("bob", 10002),
        person("carol", 10003),
        team("all", 20001, "carol", dns=("CN=Crew, OU=groups,DC=example", "cn=nobody-here")),
        team(
            "crew", 20002, dns=("cn=physics,ou=groups,dc=example", "uid=bob,ou=people,dc=example")
        ),
        team("physics", 20003, "alice"),
        team("other", 20004),
    )
    assert groups_of(found) == {
        "alice": ["all", "crew", "physics"],
        "bob": ["all", "crew"],
        "carol": ["all"],
    }
    deep = [
        team(f"g{n}", 20000 + n, dns=(f"cn=g{n + 1},ou=groups,dc=example",)) for n in range(300)
    ]
    found = together(person("alice", 10001), *deep, team("g300", 20300, "alice"))
    assert len(found.declared.users["alice"].groups) == 301


def test_groups_that_contain_each_other_have_the_same_members() -> None:
    found = together(
        person("alice", 10001),
        person("bob", 10002),
        team("a", 20001, "alice", dns=("cn=a,ou=groups,dc=example", "cn=b,ou=groups,dc=example")),
        team("b", 20002, "bob", dns=("cn=c,ou=groups,dc=example",)),
        team("c", 20003, dns=("cn=a,ou=groups,dc=example",)),
    )
    assert groups_of(found) == {"alice": ["a", "b", "c"], "bob": ["a", "b", "c"]}


def test_members_of_a_group_that_is_left_out_count_in_groups_that_contain_it() -> None:
    outer = team("outer", 20001, dns=("cn=staff,ou=groups,dc=example",))
    found = together(person("alice", 10001), team("staff", 20002, "alice"), outer)
    assert groups_of(found) == {"alice": ["outer"]}
    assert len(found.left_out) == 1


def test_a_group_without_a_gid_exists_nowhere_and_its_members_count_in_groups_that_contain_it() -> (
    None
):
    role = team("role", None, "alice", dns=("cn=inner,ou=groups,dc=example",))
    inner, loose = team("inner", None, "bob"), team("loose", None, "alice")
    physics = team("physics", 20001, dns=("cn=role,ou=groups,dc=example",))
    # A name that only one group in the pods has is no clash.
    homonym = team("physics", None, where="roles")
    found = together(
        person("alice", 10001), person("bob", 10002), role, inner, loose, physics, homonym
    )
    assert found.declared.groups == {"physics": Group(20001)}
    assert groups_of(found) == {"alice": ["physics"], "bob": ["physics"]}
    [line] = found.left_out
    assert line.startswith(
        "group `loose` (cn=loose,ou=groups,dc=example): it has no gid, and no group contains it;"
    )
    assert line.endswith("Number of such groups: 2")


def test_a_primary_group_that_the_directory_does_not_have_gets_a_name() -> None:
    found = together(
        person("alice", 10001, 20001), person("bob", 10002, 20001), person("carol", 20001)
    )
    assert {user.group for user in found.declared.users.values()} == {"gid-20001"}
    assert found.declared.groups == {"gid-20001": Group(20001)}


@pytest.mark.parametrize(
    "entry", [person("gid-20001", 50000), team("gid-20001", 30000), team("gid-20001", 20001)]
)
def test_no_entry_takes_the_name_of_a_primary_group_that_the_directory_does_not_have(
    entry: Person | Team,
) -> None:
    found = together(entry, person("alice", 10001, 20001), person("zoe", 10002, 20001))
    assert found.declared.users == {
        "alice": User(10001, "gid-20001"),
        "zoe": User(10002, "gid-20001"),
    }
    assert found.declared.groups == {"gid-20001": Group(20001)}
    assert len(found.left_out) == 1
    assert entry.dn in found.left_out[0]


@pytest.mark.parametrize(
    "own",
    [Declared({"gid-20001": User(10009)}), Declared({}, {"gid-20001": Group(20009)})],
    ids=["user", "group"],
)
def test_a_declaration_with_the_name_of_a_primary_group_stays(own: Declared) -> None:
    found = together(person("alice", 10001, 20001), person("bob", 10002), own=own)
    assert found.declared == Declared({**own.users, "bob": User(10002)}, own.groups)
    assert "rename it" in found.left_out[0]


def test_a_declared_user_stays_and_an_entry_with_its_name_uid_or_gid_is_left_out() -> None:
    own = Declared({"alice": User(10001)}, {"physics": Group(20001)})
    found = together(
        person("alice", 10005),
        person("mallory", 10001),
        person("eve", 10006, 10001),
        person("dave", 10007, 20001),
        team("physics", 20001, "dave"),
        team("alice", 20007),
        team("thieves", 10001),
        own=own,
    )
    assert found.declared.users == {
        "alice": User(10001),
        "dave": User(10007, "physics", ["physics"]),
    }
    assert found.declared.groups == own.groups
    assert [line.partition(": ")[2] for line in found.left_out] == [
        "a group of this name is declared with another gid; rename one",
        "10001 is the gid of the group of the declared user `alice`; change one",
        "a user of this name is declared; remove one",
        "the group of the declared user `alice` has the gid 10001; change one",
        "the declared user `alice` has the uid 10001; change one",
    ]


@pytest.mark.parametrize("thief", [person("aaron", 10001), person("alice", 10009, where="others")])
def test_a_new_entry_cannot_take_the_uid_or_the_name_of_a_user_in_effect(thief: Person) -> None:
    before = together(person("alice", 10001)).declared
    found = together(person("alice", 10001), thief, former=before)
    assert found.declared == before
    assert len(found.left_out) == 1
    assert thief.dn in found.left_out[0]


def test_of_two_new_entries_with_one_uid_or_one_gid_neither_exists() -> None:
    found = together(
        person("alice", 10001), person("bob", 10001), team("a", 20001), team("b", 20001)
    )
    assert found.declared == NOTHING
    assert len(found.left_out) == 4


@pytest.mark.parametrize("where", ["a", "z"])
def test_a_second_entry_with_the_name_and_the_uid_of_a_user_in_effect_changes_nothing(
    where: str,
) -> None:
    alice = dataclasses.replace(person("alice", 10001, 20001), ssh_keys=[KEY], home="/h/alice")
    thief = dataclasses.replace(person("alice", 10001, 20002, where), ssh_keys=[f"{KEY} thief"])
    before = together(alice, team("physics", 20001)).declared
    found = together(alice, thief, team("physics", 20001), former=before)
    assert found.declared == before
    assert len(found.left_out) == 2
    assert "so that what is in effect stays as it is; remove one" in found.left_out[0]
    alone = together(thief, team("physics", 20001), former=before)
    assert alone.declared.users["alice"].ssh_keys == [f"{KEY} thief"]


@pytest.mark.parametrize("where", ["a", "z"])
@pytest.mark.parametrize("own", [Declared(), Declared({}, {"physics": Group(20001)})])
def test_a_second_entry_of_a_group_adds_no_member(where: str, own: Declared) -> None:
    people = (person("alice", 10001), person("mallory", 10002))
    before = together(*people, team("physics", 20001, "alice"), own=own).declared
    both = (team("physics", 20001, "alice"), team("physics", 20001, "mallory", where=where))
    found = together(*people, *both, own=own, former=before)
    assert found.declared == before
    assert len(found.left_out) == 2


def test_an_entry_that_is_left_out_adds_no_member() -> None:
    found = together(
        person("alice", 10001, 20001), person("bob", 10002), team("gid-20001", 20001, "bob")
    )
    assert found.declared.users["bob"].groups == []


@pytest.mark.parametrize("where", ["a", "z"])
def test_a_second_entry_of_a_group_in_a_group_changes_no_member(where: str) -> None:
    people = (person("alice", 10001), person("mallory", 10002))
    outer = team("outer", 20002, dns=("cn=physics,ou=groups,dc=example",))
    before = together(*people, team("physics", 20001, "alice"), outer).declared
    both = (team("physics", 20001, "alice"), team("physics", 20001, "mallory", where=where))
    assert together(*people, *both, outer, former=before).declared == before


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (person("root", 0), "the images have a user or group of this name"),
        (person("slurm", 10001), "the images have a user or group of this name"),
        (person("toor", 0), "0 is not a number from 1000"),
        (person("alice", 401), "401 is not a number from 1000"),
        (person("alice", 10001, 27), "27 is not a number from 1000"),
        (person("Alice B", 10001), "a name has up to 32 of"),
        (
            dataclasses.replace(person("alice", 10001), home="/h\nroot::0:0"),
            "must be an absolute path",
        ),
        (
            Person("uid=alice", "alice", 10001, 10001, "", "/home/alice", "sh:x"),
            "must be an absolute path",
        ),
        (team("sudo", 20001), "the images have a user or group of this name"),
        (team("wheel", 27), "27 is not a number from 1000"),
    ],
)
def test_an_entry_that_would_be_of_the_system_or_break_a_file_is_left_out(
    entry: Person | Team, reason: str
) -> None:
    found = together(entry, person("carol", 10003))
    assert set(found.declared.users) == {"carol"}
    assert found.declared.groups == {}
    assert len(found.left_out) == 1
    assert reason in found.left_out[0]
    assert entry.dn in found.left_out[0]


@pytest.mark.parametrize(
    "home",
    [
        "/etc",
        "/root/.ssh",
        "/usr/local/lib/new",
        "/var/lib/x",
        "/home/../etc/x",
        "//etc/x",
        "/./etc/x",
        "/lib64/x",
    ],
)
def test_a_home_directory_in_a_folder_of_the_system_is_left_out(home: str) -> None:
    """pam_mkhomedir would create it as the user's."""
    found = together(
        dataclasses.replace(person("mallory", 10001), home=home), person("carol", 10003)
    )
    assert set(found.declared.users) == {"carol"}
    assert f"`{home}` is one of the system; correct it, or set ldap.home" in found.left_out[0]


@pytest.mark.parametrize(
    "home", ["/home/alice", "/etcetera/alice", "/var/home/alice", "/data/root/alice", "/dev/null"]
)
def test_any_other_home_directory_is_taken(home: str) -> None:
    assert together(dataclasses.replace(person("alice", 10001), home=home)).left_out == []


def test_a_wrong_key_is_left_out_and_its_user_stays() -> None:
    alice = dataclasses.replace(person("alice", 10001), ssh_keys=['command="sh" ' + KEY, KEY])
    found = together(alice)
    assert found.declared.users["alice"].ssh_keys == [KEY]
    assert found.left_out == [
        "user `alice` (uid=alice,ou=people,dc=example): key 0 is not a public key in one line"
    ]


def test_no_user_at_all_is_not_believed_once_there_were_some() -> None:
    own = Declared({"carol": User(10003)})
    before = together(person("alice", 10001), own=own).declared
    assert users_of(before.users, own) == 1
    with pytest.raises(DirectoryError, match="has no users now"):
        merge(own, [], [], before)
    assert together(own=own, former=own).declared == own


def test_more_users_than_the_pods_can_have_are_refused_as_a_whole() -> None:
    crowd = [
        dataclasses.replace(person(f"u{n}", 10000 + n), full_name="x" * 500) for n in range(2500)
    ]
    with pytest.raises(DirectoryError, match="may have 1000000"):
        merge(NOTHING, crowd, [], NOTHING)


def test_one_huge_entry_does_not_stop_the_changes_of_others() -> None:
    mallory = dataclasses.replace(person("mallory", 10002), ssh_keys=[f"{KEY} {'x' * 1000}"] * 1000)
    found = together(person("alice", 10001), mallory)
    assert set(found.declared.users) == {"alice"}
    assert "may have 16384; remove keys" in found.left_out[0]


@pytest.mark.parametrize("character", ["\x80", "\x85", "\x9f", "\u2028", "\ufeff", "\uffff"])
def test_no_character_of_an_entry_makes_the_users_of_others_unreadable(character: str) -> None:
    alice = dataclasses.replace(person("alice", 10001), full_name=f"Alice{character}A")
    keys = dataclasses.replace(person("bob", 10002), ssh_keys=[f"{KEY} b{character}b", KEY])
    home = dataclasses.replace(person("mallory", 10003), home=f"/home/m{character}")
    shell = Person("uid=eve", "eve", 10004, 10004, "", None, f"/bin/sh{character}")
    found = together(alice, keys, home, shell)
    assert found.declared.users == {
        "alice": User(10001, full_name="Alice A"),
        "bob": User(10002, ssh_keys=[KEY]),
    }
    assert len(found.left_out) == 3
