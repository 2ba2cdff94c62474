"""Pods created from a template."""

import json

from sidecars.workloads import nodeset as render
from sidecars.workloads.facts import NOTHING, digest
from sidecars.workloads.resources import Manifest, NodeSet
from tests.support import builders
from tests.support.builders import controller, nodeset, pod_spec
from tests.unit.workloads.nodeset.making import CLAIM, SLINKY, pod


def test_a_pod_is_named_labelled_and_owned_by_its_nodeset() -> None:
    metadata = pod(nodeset(meta={"labels": {"team": "a", "helm.sh/chart": "slurm-1"}}, **SLINKY))[
        "metadata"
    ]
    assert (metadata["name"], metadata["namespace"]) == ("slurm-worker-slinky-0", "slurm")
    assert metadata["labels"] == {
        "team": "a",
        "app.kubernetes.io/name": "slurmd",
        "app.kubernetes.io/instance": "slurm-worker-slinky",
        "app.kubernetes.io/component": "worker",
        "slinky.slurm.net/cluster": "slurm",
        "nodeset.slinky.slurm.net/pod-name": "slurm-worker-slinky-0",
        "nodeset.slinky.slurm.net/pod-index": "0",
        "nodeset.slinky.slurm.net/pod-hostname": "slinky-0",
        "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
        "controller-revision-hash": "abc",
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "name": "slurm-worker-slinky",
            "uid": "uid-of-slurm-worker-slinky",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert metadata["annotations"] == {
        "kubectl.kubernetes.io/default-container": "slurmd",
        "slinky.slurm.net/slurm-key-hash": digest("key"),
        "slinky.slurm.net/jwt-key-hash": digest("jwt"),
        "slinky.slurm.net/sshd-conf-hash": NOTHING,
        "slinky.slurm.net/sssd-conf-hash": NOTHING,
    }


def test_a_pinned_pod_runs_on_its_node_and_where_the_user_allows() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    match = {"key": "metadata.name", "operator": "In", "values": ["node-0"]}
    zone = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    plain, wanting = (
        nodeset(),
        nodeset(
            template={
                "spec": {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [zone]}}}}
            }
        ),
    )
    for of, terms in (
        (plain, [{"matchFields": [match]}]),
        (wanting, [zone | {"matchFields": [match]}]),
    ):
        template = render.pod_template(of, controller(), builders.facts())
        affinity = render.pod(of, template, 0, "abc", kube_node="node-0")["spec"]["affinity"]
        assert affinity["nodeAffinity"][required]["nodeSelectorTerms"] == terms
        assert "podAntiAffinity" in affinity
        assert render.pod(of, template, 1, "abc")["spec"]["affinity"] != affinity


def test_pods_of_one_template_do_not_change_each_other() -> None:
    of = nodeset(volumeClaimTemplates=[CLAIM])
    template = render.pod_template(of, controller(), builders.facts())
    before = json.dumps(template)
    first = render.pod(of, template, 0, "abc", kube_node="node-0")
    text = json.dumps(first)
    render.pod(of, template, 1, "abc", kube_node="node-1")
    assert (json.dumps(first), json.dumps(template)) == (text, before)


def daemon(of: NodeSet, kube_node: str = "n1.example.com", host: str = "n1") -> Manifest:
    """The pod for a Kubernetes node."""
    return render.daemon_pod(
        of, render.pod_template(of, controller(), builders.facts()), kube_node, host, "abc"
    )


def test_a_daemon_pod_is_for_one_kubernetes_node_and_always_has_the_same_name() -> None:
    of = nodeset(scalingMode="DaemonSet", volumeClaimTemplates=[CLAIM])
    found = daemon(of)
    metadata = found["metadata"]
    assert metadata["name"] == daemon(of, host="other")["metadata"]["name"]
    assert metadata["name"] != daemon(of, "n2.example.com")["metadata"]["name"]
    assert metadata["generateName"] == "slurm-worker-slinky-"
    assert metadata["annotations"]["nodeset.slinky.slurm.net/kube-node"] == "n1.example.com"
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-name"] == metadata["name"]
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-hostname"] == "n1"
    assert "nodeset.slinky.slurm.net/pod-index" not in metadata["labels"]
    assert pod_spec(found)["hostname"] == "n1"
    [claim] = render.daemon_claims(of, "n1.example.com", "n1")
    assert claim["metadata"]["name"].endswith("-slurm-worker-slinky-n1")


def test_a_daemon_pod_tolerates_what_pods_of_a_daemon_set_do_but_no_cordon() -> None:
    keys = {
        item["key"] for item in pod_spec(daemon(nodeset(scalingMode="DaemonSet")))["tolerations"]
    }
    common = {"nodeset.slinky.slurm.net/worker"} | {
        f"node.kubernetes.io/{name}"
        for name in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure")
    }
    assert keys == common
    on_host = nodeset(
        scalingMode="DaemonSet",
        template={"spec": {"hostNetwork": True, "tolerations": [{"key": "gpu"}]}},
    )
    found = {item["key"] for item in pod_spec(daemon(on_host))["tolerations"]}
    assert found == common | {"gpu", "node.kubernetes.io/network-unavailable"}
    assert "node.kubernetes.io/not-ready" not in {
        item["key"] for item in pod_spec(pod())["tolerations"]
    }
