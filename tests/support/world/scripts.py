"""What users, administrators, machines and faults do to a world, as data: made by Hypothesis, played here.

A script is played twice: as it is, and without its faults. Both must end in the same state.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from hypothesis import strategies as st

from sidecars.kube.errors import ApiError
from sidecars.policy.conditions import timestamp
from sidecars.simulate import Fault
from tests.support.world.client import WRITE_FAULTS, KubeFault, SlurmFault, WatchFault
from tests.support.world.kubelets import NODE
from tests.support.world.world import EPOCH, NODESET, POD, World, strategy_of, world

CORDON = "nodeset.slinky.slurm.net/pod-cordon"
COST = "nodeset.slinky.slurm.net/pod-deletion-cost"
FOREIGN = "maintenance: disk 3"
MOST = 4
MAINTENANCE_AT = 30.0  # seconds after the beginning of a play
BEFORE_MAINTENANCE, MAINTENANCE = 60.0, 120.0  # of the last one, when all else is over
MODES = ("StatefulSet", "DaemonSet")
STRATEGIES: dict[str, dict[str, Any]] = {
    "RollingUpdate": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    "OnDelete": {"type": "OnDelete"},
    "ScheduledUpdate": {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": timestamp(EPOCH + MAINTENANCE_AT), "duration": "1m"},
    },
}
SLURM_FAULTS = (
    *(Fault.SERVER_ERROR, Fault.NO_SLURMCTLD, Fault.ERRORS_WITH_200, Fault.BAD_TOKEN, Fault.EMPTY),
    *(Fault.TRUNCATED, Fault.CUT, Fault.HANG, Fault.SLOW),
)


class Action:
    """What happens in both plays."""

    def do(self, w: World) -> None:
        """Do it now."""


class Disturbance:
    """What happens in the disturbed play only."""

    def do(self, w: World) -> None:
        """Do it now."""


@dataclass(frozen=True)
class Scale(Action):
    """spec.replicas."""

    replicas: int

    def do(self, w: World) -> None:
        w.change("slinky", {"replicas": self.replicas})


@dataclass(frozen=True)
class ChangeTemplate(Action):
    """Another image."""

    def do(self, w: World) -> None:
        w.change("slinky", {"slurmd": {"image": w.new_image()}})


@dataclass(frozen=True)
class BreakImage(Action):
    """Another image, which can't be pulled before the end."""

    def do(self, w: World) -> None:
        image = w.new_image()
        w.kubelets.broken_images.add(image)
        w.change("slinky", {"slurmd": {"image": image}})


@dataclass(frozen=True)
class SwitchMode(Action):
    """spec.scalingMode."""

    mode: str

    def do(self, w: World) -> None:
        w.change("slinky", {"scalingMode": self.mode})


@dataclass(frozen=True)
class ChangeMinReady(Action):
    """spec.minReadySeconds."""

    seconds: int

    def do(self, w: World) -> None:
        w.change("slinky", {"minReadySeconds": self.seconds})


@dataclass(frozen=True)
class SwitchPartition(Action):
    """spec.partition.enabled."""

    enabled: bool

    def do(self, w: World) -> None:
        w.change("slinky", {"partition": {"enabled": self.enabled}})


@dataclass(frozen=True)
class ChangeStrategy(Action):
    """spec.updateStrategy."""

    kind: str

    def do(self, w: World) -> None:
        w.change("slinky", {"updateStrategy": STRATEGIES[self.kind]})


@dataclass(frozen=True)
class CordonMachine(Action):
    """kubectl cordon, or uncordon."""

    which: int
    cordoned: bool

    def do(self, w: World) -> None:
        name = w.machines[self.which % len(w.machines)]
        with contextlib.suppress(ApiError):
            w.api.change(NODE, "", name, {"spec": {"unschedulable": True if self.cordoned else None}})


@dataclass(frozen=True)
class Annotate(Action):
    """An annotation of a pod; None takes it away."""

    which: int
    key: str
    value: str | None

    def do(self, w: World) -> None:
        pods = w.pods()
        if pods:
            pod = pods[self.which % len(pods)]["metadata"]
            if self.key == CORDON:
                w.cordoned_by_users.add(pod["uid"])
            with contextlib.suppress(ApiError):
                patch = {"metadata": {"annotations": {self.key: self.value}}}
                w.api.change(POD, pod["namespace"], pod["name"], patch)


@dataclass(frozen=True)
class DeletePod(Action):
    """kubectl delete pod."""

    which: int

    def do(self, w: World) -> None:
        pods = w.pods()
        if pods:
            pod = pods[self.which % len(pods)]["metadata"]
            w.api.delete(POD, pod["namespace"], pod["name"])


@dataclass(frozen=True)
class Admin(Action):
    """scontrol update nodename=… state=drain reason=…, or state=undrain."""

    which: int
    drain: bool

    def do(self, w: World) -> None:
        names = sorted(w.slurms["slurm", "slurm"].nodes)
        if names:
            w.admin(names[self.which % len(names)], FOREIGN if self.drain else None)


@dataclass(frozen=True)
class Submit(Action):
    """A job."""

    nodes: int
    seconds: int

    def do(self, w: World) -> None:
        w.job(self.nodes, self.seconds)


@dataclass(frozen=True)
class Machine(Action):
    """A machine dies, comes back, or is given up: its Node object is deleted, or it is tainted as out of service."""

    which: int
    what: Literal["kill", "revive", "remove", "switch off"]

    def do(self, w: World) -> None:
        name = w.machines[self.which % len(w.machines)]
        match self.what:
            case "kill":
                w.kill_machine(name)
            case "revive":
                w.kubelets.revive(name)
            case "remove":
                w.kubelets.remove(name)
            case "switch off":
                w.kubelets.switch_off(name)


@dataclass(frozen=True)
class Replace(Action):
    """The NodeSet is deleted, and made again when it is gone."""

    def do(self, w: World) -> None:
        w.replace("slinky")


@dataclass(frozen=True)
class WriteFault(Disturbance):
    """One of the operator's next writes to Kubernetes goes wrong."""

    ahead: int
    fault: KubeFault

    def do(self, w: World) -> None:
        w.faults.writes[w.faults.done + self.ahead] = self.fault


@dataclass(frozen=True)
class ReadFault(Disturbance):
    """The operator's next lists go wrong, and its watches are told nothing for a while."""

    faults: tuple[KubeFault, ...]
    lag: int
    compact: bool

    def do(self, w: World) -> None:
        w.faults.lists.extend(self.faults)
        w.faults.lag_until = w.loop.time() + self.lag
        if self.compact:
            w.api.compact()


@dataclass(frozen=True)
class EndWatches(Disturbance):
    """All watches end so."""

    fault: WatchFault

    def do(self, w: World) -> None:
        for end in tuple(w.faults.watches):
            end(self.fault)


@dataclass(frozen=True)
class Crash(Disturbance):
    """The operator is killed; what it lists first may be an API server's that lags behind."""

    stale: bool

    def do(self, w: World) -> None:
        if self.stale:
            w.faults.lists.extend([KubeFault.STALE] * 13)
        w.crash()


@dataclass(frozen=True)
class SickSlurm(Disturbance):
    """slurmrestd answers so for a while."""

    fault: Fault
    seconds: int

    def do(self, w: World) -> None:
        model = w.slurms["slurm", "slurm"]
        model.fail(self.fault, seconds=5.0)
        w.loop.call_later(self.seconds, model.heal)


@dataclass(frozen=True)
class SlurmWriteFault(Disturbance):
    """One of the operator's next writes to Slurm goes wrong."""

    ahead: int
    fault: SlurmFault

    def do(self, w: World) -> None:
        w.faults.slurm_writes[w.faults.slurm_done + self.ahead] = self.fault


@dataclass(frozen=True)
class LostState(Disturbance):
    """slurmctld comes back without its state."""

    def do(self, w: World) -> None:
        w.lose_state()


Step = tuple[float, Action | Disturbance]


@dataclass(frozen=True)
class Script:
    """What happens, each so many seconds after the one before."""

    seed: int
    strategy: str
    steps: tuple[Step, ...]
    mode: str = "StatefulSet"

    def undisturbed(self) -> "Script":
        """The same, at the same times, without what the world does to the operator."""
        return replace(self, steps=tuple(self._calm()))

    def _calm(self) -> Iterator[Step]:
        since = 0.0
        for pause, step in self.steps:
            since += pause
            if isinstance(step, Action):
                yield since, step
                since = 0.0


def pick() -> st.SearchStrategy[int]:
    """One of the pods, nodes or machines there are."""
    return st.integers(0, 5)


def actions() -> st.SearchStrategy[Action]:
    """What users, administrators and machines do."""
    return st.one_of(
        st.builds(Scale, st.integers(0, MOST)),
        st.builds(Submit, st.integers(1, 2), st.sampled_from([3, 20, 90])),
        st.builds(ChangeTemplate),
        st.builds(CordonMachine, pick(), st.booleans()),
        st.builds(Annotate, pick(), st.just(CORDON), st.sampled_from(["true", None])),
        st.builds(Annotate, pick(), st.just(COST), st.sampled_from(["-5", "100", None])),
        st.builds(DeletePod, pick()),
        st.builds(Admin, pick(), st.booleans()),
        st.builds(Machine, pick(), st.sampled_from(["kill", "revive", "remove", "switch off"])),
        st.builds(Replace),
        st.builds(BreakImage),
        st.builds(SwitchMode, st.sampled_from(MODES)),
        st.builds(ChangeMinReady, st.sampled_from([0, 15])),
        st.builds(SwitchPartition, st.booleans()),
        st.builds(ChangeStrategy, st.sampled_from(sorted(STRATEGIES))),
    )


def disturbances() -> st.SearchStrategy[Disturbance]:
    """What goes wrong around the operator."""
    lists = st.lists(st.sampled_from([KubeFault.STALE, KubeFault.GONE, KubeFault.ERROR]), max_size=3).map(tuple)
    return st.one_of(
        st.builds(WriteFault, st.integers(1, 12), st.sampled_from(WRITE_FAULTS)),
        st.builds(ReadFault, lists, st.integers(0, 20), st.booleans()),
        st.builds(EndWatches, st.sampled_from(WatchFault)),
        st.builds(Crash, st.booleans()),
        st.builds(SickSlurm, st.sampled_from(SLURM_FAULTS), st.sampled_from([3, 30, 120])),
        st.builds(SlurmWriteFault, st.integers(1, 4), st.sampled_from(SlurmFault)),
        st.builds(LostState),
    )


def scripts(strategy: str, mode: str = "StatefulSet", most: int = 12) -> st.SearchStrategy[Script]:
    """Any of them, of a NodeSet in that scaling mode that begins with that update strategy."""
    pause = st.sampled_from([0.0, 0.02, 0.3, 1.5, 8.0, 40.0])
    step = st.tuples(pause, st.one_of(actions(), disturbances()))
    steps = st.lists(step, min_size=1, max_size=most).map(tuple)
    return st.builds(Script, st.integers(0, 2**16), st.just(strategy), steps, st.just(mode))


async def play(script: Script, injected: Counter[str] | None = None) -> dict[str, Any]:
    """Play it, end what is left of it, and let everything settle; the state at the end. Raises Broken.

    `injected` gets which faults came to pass.
    """
    async with world(script.seed) as w:
        w.nodeset(replicas=2, scalingMode=script.mode, updateStrategy=STRATEGIES[script.strategy])
        await w.run(5.0)
        for pause, step in script.steps:
            await w.run(pause)
            step.do(w)
        await w.run(5.0)
        tidy(w)
        await maintain(w)
        await w.settle()
        check_settled(w)
        if injected is not None:
            injected.update(w.faults.injected)
        return w.end_state()


def tidy(w: World) -> None:
    """Everybody takes back what he did, and all machines work."""
    w.faults.writes.clear()
    w.faults.slurm_writes.clear()
    w.faults.lists.clear()
    for model in w.slurms.values():
        model.heal()
    w.kubelets.broken_images.clear()
    for job in w.jobs:
        job.over = job.over or not job.job_id
    for name in w.machines:
        w.kubelets.revive(name)
        w.api.change(NODE, "", name, {"spec": {"unschedulable": None}})
    for pod in w.api.all(POD):
        metadata = pod["metadata"]
        marked = metadata["annotations"].get(CORDON) and metadata["uid"] in w.cordoned_by_users
        if marked and not any("cordoned-by" in key for key in metadata["annotations"]):
            w.api.change(POD, metadata["namespace"], metadata["name"], {"metadata": {"annotations": {CORDON: None}}})
    for name, node in list(w.slurms["slurm", "slurm"].nodes.items()):
        if node.reason == FOREIGN:
            w.admin(name, None)


async def maintain(w: World) -> None:
    """When no job runs any more, a NodeSet with ScheduledUpdate gets a maintenance window, and that passes."""
    await w.until("the jobs to end", lambda: not w.waits_for_jobs())
    if w.strategy("slinky") == "ScheduledUpdate":
        start = int(w.wall_clock() + BEFORE_MAINTENANCE)
        scheduled = {"startTime": timestamp(start), "duration": f"{MAINTENANCE:.0f}s"}
        w.change("slinky", {"updateStrategy": {"scheduledUpdate": scheduled}})
        await w.run(start + MAINTENANCE - w.wall_clock())


def check_settled(w: World) -> None:
    """A settled cluster is as asked for. AssertionError."""
    for key, found in w.end_state().items():
        nodeset = w.api.get(NODESET, *key.split("/"))
        assert nodeset is not None
        if nodeset["metadata"].get("deletionTimestamp"):
            raise AssertionError(f"{key} is still there: {found}\n" + "\n".join(w.watchdog.log[-60:]))
        wanted = w.wanted(nodeset)
        expected = {"pods": wanted, "ready": wanted, "cordoned": 0, "registered": wanted, "drained": []}
        said = {name: found[name] for name in expected}
        assert said == expected, f"{key}: {said}\n" + "\n".join(w.watchdog.log[-60:])
        if strategy_of(nodeset) != "OnDelete":
            outdated, updated = w.outdated(key.split("/")[1]), nodeset["status"].get("updatedReplicas")
            assert (outdated, updated) == (0, wanted), f"{key}: {outdated=}, {updated=}\n" + "\n".join(
                w.watchdog.log[-60:]
            )
