"""NodeSets that can't be applied: each reports which field it is and what to do, and none delays
another.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecars.custom_resources import NODESETS
from sidecars.kube import PODS, Manifest
from tests.support.apiserver import WatchedNamespace, until

pytestmark = pytest.mark.timeout(90, func_only=True)

STORAGE = {"resources": {"requests": {"storage": "1Gi"}}}


@dataclass(frozen=True)
class Poison:
    """A NodeSet's spec, why its condition `Ready` is False, and what the message contains."""

    spec: dict[str, Any]
    reason: str
    reports: tuple[str, ...]
    then: dict[str, Any] = field(default_factory=dict)
    """The change of the spec that corrects it."""


def template(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": spec}}


POISONS = {
    "lost": Poison(
        {"controllerRef": {"name": "nowhere"}},
        "ControllerMissing",
        ("spec.controllerRef", "no Controller 'nowhere'"),
    ),
    "typo": Poison(
        {"extraConf": "Wieght=10", "slurmd": {"image": "slurmd:26.05"}},
        "Invalid",
        ("spec.extraConf", "Wieght"),
        {"extraConf": "Weight=10"},
    ),
    "container": Poison(
        template(containers=[{"name": "Not A Name"}]),
        "Refused",
        ("containers", "Not A Name"),
        template(containers=None),
    ),
    "grace": Poison(
        template(terminationGracePeriodSeconds="soon"),
        "Invalid",
        ("spec.template.spec.terminationGracePeriodSeconds",),
        template(terminationGracePeriodSeconds=60),
    ),
    "quantity": Poison(
        {"slurmd": {"image": "slurmd:test", "resources": {"limits": {"cpu": "many"}}}},
        "Invalid",
        ("spec.slurmd.resources.limits.cpu", "many"),
        {"slurmd": {"resources": {"limits": {"cpu": "1"}}}},
    ),
    "claim": Poison(
        {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": STORAGE}]},
        "Refused",
        ("accessModes",),
    ),
    "sssd": Poison(
        {"ssh": {"enabled": True, "sssdConfRef": {"name": "nowhere", "key": "sssd.conf"}}},
        "ReferenceMissing",
        ("spec.ssh.sssdConfRef", "nowhere"),
        {"ssh": {"enabled": False}},
    ),
    "meets": Poison(
        template(hostname="sound-"),
        "NameConflict",
        ("spec.template.spec.hostname", "NodeSet sound"),
    ),
    "taken": Poison({}, "NameTaken", ("taken-0",)),
}


async def test_each_bad_nodeset_reports_what_is_wrong_and_none_delays_another(
    world: WatchedNamespace,
) -> None:
    await world.nodeset("sound", replicas=2)
    await world.until_ready(2, "sound")
    metadata = {"name": "taken-0", "namespace": world.namespace}
    somebodys: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    somebodys["spec"] = {
        "containers": [{"name": "x", "image": "x"}],
        "nodeName": "nobodys",
        "hostname": "x",
    }
    world.dead.add("nobodys")
    await world.client.create(PODS, somebodys)
    for name, poison in POISONS.items():
        await world.nodeset(name, **{"replicas": 1, **poison.spec})
    await world.nodeset("late", replicas=1)

    # A scale-in, and a new NodeSet, with all of them about.
    await world.scale(1, "sound")
    await asyncio.gather(world.until_ready(1, "sound"), world.until_ready(1, "late"))

    async def message(name: str, poison: Poison) -> None:
        async def look() -> bool:
            ready = await world.condition(NODESETS, name)
            words = all(word in ready.get("message", "") for word in poison.reports)
            return ready.get("status") == "False" and ready["reason"] == poison.reason and words

        try:
            await until(f"NodeSet {name} to say so", look)
        except AssertionError as error:
            raise AssertionError(f"{error}: {await world.condition(NODESETS, name)}") from None

    await asyncio.gather(*(message(name, poison) for name, poison in POISONS.items()))
    made = {name.rpartition("-")[0] for name in await world.pods()}
    assert made == {"sound", "late", "taken"}

    for name, poison in POISONS.items():
        if poison.then:
            await world.client.merge_patch(NODESETS, world.namespace, name, {"spec": poison.then})
    await asyncio.gather(
        *(world.until_ready(1, name) for name, poison in POISONS.items() if poison.then)
    )


async def test_a_slurm_node_name_of_another_nodeset_is_reported_and_other_workers_are_created(
    world: WatchedNamespace,
) -> None:
    await world.nodeset("first", replicas=1, **template(hostname="gpu-1"))
    await world.until_pods("first-0")
    # gpu-10 is the first of the one and the eleventh of the other.
    await world.nodeset("second", replicas=12, **template(hostname="gpu-"))

    async def message() -> bool:
        ready = await world.condition(NODESETS, "second")
        words = (
            "Slurm node gpu-10 is pod first-0 of NodeSet first already",
            "spec.template.spec.hostname",
        )
        return ready.get("reason") == "NameConflict" and all(
            word in ready["message"] for word in words
        )

    await until("the conflict to be named", message)
    await world.until_pods("first-0", *(f"second-{number}" for number in range(12) if number != 10))
