"""The containers of a worker pod in the model: `register`, slurmd with its preStop hook, and the
sidecar `node`.

What `register` and `node` decide is decided by the shipped code, from the environment that the pod
itself gives them. Only their edges are replaced: files are attributes, and requests go to the model
of Slurm, which may be sick.
"""

import asyncio
import contextlib
import math
import random
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

from sidecars.contract import extra
from sidecars.kube import Manifest
from sidecars.node import edge, machine, records
from sidecars.node.main import READ_EVERY, configure
from sidecars.register.facts import read_facts
from sidecars.register.registration import Host, Registration, registration
from sidecars.simulate import SlurmModel
from sidecars.simulate.carriers import answered
from sidecars.simulate.records import Reply
from sidecars.slurm.errors import Unreachable
from sidecars.slurm.protocol import VERSIONS, Request
from sidecars.workloads.quantities import quantity

T = TypeVar("T")

HOST = Host(cores=4, threads_per_core=1, real_memory=16_000)
"""The hardware of every Kubernetes node; what the model of Slurm takes a node to have."""

ALLOCATABLE = {"cpu": "3920m", "memory": "14000Mi"}
"""What pods can have of it."""

HOOK = "1.1"
"""Name of the preStop hook: slurmd is stopped once."""

_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def environment(pod: Manifest, container: str, ip: str) -> dict[str, str]:
    """The environment variables that the kubelet gives to a container of the pod."""
    spec = pod["spec"]
    [found] = [
        it
        for it in (*spec.get("initContainers", ()), *spec["containers"])
        if it["name"] == container
    ]
    plain = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": spec["nodeName"],
        "status.podIP": ip,
    }

    def value(variable: Mapping[str, Any]) -> str:
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        if "resourceFieldRef" in variable["valueFrom"]:
            return _limit(spec, variable["valueFrom"]["resourceFieldRef"])
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        keyed = _KEYED.fullmatch(path)
        if keyed is None:
            return str(plain[path])
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))

    return {it["name"]: value(it) for it in found.get("env", ())}


def _limit(spec: Mapping[str, Any], source: Mapping[str, str]) -> str:
    """A limit as the downward API reports it: what the Kubernetes node can allocate for a container
    without one.

    For an init container without one it is 0.
    """
    kind = source["resource"].removeprefix("limits.")
    for containers, otherwise in (
        (spec["containers"], ALLOCATABLE[kind]),
        (spec.get("initContainers", ()), "0"),
    ):
        for container in containers:
            if container["name"] == source["containerName"]:
                found = ((container.get("resources") or {}).get("limits") or {}).get(
                    kind, otherwise
                )
                return str(
                    math.ceil(quantity(found, kind) / quantity(source["divisor"], "divisor"))
                )
    raise AssertionError(
        f"the kubelet doesn't start a container that refers to another, unknown one: {source}"
    )


class Carrier:
    """Carries requests of `node` to the model. They take no time here: `seconds` is what the last
    ones would take.
    """

    def __init__(self, outside: "Outside") -> None:
        self._outside = outside
        self.seconds = 0.0

    def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """As `sidecars.slurm.rest.Rest.call`."""
        limit = edge.CALL_SECONDS if timeout is None else timeout
        if not self._outside.reaches():
            self.seconds += limit
            raise Unreachable(str(request), "the Kubernetes node is cut off")
        target, content = request.target(VERSIONS[0]), request.content()
        reply = self._outside.carry(
            request.method,
            target,
            content,
            lambda: self._outside.model.handle(request.method, target, content),
        )
        self.seconds += limit if reply.delay is None else min(reply.delay, limit)
        return answered(request, reply, limit)


@dataclass(frozen=True)
class Outside:
    """What a worker pod meets: Slurm, the network, chance, and the log of `node`."""

    model: SlurmModel
    carry: Callable[[str, str, bytes | None, Callable[[], Reply]], Reply]
    """Sees a request, and returns the answer that the last argument gets."""
    reaches: Callable[[], bool]
    """Whether its Kubernetes node reaches anything."""
    listens: Callable[[str], bool]
    """Whether a slurmd of another pod answers at this address."""
    rng: random.Random
    log: Callable[[str], None]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Starts a task, and sees to it that its failure isn't overlooked."""


class Worker:
    """The pod sandbox of one worker pod and what runs in it, until `kill` or its end.

    Its files: `conf` (register lets slurmd start), `record` (node has settled an earlier record),
    `stop` (slurmstepd processes left, and when that was written), `released` (the preStop hook may
    end).
    """

    def __init__(self, pod: Manifest, ip: str, outside: Outside) -> None:
        self.ip = ip
        self.kube_node = str(pod["spec"]["nodeName"])
        self.registration: Registration = registration(
            read_facts(environment(pod, "register", ip), HOST)
        )
        variables = environment(pod, "node", ip)
        self.settings, _ = configure(variables)
        self.conf = False
        self.record = asyncio.Event()
        self.stop: tuple[int, float] | None = None
        self.released = asyncio.Event()
        self.slurmd_runs = False
        self.ended = asyncio.Event()
        """`node` has ended, of its own accord or killed."""
        self._outside = outside
        self._carrier = Carrier(outside)
        facts = extra.pod_facts(self.registration.extra)
        assert facts is not None
        self._slurm = edge.Slurm(
            self._carrier, variables["SLURM_NODE_NAME"], lambda: facts, lambda: None
        )
        self._terminating = False
        self._noticed = asyncio.Event()
        self._node = outside.spawn(self._run_node())

    @property
    def pod_uid(self) -> str:
        """The pod's."""
        return self.settings.pod_uid

    def start_slurmd(self) -> None:
        """`register` has written its files, and slurmd starts."""
        self.conf = self.slurmd_runs = True
        self._noticed.set()

    def hook(self, steps: int) -> None:
        """slurmd's preStop hook has counted that many slurmstepd."""
        self.stop = steps, self._now()
        self._noticed.set()

    def stop_slurmd(self) -> None:
        """slurmd has ended."""
        self.slurmd_runs = False

    def terminate(self) -> None:
        """SIGTERM to `node`."""
        self._terminating = True
        self._noticed.set()

    def restart_node(self) -> None:
        """`node` crashes, and the kubelet starts it again: its files are as they were, its memory
        is lost.
        """
        if not self.ended.is_set():
            self._node.cancel()
            self._node = self._outside.spawn(self._run_node())

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self.slurmd_runs = False
        self._node.cancel()
        self.ended.set()

    async def _run_node(self) -> None:
        """As `sidecars.node.main.run`, but files wake it where that looks at them twice a
        second.
        """
        try:
            state = machine.begin(self._now())
            answer: records.Answer | None = None
            while state.phase is not records.Phase.DONE:
                before = state.phase
                state, actions = machine.step(self.settings, state, self._seen(answer), self._now())
                answer = None
                for action in actions:
                    match action:
                        case records.Log(text):
                            self._outside.log(f"node of pod {self.pod_uid}: {text}")
                        case records.Settled():
                            self.record.set()
                        case records.Release(hook):
                            assert hook == HOOK
                            self.released.set()
                        case call:
                            answer = await self._perform(call)
                if answer is None and state.phase is before:
                    await self._wait(state.wake - self._now())
        finally:
            if asyncio.current_task() is self._node:
                self.ended.set()

    def _seen(self, answer: records.Answer | None) -> records.Observation:
        return records.Observation(
            stop=None
            if self.stop is None
            else records.Stop(HOOK, self.stop[0], self._now() - self.stop[1]),
            slurmd_may_run=self.conf,
            shape=self.registration.shape,
            terminating=self._terminating,
            answer=answer,
            jitter=self._outside.rng.random(),
        )

    async def _perform(self, call: records.Call) -> records.Answer:
        rng = self._outside.rng
        if isinstance(call, records.Probe):
            own = call.host == "127.0.0.1"
            answer: records.Answer = records.Listening(
                self.slurmd_runs if own else self._outside.listens(call.host)
            )
            await asyncio.sleep(rng.uniform(0.001, 0.005))
            return answer
        self._carrier.seconds = rng.uniform(0.001, 0.01)
        answer = self._slurm.perform(call)
        await asyncio.sleep(self._carrier.seconds)
        return answer

    async def _wait(self, seconds: float) -> None:
        """Wait for a change of the files or for SIGTERM, at most so long; READ_EVERY where the time
        is over already.
        """
        self._noticed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                None if seconds == inf else seconds if seconds > 0 else READ_EVERY
            ):
                await self._noticed.wait()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
