"""What is rendered for a NodeSet and kept: `sidecars.operator.nodeset.rendering`."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.operator.nodeset.rendering import Inputs, Rendered, inputs
from sidecars.workloads import nodeset as render
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.facts import Facts, MissingReferenceError, Site
from sidecars.workloads.resources import (
    Accounting,
    Controller,
    NodeSet,
    ResourceError,
    RestApi,
    read,
)
from sidecars.workloads.resources.specs import ControllerSpec, NodeSetSpec
from sidecars.workloads.structure import StructureError, Workloads
from tests.support import builders
from tests.support.builders import JWT_KEY, KEYS, SLURM_KEY, SSSD

CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
SLURMD: dict[str, Any] = {"image": "slurmd:26.05"}
MOUNT = {"name": "home", "mountPath": "/home"}
HOME = {"name": "home", "hostPath": {"path": "/home"}}
OPTION: dict[str, Any] = {"name": "OPTION"}
OTHER_KEY = {"name": "another", "key": "slurm.key"}

NODESET: dict[str, tuple[Any, ...]] = {
    "controllerRef": ({"name": "slurm"}, {"name": "other"}),
    "replicas": (1, 12),
    "autoscaling": (None, {"max": 3}),
    "scalingMode": ("StatefulSet", "DaemonSet"),
    "slurmd": (
        *(SLURMD, {"image": "slurmd:25.11"}, SLURMD | {"args": ["-v"]}, SLURMD | {"args": "-v"}),
        *(
            SLURMD | {"resources": {"limits": value}}
            for value in ({"cpu": 2}, {"cpu": "2"}, {"memory": "1Gi"}, ["cpu"])
        ),
        SLURMD | {"volumeMounts": [MOUNT]},
        # Equal in Python, and not in JSON.
        *(SLURMD | {"securityContext": {"privileged": value}} for value in (True, 1, 1.0)),
        *(SLURMD | {"env": [OPTION, {"name": "A", "value": value}]} for value in ("1", "2")),
    ),
    "gpu": (
        {"enabled": True},
        {"enabled": True, "count": 2},
        {"enabled": True, "type": "h100", "expected": 4},
    ),
    "health": (
        {"enabled": True},
        {"enabled": True, "skip": ["disks"]},
        {"checks": {"own": "exit 0\n"}},
    ),
    "jobLogs": ({"enabled": True}, {"enabled": True, "privateFiles": True}),
    "powerSaving": ({"enabled": True}, {"enabled": True, "price": 2}),
    "ssh": (
        {"enabled": True, "sssdConfRef": SSSD},
        {"enabled": True},
        {"extraSshdConfig": "MaxAuthTries 2"},
    ),
    "logfile": ({"image": "logfile:1"}, {"image": "logfile:2"}),
    "template": (
        {"spec": {"hostname": "n-"}},
        {"spec": {"hostname": "Not_a_hostname-"}},
        {"spec": {"hostNetwork": True}},
        {"spec": {"terminationGracePeriodSeconds": 60}},
        {"spec": {"terminationGracePeriodSeconds": "soon"}},
        {"spec": {"volumes": [HOME], "resources": {"limits": {"cpu": "3", "memory": "2Gi"}}}},
        {"spec": {"priorityClassName": ""}, "metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"a": "2"}, "annotations": {"helm.sh/chart": "slurm-1"}}},
    ),
    "extraConf": ("Weight=2", "Features=a", "Wieght=2"),
    "partition": ({"enabled": True}, {"enabled": True, "config": "Default=YES"}),
    "volumeClaimTemplates": ([CLAIM], None),
    "updateStrategy": (
        {"type": "OnDelete"},
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    ),
    "revisionHistoryLimit": (0, 3),
    "persistentVolumeClaimRetentionPolicy": ({"whenDeleted": "Delete"}, {"whenScaled": "Delete"}),
    "minReadySeconds": (0, 5),
    "ordinalPadding": (0, 3),
    "pinToNode": (False, True),
    "workloadDisruptionProtection": (False, True),
    "pruneSlurmNodeRecords": ("Never", "NodeNotFound"),
    "nodeRecords": ("Keep", "Delete"),
    "oversubscribeNode": (False, True),
    "deletionTimeout": ("10s", None),
    "forceRemoval": (False, True),
}
"""Values of each field of NodeSet.spec, wrong ones among them."""

CONTROLLER: dict[str, tuple[Any, ...]] = {
    "clusterName": ("linux", ""),
    "slurmKeyRef": (
        OTHER_KEY,
        SLURM_KEY | {"key": "other.key"},
        {"name": "missing", "key": "slurm.key"},
        None,
    ),
    "jwtHs256KeyRef": (JWT_KEY | {"name": "another"}, None),
    "jwtKeyRef": (JWT_KEY | {"name": "another"}, JWT_KEY | {"key": "other.key"}, None),
    "jwksKeyRef": ({"name": "jwks", "key": "jwks.json"},),
    "nextSlurmKeyRef": (OTHER_KEY,),
    "accountingRef": ({"name": "slurm"},),
    "declaredAccountsRef": ({"name": "accounts"},),
    "usersRef": ({"name": "users", "key": "users.yaml"}, None),
    "external": (True, False),
    "externalConfig": (
        {"host": "slurmctld.example", "port": 6817},
        {"host": "other.example", "port": 6818},
    ),
    "ha": ({"enabled": True}, {"enabled": True, "backups": 2}),
    "slurmctld": ({"image": "slurmctld:26.05"}, {"image": "slurmctld:25.11"}),
    "reconfigure": ({"resources": {"limits": {"cpu": "1"}}},),
    "logfile": ({"image": "logfile:1"},),
    "inplaceReconfigure": (True, False),
    "configUpdate": ("Recreate", "Reconfigure"),
    "template": ({"spec": {"priorityClassName": "high"}},),
    "autoscaling": ({"budget": 3},),
    "constrainJobs": (False, True),
    "extraConf": ("SlurmctldPort=7000", "SlurmdPort=7001", ""),
    "topologies": ([{"name": "t", "tree": {"labels": ["rack"]}}],),
    "configFileRefs": ([{"name": "files"}],),
    "prologScriptRefs": ([{"name": "files"}],),
    "epilogScriptRefs": ([{"name": "files"}],),
    "prologSlurmctldScriptRefs": ([{"name": "files"}],),
    "epilogSlurmctldScriptRefs": ([{"name": "files"}],),
    "persistence": ({"enabled": False},),
    "service": ({"port": 7000}, {"port": 0}),
    "metrics": ({"enabled": True},),
}
"""Values of each field of Controller.spec."""

METADATA: dict[str, tuple[Any, ...]] = {
    "uid": ("another", "yet-another"),
    "labels": ({"team": "a"}, {"team": "b", "app.kubernetes.io/managed-by": "Helm"}, {}),
    "annotations": ({"note": "a"}, {"note": "b", "meta.helm.sh/release-name": "slurm"}),
    "generation": (2, 3),
    "resourceVersion": ("2", "3"),
    "finalizers": (["slinky.slurm.net/workers-terminate-first"], []),
    "creationTimestamp": ("2026-01-01T00:00:00Z",),
    "deletionTimestamp": ("2026-01-02T00:00:00Z",),
}

SECRETS: dict[str, tuple[Any, ...]] = {
    "slurm-auth-slurm": ({"slurm.key": "1", "other.key": "1"}, {"slurm.key": "2"}, {}, None),
    "slurm-auth-slurm-jwks": ({"slurm.jwks": "1"}, None),
    "slurm-auth-jwt": ({"jwt.key": "1", "other.key": "1"}, {"jwt.key": "2"}, None),
    "slurm-sssd-conf": ({"sssd.conf": "1"}, {"sssd.conf": "2"}, None),
    "another": ({"slurm.key": "1", "jwt.key": "1"}, {"slurm.key": "2", "jwt.key": "2"}),
}

BASE = builders.facts()


def _site(**changes: Any) -> Site:
    return replace(BASE.site, **changes)


def _another_base() -> Workloads:
    """Of another release: its pods have another label."""
    files = copy.deepcopy(dict(BASE.site.workloads.files))
    for document in files["slurmd"]:
        document["metadata"].setdefault("labels", {})["release"] = "another"
    return Workloads(files, BASE.site.workloads.scripts)


SITES = (
    _site(sidecars_image="sidecars:2"),
    _site(cluster_domain="example"),
    _site(workloads=_another_base()),
)
REVISIONS = tuple(
    render.revision(
        builders.nodeset(slurmd={"image": image}), builders.controller(), replace(BASE, site=site)
    )
    for image, site in (("slurmd:1", BASE.site), ("slurmd:2", BASE.site), ("slurmd:1", SITES[2]))
)
STRANGE = replace(REVISIONS[0], data={"spec": {"replicas": "many"}})
"""A revision that can't be read."""


@dataclass
class State:
    """All that a pass renders from."""

    nodeset: dict[str, Any] = field(
        default_factory=lambda: {"spec": {"controllerRef": {"name": "slurm"}, "slurmd": SLURMD}}
    )
    controller: dict[str, Any] = field(default_factory=lambda: {"spec": dict(KEYS)})
    restapi: dict[str, Any] = field(
        default_factory=lambda: {"spec": {"controllerRef": {"name": "slurm"}}}
    )
    accounting: dict[str, Any] = field(default_factory=lambda: {"spec": dict(KEYS)})
    secrets: dict[str, Mapping[str, str]] = field(default_factory=lambda: dict(BASE.secrets))
    others: dict[str, Any] = field(
        default_factory=lambda: {
            "restapi": True,
            "site": BASE.site,
            "published": frozenset(),
            "revision": REVISIONS[0],
            "collisions": 0,
        }
    )

    def set(self, path: tuple[str, ...], value: Any) -> None:
        """Change one thing. None removes a key."""
        found: Any = getattr(self, path[0])
        for name in path[1:-1]:
            found = found.setdefault(name, {})
        if value is None:
            found.pop(path[-1], None)
        else:
            found[path[-1]] = value

    def records(self) -> tuple[NodeSet, Controller, Facts]:
        """As a pass has them."""

        def whole(manifest: dict[str, Any], name: str) -> dict[str, Any]:
            return copy.deepcopy(manifest) | {
                "metadata": builders.metadata(name) | manifest.get("metadata", {})
            }

        facts = Facts(
            site=self.others["site"],
            secrets=dict(self.secrets),
            published=self.others["published"],
            accounting=read(Accounting, whole(self.accounting, "slurm")),
            restapi=read(RestApi, whole(self.restapi, "slurm")) if self.others["restapi"] else None,
        )
        nodeset = read(NodeSet, whole(self.nodeset, "slurm-worker-slinky"))
        return nodeset, read(Controller, whole(self.controller, "slurm")), facts


CHANGES: list[tuple[tuple[str, ...], Any]] = [
    *((("nodeset", "spec", name), value) for name, values in NODESET.items() for value in values),
    *(
        (("controller", "spec", name), value)
        for name, values in CONTROLLER.items()
        for value in values
    ),
    *(
        ((kind, "metadata", name), value)
        for kind in ("nodeset", "controller", "restapi", "accounting")
        for name, values in METADATA.items()
        for value in values
    ),
    *((("nodeset", "status", "collisionCount"), value) for value in (1, 2)),
    *((("nodeset", "status", "nodeSetHash"), value) for value in ("a", "b")),
    (("controller", "status", "observedGeneration"), 7),
    (("controller", "metadata", "name"), "renamed"),
    (("restapi", "metadata", "name"), "renamed"),
    (("restapi", "spec", "service"), {"port": 7000}),
    (("restapi", "spec", "replicas"), 2),
    (("accounting", "spec", "extraConf"), "ArchiveEvents=yes"),
    *((("secrets", name), value) for name, values in SECRETS.items() for value in values),
    *((("others", "restapi"), value) for value in (True, False)),
    *((("others", "site"), value) for value in (BASE.site, *SITES)),
    (("others", "published"), frozenset({"slurm-config"})),
    *((("others", "revision"), value) for value in (*REVISIONS, STRANGE)),
    *((("others", "collisions"), value) for value in (0, 1)),
]
"""Each thing that may change between two passes: what, and its new value."""


def outcome(result: Callable[[], Any]) -> str:
    """Its result or its error, so that values which Python takes for equal differ."""
    try:
        return repr(result())
    except (ResourceError, MissingReferenceError, StructureError) as error:
        return repr(error)


def differences(rendered: Rendered, state: State) -> list[str]:
    """Which results differ from those of the renderers."""
    nodeset, controller, facts = state.records()
    revision, collisions = state.others["revision"], state.others["collisions"]
    now = inputs(nodeset, controller, facts)
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "template": (
            lambda: rendered.template(now),
            lambda: render.pod_template(nodeset, controller, facts),
        ),
        "template of the revision": (
            lambda: rendered.template_of(now, revision),
            lambda: render.pod_template(nodeset, controller, facts, revision),
        ),
        "objects": (
            lambda: rendered.objects(now),
            lambda: render.objects(nodeset, controller, facts),
        ),
        "revision": (
            lambda: rendered.revision(now, collisions),
            lambda: render.revision(nodeset, controller, facts, collisions),
        ),
    }
    return [name for name, (kept, fresh) in pairs.items() if outcome(kept) != outcome(fresh)]


def plain(**changes: Any) -> Inputs:
    return inputs(builders.nodeset(slurmd=SLURMD), builders.controller(), builders.facts(**changes))


def test_the_options_are_those_of_the_resources() -> None:
    for spec, options in ((NodeSetSpec, NODESET), (ControllerSpec, CONTROLLER)):
        assert {it.encode_name for it in msgspec.structs.fields(spec)} == set(options)


@pytest.mark.parametrize("part", range(8))
def test_after_any_single_change_and_its_reversal_nothing_is_stale(part: int) -> None:
    for path in sorted({path for path, _ in CHANGES})[part::8]:
        state, rendered = State(), Rendered()
        before = State()
        assert differences(rendered, state) == []
        for value in (value for changed, value in CHANGES if changed == path):
            state.set(path, value)
            assert differences(rendered, state) == [], f"{path} = {value}"
        assert differences(rendered, before) == [], f"{path} reverted"


@given(st.lists(st.sampled_from(CHANGES), max_size=12))
def test_after_any_changes_nothing_is_stale(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    state, rendered = State(), Rendered()
    for path, value in changes:
        state.set(path, value)
        assert differences(rendered, state) == [], f"{path} = {value}"
    assert len(rendered._kept) <= 4


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nodeset", "status", "collisionCount"), 1),
        (("nodeset", "metadata", "resourceVersion"), "9"),
        (("nodeset", "metadata", "finalizers"), ["slinky.slurm.net/workers-terminate-first"]),
        (("controller", "status", "observedGeneration"), 7),
        (("restapi", "metadata", "generation"), 7),
        (("secrets", "another"), {"slurm.key": "2"}),
    ],
)
def test_what_is_not_rendered_causes_no_render(path: tuple[str, ...], value: Any) -> None:
    state, rendered = State(), Rendered()

    def results() -> list[Any]:
        now = inputs(*state.records())
        template = rendered.template(now), rendered.template_of(now, REVISIONS[0])
        return [*template, rendered.objects(now), rendered.revision(now, 0)]

    before = results()
    state.set(path, value)
    assert [it is other for it, other in zip(before, results(), strict=True)] == [True] * 4


def test_an_object_that_was_looked_for_in_vain_counts_when_it_appears() -> None:
    rendered = Rendered()
    before, after = plain(), plain(secrets={**BASE.secrets, "other": {"a": "1"}})
    assert [
        rendered._last("", it, lambda facts: "other" in facts.secrets) for it in (before, after)
    ] == [False, True]
    before, after = plain(), plain(config_maps={"files": {"a": "1"}})
    assert [
        rendered._last("", it, lambda facts: "files" in facts.config_maps) for it in (before, after)
    ] == [
        False,
        True,
    ]


def test_renderers_can_not_list_secrets() -> None:
    for listed in (list, len):
        with pytest.raises(TypeError):
            Rendered()._last("", plain(), lambda facts, listed=listed: listed(facts.secrets))  # type: ignore[misc]  # bound now


def test_what_can_not_be_rendered_is_rendered_again() -> None:
    rendered, secrets = Rendered(), dict(BASE.secrets)
    found = secrets.pop(slurm_key(builders.controller()).name)
    with pytest.raises(MissingReferenceError):
        rendered.template(plain(secrets=secrets))
    secrets[slurm_key(builders.controller()).name] = found
    assert rendered.template(plain(secrets=secrets))["spec"]["containers"]


@pytest.mark.parametrize(
    "spec", [{}, {"volumeClaimTemplates": [CLAIM]}, {"template": {"spec": {"hostNetwork": True}}}]
)
def test_pods_leave_their_template_as_it_is(spec: dict[str, Any]) -> None:
    nodeset = builders.nodeset(slurmd=SLURMD, **spec)
    template = Rendered().template(inputs(nodeset, builders.controller(), builders.facts()))
    before = copy.deepcopy(template)
    for ordinal in range(2):
        render.pod(nodeset, template, ordinal, "abc", kube_node="kube-1")
        render.daemon_pod(nodeset, template, f"kube-{ordinal}", f"host-{ordinal}", "abc")
    assert template == before
