"""Exec plug-ins: when they are asked, and what the error of a failed one names."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import CredentialsError, load_credentials
from tests.unit.kube.kubeconfigs import SECRET, Clock, kubeconfig, token, write

if TYPE_CHECKING:
    from collections.abc import Callable


def plugin(folder: Path, code: str, **more: Any) -> Path:
    """A kubeconfig whose plug-in is that Python code, run with the folder as its first argument."""
    script = write(folder, code, "plugin.py")
    api = "client.authentication.k8s.io/v1"
    user = {
        "exec": {"apiVersion": api, "command": sys.executable, "args": [str(script), str(folder)]}
        | more
    }
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
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(0.01)


async def test_a_plugin_is_asked_again_before_its_token_expires(tmp_path: Path) -> None:
    clock = Clock()
    env = [{"name": "PROFILE", "value": "slurm"}]
    credentials = clock.give(
        load_credentials(plugin(tmp_path, ANSWER, env=env, provideClusterInfo=True))
    )
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
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": fields,
    }
    return f"print({json.dumps(answer)!r})"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import sys; sys.exit('no session, run login')",
            r"failed with exit code 1: no session, run login \(get it\)",
        ),
        ("print('hello')", "printed no valid ExecCredential"),
        (
            'print(\'{"apiVersion": "v9", "status": {}}\')',
            "answered with apiVersion v9, the kubeconfig has",
        ),
        ('print(\'{"apiVersion": "v9"}\')', r"missing required field `status`"),
        (
            'import sys; sys.stdout.buffer.write(b\'{"apiVersion": "\\xff\\xfe"}\')',
            "printed no valid ExecCredential",
        ),
        ('print(\'{"apiVersion": "client.authe\')', "printed no valid ExecCredential"),
        ("print('{\"apiVersion\": ' + '[' * 100000)", "printed no valid ExecCredential"),
        ("print('{\"a\": ' + '[' * 100000)", "printed no valid ExecCredential"),
        ("while True: print('x' * 10000)", "printed more than 1 MiB"),
        ("import sys\nwhile True: print('x' * 10000, file=sys.stderr)", "printed more than 1 MiB"),
        (status(token=7), r"Expected `str \| null`, got `int` - at `\$.status.token`"),
        (
            status(),
            (
                "neither status.token nor both of status.clientCertificateData and "
                "status.clientKeyData"
            ),
        ),
        (status(token=""), "neither status.token nor both"),
        (status(clientCertificateData="x"), "neither status.token nor both"),
        (status(token="to\nken"), "the token contains characters that no HTTP header may contain"),
        (
            status(token=SECRET, expirationTimestamp="2025-12-31T23:59:59Z"),
            (
                r"answered with a credential that expired at 2025-12-31T23:59:59\+00:00: log in "
                r"again, .*\(get it\)"
            ),
        ),
        (
            status(token=SECRET, expirationTimestamp="2026-01-01T00:00:00"),
            r"at `\$.status.expirationTimestamp`",
        ),
        (status(token=SECRET, expirationTimestamp="soon"), r"at `\$.status.expirationTimestamp`"),
        (status(token=SECRET, expirationTimestamp=9e99), r"at `\$.status.expirationTimestamp`"),
    ],
)
def test_a_plugin_that_fails_is_named_with_its_reason(
    tmp_path: Path, code: str, message: str
) -> None:
    path = plugin(tmp_path, code, installHint="get it")
    with pytest.raises(CredentialsError, match=message) as error:
        token(Clock().give(load_credentials(path)))
    assert str(error.value).startswith(f"kubeconfig {path}: ")
    assert SECRET not in str(error.value)


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


READY = """
pathlib.Path(sys.argv[1], "ready").touch()
"""


NEVER_ANSWERING = {
    "it sleeps": SILENT + READY + "time.sleep(1000)",
    "what it has started sleeps": SILENT + CHILD + READY + "child.wait()",
    "what it has started outlives it": SILENT + CHILD + "print('{}', flush=True)" + READY,
    "it answers and doesn't end": (
        SILENT + "os.close(1); os.close(2)" + READY + "time.sleep(1000)"
    ),
}


class Started:
    """The plug-in of a folder, whose time to answer is over as soon as `over` is set, when it has
    done all that it does. Others have their time.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.over = folder, threading.Event()
        self.ready = folder / "ready"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._popen = subprocess.Popen
        monkeypatch.setattr(subprocess, "Popen", self._start)

    def _start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = self._popen(command, **options)
        if command[-1] == str(self.folder):
            self.processes.append(process)
            self.over.wait()
        return process


def none_left(folder: Path) -> bool:
    """Whether the processes of a plug-in are gone, not even waiting to be asked for their
    status.
    """
    return not any(
        Path("/proc", pid).exists() for pid in (folder / "processes").read_text().split()
    )


@pytest.mark.parametrize("how", NEVER_ANSWERING)
async def test_a_plugin_that_never_answers_is_ended_and_named_and_delays_nothing_else(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plugin(tmp_path, NEVER_ANSWERING[how])
    started, silent = Started(tmp_path, monkeypatch), load_credentials(path)
    silent.plugin_deadline = 0.25
    requests = [asyncio.create_task(silent.access()) for _ in range(5)]
    try:
        await until(started.ready.exists)
        (tmp_path / "other").mkdir()
        other = Clock().give(load_credentials(plugin(tmp_path / "other", ANSWER)))
        assert (await other.access()).authorization == "Bearer token-1"
        assert not any(request.done() for request in requests)
    finally:
        started.over.set()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert len(started.processes) == 1, "all of them have waited for the same one"
    assert {(type(outcome), str(outcome)) for outcome in outcomes} == {
        (
            CredentialsError,
            (
                f"kubeconfig {path}: user 'c': exec plug-in {sys.executable!r} gave no answer "
                "within 0.25 s"
            ),
        )
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
    credentials.plugin_deadline = 60
    assert (await credentials.access()).authorization == "Bearer token-2"


def test_a_plugin_that_is_not_there_is_named_with_the_hint(tmp_path: Path) -> None:
    credentials = load_credentials(
        plugin(tmp_path, "", command="./not-there", installHint="get it")
    )
    with pytest.raises(
        CredentialsError,
        match=r"'./not-there' can't be started: No such file or directory \(get it\)",
    ):
        token(credentials)
