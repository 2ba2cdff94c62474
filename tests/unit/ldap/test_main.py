"""The passes of the role, with a directory in memory."""

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sidecars.contract import environment as variables
from sidecars.kube import SECRETS, Client
from sidecars.ldap import main as subject
from sidecars.ldap import search
from sidecars.ldap.directory import Person
from sidecars.ldap.search import SearchError
from sidecars.ldap.settings import Settings
from sidecars.policy.users import report
from tests.support.kube_double import KubeDouble

TARGET = ("slurm", "slurm-ldap-users")


class World:
    """A directory, and the Secrets of a namespace."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.people: list[Person] = []
        self.fault: str | None = None
        self.own: tuple[str, str] | None = None
        self.ready = folder / "ready"
        self.logged = subject.Logged()
        monkeypatch.setattr(search, "people", self._people)
        monkeypatch.setattr(search, "teams", self._teams)

    async def _people(self, *_: object) -> tuple[list[Person], list[str]]:
        if self.fault is not None:
            raise SearchError(self.fault)
        return self.people, []

    async def _teams(self, *_: object) -> tuple[list[Any], list[str]]:
        return [], []

    def add(self, name: str, uid: int) -> None:
        self.people.append(Person(f"uid={name}", name, uid, uid))

    async def attempt(self, kube: Client) -> None:
        places = subject.Places(
            Settings("ldaps://a", "dc=x"), TARGET, self.own, None, None, self.ready
        )
        await subject.attempt(kube, places, self.logged)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def in_kube(test: Callable[[KubeDouble, Client], Any]) -> None:
    async def run() -> None:
        async with KubeDouble() as double:
            double.put(SECRETS, {"metadata": {"namespace": TARGET[0], "name": TARGET[1]}})
            async with Client.connect(double.credentials) as client:
                await test(double, client)

    asyncio.run(run())


def users(double: KubeDouble) -> dict[str, Any]:
    """The users in the Secret."""
    return dict(json.loads(content(double, "users.yaml") or b"{}").get("users") or {})


def content(double: KubeDouble, key: str) -> bytes | None:
    """What the Secret has at this key."""
    data = double.objects(SECRETS)[TARGET].get("data") or {}
    return base64.b64decode(data[key]) if key in data else None


def put(double: KubeDouble, name: str, text: str) -> None:
    data = {"users.yaml": base64.b64encode(text.encode()).decode()}
    double.put(SECRETS, {"metadata": {"namespace": TARGET[0], "name": name}, "data": data})


def writes(double: KubeDouble) -> int:
    return sum(call.method == "PATCH" for call in double.calls)


def test_users_of_the_directory_and_declared_ones_are_in_the_secret_together(world: World) -> None:
    world.add("alice", 10001)
    world.own = ("own", "users.yaml")

    async def test(double: KubeDouble, kube: Client) -> None:
        put(double, "own", "users: {carol: {uid: 10003}}")
        await world.attempt(kube)
        assert set(users(double)) == {"alice", "carol"}
        assert world.ready.exists()
        await world.attempt(kube)
        assert writes(double) == 1

    in_kube(test)


def test_a_directory_that_is_down_changes_nothing_and_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.add("alice", 10001)

    async def test(double: KubeDouble, kube: Client) -> None:
        await world.attempt(kube)
        world.fault = "ldaps://a: no answer"
        for _ in range(3):
            await world.attempt(kube)
        assert set(users(double)) == {"alice"}
        assert not world.ready.exists()
        assert (
            caplog.text.count("ldaps://a: no answer. The pods keep the users that they have.") == 1
        )
        world.fault = None
        await world.attempt(kube)
        assert world.ready.exists()
        assert "the directory is read again" in caplog.text
        world.people.clear()
        await world.attempt(kube)
        assert set(users(double)) == {"alice"}
        assert not world.ready.exists()

    in_kube(test)


def test_entries_that_are_left_out_are_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(subject.MOST_LINES + 5):
        world.add(f"u{number}", 100 + number)

    async def test(double: KubeDouble, kube: Client) -> None:
        await world.attempt(kube)
        await world.attempt(kube)
        assert users(double) == {}
        assert writes(double) == 1
        found = msgspec.json.decode(content(double, report.LEFT_OUT) or b"", type=report.LeftOut)
        assert len(found.entries) + found.more == subject.MOST_LINES + 5
        assert "user `u0` (uid=u0): 100 is not a number from 1000" in found.entries[0]
        world.people.clear()
        await world.attempt(kube)
        assert content(double, report.LEFT_OUT) is None

    in_kube(test)
    assert caplog.text.count("left out: user") == subject.MOST_LINES
    assert caplog.text.count("left out: 5 more") == 1


@pytest.mark.parametrize(
    ("own", "fault"),
    [
        (None, "Secret 'own' does not exist"),
        ("users: {root: {uid: 10001}}", "users.root: the images have"),
        ("users: [", "key 'users.yaml': line"),
    ],
)
def test_declared_users_that_cannot_be_read_change_nothing(
    world: World, own: str | None, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("alice", 10001)
    world.own = ("own", "users.yaml")

    async def test(double: KubeDouble, kube: Client) -> None:
        if own is not None:
            put(double, "own", own)
        await world.attempt(kube)
        assert users(double) == {}
        assert not world.ready.exists()

    in_kube(test)
    assert fault in caplog.text


def test_a_missing_secret_or_an_api_server_with_an_error_is_survived(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("alice", 10001)

    async def test(double: KubeDouble, kube: Client) -> None:
        double.remove(SECRETS, *TARGET)
        await world.attempt(kube)
        assert not world.ready.exists()
        double.put(SECRETS, {"metadata": {"namespace": TARGET[0], "name": TARGET[1]}})
        await world.attempt(kube)
        assert set(users(double)) == {"alice"}

    in_kube(test)
    assert "slurm-ldap-users" in caplog.text


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "ldap.json").write_text('{"uri": "ldaps://a", "base": "dc=x"}')
    return {
        variables.LDAP_SETTINGS: str(folder / "ldap.json"),
        variables.LDAP_TARGET: "slurm/users",
        variables.LDAP_READY: str(folder / "ready"),
        **more,
    }


def test_all_variables_are_read(tmp_path: Path) -> None:
    found = subject.parse_environment(
        environment(tmp_path, LDAP_OWN="own/users.yaml", LDAP_PASSWORD_FILE="/p", LDAP_CA_FILE="/c")
    )
    assert found.target == ("slurm", "users")
    assert found.own == ("own", "users.yaml")
    assert (found.password, found.ca) == (Path("/p"), Path("/c"))
    assert subject.parse_environment(environment(tmp_path)).own is None


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        (variables.LDAP_TARGET, "users", "LDAP_TARGET is 'users': give NAMESPACE/NAME"),
        (variables.LDAP_OWN, "own", "LDAP_OWN is 'own': give NAME/KEY"),
        (variables.LDAP_READY, "", "LDAP_READY is missing"),
        (variables.LDAP_SETTINGS, "/nowhere", "/nowhere"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=fault):
        subject.parse_environment(environment(tmp_path, **{name: value}))


def test_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert subject.main(["once"]) == 2
    assert "usage: slurm-sidecars ldap" in capsys.readouterr().err
