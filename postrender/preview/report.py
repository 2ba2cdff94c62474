"""The preview as a whole: from two sets of objects and what is known of the cluster to what an
upgrade would do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from postrender.expand import objects
from postrender.expand.cluster import HOOK, Cluster, clusters, is_custom, with_namespace
from postrender.expand.objects import Configuration, usable
from postrender.preview import differences, stranded, volumes, workers
from postrender.preview.differences import Change, Refused, identity
from postrender.preview.ownership import retained
from postrender.preview.state import SlurmState, State, assumed
from postrender.preview.stranded import Partitions, Stranded
from postrender.preview.volumes import Volumes
from postrender.preview.workers import Seen, Workers
from sidecars.policy.nodeset.revisions import Stored
from sidecars.policy.upgrades import Daemon, plan
from sidecars.slurm import conf, keys
from sidecars.workloads import names, nodeset, references
from sidecars.workloads.facts import Site
from sidecars.workloads.resources import Controller, Manifest, NodeSet, Resource, builtins

GENERIC = {"StatefulSet", "Deployment", "DaemonSet"}


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of a StatefulSet or Deployment that restart, are created or are deleted."""

    kind: str
    namespace: str
    name: str
    action: str
    """restart, create or delete."""
    why: tuple[str, ...]
    pods: tuple[str, ...] = ()
    """Their names, where they are known beforehand."""


@dataclass(frozen=True, slots=True)
class Configured:
    """What slurmctld does with a changed configuration."""

    controller: str
    """Namespace and name."""
    action: str
    """live: it takes the files while it runs; restart: its container restarts; pod: its pod is
    replaced.
    """
    files: tuple[str, ...]
    """The files that differ."""
    why: tuple[str, ...] = ()
    """Of a restart: the settings that a running slurmctld can't take."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Other images of the daemons of one Slurm cluster."""

    controller: str
    """Namespace and name."""
    steps: tuple[tuple[str, ...], ...]
    """What gets its image at the same time, such as `Accounting slurm: slurmdbd:25.11 →
    slurmdbd:26.05`. The next step begins when the daemons of the one before are up to date and
    ready.
    """
    kept: tuple[str, ...] = ()
    """Why daemons keep their image."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What an upgrade would do. Empty if nothing."""

    refused: tuple[Refused, ...] = ()
    changes: tuple[Change, ...] = ()
    configured: tuple[Configured, ...] = ()
    upgrades: tuple[Upgrade, ...] = ()
    """Only those of several steps, and those in which a daemon keeps its image."""
    pods: tuple[Pods, ...] = ()
    volumes: tuple[Volumes, ...] = ()
    workers: tuple[Workers, ...] = ()
    stranded: tuple[Stranded, ...] = ()


def preview(
    before: Sequence[Manifest],
    after: Sequence[Manifest],
    site: Site,
    state: State,
    namespace: str = "",
) -> Preview:
    """Compare. `namespace`: of objects that name none. Raises PostrenderError.

    Secrets whose contents one side doesn't know have those of the other side.
    """
    before, after = ([it for it in found if not _is_hook(it)] for found in (before, after))
    own = {identity(it, namespace): it for it in before}
    if state.live:
        former = {identity(it, namespace): it for it in state.released}
        after = [
            retained(it, own[key], former.get(key))
            if (key := identity(it, namespace)) in own
            else it
            for it in after
        ]
    unread = () if state.live else _referenced([*before, *after], namespace)
    old = clusters(
        [*before, *(it for it in state.referenced if identity(it) not in own)], namespace, unread
    )
    new = clusters(after, namespace, unread)
    if not state.live:
        # It is unknown which of them exist: none of them changes.
        old, new = (
            {space: _with_unread(it) for space, it in found.items()} for found in (old, new)
        )
    applied_before = [it for it in before if not is_custom(it)]
    applied_after = [it for it in after if not is_custom(it)]
    configured: list[Configured] = []
    upgrades: list[Upgrade] = []
    concerned: list[Workers] = []
    waiting: list[Stranded] = []
    rendered: list[tuple[list[Manifest], list[Manifest]]] = []
    for space in sorted(old.keys() | new.keys()):
        one, other = _sharing(old.get(space), new.get(space))
        was, becomes = _Side(one, site), _Side(other, site)
        rendered.append((was.workloads(), becomes.workloads()))
        configured += _configurations(was, becomes)
        upgrades += _upgrades(was, becomes)
        concerned += _nodesets(was, becomes, state)
        waiting += _stranded(was, becomes, state)
    pods = [it for pair in rendered for it in _pods(*pair)]
    pods += _pods(applied_before, applied_after, live=state.live)
    sized = [it for pair in rendered for it in volumes.of_workloads(*pair, state)]
    sized += volumes.of_objects(before, after, state, namespace)
    found = differences.changes(before, after, namespace, live=state.live)
    workers_of = tuple(it for it in concerned if it.workers)
    return Preview(
        tuple(_refused(before, after, state, namespace)),
        tuple(found),
        tuple(configured),
        tuple(upgrades),
        tuple(pods),
        tuple(sized),
        workers_of,
        tuple(waiting),
    )


def _refused(
    before: Sequence[Manifest], after: Sequence[Manifest], state: State, namespace: str
) -> Iterable[Refused]:
    """Yield what the API server would refuse: by the rules that are known here, in their words, and
    by all others of a live cluster, such as an admission policy, in its own.
    """
    known = list(differences.refused(before, after, namespace))
    yield from known
    named = {(it.kind, it.namespace, it.name) for it in known}
    for key, why in sorted(state.refusals.items()):
        if key not in named:
            yield Refused(*key, (why,))


def _is_hook(manifest: Manifest) -> bool:
    """Return whether Helm runs it for `helm test`, or beside the installation, instead of applying
    it.
    """
    return HOOK in ((manifest.get("metadata") or {}).get("annotations") or {})


def _referenced(manifests: Iterable[Manifest], namespace: str) -> list[str]:
    """Return the names of the Secrets that custom resources refer to. Without a live cluster they
    count as present.
    """
    custom = (with_namespace(it, namespace) for it in manifests if is_custom(it))
    found = {
        it.name for manifest in custom for it in references.of(manifest) if it.kind == "Secret"
    }
    # These are optional, and created by the operator.
    return sorted(found - {names.slurm_jwks(name) for name in found})


class _Side:
    """The cluster before or after; None if it doesn't exist then."""

    def __init__(self, cluster: Cluster | None, site: Site) -> None:
        self.cluster = cluster
        self.site = site
        self.configured: dict[str, Configuration] = {}
        for name, controller in cluster.controllers.items() if cluster is not None else ():
            assert cluster is not None  # noqa: S101 - its controllers are looked at
            self.configured[name] = objects.configuration(cluster, controller, site, frozenset())

    def controllers(self) -> Mapping[str, Controller]:
        return self.cluster.controllers if self.cluster is not None else {}

    def nodesets(self) -> Mapping[str, NodeSet]:
        return self.cluster.nodesets if self.cluster is not None else {}

    def workloads(self) -> list[Manifest]:
        """StatefulSets and Deployments that the operator applies."""
        cluster = self.cluster
        if cluster is None:
            return []
        found: list[Manifest] = []
        for controller in cluster.controllers.values():
            found += objects.of_controller(cluster, controller, self.configured[controller.name])
        for accounting in cluster.accountings.values():
            found += objects.of_accounting(cluster, accounting, self.site)
        for restapi in cluster.restapis.values():
            found += objects.of_restapi(
                cluster, restapi, self.configured[cluster.controller(restapi).name]
            )
        for loginset in cluster.loginsets.values():
            found += objects.of_loginset(
                cluster, loginset, self.configured[cluster.controller(loginset).name]
            )
        return [it for it in found if it["kind"] in GENERIC]


def _sharing(one: Cluster | None, other: Cluster | None) -> tuple[Cluster | None, Cluster | None]:
    """Return both with the contents of Secrets and ConfigMaps that only one of them knows, and with
    the same host keys.
    """
    if one is None or other is None:
        return tuple(_with_unread(it) if it is not None else None for it in (one, other))  # type: ignore[return-value]
    secrets = {**one.secrets, **other.secrets}
    for side in (one, other):
        secrets |= {key: it for key, it in side.secrets.items() if it is not None}
    becomes = replace(other, secrets=secrets, config_maps={**one.config_maps, **other.config_maps})
    return _with_unread(one), _with_unread(becomes)


def _with_unread(cluster: Cluster) -> Cluster:
    """Return the cluster with the Secrets that are generated beside it."""
    host_keys = dict.fromkeys(names.ssh_host_keys(it.name) for it in cluster.loginsets.values())
    return replace(cluster, secrets={**host_keys, **cluster.secrets})


def _configurations(was: _Side, becomes: _Side) -> Iterable[Configured]:
    for name, controller in becomes.controllers().items():
        if name not in was.controllers() or controller.spec.external:
            continue
        old, new = was.configured[name].config_set, becomes.configured[name].config_set
        files = sorted(
            it
            for it in old.digests.keys() | new.digests.keys()
            if old.digests.get(it) != new.digests.get(it)
        )
        if not files:
            continue
        before, after = (conf.parse_readable(it.files["slurm.conf"]) for it in (old, new))
        why = tuple(
            f"{key}: {before.get(key) or 'unset'} → {after.get(key) or 'unset'}"
            for key in keys.READ_AT_START
            if before.get(key) != after.get(key)
        )
        action = (
            "pod" if controller.spec.config_update == "Recreate" else "restart" if why else "live"
        )
        yield Configured(f"{controller.namespace}/{name}", action, tuple(files), why)


def _upgrades(was: _Side, becomes: _Side) -> Iterable[Upgrade]:
    """Yield the upgrades in the order of the operator, with Slurm of `was` up to date and ready."""
    had = {
        (it.resource, it.name): it.wanted
        for name in was.controllers()
        for it in _daemons(was, name)
    }
    for name, controller in becomes.controllers().items():
        daemons = [
            replace(it, image=had.get((it.resource, it.name))) for it in _daemons(becomes, name)
        ]
        steps, blocks = plan(daemons)
        moved = [[it for it in step if it.image is not None] for step in steps]
        shown = tuple(
            tuple(f"{it.resource}: {it.image} → {it.wanted}" for it in step)
            for step in moved
            if step
        )
        if len(shown) > 1 or blocks:
            yield Upgrade(
                f"{controller.namespace}/{name}", shown, tuple(it.message for it in blocks)
            )


def _daemons(of: _Side, name: str) -> list[Daemon]:
    """Return the daemons of a Slurm cluster in Kubernetes, with the images that they get."""
    cluster, controller = of.cluster, of.controllers()[name]
    assert cluster is not None  # noqa: S101 - it has the Controller
    reference = controller.spec.accounting_ref
    accounting = cluster.accountings.get(reference.name) if reference is not None else None
    found: list[tuple[Resource, str, Mapping[str, object]]] = []
    if accounting is not None and not accounting.spec.external:
        found.append((accounting, "slurmdbd", accounting.spec.slurmdbd))
    if not controller.spec.external:
        found.append((controller, "slurmctld", controller.spec.slurmctld))
    found += [
        (it, "slurmrestd", it.spec.slurmrestd)
        for it in cluster.restapis.values()
        if it.spec.controller_ref.name == name
    ]
    found += [
        (it, "login", it.spec.login)
        for it in cluster.loginsets.values()
        if it.spec.controller_ref.name == name
    ]
    found += [(it, "slurmd", it.spec.slurmd) for it in cluster.nodesets_of(controller)]
    return [
        Daemon(f"{it.kind} {it.name}", daemon, None, str(spec.get("image") or ""))
        for it, daemon, spec in found
    ]


def _stranded(was: _Side, becomes: _Side, state: State) -> Iterable[Stranded]:
    if not state.live or was.cluster is None or becomes.cluster is None:
        return
    hosts = {str((it.get("spec") or {}).get("hostname")) for it in state.pods}
    for name, controller in becomes.controllers().items():
        former = was.controllers().get(name)
        if former is None or controller.spec.external:
            continue
        yield from stranded.stranded(
            f"{controller.namespace}/{name}",
            _partitions(was, was.cluster, former),
            _partitions(becomes, becomes.cluster, controller),
            state.of_slurm((controller.namespace, name)),
            hosts,
        )


def _partitions(of: _Side, cluster: Cluster, controller: Controller) -> Partitions:
    return Partitions(
        of.configured[controller.name].config_set.files["slurm.conf"],
        cluster.nodesets_of(controller),
        cluster.scaled_by_others,
    )


def _nodesets(was: _Side, becomes: _Side, state: State) -> Iterable[Workers]:
    for name in sorted({*was.nodesets(), *becomes.nodesets()}):
        before, after = was.nodesets().get(name), becomes.nodesets().get(name)
        seen = _seen(was, before, after, state)
        if after is None:
            assert before is not None  # noqa: S101 - one of them has the name
            yield workers.of_deleted(before, seen)
            continue
        assert becomes.cluster is not None  # noqa: S101 - it has the NodeSet
        controller = becomes.cluster.controller(after)
        why = () if before is None else _why(before, after)
        with usable(after):
            yield workers.of_nodeset(
                after, controller, becomes.configured[controller.name].facts, seen, why
            )


def _seen(was: _Side, before: NodeSet | None, after: NodeSet | None, state: State) -> Seen:
    any_of = after or before
    assert any_of is not None  # noqa: S101 - one of them has the name
    if state.live:
        slurm = state.of_slurm((any_of.namespace, any_of.spec.controller_ref.name))
        return Seen(state.pods_of(any_of), slurm, state.stored(any_of), state.places(), state.now)
    if before is None or was.cluster is None:
        return Seen([], SlurmState(), (), {}, state.now, jobs_known=False)
    controller = was.cluster.controller(before)
    with usable(before):
        present = nodeset.revision(before, controller, was.configured[controller.name].facts)
    pods, slurm = assumed(before, present, state.now)
    stored = [Stored(f"{before.name}-{present.hash}", 1, present)]
    return Seen(pods, slurm, stored, {}, state.now, jobs_known=False)


def _why(before: NodeSet, after: NodeSet) -> tuple[str, ...]:
    """Name the differences in the choices that a pod is rendered from."""
    one, other = (
        {key: value for key, value in builtins(it.spec).items() if key in nodeset.CHOICES}
        for it in (before, after)
    )
    return tuple(differences.fields(one, other, "spec"))


def _pods(
    before: Sequence[Manifest], after: Sequence[Manifest], *, live: bool = False
) -> list[Pods]:
    old = {identity(it): it for it in before if it.get("kind") in GENERIC}
    new = {identity(it): it for it in after if it.get("kind") in GENERIC}
    found = []
    for key, manifest in new.items():
        if key not in old:
            found.append(_changed(manifest, "create", ()))
            continue
        one, other = ((it["spec"].get("template") or {}) for it in (old[key], manifest))
        why = tuple(map(_worded, differences.fields(one, other, live=live)))
        if why:
            found.append(_changed(manifest, "restart", why))
        had, gets = (it["spec"].get("replicas", 1) for it in (old[key], manifest))
        if had != gets:
            more = f"spec.replicas: {had} → {gets}"
            found.append(
                _changed(
                    manifest,
                    "create" if gets > had else "delete",
                    (more,),
                    range(*sorted((had, gets))),
                )
            )
    return found + [_changed(it, "delete", ()) for key, it in old.items() if key not in new]


def _changed(
    manifest: Manifest, action: str, why: Sequence[str], ordinals: range | None = None
) -> Pods:
    metadata, replicas = manifest["metadata"], manifest["spec"].get("replicas", 1)
    ordinals = range(replicas) if ordinals is None else ordinals
    pods = (
        [f"{metadata['name']}-{it}" for it in ordinals] if manifest["kind"] == "StatefulSet" else []
    )
    if action != "create" and (metadata.get("labels") or {}).get(names.APP_NAME) == "slurmd":
        # Workers without an operator.
        spec = (manifest["spec"].get("template") or {}).get("spec") or {}
        grace = spec.get("terminationGracePeriodSeconds", 30)
        why = [
            *why,
            (
                "each Slurm node is drained when its pod is deleted; its jobs have to end within "
                f"{grace} s"
            ),
        ]
    return Pods(
        manifest["kind"],
        metadata.get("namespace") or "",
        metadata["name"],
        action,
        tuple(why),
        tuple(pods),
    )


def _worded(field: str) -> str:
    """Return a hash of something that the pods read, in words."""
    name = field.rpartition("slinky.slurm.net/")[2].partition(":")[0].partition("]")[0]
    hashed = "annotations" in field and "-hash" in name
    return f"its {name.partition('-hash')[0].replace('-', ' ')} changes" if hashed else field
