"""Revisions of a NodeSet."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sidecars.workloads import nodeset as render
from sidecars.workloads.facts import Facts, Site, digest
from sidecars.workloads.resources import NodeSet
from sidecars.workloads.structure import Workloads
from tests.support import builders
from tests.support.builders import controller, nodeset
from tests.unit.workloads.nodeset.making import CLAIM, SSH

TOOLS = {
    "helm.sh/chart": "slurm-1.2.1",
    "app.kubernetes.io/managed-by": "Helm",
    "app.kubernetes.io/version": "26.05",
}
"""Labels that SchedMD's chart puts on pod templates, and that reach no pod."""


def revision(of: NodeSet, facts: Facts | None = None) -> render.Revision:
    """The revision of a NodeSet."""
    return render.revision(of, controller(), facts or builders.facts())


@pytest.mark.parametrize(
    "change",
    [
        {"template": {"spec": {"hostname": "b-"}}},
        {"slurmd": {"image": "new"}},
        {"extraConf": "Weight=2"},
        {"logfile": {"image": "new"}},
        SSH,
        {"ordinalPadding": 2},
        {"oversubscribeNode": True},
        {"powerSaving": {"enabled": True}},
        {"jobLogs": {"enabled": True}},
    ],
)
def test_what_the_pods_are_made_of_makes_a_new_revision(change: dict[str, Any]) -> None:
    assert revision(nodeset(**change)).hash != revision(nodeset()).hash


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 7},
        {"partition": {"enabled": True, "config": "State=UP"}},
        {"pinToNode": True},
        {"powerSaving": {"enabled": False, "min": 3}},
        {"minReadySeconds": 5},
        {"jobLogs": {"enabled": False, "privateFiles": True}},
        {"volumeClaimTemplates": [CLAIM]},
        {"updateStrategy": {"type": "OnDelete"}},
        {
            "slurmd": {"resources": {}, "env": None},
            "template": {"spec": {"affinity": {}}},
            "extraConf": "",
        },
        {
            "template": {
                "metadata": {"labels": TOOLS, "annotations": {"meta.helm.sh/release-name": "slurm"}}
            }
        },
        {
            "ssh": {
                "enabled": False,
                "extraSshdConfig": "MaxAuthTries 2",
                "sssdConfRef": builders.SSSD,
            }
        },
    ],
)
def test_what_the_pods_are_not_made_of_makes_none(change: dict[str, Any]) -> None:
    assert revision(nodeset(**change)).hash == revision(nodeset()).hash


@pytest.mark.parametrize(
    "change",
    [
        {"extraSshdConfig": "MaxAuthTries 3"},
        {"sssdConfRef": {"name": "another", "key": "sssd.conf"}},
    ],
)
def test_a_change_of_ssh_that_is_enabled_makes_a_new_revision(change: dict[str, Any]) -> None:
    ssh = {**SSH["ssh"]}
    secrets = {**builders.facts().secrets, "another": {"sssd.conf": digest("sssd")}}
    facts = replace(builders.facts(), secrets=secrets)
    assert (
        revision(nodeset(ssh={**ssh, **change}), facts).hash
        != revision(nodeset(ssh=ssh), facts).hash
    )


def test_a_label_of_the_site_beside_those_of_tools_makes_a_new_revision() -> None:
    change: dict[str, Any] = {"template": {"metadata": {"labels": {**TOOLS, "team": "hpc"}}}}
    assert revision(nodeset(**change)).content != revision(nodeset()).content


def test_a_stored_revision_with_labels_of_tools_is_that_of_the_same_choices_without_them() -> None:
    found = revision(nodeset(slurmd={"image": "a"}))
    data = {
        **found.data,
        "spec": {**found.data["spec"], "template": {"metadata": {"labels": TOOLS}}},
    }
    assert render.Revision("stored", data).content == found.content


def test_the_nodeset_of_schedmds_chart_and_that_of_this_chart_have_the_same_revision() -> None:
    """With the same values: SchedMD's chart writes empty fields and labels of the release, ours a
    reference of ssh.
    """
    image = {"image": "slurmd:26.05", "imagePullPolicy": "IfNotPresent"}
    os = {"hostname": "a-", "nodeSelector": {"kubernetes.io/os": "linux"}}
    theirs = nodeset(
        slurmd={**image, "args": [], "env": [], "resources": {}, "volumeMounts": []},
        logfile={"image": "alpine:latest", "imagePullPolicy": "IfNotPresent", "resources": {}},
        template={
            "metadata": {"labels": {**TOOLS, "app.kubernetes.io/part-of": "slurm"}},
            "spec": {
                **os,
                "affinity": {},
                "initContainers": [],
                "priorityClassName": "",
                "resources": {},
                "volumes": [],
            },
        },
    )
    ours = nodeset(
        slurmd=image,
        logfile={"image": "alpine:latest", "imagePullPolicy": "IfNotPresent"},
        ssh={"enabled": False, "sssdConfRef": builders.SSSD},
        template={"spec": os},
    )
    assert revision(theirs).content == revision(ours).content
    assert revision(theirs).hash == revision(ours).hash


def test_pods_have_a_label_that_does_not_distinguish_revisions() -> None:
    labels = {"app.kubernetes.io/part-of": "research"}
    found = nodeset(template={"metadata": {"labels": labels}})
    template = render.pod_template(found, controller(), builders.facts(), revision(found))
    assert template["metadata"]["labels"].items() >= labels.items()


def test_changed_keys_make_no_new_revision_as_they_reach_running_pods() -> None:
    before = builders.facts()
    changed = replace(
        before,
        secrets={**before.secrets, "slurm-auth-slurm-jwks": {"slurm.jwks": digest("another")}},
    )
    jwt = replace(
        before, secrets={**before.secrets, "slurm-auth-jwt": {"jwt.key": digest("another")}}
    )
    assert revision(nodeset(), changed).hash == revision(nodeset(), before).hash
    assert revision(nodeset(), jwt).hash == revision(nodeset(), before).hash


def newer(facts: Facts) -> Facts:
    """The facts of the next release: another image, another base."""
    files = {
        name: json.loads(json.dumps(file)) for name, file in facts.site.workloads.files.items()
    }
    files["slurmd"][0]["spec"]["priorityClassName"] = "next"
    return replace(facts, site=Site(workloads=Workloads(files), sidecars_image="sidecars:next"))


def test_a_new_release_makes_no_new_revision_and_its_base_waits_for_one() -> None:
    old, new = builders.facts(), newer(builders.facts())
    assert revision(nodeset(), old).hash == revision(nodeset(), new).hash
    stored = render.revision_of(
        json.loads(json.dumps(render.revision_object(nodeset(), revision(nodeset(), old), 1)))
    )
    kept = render.pod_template(nodeset(), controller(), new, stored)
    assert kept == render.pod_template(nodeset(), controller(), old)
    assert render.pod_template(nodeset(), controller(), new)["spec"]["priorityClassName"] == "next"


def test_an_older_revision_gives_the_pods_of_its_time() -> None:
    before, now = nodeset(slurmd={"image": "old"}), nodeset(slurmd={"image": "new"}, replicas=5)
    template = render.pod_template(now, controller(), builders.facts(), revision(before))
    assert template == render.pod_template(before, controller(), builders.facts())


def test_a_revision_is_stored_as_a_controller_revision_that_can_be_found() -> None:
    found = revision(nodeset())
    stored = render.revision_object(nodeset(), found, 3)
    assert stored["metadata"]["name"] == f"slurm-worker-slinky-{found.hash}"
    assert stored["metadata"]["labels"].items() >= render.selector(nodeset()).items()
    assert stored["revision"] == 3
    assert render.revision_of(stored) == found


def test_a_foreign_controller_revision_is_refused() -> None:
    with pytest.raises(ValueError, match="'x' contains no revision"):
        render.revision_of(
            {
                "metadata": {"name": "x", "labels": {"controller-revision-hash": "1"}},
                "data": {"raw": ""},
            }
        )
