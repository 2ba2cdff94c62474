"""What a pass over an Accounting looks at: `sidecars.operator.accounting.observe`."""

from typing import Any

import pytest

from sidecars.contract.manifest import SLURM_JWKS
from sidecars.kube import STATEFUL_SETS
from sidecars.operator.accounting import observe
from sidecars.workloads import accounting as render
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import Accounting, ResourceError, read
from tests.support.builders import KEYS
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
STORAGE = {
    "host": "mariadb",
    "database": "d",
    "username": "u",
    "passwordKeyRef": {"name": "password", "key": "p"},
}


def accounting(parts: Parts, **spec: Any) -> Accounting:
    return read(
        Accounting, parts.custom("Accounting", "slurm", KEYS | {"storageConfig": STORAGE} | spec)
    )


async def secrets(parts: Parts) -> render.Secrets:
    found = accounting(parts)
    facts = await parts.runtime.lookup.namespace_facts(
        NAMESPACE, parts.custom("Accounting", "slurm", KEYS | {"storageConfig": STORAGE})
    )
    return observe.secrets(parts.runtime, found, facts)


async def test_only_a_controller_of_the_namespace_with_the_same_key_shares_it() -> None:
    parts = Parts()
    mine = accounting(parts)
    assert not observe.shares_its_key(parts.runtime, mine)
    parts.custom(
        "Controller", "other", KEYS | {"slurmKeyRef": {"name": "another", "key": "slurm.key"}}
    )
    parts.custom("Controller", "elsewhere", KEYS, namespace="elsewhere")
    assert not observe.shares_its_key(parts.runtime, mine)
    parts.controller()
    assert observe.shares_its_key(parts.runtime, mine)


async def test_slurmdbd_keeps_the_keys_that_a_controller_distributes_in_any_secret() -> None:
    parts = Parts()
    parts.secret("password", {"p": b"secret"})
    parts.secret("slurm-auth-slurm", {"slurm.key": b"swapped"})
    alone = await secrets(parts)
    assert (alone.password, alone.slurm_key) == (b"secret", b"swapped")
    parts.secret("slurm-auth-slurm-jwks", {SLURM_JWKS: b"distributed"}, own=True)
    assert (await secrets(parts)).slurm_key == b"distributed"


async def test_a_missing_password_is_named_by_its_place() -> None:
    parts = Parts()
    parts.secret("slurm-auth-slurm", {"slurm.key": b"k"})
    with pytest.raises(MissingReferenceError, match=r"spec.storageConfig.passwordKeyRef"):
        await secrets(parts)


async def test_a_slurmdbd_that_is_not_ready_is_explained_by_its_database() -> None:
    parts = Parts()
    mine = accounting(parts)
    assert observe.readiness(parts.runtime, mine).reason == "Starting"
    parts.workload(STATEFUL_SETS, "slurm-accounting", "slurmdbd", "slurmdbd:26.05", ready=False)
    waiting = observe.readiness(parts.runtime, mine)
    assert (waiting.status, waiting.reason) == ("False", "PodsNotReady")
    assert "Check that mariadb:3306 answers" in waiting.message
    assert "logs slurm-accounting-0" in waiting.message
    assert "authority" not in waiting.message
    tls = {"caKeyRef": {"name": "db-ca", "key": "ca.crt"}}
    encrypted = observe.readiness(
        parts.runtime, accounting(parts, storageConfig=STORAGE | {"tls": tls})
    )
    assert "its certificate is signed by an authority in Secret 'db-ca'" in encrypted.message
    parts.workload(STATEFUL_SETS, "slurm-accounting", "slurmdbd", "slurmdbd:26.05")
    assert observe.readiness(parts.runtime, mine).status == "True"


async def test_a_slurmdbd_whose_registry_cannot_exist_has_the_remedy() -> None:
    parts = Parts()
    mine = accounting(parts, slurmdbd={"image": "registry.invalid/a/slurmdbd:26.05"})
    parts.workload(
        STATEFUL_SETS,
        "slurm-accounting",
        "slurmdbd",
        "registry.invalid/a/slurmdbd:26.05",
        ready=False,
    )
    assert "global.imageRepository" in observe.readiness(parts.runtime, mine).message


async def test_an_external_slurmdbd_needs_an_address() -> None:
    parts = Parts()
    with pytest.raises(ResourceError, match=r"spec.externalConfig"):
        observe.readiness(
            parts.runtime, read(Accounting, parts.custom("Accounting", "slurm", {"external": True}))
        )
