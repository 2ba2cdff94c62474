"""What is different where no operator runs."""

import copy
from typing import Any

import pytest

from postrender.errors import PostrenderError
from postrender.expand.standalone import Found, expand
from sidecars.contract.annotations import TOPOLOGY
from sidecars.workloads.assembly import container, find
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams


def expanded(*documents: Manifest, allowed: tuple[str, ...] = ()) -> Found:
    return expand(streams.cluster(*documents), streams.SITE, allowed)


def workers(**spec: Any) -> Manifest:
    found = expanded(*streams.keys(), streams.controller(), streams.nodeset(**spec))
    return find(found["NodeSet", "slurm-worker-slinky"], "StatefulSet")


def test_a_nodeset_becomes_a_stateful_set_with_the_names_of_its_slurm_nodes() -> None:
    found = workers(replicas=3)
    assert found["metadata"]["name"] == "slinky"
    assert found["spec"]["replicas"] == 3
    assert found["spec"]["serviceName"] == "slurm-workers-slurm"
    assert found["spec"]["podManagementPolicy"] == "Parallel"
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert workers(hostname=None)["metadata"]["name"] == "slurm-worker-slinky"


def test_a_nodeset_without_replicas_keeps_the_number_that_it_was_scaled_to() -> None:
    assert "replicas" not in workers(replicas=None)["spec"]
    assert workers(replicas=0)["spec"]["replicas"] == 0


def test_the_sidecar_takes_the_slurm_node_name_from_the_pod_and_waits_for_no_topology() -> None:
    template = workers()["spec"]["template"]
    variables = {it["name"]: it for it in container(template["spec"], "node")["env"]}
    assert variables["SLURM_NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert template["metadata"]["annotations"][TOPOLOGY] == ""
    own = {"metadata": {"annotations": {TOPOLOGY: "tree:leaf1"}}}
    assert (
        workers(template=own)["spec"]["template"]["metadata"]["annotations"][TOPOLOGY]
        == "tree:leaf1"
    )


def test_update_strategy_claims_and_their_retention_are_those_of_the_nodeset() -> None:
    claim = {"metadata": {"name": "scratch"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    spec = workers(
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
        volumeClaimTemplates=[claim],
        persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete"},
        minReadySeconds=7,
    )["spec"]
    assert spec["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 2},
    }
    assert spec["volumeClaimTemplates"] == [claim]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Delete",
    }
    assert spec["minReadySeconds"] == 7
    assert workers(updateStrategy={"type": "OnDelete"})["spec"]["updateStrategy"] == {
        "type": "OnDelete"
    }


def test_login_pods_have_stable_names_that_the_service_of_the_workers_resolves() -> None:
    found = expanded(*streams.stream())
    login = find(found["LoginSet", "slurm-login-slinky"], "StatefulSet")
    assert "strategy" not in login["spec"]
    service = find(found["Controller", "slurm"], "Service", "slurm-workers-slurm")
    assert login["spec"]["serviceName"] == service["metadata"]["name"]
    assert (
        service["spec"]["selector"].items()
        <= login["spec"]["template"]["metadata"]["labels"].items()
    )
    assert (
        service["spec"]["selector"].items()
        <= workers()["spec"]["template"]["metadata"]["labels"].items()
    )
    assert [it["targetPort"] for it in service["spec"]["ports"]] == [6818]


def test_nothing_refers_to_an_owner_and_no_budget_waits_for_an_operator() -> None:
    items = [it for found in expanded(*streams.stream()).values() for it in found]
    assert items
    assert not [it for it in items if "ownerReferences" in it["metadata"]]
    assert "PodDisruptionBudget" not in {it["kind"] for it in items}
    assert {it["metadata"]["namespace"] for it in items} == {"slurm"}


def test_the_same_stream_gives_the_same_objects_and_stays_as_it_is() -> None:
    documents = streams.stream(streams.accounting(), streams.generated("mariadb", "password"))
    before = copy.deepcopy(documents)
    assert expanded(*documents) == expanded(*reversed(documents))
    assert documents == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (streams.controller(ha={"enabled": True}), r"spec\.ha: .*set spec\.ha\.enabled to false"),
        (
            streams.controller(nextSlurmKeyRef={"name": "n", "key": "k"}),
            r"spec\.nextSlurmKeyRef: .*leave it out",
        ),
        (
            streams.nodeset(scalingMode="DaemonSet"),
            r"spec\.scalingMode: 'DaemonSet' needs the operator",
        ),
        (streams.nodeset(ordinalPadding=3), r"spec\.ordinalPadding: .*leave it out"),
        (streams.nodeset(pinToNode=True), r"spec\.pinToNode: needs the operator"),
        (
            streams.nodeset(autoscaling={"max": 3}),
            r"spec\.autoscaling: needs the operator.*leave it out.*replicas",
        ),
        (
            streams.nodeset(powerSaving={"enabled": True}),
            r"spec\.powerSaving: needs the operator.*replicas",
        ),
        (
            streams.controller(declaredAccountsRef={"name": "accounts"}),
            r"spec\.declaredAccountsRef: needs the operator.*`sacctmgr`",
        ),
        (
            streams.nodeset(hostname="gpu"),
            r"spec\.template\.spec\.hostname: .*write gpu-, or leave it out",
        ),
    ],
    ids=[
        "ha",
        "next key",
        "daemons",
        "padding",
        "pins",
        "autoscaling",
        "power saving",
        "accounts",
        "hostname",
    ],
)
def test_what_needs_an_operator_is_refused_with_the_remedy(changed: Manifest, message: str) -> None:
    others = [
        it for it in (streams.controller(), streams.nodeset()) if it["kind"] != changed["kind"]
    ]
    with pytest.raises(PostrenderError, match=message):
        expanded(*streams.keys(), changed, *others)


def with_spec(document: Manifest, **spec: Any) -> Manifest:
    template = document["spec"].get("template", {})
    changed = {
        **template,
        "spec": {**template.get("spec", {}), "serviceAccountName": "bridge", **spec},
    }
    return {**document, "spec": {**document["spec"], "template": changed}}


TOKEN = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}


@pytest.mark.parametrize(
    "spec", [{"automountServiceAccountToken": True}, {"volumes": [TOKEN]}], ids=["mount", "volume"]
)
@pytest.mark.parametrize("kind", ["Controller", "RestApi", "LoginSet", "NodeSet", "Accounting"])
def test_pods_with_a_token_are_refused_unless_their_account_is_allowed(
    kind: str, spec: dict[str, Any]
) -> None:
    given = streams.stream(streams.accounting(), streams.generated("mariadb", "password"))
    [changed] = [it for it in given if it["kind"] == kind]
    documents = [with_spec(it, **spec) if it is changed else it for it in given]
    with pytest.raises(PostrenderError) as caught:
        expanded(*documents, allowed=("slurm/other", "other/bridge"))
    message = str(caught.value)
    assert message.startswith(f"{kind} slurm/{changed['metadata']['name']}: spec.template.spec.")
    assert "a token of the ServiceAccount 'bridge'" in message
    assert "add 'slurm/bridge' to allowedServiceAccounts of the step `expand`" in message
    assert expanded(*documents, allowed=("slurm/bridge",))


def test_two_objects_of_one_name_are_refused() -> None:
    with pytest.raises(
        PostrenderError, match=r"both have a StatefulSet slurm-controller: give one of them another"
    ):
        expanded(*streams.stream(streams.nodeset("other", hostname="slurm-controller-")))
