"""What is read of a live cluster by kubectl."""

import base64
import gzip
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from postrender.errors import PostrenderError
from postrender.preview import live
from postrender.preview.report import preview
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams
from tests.unit.postrender.preview import clusters


class Cluster:
    """In place of kubectl: answers with what it has."""

    def __init__(self, *objects: Manifest) -> None:
        self.objects = list(objects)
        self.asked: list[list[str]] = []
        self.forbidden: set[str] = set()
        self.refusals: dict[str, str] = {}
        """What kubectl reports of an applied object, by its kind."""
        self.slurm: dict[str, Any] = {
            "scontrol": {
                "nodes": [{"name": "slinky-0", "state": ["IDLE"]}],
                "last_update": {"number": 1, "set": True},
            },
            "squeue": {
                "jobs": [{"job_id": 7, "job_state": ["RUNNING"], "nodes": "slinky-0"}],
                "last_update": 1,
            },
        }

    def __call__(self, words: Sequence[str], stdin: str) -> str:
        self.asked.append(list(words))
        if words[0] == "exec":
            found = self.slurm.get(words[words.index("--") + 1])
            if found is None:
                raise PostrenderError("kubectl exec: slurmctld doesn't answer")
            return json.dumps(found)
        if words[0] == "apply":
            assert "--dry-run=server" in words
            manifest = json.loads(stdin)
            kinds = {it["kind"] for it in manifest.get("items", [manifest])}
            for kind in kinds & self.refusals.keys():
                raise PostrenderError(f"kubectl apply --server-side: {self.refusals[kind]}")
            return ""
        plurals = [it.partition(".")[0] for it in words[1].split(",")]
        kinds = {it.removesuffix(end) for it in plurals for end in ("s", "es")}
        if kinds & self.forbidden:
            raise PostrenderError(f"kubectl get: {words[1]} is forbidden")
        if words[1] == "-f":
            wanted = {(it["kind"], it["metadata"]["name"]) for it in json.loads(stdin)["items"]}
            items = [it for it in self.objects if (it["kind"], it["metadata"]["name"]) in wanted]
        elif "-l" in words and words[words.index("-l") + 1].startswith("owner=helm,"):
            labels = dict(it.split("=") for it in words[words.index("-l") + 1].split(","))
            items = [
                it
                for it in self.objects
                if labels.items() <= (it["metadata"].get("labels") or {}).items()
            ]
        elif "/" in words[1]:
            named = {it for it in words if "/" in it}
            items = [
                it
                for it in self.objects
                if f"{it['kind'].lower()}/{it['metadata']['name']}" in named
            ]
        else:
            items = [it for it in self.objects if it["kind"].lower() in kinds]
        if "--show-managed-fields" not in words:
            items = [{**it, "metadata": {**it["metadata"], "managedFields": []}} for it in items]
        if not items:
            return ""
        return json.dumps(items[0] if len(items) == 1 else {"kind": "List", "items": items})


def read(cluster: Cluster, *after: Manifest, release: str = "") -> tuple[list[Manifest], Any]:
    return live.read(after, "slurm", release, cluster, clusters.NOW)


def names(items: Sequence[Manifest]) -> list[tuple[str, str]]:
    return [(it["kind"], it["metadata"]["name"]) for it in items]


def test_the_objects_of_the_stream_and_what_they_refer_to_are_read() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "plain", "namespace": "slurm"},
    }
    other = service | {"metadata": {"name": "other", "namespace": "slurm"}}
    cluster = Cluster(
        *streams.known_keys(),
        streams.controller(),
        streams.nodeset(),
        service,
        other,
        clusters.pod(0),
    )
    before, state = read(cluster, streams.controller(), streams.nodeset(), service)
    assert sorted(names(before)) == [
        ("Controller", "slurm"),
        ("NodeSet", "slurm-worker-slinky"),
        ("Service", "plain"),
    ]
    assert sorted(names(state.referenced)) == [
        ("Secret", "slurm-auth-jwt"),
        ("Secret", "slurm-auth-slurm"),
    ]
    assert state.live
    assert [it["metadata"]["name"] for it in state.pods] == ["slurm-worker-slinky-0"]
    slurm = state.of_slurm(("slurm", "slurm"))
    assert [it.name for it in slurm.nodes] == ["slinky-0"]
    assert [it.job_id for it in slurm.jobs] == [7]


def test_what_the_stream_lacks_counts_as_deleted_if_it_is_of_the_release() -> None:
    ours, theirs = streams.nodeset("ours"), streams.nodeset("theirs")
    ours["metadata"]["annotations"] = {live.RELEASE: "slurm"}
    cluster = Cluster(streams.controller(), ours, theirs)
    assert ("NodeSet", "ours") in names(read(cluster, streams.controller(), release="slurm")[0])
    assert ("NodeSet", "theirs") not in names(
        read(cluster, streams.controller(), release="slurm")[0]
    )
    assert ("NodeSet", "ours") not in names(read(cluster, streams.controller())[0])


def test_a_secret_that_a_custom_resource_names_is_deleted_only_if_the_release_has_it() -> None:
    ours, theirs = streams.known_keys()
    ours["metadata"]["annotations"] = {live.RELEASE: "slurm"}
    cluster = Cluster(ours, theirs, streams.controller())
    before, state = read(cluster, streams.controller(), release="slurm")
    assert ("Secret", ours["metadata"]["name"]) in names(before)
    found = preview(before, [streams.controller()], streams.SITE, state, "slurm")
    assert [(it.action, it.kind, it.name) for it in found.changes] == [
        ("delete", "Secret", ours["metadata"]["name"])
    ]


def test_a_key_that_the_operator_has_generated_into_a_secret_of_the_release_is_no_change() -> None:
    rendered = streams.keys()
    after = [*rendered, streams.controller()]
    found = []
    for secret, known in zip(rendered, streams.known_keys(), strict=True):
        owners = [{"manager": "slurm-operator", "operation": "Apply", "fieldsV1": {"f:data": {}}}]
        annotations = {**secret["metadata"]["annotations"], live.RELEASE: "slurm"}
        found.append(
            {
                **known,
                "metadata": {
                    **secret["metadata"],
                    "annotations": annotations,
                    "managedFields": owners,
                },
            }
        )
    before, state = read(Cluster(*found, streams.controller()), *after, release="slurm")
    assert preview(before, after, streams.SITE, state, "slurm").changes == ()


def release_secret(text: str, status: str = "deployed") -> Manifest:
    """As Helm stores a release."""
    stored = gzip.compress(json.dumps({"name": "slurm", "manifest": text}).encode())
    labels = {"owner": "helm", "name": "slurm", "status": status}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"sh.helm.release.v1.slurm.{status}", "labels": labels},
        "data": {"release": base64.b64encode(base64.b64encode(stored)).decode()},
    }


def test_a_size_that_kubectl_has_set_changes_if_the_deployed_release_has_another_one() -> None:
    scaled = streams.nodeset(replicas=5)
    scaled["metadata"]["managedFields"] = [
        {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    ]
    after = [*streams.known_keys(), streams.controller(), streams.nodeset(replicas=2)]
    for former, fields in ((2, []), (1, ["spec.replicas: 5 → 2"])):
        deployed = release_secret(json.dumps(streams.nodeset(replicas=former)))
        others = release_secret(json.dumps(streams.nodeset(replicas=9)), "superseded")
        cluster = Cluster(*streams.known_keys(), streams.controller(), scaled, deployed, others)
        before, state = read(cluster, *after, release="slurm")
        found = preview(before, after, streams.SITE, state, "slurm").changes
        assert [field for it in found for field in it.fields] == fields


@pytest.mark.parametrize("data", ["", "AAAA", "bm90aGluZw=="])
def test_a_release_that_cannot_be_read_is_unknown(data: str) -> None:
    broken = {**release_secret(""), "data": {"release": data}}
    assert read(Cluster(broken), streams.controller(), release="slurm")[1].released == []
    cluster = Cluster(release_secret(""))
    cluster.forbidden.add("secret")
    assert live._released("slurm", "slurm", cluster) == []


def test_a_slurm_that_cannot_be_asked_is_unknown_with_the_reason() -> None:
    cluster = Cluster(streams.controller())
    del cluster.slurm["squeue"]
    assert read(cluster, streams.controller())[1].of_slurm(("slurm", "slurm")).problem == (
        "kubectl exec: slurmctld doesn't answer"
    )
    cluster.slurm["squeue"] = {"jobs": 3}
    assert "jobs" in read(cluster, streams.controller())[1].of_slurm(("slurm", "slurm")).problem


def test_what_the_api_server_refuses_in_a_dry_run_is_named_with_its_words() -> None:
    cluster = Cluster(*streams.known_keys(), streams.controller(), streams.nodeset())
    policy = 'admission webhook "site" denied the request:\n  no NodeSet here'
    cluster.refusals = {"NodeSet": policy}
    after = [streams.controller(), streams.nodeset(replicas=3)]
    before, state = read(cluster, *after)
    [refused] = preview(before, after, streams.SITE, state, "slurm").refused
    assert (refused.kind, refused.namespace, refused.name) == (
        "NodeSet",
        "slurm",
        "slurm-worker-slinky",
    )
    assert refused.why == ('admission webhook "site" denied the request: no NodeSet here',)
    # A rule that is known here is in the words of the rule alone.
    cluster.refusals = {"Controller": "spec: Invalid value"}
    after[0] = streams.controller(clusterName="other")
    before, state = read(cluster, *after)
    [refused] = preview(before, after, streams.SITE, state, "slurm").refused
    assert refused.why == ("spec.clusterName: cannot change ClusterName after deployment",)


def test_a_refusal_that_repeats_a_password_of_the_stream_is_shown_without_it() -> None:
    cluster = Cluster(streams.nodeset())
    cluster.refusals = {"NodeSet": 'spec.extraConf: Invalid value: "StoragePass=hunter2hunter2"'}
    _, state = read(cluster, streams.nodeset())
    [why] = state.refusals.values()
    assert "hunter2" not in why
    assert why.startswith("spec.extraConf: Invalid value")


@pytest.mark.parametrize(
    "message",
    [
        'User "ada" cannot patch resource "nodesets" in API group "slinky.slurm.net"',
        'Error from server (NotFound): namespaces "slurm" not found',
        'no matches for kind "NodeSet" in version "slinky.slurm.net/v1beta1"',
        "no answer within 60 s",
        "Unable to connect to the server: net/http: TLS handshake timeout",
        "Error from server: etcdserver: request timed out",
        "error: You must be logged in to the server (Unauthorized)",
    ],
)
def test_what_can_not_be_asked_is_no_refusal(message: str) -> None:
    cluster = Cluster(streams.nodeset())
    cluster.refusals = {"NodeSet": message}
    _, state = read(cluster, streams.nodeset())
    assert state.refusals == {}


def test_an_external_slurmctld_is_not_asked() -> None:
    external = streams.controller(external=True, externalConfig={"host": "ctld", "port": 6817})
    cluster = Cluster(external)
    assert read(cluster, external)[1].slurm == {}
    assert not [it for it in cluster.asked if it[0] == "exec"]


def test_nothing_is_asked_about_a_stream_without_objects() -> None:
    cluster = Cluster()
    assert read(cluster)[0] == []
    assert cluster.asked == []


def test_kubectl_reports_what_it_prints_and_why_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "kubectl"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script.write_text('#!/bin/sh\necho "$1 $(cat)"\n')
    script.chmod(0o755)
    assert live.kubectl(["get"], "text") == "get text\n"
    script.write_text("#!/bin/sh\necho forbidden >&2\nexit 1\n")
    with pytest.raises(PostrenderError, match="kubectl get: forbidden"):
        live.kubectl(["get"])
    script.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PostrenderError, match="kubectl is missing: install it"):
        live.kubectl(["get"])


def test_a_kubectl_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("kubectl", 60)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(PostrenderError, match="kubectl get nodes: no answer within 60 s"):
        live.kubectl(["get", "nodes"])


def test_claims_and_whether_they_can_grow_are_read_as_far_as_that_is_permitted() -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "statesave-slurm-controller-0", "namespace": "slurm"},
        "spec": {"storageClassName": "grows"},
    }
    classes: list[Manifest] = [
        {"kind": "StorageClass", "metadata": {"name": "grows"}, "allowVolumeExpansion": True},
        {"kind": "StorageClass", "metadata": {"name": "fixed"}},
    ]
    cluster = Cluster(streams.controller(), claim, *classes)
    state = read(cluster, streams.controller())[1]
    assert names(state.claims) == [("PersistentVolumeClaim", "statesave-slurm-controller-0")]
    assert state.storage_classes == {"grows": True, "fixed": False}
    cluster.forbidden = {"storageclass"}
    assert read(cluster, streams.controller())[1].storage_classes is None
    # A claim of the release needs them too, and nothing else does.
    cluster = Cluster(claim, *classes)
    assert read(cluster, claim)[1].storage_classes == {"grows": True, "fixed": False}
    assert (
        read(Cluster(streams.controller(), *classes), streams.controller())[1].storage_classes
        is None
    )
