"""The policy and the webhook of the chart do the same with the same pod, on an API server that has
both.
"""

import asyncio
import random
import re
import time
from pathlib import Path
from typing import Any

from sidecars.bridge.webhook_certificate import Certificates
from sidecars.contract import bridge
from sidecars.kube import NAMESPACES, PODS, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.support.apiserver import until
from tests.support.bridge import pod
from tests.support.bridge_webhook import Webhook
from tests.support.bridge_world import ACCOUNTS, World, install

PODS_EACH = 150
_REFUSED = re.compile("ValidatingAdmissionPolicy '.*' with binding '.*' denied request: .*")
GATES: tuple[Any, ...] = (
    *("absent", None, [], [{"name": bridge.GATE}], [{"name": "example.com/quota"}]),
    [{"name": "example.com/quota"}, {"name": "example.com/other"}],
    [{"name": "example.com/quota"}, {"name": bridge.GATE}],
    [{"name": bridge.GATE}, {"name": "example.com/quota"}],
    [{"name": f"{bridge.GATE}-2"}],
)
"""All that a pod can have. A name twice is refused before any admission."""


def any_pod(rng: random.Random, number: int) -> dict[str, Any]:
    """A pod that a user may create, or try to."""
    found = pod("", f"p-{number}", cpu=rng.choice(("100m", "1", "2")))
    spec, gates = found["spec"], GATES[number % len(GATES)]
    # Without a volume for a token, whose name is generated.
    spec["automountServiceAccountToken"] = False
    spec["schedulingGates"] = gates
    if gates == "absent":
        del spec["schedulingGates"]
    optional: dict[str, Any] = {
        "nodeName": "k0a",
        "nodeSelector": {"zone": rng.choice("ab")},
        "tolerations": rng.choice(
            (
                [{"key": "example.com/gpu", "operator": "Exists"}],
                [{"key": bridge.TAINT, "operator": "Exists"}],
                [{"operator": "Exists"}, {"key": bridge.TAINT, "effect": "NoSchedule"}],
            )
        ),
        "initContainers": [
            {"name": "i", "image": "x", "restartPolicy": rng.choice(("Always", None))}
        ],
        "activeDeadlineSeconds": rng.randint(1, 100),
        "hostNetwork": True,
        "restartPolicy": rng.choice(("Always", "Never")),
        "terminationGracePeriodSeconds": rng.randint(0, 100),
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {},
            }
        ],
        "priorityClassName": "system-node-critical",
        "schedulerName": rng.choice(("another", "slurm-bridge-scheduler")),
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    spec |= {
        name: value
        for name, value in optional.items()
        if rng.random() < (0.1 if name == "nodeName" else 0.3)
    }
    if rng.random() < 0.2:
        found["metadata"]["labels"][bridge.JOB_LABEL] = "7"
    if rng.random() < 0.3:
        found["metadata"]["annotations"] = {f"{bridge.WISHES}qos": "high"}
    return found


async def test_the_policy_and_the_webhook_do_the_same(
    world: World, plane: ControlPlane, tmp_path: Path
) -> None:
    hooked = f"{world.namespace}-hooked"
    await world.admin.create(NAMESPACES, {"metadata": {"name": hooked}})
    await world.admin.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": hooked}})
    install(
        plane,
        hooked,
        f"admission: {{mode: webhook, managedNamespaces: [{hooked}], otherBridges: "
        f"[slurm/slurm-bridge]}}",
    )
    name = f"{hooked}-slurm-bridge-webhook"
    webhook = Webhook(world.admin, name, tmp_path)
    await webhook.redirect()
    await Certificates(world.admin, "slurm", name, time.time).check()

    async def created(namespace: str, item: dict[str, Any]) -> Any:
        """What the API server has stored, or its refusal."""
        item = {**item, "metadata": {**item["metadata"], "namespace": namespace}}
        try:
            made = await world.admin.create(PODS, item)
        except ApiError as error:
            # Several policies may refuse a pod, and the API server quotes any of them.
            return _REFUSED.sub("refused", str(error)).replace(namespace, "NAMESPACE")
        return made["spec"], made["metadata"].get("labels"), made["metadata"].get("annotations")

    async def enforced(namespace: str) -> bool:
        plain = pod("", "first")
        del plain["spec"]["schedulingGates"]
        metadata = {"name": "second", "labels": {bridge.JOB_LABEL: "1"}}
        # Another policy refuses the label than the node, which is in force alone.
        placed = {"metadata": {"name": "third"}, "spec": {**plain["spec"], "nodeName": "none"}}
        probes = (plain, {**plain, "metadata": metadata}, {**plain, **placed})
        answers = [await created(namespace, it) for it in probes]
        for answer, name in zip(answers, ("first", "second", "third"), strict=True):
            if isinstance(answer, tuple):
                await world.admin.delete(PODS, namespace, name, grace_period_seconds=0)
        gated = isinstance(answers[0], tuple) and "schedulingGates" in answers[0][0]
        return gated and all(isinstance(it, str) and it.endswith("refused") for it in answers[1:])

    async def ready() -> bool:
        return await enforced(world.namespace) and await enforced(hooked)

    await webhook.mount()
    async with webhook.running():
        await until("the policies and the webhook to be in force", ready)
        rng = random.Random(21)  # noqa: S311 - the pods are the same in each run
        items = [any_pod(rng, number) for number in range(PODS_EACH)]
        by_policy = await asyncio.gather(*(created(world.namespace, it) for it in items))
        by_webhook = await asyncio.gather(*(created(hooked, it) for it in items))
    assert [it for it in zip(by_webhook, by_policy, strict=True) if it[0] != it[1]] == []
    gated = [
        it
        for it in by_policy
        if isinstance(it, tuple) and {"name": bridge.GATE} in it[0]["schedulingGates"]
    ]
    assert PODS_EACH / 2 < len(gated) < PODS_EACH - 10
