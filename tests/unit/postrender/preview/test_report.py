"""What a change does to slurmctld, pods and workers, without a live cluster."""

from typing import Any

import pytest

from postrender.expand.standalone import expand
from postrender.preview.report import Preview, preview
from postrender.preview.state import State
from postrender.preview.workers import Worker
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams

NOW = 1_800_000_000.0


def compared(before: list[Manifest], after: list[Manifest]) -> Preview:
    return preview(before, after, streams.SITE, State(NOW))


def documents(**changed: dict[str, Any]) -> list[Manifest]:
    """A cluster; `changed`: of each kind, in lower case, other fields of its spec."""
    kinds = {
        "controller": streams.controller,
        "restapi": streams.restapi,
        "loginset": streams.loginset,
    }
    found = [make(**changed.get(kind, {})) for kind, make in kinds.items()]
    return [*streams.keys(), streams.sssd(), *found, streams.nodeset(**changed.get("nodeset", {}))]


def workers(**spec: Any) -> dict[str, Worker]:
    [found] = compared(documents(), documents(nodeset=spec)).workers
    return {it.pod: it for it in found.workers}


def test_the_same_stream_changes_nothing() -> None:
    assert compared(documents(), documents()) == Preview()


def test_secrets_outside_of_the_release_count_as_present_and_unchanged() -> None:
    def outside(**changed: Any) -> list[Manifest]:
        found = [it for it in documents(**changed) if it["kind"] != "Secret"]
        return [*found, streams.accounting()]

    assert compared(outside(), outside()) == Preview()
    assert [
        it.pod for it in compared(outside(), outside(nodeset={"replicas": 0})).workers[0].workers
    ]


def test_a_default_that_is_written_out_is_no_change() -> None:
    written = {"minReadySeconds": 0, "scalingMode": "StatefulSet", "ssh": {"enabled": False}}
    assert compared(documents(), documents(nodeset=written)) == Preview()


def test_a_change_that_the_api_server_refuses_by_a_rule_is_named() -> None:
    found = compared(documents(), documents(controller={"clusterName": "other"}))
    [refused] = found.refused
    assert (refused.kind, refused.name) == ("Controller", "slurm")
    assert refused.why == ("spec.clusterName: cannot change ClusterName after deployment",)
    assert not compared(documents(), documents(controller={"extraConf": "KillWait=9"})).refused


def test_scheduler_settings_are_taken_live() -> None:
    found = compared(
        documents(), documents(controller={"extraConf": "SchedulerParameters=bf_interval=9"})
    )
    [configured] = found.configured
    assert (configured.action, configured.files) == ("live", ("slurm.conf",))
    assert found.pods == ()
    assert found.workers == ()
    assert [(it.action, it.kind) for it in found.changes] == [("change", "Controller")]


def test_a_port_restarts_slurmctld_in_its_pod() -> None:
    found = compared(
        documents(), documents(controller={"extraConf": "CommunicationParameters=NoAddrCache"})
    )
    [configured] = found.configured
    assert configured.action == "restart"
    assert configured.why == ("CommunicationParameters: unset → NoAddrCache",)
    assert [it.name for it in found.pods if it.name == "slurm-controller"] == []


def test_with_recreate_the_pod_is_replaced_for_its_configuration() -> None:
    before = documents(controller={"configUpdate": "Recreate"})
    after = documents(controller={"configUpdate": "Recreate", "extraConf": "KillWait=7"})
    found = compared(before, after)
    assert [it.action for it in found.configured] == ["pod"]
    [pods] = [it for it in found.pods if it.name == "slurm-controller"]
    assert (pods.action, pods.pods, pods.why) == (
        "restart",
        ("slurm-controller-0",),
        ("its slurm config changes",),
    )


def test_slurmrestd_restarts_for_what_it_reads_and_login_pods_for_nothing_of_it() -> None:
    found = compared(documents(), documents(controller={"extraConf": "MessageTimeout=99"}))
    assert [(it.kind, it.name, it.why) for it in found.pods] == [
        ("Deployment", "slurm-restapi", ("its slurm config changes",))
    ]


def test_another_image_of_slurmctld_replaces_its_pod_alone() -> None:
    found = compared(
        documents(), documents(controller={"slurmctld": {"image": "slurmctld:26.05.1"}})
    )
    [pods] = found.pods
    assert pods.name == "slurm-controller"
    assert "spec.containers[slurmctld].image: slurmctld:26.05 → slurmctld:26.05.1" in pods.why
    assert found.configured == ()


def slurm_of(version: str) -> list[Manifest]:
    """A cluster whose daemons are all of a release of Slurm."""
    daemons = {
        "controller": "slurmctld",
        "restapi": "slurmrestd",
        "loginset": "login",
        "nodeset": "slurmd",
    }
    changed = {kind: {daemon: {"image": f"{daemon}:{version}"}} for kind, daemon in daemons.items()}
    changed["controller"]["accountingRef"] = {"name": "slurm"}
    found = [it for it in documents(**changed) if it["kind"] != "Secret"]
    return [*found, streams.accounting(slurmdbd={"image": f"slurmdbd:{version}"})]


def test_another_release_of_slurm_shows_the_order_of_the_daemons() -> None:
    [upgrade] = compared(slurm_of("25.11"), slurm_of("26.05")).upgrades
    assert upgrade.controller == "slurm/slurm"
    assert upgrade.steps == (
        ("Accounting slurm: slurmdbd:25.11 → slurmdbd:26.05",),
        ("Controller slurm: slurmctld:25.11 → slurmctld:26.05",),
        (
            "RestApi slurm: slurmrestd:25.11 → slurmrestd:26.05",
            "LoginSet slurm-login-slinky: login:25.11 → login:26.05",
        ),
        ("NodeSet slurm-worker-slinky: slurmd:25.11 → slurmd:26.05",),
    )
    assert upgrade.kept == ()
    [back] = compared(slurm_of("26.05"), slurm_of("25.11")).upgrades
    assert "can't read what slurmdbd 26.05 has stored" in back.kept[0]
    assert compared(slurm_of("26.05"), slurm_of("26.05")).upgrades == ()


def test_more_login_pods_are_created() -> None:
    found = compared(documents(), documents(loginset={"replicas": 3}))
    [pods] = found.pods
    assert (pods.kind, pods.action, pods.why) == ("Deployment", "create", ("spec.replicas: 1 → 3",))


def test_a_scale_in_drains_the_highest_worker_first() -> None:
    found = workers(replicas=1)
    assert list(found) == ["slurm-worker-slinky-1"]
    worker = found["slurm-worker-slinky-1"]
    assert (worker.action, worker.first, worker.drained, worker.slurm_node) == (
        "delete",
        True,
        True,
        "slinky-1",
    )
    assert not worker.jobs_known


def test_a_scale_out_creates_workers_and_touches_no_other() -> None:
    found = workers(replicas=4)
    assert [(it.pod, it.action) for it in found.values()] == [
        ("slurm-worker-slinky-2", "create"),
        ("slurm-worker-slinky-3", "create"),
    ]


def test_another_image_replaces_the_workers_a_few_at_a_time() -> None:
    [found] = compared(
        documents(), documents(nodeset={"slurmd": {"image": "slurmd:26.05.1"}})
    ).workers
    assert [(it.pod, it.action, it.first) for it in found.workers] == [
        ("slurm-worker-slinky-1", "replace", True),
        ("slurm-worker-slinky-0", "replace", False),
    ]
    assert found.why == ("spec.slurmd.image: slurmd:26.05 → slurmd:26.05.1",)
    assert found.notes == ("at most 1 of 2 workers are replaced at a time",)


@pytest.mark.parametrize(
    ("strategy", "note"),
    [
        (
            {"type": "OnDelete"},
            "updateStrategy OnDelete: workers keep their pods until you delete them",
        ),
        (
            {"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2030-01-01T00:00:00Z"}},
            "updateStrategy ScheduledUpdate: workers are replaced in reservation",
        ),
    ],
    ids=["on delete", "scheduled"],
)
def test_workers_wait_for_what_the_update_strategy_sets(
    strategy: dict[str, Any], note: str
) -> None:
    before = documents(nodeset={"updateStrategy": strategy})
    after = documents(nodeset={"updateStrategy": strategy, "slurmd": {"image": "slurmd:26.05.1"}})
    [found] = compared(before, after).workers
    assert not any(it.first for it in found.workers)
    assert note in " ".join(found.notes)


def test_what_worker_pods_do_not_read_replaces_none() -> None:
    changed = {
        "partition": {"enabled": True},
        "minReadySeconds": 9,
        "updateStrategy": {"type": "OnDelete"},
    }
    found = compared(documents(), documents(nodeset=changed))
    assert found.workers == ()
    assert [it.action for it in found.configured] == ["live"]


def test_a_nodeset_that_is_removed_drains_all_of_its_workers() -> None:
    after = [it for it in documents() if it["kind"] != "NodeSet"]
    found = compared(documents(), after)
    [of] = found.workers
    assert [(it.pod, it.action) for it in of.workers] == [
        ("slurm-worker-slinky-1", "delete"),
        ("slurm-worker-slinky-0", "delete"),
    ]
    assert [(it.action, it.kind) for it in found.changes] == [("delete", "NodeSet")]


def test_a_new_cluster_is_created() -> None:
    found = compared([], documents())
    assert {it.action for it in found.changes} == {"create"}
    assert {(it.kind, it.action) for it in found.pods} == {
        ("StatefulSet", "create"),
        ("Deployment", "create"),
    }
    [of] = found.workers
    assert [it.action for it in of.workers] == ["create", "create"]


def test_a_plain_workload_of_the_stream_restarts_for_its_template() -> None:
    def workload(image: str) -> Manifest:
        spec = {
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "mariadb", "image": image}]}},
        }
        metadata = {"name": "mariadb", "namespace": "slurm"}
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}

    found = compared([workload("mariadb:1")], [workload("mariadb:2")])
    [pods] = found.pods
    assert (pods.pods, pods.why) == (
        ("mariadb-0",),
        ("spec.containers[mariadb].image: mariadb:1 → mariadb:2",),
    )


def test_workers_without_an_operator_show_how_long_their_jobs_have() -> None:
    def expanded(replicas: int) -> list[Manifest]:
        found = expand(streams.cluster(*documents(nodeset={"replicas": replicas})), streams.SITE)
        return [it for items in found.values() for it in items]

    [pods] = compared(expanded(3), expanded(1)).pods
    assert (pods.name, pods.action, pods.pods) == ("slinky", "delete", ("slinky-1", "slinky-2"))
    assert pods.why == (
        "spec.replicas: 3 → 1",
        "each Slurm node is drained when its pod is deleted; its jobs have to end within 3600 s",
    )
