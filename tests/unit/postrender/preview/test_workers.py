"""Workers of a live cluster: who is drained first, and which jobs have to end by when."""

from typing import Any

from postrender.expand import objects
from postrender.preview.report import Preview, preview
from postrender.preview.state import SlurmState, State
from postrender.preview.workers import JobEnd, Workers, jobs_on
from sidecars.slurm.records import Job
from sidecars.workloads.assembly import find
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams
from tests.unit.postrender.expand.test_objects import configured
from tests.unit.postrender.preview import clusters

KEY = ("slurm", "slurm")


def documents(**nodeset: Any) -> list[Manifest]:
    return [
        *streams.known_keys(),
        streams.controller(),
        streams.restapi(),
        streams.nodeset(**nodeset),
    ]


def revision() -> Manifest:
    """The ControllerRevision of `documents`."""
    cluster = streams.cluster(*documents())
    return find(
        objects.of_nodeset(cluster, cluster.nodesets["slurm-worker-slinky"], configured(cluster)),
        "ControllerRevision",
    )


def state(slurm: SlurmState, count: int = 2) -> State:
    stored = revision()
    current = stored["metadata"]["labels"]["controller-revision-hash"]
    return State(
        clusters.NOW,
        live=True,
        pods=[clusters.pod(it, current) for it in range(count)],
        revisions=[stored],
        kube_nodes=[clusters.kube_node(it) for it in range(count)],
        slurm={KEY: slurm},
    )


def test_powered_down_workers_of_power_saving_are_not_created_by_a_preview() -> None:
    saving = {"powerSaving": {"enabled": True, "node": "CPUs=4 RealMemory=8000"}}
    down = [clusters.node(it, "IDLE", "CLOUD", "POWERED_DOWN") for it in range(2)]
    known = State(clusters.NOW, live=True, slurm={KEY: SlurmState(down)})
    found = preview(documents(**saving), documents(**saving), streams.SITE, known)
    assert found.workers == ()


def busy(*jobs: Any) -> SlurmState:
    return SlurmState([clusters.node(0, "ALLOCATED"), clusters.node(1)], jobs)


def changed(slurm: SlurmState, **nodeset: Any) -> Preview:
    return preview(documents(), documents(**nodeset), streams.SITE, state(slurm))


def only(found: Preview) -> Workers:
    [workers] = found.workers
    return workers


def test_a_settled_cluster_changes_nothing() -> None:
    assert changed(busy(clusters.job(1, "slinky-0"))) == Preview()


def test_a_scale_in_takes_the_idle_worker_and_no_job_has_to_end() -> None:
    found = only(
        changed(
            SlurmState([clusters.node(0), clusters.node(1, "IDLE")], [clusters.job(1, "slinky-0")]),
            replicas=1,
        )
    )
    assert [(it.slurm_node, it.jobs, it.jobs_known) for it in found.workers] == [
        ("slinky-1", (), True)
    ]


def test_a_busy_worker_that_goes_shows_its_job_and_its_end() -> None:
    found = only(
        changed(
            busy(clusters.job(1, "slinky-[0-1]"), clusters.job(2, "slinky-0", None)), replicas=0
        )
    )
    jobs = {it.slurm_node: it.jobs for it in found.workers}
    ends = JobEnd(1, "ada", clusters.NOW + 3600, None)
    assert jobs == {"slinky-1": (ends,), "slinky-0": (ends, JobEnd(2, "ada", None, None))}
    assert all(it.action == "delete" and it.drained for it in found.workers)


def test_a_job_that_names_a_node_whose_worker_terminates_is_reported_to_wait() -> None:
    waits = Job(17, states=frozenset({"PENDING"}), required_nodes="slinky-1")
    idle = [clusters.node(0, "IDLE"), clusters.node(1, "IDLE", "DRAIN")]
    [note] = only(changed(SlurmState(idle, [waits]), replicas=1)).notes
    assert note.startswith("job 17 names Slurm node slinky-1: it stays DOWN, and the job waits")
    # The next worker of the name takes the record over.
    replaced = only(changed(SlurmState(idle, [waits]), slurmd={"image": "slurmd:new"}))
    assert not any("names Slurm node" in it for it in replaced.notes)


def test_a_node_list_that_can_not_be_read_is_reported() -> None:
    broken = Job(17, states=frozenset({"PENDING"}), required_nodes="slinky-[1")
    found = only(
        changed(
            SlurmState([clusters.node(0, "IDLE"), clusters.node(1, "IDLE")], [broken]), replicas=1
        )
    )
    assert any(it.startswith("job 17 may name any node, because its list") for it in found.notes)


def test_an_update_names_the_jobs_of_later_workers_too() -> None:
    found = only(changed(busy(clusters.job(1, "slinky-0")), slurmd={"image": "slurmd:26.05.1"}))
    assert [(it.slurm_node, it.first, [job.job_id for job in it.jobs]) for it in found.workers] == [
        ("slinky-1", True, []),
        ("slinky-0", False, [1]),
    ]


def test_an_earlier_image_finds_its_revision_again_and_replaces_what_has_another() -> None:
    before = documents(slurmd={"image": "slurmd:26.05.1"})
    found = preview(before, documents(), streams.SITE, state(busy()))
    # The pods have the revision that is wanted again.
    assert found.workers == ()
    assert [it.kind for it in found.changes] == ["NodeSet"]


def test_an_unknown_slurm_drains_and_deletes_nobody() -> None:
    found = only(changed(SlurmState(problem="slurmctld doesn't answer"), replicas=1))
    assert found.notes == (
        (
            "Slurm's state is unknown (slurmctld doesn't answer): no worker is deleted until it is "
            "known"
        ),
    )
    assert [(it.slurm_node, it.jobs_known) for it in found.workers] == [("slinky-1", False)]


def test_jobs_of_a_nodeset_that_is_removed_have_until_its_deletion_timeout() -> None:
    before = documents(deletionTimeout="10m")
    after = [it for it in documents() if it["kind"] != "NodeSet"]
    stored = state(busy(clusters.job(1, "slinky-0")))
    found = only(preview(before, after, streams.SITE, stored))
    jobs = {it.slurm_node: it.jobs for it in found.workers}
    assert jobs["slinky-0"] == (JobEnd(1, "ada", clusters.NOW + 3600, clusters.NOW + 600),)


def test_jobs_that_have_ended_or_cannot_be_placed_do_not_count() -> None:
    jobs = [
        clusters.job(1, "slinky-0", 60, "COMPLETED"),
        clusters.job(2, "slinky-[0"),
        clusters.job(3, "slinky-0", 60, "SUSPENDED"),
        clusters.job(4, "slinky-1"),
    ]
    assert jobs_on("slinky-0", jobs, None) == (JobEnd(3, "ada", None, None),)
