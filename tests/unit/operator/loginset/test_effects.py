"""What is done for a LoginSet beyond its objects: `sidecars.operator.loginset.effects`."""

import msgspec
import pytest

from sidecars import objects
from sidecars.kube import AlreadyExists, NotFound
from sidecars.operator.loginset import effects
from sidecars.operator.loginset.effects import create_host_keys, nudge
from sidecars.operator.loginset.memory import Memory
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.workloads import names
from sidecars.workloads.loginset import HOST_KEY_TYPES
from tests.support import builders
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
KEY = (NAMESPACE, "login")
KEYS = {f"ssh_host_{kind}_key{suffix}": "key" for kind in HOST_KEY_TYPES for suffix in ("", ".pub")}


def pod(name: str) -> objects.Pod:
    return msgspec.convert(
        {"metadata": {"namespace": NAMESPACE, "name": name, "uid": name}}, objects.Pod
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An entry for each time that host keys are generated; they are always the same."""
    times: list[str] = []

    async def generated() -> dict[str, str]:
        times.append("written")
        return KEYS

    monkeypatch.setattr(effects, "make_host_keys", generated)
    return times


async def test_pods_are_annotated_for_changed_sshd_configurations_and_not_the_first() -> None:
    parts, memory = Parts(), Memory()
    pods = [pod("login-a"), pod("login-b")]
    for digest in ("one", "one", "two", "two"):
        await nudge(parts.runtime, memory, KEY, pods, digest)
    annotated = zip(parts.requests.made, parts.requests.bodies, strict=True)
    assert [(name, body["metadata"]["annotations"]) for (_, _, name), body in annotated] == [
        ("login-a", {names.SSHD_CONF_HASH: "two"}),
        ("login-b", {names.SSHD_CONF_HASH: "two"}),
    ]


async def test_a_pod_that_is_gone_stops_no_other_annotation() -> None:
    parts, memory = Parts(), Memory({KEY: "one"})
    parts.requests.refusals["patch Pod"] = NotFound(404, "NotFound", "gone")
    await nudge(parts.runtime, memory, KEY, [pod("login-a"), pod("login-b")], "two")
    assert [name for _, _, name in parts.requests.made] == ["login-a", "login-b"]
    assert memory[KEY] == "two"


async def test_host_keys_are_generated_once(made: list[str]) -> None:
    parts = Parts()
    loginset = builders.loginset()
    await create_host_keys(parts.runtime, loginset)
    [secret] = parts.requests.of("create", "Secret")
    assert secret["metadata"]["name"] == names.ssh_host_keys(loginset.name)
    parts.secret(secret["metadata"]["name"], {"ssh_host_rsa_key": b"private"})
    await create_host_keys(parts.runtime, loginset)
    assert made == ["written"]


async def test_host_keys_that_the_cache_does_not_show_yet_are_kept(made: list[str]) -> None:
    parts = Parts()
    parts.requests.refusals["create Secret"] = AlreadyExists(409, "AlreadyExists", "taken")
    await create_host_keys(parts.runtime, builders.loginset())
    assert [verb for verb, _, _ in parts.requests.made] == ["create"]


@pytest.mark.looptime(False)
async def test_a_missing_ssh_keygen_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotUsableError, match="install openssh-client") as caught:
        await effects.make_host_keys()
    assert caught.value.reason == "HostKeysFailed"
