"""One pass over one LoginSet."""

import pytest

from sidecars.kube import STATEFUL_SETS
from sidecars.operator.loginset.effects import make_host_keys
from sidecars.operator.loginset.reconcile import reconcile
from sidecars.workloads.loginset import HOST_KEY_TYPES
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
KEY = (NAMESPACE, "login")
SPEC = {"controllerRef": {"name": "slurm"}, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}


async def ready() -> Parts:
    """Everything that a LoginSet needs."""
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    parts.secret("sssd", {"sssd.conf": b"[sssd]"})
    parts.secret("login-ssh-host-keys", {"ssh_host_rsa_key": b"k"})
    parts.custom("LoginSet", "login", SPEC | {"login": {"image": "login:26.05"}})
    return parts


async def run(parts: Parts) -> None:
    await reconcile(parts.runtime, parts.operator.loginsets, KEY)


async def test_host_keys_that_exist_are_never_made_again() -> None:
    parts = await ready()
    await run(parts)
    assert parts.requests.of("create", "Secret") == []
    assert "Deployment" in {kind for verb, kind, _ in parts.requests.made if verb == "apply"}


async def test_without_its_controller_no_host_keys_are_made() -> None:
    parts = Parts()
    parts.custom("LoginSet", "login", SPEC)
    await run(parts)
    assert parts.condition("LoginSet")["reason"] == "ControllerMissing"
    assert parts.requests.of("create", "Secret") == []


async def test_a_missing_sssd_conf_is_a_wait_that_names_it() -> None:
    parts = await ready()
    store = parts.runtime.caches.other_secrets.store
    [sssd] = [key for key in store.known() if key.name == "sssd"]
    store.discard(sssd)
    await run(parts)
    assert parts.condition("LoginSet")["reason"] == "ReferenceMissing"
    assert "'sssd'" in parts.condition("LoginSet")["message"]


@pytest.mark.looptime(False)
async def test_new_host_keys_are_a_private_and_a_public_one_of_each_type() -> None:
    keys = await make_host_keys()
    assert set(keys) == {
        f"ssh_host_{kind}_key{suffix}" for kind in HOST_KEY_TYPES for suffix in ("", ".pub")
    }
    assert all(
        keys[f"ssh_host_{kind}_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY")
        for kind in HOST_KEY_TYPES
    )
