"""A real slapd, asked by the real ldapsearch over TLS."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecars.ldap import search
from sidecars.ldap.directory import merge
from sidecars.ldap.settings import Settings
from sidecars.policy.users.declared import Declared
from tests.cluster import debian
from tests.cluster.control_plane import free_ports
from tests.support.real import directory
from tests.support.real.directory import BASE, PASSWORD, READER, Directory

KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJYs8rTr0Xy1t0m1cT0p0mXvU0mJmM2S2d1o2b1n1vQx alice of "
    "the directory"
)
MANY = 1200
"""More users than a page has."""


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    home = tmp_path_factory.mktemp("slapd")
    with directory.running(home / "slapd", "127.0.0.1", free_ports(1)[0]) as found:
        (home / "slapd" / "password").write_text(f"{PASSWORD}\n")
        (home / "slapd" / "wrong").write_text("another")
        found.add(
            directory.user("alice", 10001, keys=[KEY]), directory.group("physics", 20001, ["alice"])
        )
        found.add(
            *(directory.user(f"u{number}", 11000 + number, gid=20001) for number in range(MANY))
        )
        yield found


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{debian.directory() / 'bin'}:{os.environ['PATH']}")


def settings(slapd: Directory, **more: str) -> Settings:
    return Settings(**{"uri": slapd.uri, "base": BASE, "bind_dn": READER, **more})  # type: ignore[arg-type]


def test_all_users_with_their_keys_and_groups_are_read_page_by_page(slapd: Directory) -> None:
    password = slapd.home / "password"
    people, wrong = asyncio.run(search.people(settings(slapd), password, slapd.ca))
    teams, _ = asyncio.run(search.teams(settings(slapd), password, slapd.ca))
    assert wrong == []
    assert len(people) == MANY + 1
    [alice] = [it for it in people if it.name == "alice"]
    assert (alice.uid, alice.gid, alice.home, list(alice.ssh_keys)) == (
        10001,
        10001,
        "/home/alice",
        [KEY],
    )
    assert [(it.name, it.gid, it.members) for it in teams] == [
        ("physics", 20001, frozenset({"alice"}))
    ]
    one = settings(slapd, user_filter="(&(objectClass=posixAccount)(uid=alice))")
    assert asyncio.run(search.people(one, password, slapd.ca))[0] == [alice]


def test_members_of_a_group_in_a_group_are_found_by_their_distinguished_names(
    slapd: Directory,
) -> None:
    outer, role = f"cn=outer,ou=groups,{BASE}", f"cn=role,ou=groups,{BASE}"
    slapd.add(
        f"dn: {role}\nobjectClass: groupOfNames\ncn: role\nmember: UID=alice, ou=people,{BASE}",
        f"dn: {outer}\nobjectClass: groupOfNames\nobjectClass: extensibleObject\ncn: "
        "outer\ngidNumber: 20002\n"
        f"member: {role}",
    )
    one = settings(
        slapd,
        user_filter="(&(objectClass=posixAccount)(uid=alice))",
        group_filter="(objectClass=groupOfNames)",
    )
    password = slapd.home / "password"
    people, _ = asyncio.run(search.people(one, password, slapd.ca))
    teams, wrong = asyncio.run(search.teams(one, password, slapd.ca))
    assert wrong == []
    found = merge(Declared(), people, teams, Declared())
    assert found.declared.users["alice"].groups == ["outer"]
    assert (set(found.declared.groups), found.left_out) == ({"outer"}, [])


@pytest.mark.parametrize(
    ("password", "ca", "more", "fault"),
    [
        ("wrong", "ca.crt", {}, "Invalid credentials.*Correct ldap.bindDn"),
        ("password", None, {}, "Can't contact LDAP server.*ldap.caSecretRef"),
        ("password", "ca.crt", {"base": "dc=elsewhere"}, "No such object.*ldap.base"),
        ("password", "ca.crt", {"user_filter": "(("}, "Bad search filter"),
        (
            "password",
            "ca.crt",
            {"uri": "ldaps://127.0.0.1:1"},
            "Can't contact LDAP server.*ldap.uri",
        ),
    ],
)
def test_what_prevents_an_answer_is_named(
    slapd: Directory, password: str, ca: str | None, more: dict[str, str], fault: str
) -> None:
    with pytest.raises(search.SearchError, match=fault) as error:
        asyncio.run(
            search.people(
                settings(slapd, **more), slapd.home / password, slapd.home / ca if ca else None
            )
        )
    assert PASSWORD not in str(error.value)


def test_an_answer_that_the_server_cuts_off_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    with directory.running(
        tmp_path / "slapd", "127.0.0.1", free_ports(1)[0], size_limit="size.prtotal=2"
    ) as limited:
        limited.add(*(directory.user(f"u{number}", 11000 + number) for number in range(5)))
        with pytest.raises(search.SearchError, match="limit"):
            asyncio.run(search.people(settings(limited), tmp_path / "password", limited.ca))
