"""The pods that concern the bridge, as `decide` looks at them: each with its shape, its claims and
what is remembered about it.
"""

import dataclasses
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial

from sidecars.bridge import metrics
from sidecars.bridge.claimed_devices import Devices
from sidecars.bridge.core import causes, groups, pods, shape, tenants
from sidecars.bridge.core.claims import PodClaims
from sidecars.bridge.core.feasible import Needs, unfit
from sidecars.bridge.core.manifests import Node, Pod
from sidecars.bridge.core.pods import Shaped
from sidecars.bridge.core.records import GroupKey, Job
from sidecars.bridge.core.records import Pod as SeenPod
from sidecars.bridge.core.shape import Shape
from sidecars.bridge.memory import PerPod
from sidecars.bridge.owners import Owners
from sidecars.bridge.parts import Books, Clock, Kubernetes
from sidecars.kube import Event

log = logging.getLogger(__name__)

_Viewed = tuple[Pod, Shaped, PodClaims, str, bool, SeenPod]


class PodViews:
    """Follows the caches. `wake` begins a pass soon. What is computed for a pod is kept until
    something that it depends on changes.
    """

    def __init__(
        self,
        kube: Kubernetes,
        books: Books,
        devices: Devices,
        owners: Owners,
        clock: Clock,
        partition: str,
        wake: Callable[[], None],
    ) -> None:
        self._nodes = kube.nodes
        self._config = kube.config
        self._usage = books.usage
        self._memory = books.memory
        self._devices = devices
        self._owners = owners
        self._now = clock.now
        self._wall = clock.wall
        self._partition = partition
        self._wake = wake
        self._concerned: dict[str, Pod] = {}
        self._source = PerPod(groups.object_of)
        self._own_shape = PerPod(partial(shape.own, extended=devices.rules.extended))
        self._shapes: dict[str, tuple[object, Shaped]] = {}
        self._views: dict[str, _Viewed] = {}
        """Each after what it depends on."""
        self._fits: dict[Needs, dict[str, str]] = {}
        """See `unfit`: what is known of the nodes as they are, `_fit_of`."""
        self._fit_of: frozenset[str] = frozenset()
        self.tenants: dict[str, tenants.Tenant] = {}
        """By namespace."""
        self._problems: dict[str, str] = {}
        self.others_changed = False
        """Whether pods of others have changed what they request of nodes since the last `look`."""
        kube.pods.subscribe(self._pod_changed)
        kube.nodes.subscribe(self._node_changed)
        kube.config.subscribe(lambda _: self._tenants_changed())
        devices.subscribe(wake)

    def look(self) -> None:
        """Begin a look at everything: the changes until now have been seen."""
        self.others_changed = False

    def waiting(self, jobs: Iterable[Job]) -> Counter[tuple[str, str]]:
        """Count the pods that wait, by the reason of their condition and the class of Slurm's
        reason.
        """
        return causes.waiting(self._concerned.values(), jobs)

    def selector_keys(self) -> frozenset[str]:
        """Return the keys of labels by which pods that wait select nodes."""
        return frozenset(
            key
            for pod in self._concerned.values()
            if pods.is_gated(pod)
            for key in shape.selector_keys(pod)
        )

    def read_owners(self) -> None:
        """Begin to read the objects that are due, and forget those that no pod names."""
        named = {
            uid: source
            for uid, pod in self._concerned.items()
            if (source := self._source(pod)) is not None
        }
        gated = {
            uid: pods.job_id_of(pod)
            for uid, pod in self._concerned.items()
            if uid in named and pods.is_gated(pod)
        }
        self._owners.forget(frozenset(named.values()))
        again = (named[uid] for uid, job in gated.items() if job is None)
        # After a start, what their object requests for pods with a job isn't known.
        once = (named[uid] for uid, job in gated.items() if job is not None)
        self._owners.read(again, once)

    def shaped(self) -> dict[str, Shaped]:
        """Return the shapes by uid. The object is the same until something of it changes."""
        root = tenants.root_problems(self._memory.root)
        return {uid: self._shape(pod, root) for uid, pod in self._concerned.items()}

    def job_shapes(self, shaped: Mapping[str, Shaped]) -> dict[int, set[tuple[GroupKey, Shape]]]:
        """Return the groups and shapes of the pods with a job's label, by the job."""
        found: defaultdict[int, set[tuple[GroupKey, Shape]]] = defaultdict(set)
        for uid, pod in self._concerned.items():
            job_id = pods.job_id_of(pod)
            if job_id is not None:
                group, wanted, _ = shaped[uid]
                found[job_id].add((pods.key_of(pod, group), wanted or self._own_shape(pod)))
        return found

    def seen(self, shaped: Mapping[str, Shaped], now: float) -> tuple[SeenPod, ...]:
        """Return the pods as they are now. What is remembered about others is forgotten."""
        memory = self._memory
        missed = {name for pod in self._concerned.values() if (name := pod.spec.node_name)}
        memory.missing = {
            name: at
            for name, at in memory.missing.items()
            if name in missed and self._nodes.get(None, name) is None
        }
        seen = tuple(self._seen(pod, shaped[uid], now) for uid, pod in self._concerned.items())
        memory.forget(frozenset(pod.uid for pod in seen), frozenset(pod.key for pod in seen), now)
        return seen

    def unfit(
        self, seen: Iterable[SeenPod], places_of: Mapping[bool, AbstractSet[str]]
    ) -> dict[Needs, dict[str, str]]:
        """Return why nodes can't run the pods that wait, by what the pods need."""
        names = frozenset().union(*places_of.values())
        if names != self._fit_of:
            self._fits, self._fit_of = {}, names
        wanted = {it.shape.needs for it in seen if it.gated and it.shape is not None}
        self._fits = {needs: its for needs, its in self._fits.items() if needs in wanted}
        if new := wanted - self._fits.keys():
            nodes = [it for name in sorted(names) if (it := self._nodes.get(None, name))]
            for needs in new:
                self._fits[needs] = {
                    it.metadata.name: text for it in nodes if (text := unfit(needs, it))
                }
        return {needs: its for needs, its in self._fits.items() if its}

    # --- changes in the caches

    def _pod_changed(self, event: Event[Pod]) -> None:
        pod = event.object
        if event.old and event.new and pods.was_scheduled(event.old, event.new):
            self._memory.scheduled_at = self._now()
        if pod.spec.node_name:
            released = self._memory.released.pop(pod.metadata.uid, None)
            if released is not None:
                metrics.BIND_SECONDS.observe(self._now() - released)
        usage_changed = self._usage.discard(pod) if event.new is None else self._usage.put(pod)
        self.others_changed = self.others_changed or usage_changed
        # What other pods request is looked at with everything else: there may be thousands of
        # changes a second.
        if event.new is not None and pods.concerned(pod):
            self._concerned[pod.metadata.uid] = pod
            self._wake()
        elif self._concerned.pop(pod.metadata.uid, None) is not None:
            for known in (self._source, self._own_shape, self._shapes, self._views):
                known.pop(pod.metadata.uid, None)
            self._wake()

    def _node_changed(self, event: Event[Node]) -> None:
        old, new = event.old, event.new
        if old is None or new is None or _relevant(old) != _relevant(new):
            self._fits = {}
            self._wake()

    def _tenants_changed(self) -> None:
        data: dict[str, str] = {}
        for config in self._config.values():
            data |= config.data
        self.tenants, self._problems = tenants.parse_all(data, self._partition)
        for problem in self._problems.values():
            log.warning("%s", problem)
        self._shapes.clear()
        self._wake()

    # --- one pod

    def _shape(self, pod: Pod, root: Mapping[str, str]) -> Shaped:
        meta = pod.metadata
        source = self._source(pod)
        facts = self._owners.facts
        claims = self._devices.of(pod)
        known = claims.gres, claims.missing, claims.problem
        version = (
            meta.resource_version,
            frozenset(root),
            facts.get(source) if source is not None else None,
            known,
        )
        cached = self._shapes.get(meta.uid)
        if cached is None or cached[0] != version:
            group = groups.group_of(pod, facts)
            rules = self._devices.rules
            found = pods.shape_or_problem(
                pod, self.tenants, self._problems, root, group, rules, claims
            )
            cached = self._shapes[meta.uid] = version, Shaped(group, *found)
        return cached[1]

    def _seen(self, pod: Pod, shaped: Shaped, now: float) -> SeenPod:
        meta, spec, memory = pod.metadata, pod.spec, self._memory
        lost = False
        if spec.node_name and self._nodes.get(None, spec.node_name) is None:
            lost = memory.lost(spec.node_name, now)
        sent = memory.sent_to(meta.uid, meta.resource_version if pods.is_gated(pod) else None)
        known = self._views.get(meta.uid)
        claims = self._devices.of(pod)
        if (
            known is not None
            and known[0] is pod
            and known[1] is shaped
            and known[2:5] == (claims, sent, lost)
        ):
            found = known[5]
        else:
            found = pods.pod_of(
                pod, shaped, sent=sent, lost=lost, claims=claims, rules=self._devices.rules
            )
            self._views[meta.uid] = pod, shaped, claims, sent, lost, found
        ends = meta.deletion_timestamp
        if ends is not None and ends.timestamp() <= self._wall():
            found = dataclasses.replace(found, overdue=True)
        if found.starting is None or not found.live:
            memory.begun(meta.uid)
        else:
            fails = bool(found.starting.fault)
            lasts = memory.starting_seconds(meta.uid, now, fails=fails)
            found = dataclasses.replace(found, starting_seconds=lasts)
        if found.gated or found.bound or not found.live:
            memory.bound(meta.uid)
            return found
        tried = bool(found.unbound_reason)
        return dataclasses.replace(
            found,
            unbound_seconds=memory.unbound_seconds(meta.uid, now, tried=tried),
            scheduler_away=not tried and memory.scheduler_away(meta.uid, now),
        )


def _relevant(node: Node) -> tuple[object, ...]:
    """Return everything but the version: kubelets write often."""
    return node.metadata.labels, node.metadata.annotations, node.spec, node.status
