"""What is wrong with a stream, found before it is applied."""

from typing import Any

import pytest

from postrender.errors import PostrenderError
from postrender.report import Run
from postrender.steps.check import DEFAULTS
from tests.support.streams import applied, config_map, stream

VERSION = "slinky.slurm.net/v1beta1"
KEYS = {
    "slurmKeyRef": {"name": "k", "key": "slurm.key"},
    "jwtKeyRef": {"name": "k", "key": "jwt.key"},
}


def controller(**spec: Any) -> dict[str, Any]:
    image = {"slurmctld": {"image": "registry.invalid/slurm-charts/slurmctld:26.05"}}
    return {
        "apiVersion": VERSION,
        "kind": "Controller",
        "metadata": {"name": "slurm"},
        "spec": KEYS | image | spec,
    }


def nodeset(name: str = "worker", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "NodeSet",
        "metadata": {"name": name},
        "spec": {"controllerRef": {"name": "slurm"}, **spec},
    }


def findings(*given: dict[str, Any], **severity: str) -> list[str]:
    run = Run(namespace="slurm")
    wanted = dict.fromkeys(DEFAULTS, "warning") | {"image-digest": "ignore", "resources": "ignore"}
    wanted |= {rule.replace("_", "-"): it for rule, it in severity.items()}
    text = stream(*given)
    written = text.written()
    assert applied(text, {"check": {"severity": wanted}}, run=run).written() == written
    return [f"{it.rule}: {it.place.partition(', ')[2]}: {it.message}" for it in run.findings]


def test_a_cluster_without_a_fault_has_no_finding() -> None:
    assert (
        findings(
            controller(),
            nodeset(),
            nodeset("other", partition={"enabled": True, "config": "MaxTime=1:00"}),
        )
        == []
    )


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (
            [controller(extraConf="SchedulerType=sched/backfill\nSelectTypeX=select/cons_tres\n")],
            "configuration-error: line 18, Controller slurm: slurm.conf line ",
        ),
        (
            [
                controller(configFileRefs=[{"name": "extra"}]),
                config_map("extra", data={"gres.conf": "A=1\nName=gpu Typ=h100\n"}),
            ],
            (
                "configuration-error: line 27, ConfigMap extra: gres.conf line 2 (ConfigMap extra "
                "key gres.conf): Typ"
            ),
        ),
        (
            [controller(extraConf="PartitionName=p Nodes=nobody\n")],
            "configuration-warning: line 17, Controller slurm: slurm.conf line ",
        ),
        (
            [controller(), nodeset(template={"spec": {"hostname": "-bad"}})],
            "spec.template.spec.hostname",
        ),
        (
            [controller(), nodeset(replicas="x")],
            "invalid-resource: line 25, NodeSet worker: spec.replicas: Expected `int`",
        ),
        (
            [controller(), nodeset(slurmd={"resources": {"limits": {"cpu": "4x"}}})],
            (
                "invalid-resource: line 28, NodeSet worker: spec.slurmd.resources.limits.cpu: '4x' "
                "isn't a quantity"
            ),
        ),
        (
            [controller(), nodeset(autoscaling={"max": 1}, powerSaving={"enabled": True})],
            "NodeSet worker: spec: powerSaving and autoscaling exclude each other",
        ),
        (
            [controller(), nodeset(), nodeset()],
            "duplicate-object: line 30, NodeSet worker: the same object as in",
        ),
        (
            [
                controller(),
                nodeset("a", template={"spec": {"hostname": "x-"}}),
                nodeset("b", template={"spec": {"hostname": "x-"}}),
            ],
            "NodeSet slurm/a",
        ),
        (
            [controller(configFileRefs=[{"name": "absent"}])],
            (
                "missing-reference: line 16, Controller slurm: spec.configFileRefs: ConfigMap "
                "'absent' doesn't exist"
            ),
        ),
        (
            [controller(accountingRef={"name": "acct"})],
            "missing-reference: line 16, Controller slurm: Accounting 'acct' isn't",
        ),
        (
            [nodeset()],
            "missing-reference: line 8, NodeSet worker: Controller 'slurm' isn't in the stream",
        ),
        (
            [controller(slurmctld={"image": "slurmctld"})],
            "image-tag: line 15, Controller slurm: slurmctld can be another image",
        ),
        (
            [{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"hostPID": True}}],
            "privileged: line 7, Pod p: a pod with hostPID",
        ),
        (
            [
                {
                    "kind": "Pod",
                    "metadata": {"name": "p"},
                    "spec": {"volumes": [{"hostPath": {"path": "/dev"}}]},
                }
            ],
            "privileged: line 8, Pod p: a pod with /dev of the Kubernetes node",
        ),
        (
            [
                {
                    "kind": "Pod",
                    "spec": {
                        "containers": [{"image": "a:1", "securityContext": {"privileged": True}}]
                    },
                }
            ],
            "privileged: line 8, Pod : a privileged container",
        ),
        (
            [config_map("x", binaryData={"a": "abc"}), controller()],
            "invalid-resource: line 7, ConfigMap x: no ConfigMap: ",
        ),
    ],
)
def test_each_fault_is_found_with_its_line(given: list[dict[str, Any]], want: str) -> None:
    found = findings(*given)
    assert any(want in it for it in found), found


def test_rules_that_are_not_on_by_default_can_be_set() -> None:
    given = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "a:1"}]},
    }
    assert findings(given) == []
    found = findings(given, image_digest="warning", resources="info")
    assert [it.partition(":")[0] for it in found] == ["image-digest", "resources"]


def test_errors_end_the_run_with_their_number() -> None:
    with pytest.raises(
        PostrenderError, match=r"steps\[0\].check: 2 errors, listed above: nothing is passed on$"
    ):
        applied(
            stream(controller(), nodeset(replicas="x"), nodeset("b", replicas="y")), {"check": None}
        )


def test_clusters_of_one_name_in_two_namespaces_are_checked_apart() -> None:
    others = [
        it | {"metadata": it["metadata"] | {"namespace": "b"}} for it in (controller(), nodeset())
    ]
    assert findings(controller(), nodeset(), *others) == []


def test_hooks_of_one_name_are_no_duplicates() -> None:
    hook = {"kind": "Job", "metadata": {"name": "a", "annotations": {"helm.sh/hook": "test"}}}
    assert findings(hook, hook) == []
