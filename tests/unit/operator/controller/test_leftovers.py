"""Node records that outlive their NodeSet: `sidecars.operator.controller.leftovers`."""

import json

import pytest

from sidecars.contract.extra import PodFacts, encode
from sidecars.contract.reasons import POD_GONE, RECORD_ORPHANED, kept
from sidecars.kube import ApiError
from sidecars.operator.controller.leftovers import prune
from sidecars.policy.nodeset.node_records import KEPT_SECONDS
from sidecars.simulate import Fault
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts, SlurmConnection

pytestmark = pytest.mark.looptime


class Scene:
    """A Slurm cluster with records of the former NodeSet `gone`, DOWN with the operator's
    reason.
    """

    def __init__(self, *names: str, namespaces: tuple[str, ...] = ()) -> None:
        self.slurm = SlurmConnection()
        self.model = self.slurm.model
        self.parts = Parts(connect=lambda *_: self.slurm, namespaces=namespaces)
        for name in names:
            self.record(name)

    def record(
        self,
        name: str,
        reason: str = RECORD_ORPHANED,
        nodeset: str = "uid-of-gone",
        pod: str = "pod-x",
    ) -> None:
        self.model.node_register(
            name, extra=encode(PodFacts(pod, f"slurm-{name}", NAMESPACE, nodeset))
        )
        self.model.update_node(name, "DOWN", reason)

    async def prune(self) -> None:
        cluster = await self.parts.connect()
        await cluster.poller.poll()
        await prune(self.parts.runtime, CONTROLLER)


async def test_a_record_of_a_former_nodeset_goes_once_no_job_names_it() -> None:
    scene = Scene("w-0", "w-1")
    scene.record("w-2", kept(POD_GONE, "job 1"))
    job = scene.model.job_submit(required=["w-1"])
    await scene.prune()
    assert set(scene.model.nodes) == {"w-1"}
    assert CONTROLLER in (await scene.parts.woken(KEPT_SECONDS + 1))["controllers"]
    scene.parts.now = scene.slurm.now = scene.slurm.now + KEPT_SECONDS
    scene.model.job_end(job, state="CANCELLED")
    await scene.prune()
    assert set(scene.model.nodes) == set()


async def test_a_record_that_a_reservation_names_stays() -> None:
    scene = Scene("w-0")
    scene.model.reserve("course", "w-0", start=int(scene.slurm.now) + 3600, minutes=60)
    await scene.prune()
    assert set(scene.model.nodes) == {"w-0"}


async def test_records_of_existing_nodesets_or_pods_and_those_down_otherwise_stay() -> None:
    scene = Scene()
    scene.record("of-nodeset", nodeset="uid-of-slinky")
    scene.record("of-nobody", nodeset="")
    scene.record("administrators", "bad disk")
    scene.record("capacity", "slurm-operator: no capacity: none")
    scene.record("up")
    scene.model.update_node("up", "RESUME")
    scene.record("of-pod", pod="slurm-worker-0")
    scene.parts.pod("slurm-worker-0")
    scene.parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    before = set(scene.model.nodes)
    await scene.prune()
    assert set(scene.model.nodes) == before


async def test_records_of_a_namespace_that_is_not_watched_stay() -> None:
    scene = Scene("w-0", namespaces=("other",))
    await scene.prune()
    assert set(scene.model.nodes) == {"w-0"}


async def test_nothing_is_deleted_while_the_jobs_can_not_be_read() -> None:
    scene = Scene("w-0")
    scene.model.fail(Fault.SERVER_ERROR, path="jobs/")
    await scene.prune()
    assert set(scene.model.nodes) == {"w-0"}
    assert CONTROLLER in (await scene.parts.woken(KEPT_SECONDS + 1))["controllers"]


async def test_a_node_that_has_a_worker_again_since_it_was_listed_stays() -> None:
    scene = Scene("w-0")
    cluster = await scene.parts.connect()
    await cluster.poller.poll()
    scene.model.node_register(
        "w-0", extra=encode(PodFacts("new", "slurm-w-0", NAMESPACE, "uid-of-gone"))
    )
    await prune(scene.parts.runtime, CONTROLLER)
    assert set(scene.model.nodes) == {"w-0"}


class PowerSavingScene(Scene):
    """Powered-down records of the former NodeSet `gone`, created by this Kubernetes cluster."""

    def __init__(self, *names: str, namespaces: tuple[str, ...] = ()) -> None:
        super().__init__(namespaces=namespaces)
        self.parts.requests.stored["Namespace", NAMESPACE] = {"metadata": {"uid": "here"}}
        for name in names:
            self.cloud(name)

    def cloud(self, name: str, uid: str = "here", nodeset: str = "uid-of-gone") -> None:
        line = f"NodeName={name} State=CLOUD CPUs=2 RealMemory=1000 SuspendTime=60"
        assert self.model.create_nodes(line)
        self.describe(name, PodFacts("", "", NAMESPACE, nodeset, uid))

    def describe(self, name: str, facts: PodFacts | str) -> None:
        text = facts if isinstance(facts, str) else encode(facts)
        body = json.dumps({"name": [name], "extra": text}).encode()
        assert self.model.handle("POST", "/slurm/v0.0.45/nodes/", body).status == 200

    def nodeset(self, name: str, *, cached: bool = True) -> None:
        """One that exists."""
        if cached:
            self.parts.custom("NodeSet", name, {"controllerRef": {"name": "slurm"}})
        metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}"}
        self.parts.requests.stored["NodeSet", name] = {"metadata": metadata}


async def test_a_record_of_power_saving_goes_with_a_nodeset_that_went_while_slurm_was_silent() -> (
    None
):
    scene = PowerSavingScene("burst-0", "burst-1")
    scene.nodeset("slinky")
    scene.cloud("slinky-0", nodeset="uid-of-slinky")
    await scene.prune()
    assert set(scene.model.nodes) == {"slinky-0"}


@pytest.mark.parametrize(
    "facts",
    [
        PodFacts("", "", NAMESPACE, "uid-of-gone"),
        PodFacts("", "", NAMESPACE, "uid-of-gone", "another Kubernetes cluster's"),
        PodFacts("", "", "elsewhere", "uid-of-gone", "here"),
        PodFacts("", "", NAMESPACE, "", "here"),
        "",
        "{",
        '{"podUid": "", "nodeSetUid": 7, "namespace": "slurm", "namespaceUid": "here"}',
        '{"podUid": "", "nodeSetUid": "gone", "namespace": "slurm", "namespaceUid": {}}',
        '["podUid"]',
    ],
)
async def test_a_record_of_power_saving_that_does_not_prove_its_origin_stays(
    facts: PodFacts | str,
) -> None:
    scene = PowerSavingScene("burst-0")
    scene.describe("burst-0", facts)
    await scene.prune()
    assert set(scene.model.nodes) == {"burst-0"}


@pytest.mark.parametrize(
    "facts",
    [
        PodFacts("", "", "../../nodes", "uid-of-gone", "here"),
        PodFacts("", "", "kube-system/secrets?x=", "uid-of-gone", "here"),
        PodFacts("", "", "..", "uid-of-gone", "here"),
        PodFacts("", "", "\ud800", "uid-of-gone", "here"),
        PodFacts("", "", "a" * 10_000, "uid-of-gone", "here"),
        PodFacts("", "../x", NAMESPACE, "uid-of-gone", "here"),
        "[" * 100_000,
        '{"podUid": ' * 100_000,
        "1" * 100_000,
    ],
)
async def test_no_content_of_a_record_keeps_the_other_records_of_power_saving(
    facts: PodFacts | str,
) -> None:
    scene = PowerSavingScene("hostile-0", "burst-0")
    scene.describe("hostile-0", facts)
    await scene.prune()
    assert set(scene.model.nodes) == {"hostile-0"}


async def test_a_record_of_power_saving_stays_while_the_api_server_is_not_asked_with_success() -> (
    None
):
    refusals = {"get Namespace": 403, "list NodeSet": 500}
    for request, status in refusals.items():
        scene = PowerSavingScene("burst-0")
        scene.parts.requests.refusals[request] = ApiError(status, "No", "no")
        await scene.prune()
        assert set(scene.model.nodes) == {"burst-0"}
        scene.parts.requests.refusals.clear()
        await scene.prune()
        assert set(scene.model.nodes) == set()


async def test_a_record_of_power_saving_of_another_kubernetes_cluster_stays_beside_ours() -> None:
    scene = PowerSavingScene("ours-0")
    scene.cloud("theirs-0", "another Kubernetes cluster's")
    await scene.prune()
    assert set(scene.model.nodes) == {"theirs-0"}


async def test_a_nodeset_that_the_cache_lacks_keeps_its_records_of_power_saving() -> None:
    scene = PowerSavingScene("gone-0")
    scene.nodeset("gone", cached=False)
    await scene.prune()
    assert set(scene.model.nodes) == {"gone-0"}


async def test_a_record_of_power_saving_that_a_job_has_or_an_administrator_has_drained_stays() -> (
    None
):
    scene = PowerSavingScene("busy-0", "mine-0", "free-0")
    job = scene.model.job_start(["busy-0"])
    scene.model.update_node("mine-0", "DRAIN", "my own")
    await scene.prune()
    assert set(scene.model.nodes) == {"busy-0", "mine-0"}
    assert CONTROLLER in (await scene.parts.woken(KEPT_SECONDS + 1))["controllers"]
    scene.model.job_end(job, state="CANCELLED")
    # Slurm has powered the node up for the job, and gives up when no worker registers.
    pause = KEPT_SECONDS + scene.model.resume_timeout
    scene.parts.now = scene.slurm.now = scene.slurm.now + pause
    scene.model.advance()
    await scene.prune()
    assert set(scene.model.nodes) == {"mine-0"}


async def test_a_record_of_power_saving_that_a_job_names_is_down_and_goes_after_the_job() -> None:
    scene = PowerSavingScene("burst-0")
    job = scene.model.job_submit(required=["burst-0"])
    await scene.prune()
    node = scene.model.nodes["burst-0"]
    assert (node.base, node.reason) == ("DOWN", kept(RECORD_ORPHANED, f"job {job}"))
    scene.parts.now = scene.slurm.now = scene.slurm.now + KEPT_SECONDS
    scene.model.job_end(job, state="CANCELLED")
    await scene.prune()
    assert set(scene.model.nodes) == set()
