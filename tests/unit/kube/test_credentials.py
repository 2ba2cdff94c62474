"""Credentials from kubeconfigs, plug-ins and service accounts: what is read when, and what a bad one is told."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from sidecars.kube import Credentials, CredentialsError, load_credentials
from sidecars.kube.credentials import _from_service_account

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "hush-hush"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.now)

    def give(self, credentials: Credentials) -> Credentials:
        credentials.clock, credentials.wall_clock = self, self.wall
        return credentials


def kubeconfig(user: dict[str, Any], name: str = "c", **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": "http://127.0.0.1:1/"} | cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "slurm"}}],
    }


def write(folder: Path, content: Any, name: str = "kubeconfig") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def token(credentials: Credentials) -> str | None:
    return asyncio.run(credentials.access()).authorization


def test_a_token_is_sent_and_never_printed(tmp_path: Path) -> None:
    credentials = load_credentials(write(tmp_path, kubeconfig({"token": SECRET})))
    assert credentials.server == "http://127.0.0.1:1"
    assert credentials.namespace == "slurm"
    assert token(credentials) == f"Bearer {SECRET}"
    assert SECRET not in repr(credentials)


async def test_a_token_file_is_read_again_after_a_minute_and_after_a_refusal(tmp_path: Path) -> None:
    file = write(tmp_path, "one\n", "token")
    clock = Clock()
    credentials = clock.give(load_credentials(write(tmp_path, kubeconfig({"tokenFile": "token"}))))
    assert (await credentials.access()).authorization == "Bearer one"
    file.write_text("two")
    clock.now = 59
    assert (await credentials.access()).authorization == "Bearer one"
    clock.now = 60
    assert (await credentials.access()).authorization == "Bearer two"
    file.write_text("three")
    credentials.invalidate()
    assert (await credentials.access()).authorization == "Bearer three"


@pytest.mark.parametrize(
    ("content", "message"), [(None, "can't read"), ("", "is empty"), ("a\nb", "no HTTP header may"), ("é", "no HTTP")]
)
def test_a_bad_token_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        write(tmp_path, content, "token")
    credentials = load_credentials(write(tmp_path, kubeconfig({"tokenFile": "token"})))
    with pytest.raises(CredentialsError, match=message):
        token(credentials)


def plugin(folder: Path, code: str, **more: Any) -> Path:
    """A kubeconfig whose plug-in is that Python code, run with the folder as its first argument."""
    script = write(folder, code, "plugin.py")
    api = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": api, "command": sys.executable, "args": [str(script), str(folder)]} | more}
    return write(folder, kubeconfig(user))


ANSWER = """
import json, os, pathlib, sys
count = pathlib.Path(sys.argv[1], "count")
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
pathlib.Path(sys.argv[1], "info").write_text(json.dumps(info | {"env": os.environ.get("PROFILE")}))
print(json.dumps({
    "apiVersion": info["apiVersion"], "kind": "ExecCredential",
    "status": {"token": f"token-{number}", "expirationTimestamp": f"2026-01-01T0{number}:00:00Z"},
}))
"""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(0.01)


async def test_a_plugin_is_asked_again_before_its_token_expires(tmp_path: Path) -> None:
    clock = Clock()
    env = [{"name": "PROFILE", "value": "slurm"}]
    credentials = clock.give(load_credentials(plugin(tmp_path, ANSWER, env=env, provideClusterInfo=True)))
    assert (await credentials.access()).authorization == "Bearer token-1"
    clock.now = 3500
    assert (await credentials.access()).authorization == "Bearer token-1"
    clock.now = 3540
    assert (await credentials.access()).authorization == "Bearer token-1"
    await until(lambda: (tmp_path / "count").read_text() == "2")
    clock.now = 3600
    assert (await credentials.access()).authorization == "Bearer token-2"
    info = json.loads((tmp_path / "info").read_text())
    assert info["env"] == "slurm"
    assert info["spec"]["cluster"]["server"] == "http://127.0.0.1:1"


async def test_many_requests_at_once_ask_the_plugin_once(tmp_path: Path) -> None:
    credentials = Clock().give(load_credentials(plugin(tmp_path, ANSWER)))
    answers = await asyncio.gather(*(credentials.access() for _ in range(10)))
    assert {answer.authorization for answer in answers} == {"Bearer token-1"}


def status(**fields: Any) -> str:
    """The code of a plug-in that answers with this status."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": fields}
    return f"print({json.dumps(answer)!r})"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no session, run login')", r"failed with exit code 1: no session, run login \(get it\)"),
        ("print('hello')", "printed no valid ExecCredential"),
        ('print(\'{"apiVersion": "v9", "status": {}}\')', "answered with apiVersion v9, the kubeconfig says"),
        ('print(\'{"apiVersion": "v9"}\')', r"missing required field `status`"),
        ('import sys; sys.stdout.buffer.write(b\'{"apiVersion": "\\xff\\xfe"}\')', "printed no valid ExecCredential"),
        ('print(\'{"apiVersion": "client.authe\')', "printed no valid ExecCredential"),
        ("print('{\"apiVersion\": ' + '[' * 100000)", "printed no valid ExecCredential"),
        ("print('{\"a\": ' + '[' * 100000)", "printed no valid ExecCredential"),
        ("while True: print('x' * 10000)", "printed more than 1 MiB"),
        ("import sys\nwhile True: print('x' * 10000, file=sys.stderr)", "printed more than 1 MiB"),
        (status(token=7), r"Expected `str \| null`, got `int` - at `\$.status.token`"),
        (status(), "neither status.token nor both of status.clientCertificateData and status.clientKeyData"),
        (status(token=""), "neither status.token nor both"),
        (status(clientCertificateData="x"), "neither status.token nor both"),
        (status(token="to\nken"), "the token holds characters that no HTTP header may"),
        (
            status(token=SECRET, expirationTimestamp="2025-12-31T23:59:59Z"),
            r"answered with a credential that expired at 2025-12-31T23:59:59\+00:00: log in again, .*\(get it\)",
        ),
        (status(token=SECRET, expirationTimestamp="2026-01-01T00:00:00"), r"at `\$.status.expirationTimestamp`"),
        (status(token=SECRET, expirationTimestamp="soon"), r"at `\$.status.expirationTimestamp`"),
        (status(token=SECRET, expirationTimestamp=9e99), r"at `\$.status.expirationTimestamp`"),
    ],
)
def test_a_plugin_that_fails_is_named_with_its_reason(tmp_path: Path, code: str, message: str) -> None:
    path = plugin(tmp_path, code, installHint="get it")
    with pytest.raises(CredentialsError, match=message) as error:
        token(Clock().give(load_credentials(path)))
    assert str(error.value).startswith(f"kubeconfig {path}: ")
    assert SECRET not in str(error.value)


# Each writes the ids of all its processes.
SILENT = """
import os, pathlib, subprocess, sys, time
mine = pathlib.Path(sys.argv[1], "processes")
with mine.open("a") as file:
    file.write(f"{os.getpid()} ")
"""
CHILD = """
child = subprocess.Popen(["sleep", "1000"])
with mine.open("a") as file:
    file.write(f"{child.pid} ")
"""
NEVER_ANSWERING = {
    "it sleeps": SILENT + "time.sleep(1000)",
    "what it has started sleeps": SILENT + CHILD + "child.wait()",
    "what it has started outlives it": SILENT + CHILD + "print('{}')",
    "it answers and doesn't end": SILENT + "os.close(1); os.close(2); time.sleep(1000)",
}


def none_left(folder: Path) -> bool:
    """Whether the processes of a plug-in are gone, not even waiting to be asked for their status."""
    return not any(Path("/proc", pid).exists() for pid in (folder / "processes").read_text().split())


@pytest.mark.parametrize("how", NEVER_ANSWERING)
async def test_a_plugin_that_never_answers_is_ended_and_named_and_holds_up_nothing_else(
    tmp_path: Path, how: str
) -> None:
    path = plugin(tmp_path, NEVER_ANSWERING[how])
    silent = load_credentials(path)
    silent.plugin_deadline = 2
    requests = [asyncio.create_task(silent.access()) for _ in range(5)]
    await until((tmp_path / "processes").exists)
    (tmp_path / "other").mkdir()
    other = Clock().give(load_credentials(plugin(tmp_path / "other", ANSWER)))
    assert (await other.access()).authorization == "Bearer token-1"
    assert not any(request.done() for request in requests)
    begun = time.monotonic()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    # All of them have waited for the same one.
    assert time.monotonic() - begun < 8
    assert {(type(outcome), str(outcome)) for outcome in outcomes} == {
        (CredentialsError, f"kubeconfig {path}: user 'c': exec plug-in {sys.executable!r} gave no answer within 2 s")
    }
    await until(lambda: none_left(tmp_path))


async def test_a_plugin_that_no_longer_answers_fails_no_request_before_its_last_answer_has_expired(
    tmp_path: Path,
) -> None:
    clock = Clock()
    credentials = clock.give(load_credentials(plugin(tmp_path, ANSWER)))
    assert (await credentials.access()).authorization == "Bearer token-1"
    credentials.plugin_deadline = 0.5
    write(tmp_path, SILENT + "time.sleep(1000)", "plugin.py")
    clock.now = 3599
    assert (await credentials.access()).authorization == "Bearer token-1"
    clock.now = 3600
    with pytest.raises(CredentialsError, match=r"gave no answer within 0\.5 s"):
        await credentials.access()
    write(tmp_path, ANSWER, "plugin.py")
    clock.now = 3602
    credentials.plugin_deadline = 20
    assert (await credentials.access()).authorization == "Bearer token-2"


def test_a_plugin_that_is_not_there_is_named_with_the_hint(tmp_path: Path) -> None:
    credentials = load_credentials(plugin(tmp_path, "", command="./not-there", installHint="get it"))
    with pytest.raises(CredentialsError, match=r"'./not-there' can't be started: No such file or directory \(get it\)"):
        token(credentials)


B64 = base64.b64encode(b"no PEM").decode()
WITHOUT_TLS: dict[str, Any] = {"server": "https://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({}, {"certificate-authority-data": "%"}, "cluster 'c': certificate-authority-data is not base64"),
        ({"client-certificate-data": B64}, {}, "user 'c': client-key .* is missing"),
        ({"client-key": "x"}, {}, "user 'c': client-certificate .* is missing"),
        ({"username": "u", "password": SECRET}, {}, "user 'c': username is not supported"),
        ({"auth-provider": {"name": "gcp"}}, {}, "user 'c': auth-provider is not supported"),
        ({}, {"proxy-url": "http://proxy"}, "cluster 'c': proxy-url is not supported"),
        ({}, {"server": "127.0.0.1:6443"}, "server is '127.0.0.1:6443', not a URL"),
        ({}, {"server": "https://"}, "server is 'https://', not a URL"),
        ({}, {"server": "https://host:99999"}, "server is 'https://host:99999', not a URL"),
        ({}, {"server": "https://[::1"}, r"server is 'https://\[::1', not a URL"),
        ({}, {"server": 6443}, r"Expected `str`, got `int` - at `\$.clusters\[0\].cluster.server`"),
        ({"token": 7}, {}, r"Expected `str \| null`, got `int` - at `\$.users\[0\].user.token`"),
        ({"exec": {"command": "x"}}, {}, r"missing required field `apiVersion` - at `\$.users\[0\].user.exec`"),
        (
            {"exec": {"command": "x", "apiVersion": "v1", "interactiveMode": "Always"}},
            {},
            "exec.interactiveMode is Always",
        ),
        (
            {"exec": {"command": "x", "apiVersion": "v1", "interactiveMode": "Sometimes"}},
            {},
            r"Invalid enum value 'Sometimes' - at `\$.users\[0\].user.exec.interactiveMode`",
        ),
    ],
)
def test_what_is_wrong_in_a_kubeconfig_is_named_by_file_and_field(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, kubeconfig(user, **cluster))
    with pytest.raises(CredentialsError, match=message) as error:
        load_credentials(path)
    assert str(path) in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({}, {"certificate-authority-data": B64}, "the certificate authority is not PEM"),
        ({"client-certificate-data": B64, "client-key-data": B64}, {}, "certificate and key are not a PEM pair"),
        ({}, {"certificate-authority": "ca.crt"}, "can't read the certificate authority file .*ca.crt"),
    ],
)
def test_certificates_that_are_none_are_named(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str
) -> None:
    credentials = load_credentials(write(tmp_path, kubeconfig(user, **WITHOUT_TLS, **cluster)))
    with pytest.raises(CredentialsError, match=message):
        token(credentials)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [hush-hush", "is not YAML at line 1"),
        ("\x00", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        ("- a", "Expected `object`, got `array`"),
        ("", "Expected `object`, got `null`"),
        ("{}", "current-context is not set"),
        ("current-context: x", r"contexts has no 'x' \(there are: none\)"),
        (kubeconfig({}) | {"users": []}, "users has no 'c'"),
        (kubeconfig({}) | {"clusters": None}, "clusters has no 'c'"),
    ],
)
def test_a_kubeconfig_with_missing_parts_says_which(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(CredentialsError, match=message) as error:
        load_credentials(write(tmp_path, content))
    assert SECRET not in str(error.value)


def test_a_kubeconfig_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"kubeconfig .*nowhere: can't be read: No such file"):
        load_credentials(tmp_path / "nowhere")
    path = tmp_path / "binary"
    path.write_bytes(b"a: \xc3\x28")
    with pytest.raises(CredentialsError, match="is not YAML"):
        load_credentials(path)


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    config = kubeconfig({"token": "one"})
    config["users"].append({"name": "other", "user": {"token": "two"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "other"}})
    credentials = load_credentials(write(tmp_path, config), context="other")
    assert token(credentials) == "Bearer two"
    assert credentials.namespace == "default"


def test_the_files_of_kubeconfig_are_merged_and_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write(tmp_path, kubeconfig({"token": "one"}), "one")
    two = write(tmp_path, kubeconfig({"token": "two"}, name="d"), "two")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'nowhere'}:{one}:{two}")
    assert token(load_credentials()) == "Bearer one"
    assert token(load_credentials(context="d")) == "Bearer two"


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    write(tmp_path, "secret", "token")
    write(tmp_path, "slinky\n", "namespace")
    credentials = _from_service_account(tmp_path)
    assert credentials.server == "https://[fd00::1]:443"
    assert credentials.namespace == "slinky"
    with pytest.raises(CredentialsError, match=r"can't read the certificate authority file .*ca.crt"):
        token(credentials)


def test_without_any_credentials_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match=r"KUBERNETES_SERVICE_HOST is not set.*set KUBECONFIG"):
        _from_service_account(tmp_path)
