"""Volumes that get another size, and what of a StatefulSet can't be changed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from postrender.preview.differences import identity
from postrender.preview.state import State
from sidecars.policy import immutable
from sidecars.policy.immutable import Claim, Resize
from sidecars.workloads import names
from sidecars.workloads.quantities import quantity
from sidecars.workloads.resources import Manifest, ResourceError

_UPGRADE = "the API server refuses it, and with it the upgrade"


@dataclass(frozen=True, slots=True)
class Volumes:
    """A StatefulSet whose claims are resized, or a claim of the release."""

    kind: str
    namespace: str
    name: str
    outcome: str
    """What happens to it."""
    details: tuple[str, ...] = ()


def of_workloads(
    before: Iterable[Manifest], after: Iterable[Manifest], state: State
) -> Iterator[Volumes]:
    """Yield the volumes of StatefulSets and Deployments that the operator applies."""
    old = {_named(it): it for it in before}
    for manifest in after:
        live = old.get(_named(manifest))
        if live is None:
            continue
        claims = _claims(live, state)
        refused = {
            name: why
            for name in claims
            if (why := _refusal(state, _class_of(state, manifest, name)))
        }
        plan = immutable.plan(live, manifest, claims, refused)
        sizes = tuple(_grows(it, state) for it in plan.resize)
        if plan.recreate:
            yield Volumes(
                *_named(manifest), "it is created again without its pods, which keep running", sizes
            )
        elif sizes or plan.kept:
            yield Volumes(*_named(manifest), "it stays", (*sizes, *plan.kept))


def of_objects(
    before: Iterable[Manifest], after: Iterable[Manifest], state: State, namespace: str
) -> Iterator[Volumes]:
    """Yield the volumes of claims, StatefulSets and Deployments in the stream, which Helm applies.
    `namespace` is that of objects that name none.
    """
    old = {identity(it, namespace): it for it in before}
    for manifest in after:
        key = identity(manifest, namespace)
        live = old.get(key)
        if live is None or key[0] not in {"", "apps"}:
            continue
        if key[1] == "PersistentVolumeClaim" and (outcome := _of_claim(live, manifest, state)):
            yield Volumes(*key[1:], outcome)
        elif key[1] in immutable.IMMUTABLE and (differing := immutable.differences(live, manifest)):
            fields = " and ".join(f"spec.{it}" for it in differing)
            remedy = f"kubectl -n {key[2]} delete {key[1].lower()} {key[3]} --cascade=orphan"
            yield Volumes(
                *key[1:],
                f"{_UPGRADE}: {fields} can't be changed",
                (
                    (
                        "set the former value, or delete it without its pods before the upgrade: "
                        f"{remedy}"
                    ),
                ),
            )


def _of_claim(live: Manifest, manifest: Manifest, state: State) -> str:
    """Describe what happens to a claim of the release. Return "" if its size stays."""
    one, other = _storage(live), _storage(manifest)
    try:
        had, asked = quantity(one, "storage"), quantity(other, "storage")
        capacity = quantity(_capacity(live) or one, "storage")
    except ResourceError:
        return ""
    if had == asked:
        return ""
    if asked < had:
        shrinks = f"{_UPGRADE}: a volume can't shrink from {one} to {other}"
        return f"it is resized from {one} to {other}" if asked > capacity else shrinks
    storage_class = (live.get("spec") or {}).get("storageClassName")
    if why := _refusal(state, storage_class):
        return f"{_UPGRADE}: it can't grow from {one} to {other}, because {why}"
    return f"it grows from {one} to {other}{_if(state)}"


def _grows(of: Resize, state: State) -> str:
    verb = "grows" if quantity(of.after, of.claim) > quantity(of.before, of.claim) else "is resized"
    return f"claim {of.claim} {verb} from {of.before} to {of.after}{_if(state)}"


def _if(state: State) -> str:
    return "" if state.storage_classes is not None else ", if its StorageClass allows it"


def _refusal(state: State, storage_class: str | None) -> str:
    """Return why claims of a StorageClass can't grow. Return "" if they can, or if that is
    unknown.
    """
    if (
        state.storage_classes is None
        or storage_class is None
        or state.storage_classes.get(storage_class)
    ):
        return ""
    return f"StorageClass {storage_class!r} doesn't allow it"


def _claims(live: Manifest, state: State) -> dict[str, Claim]:
    """Return the claims of a StatefulSet: without a live cluster, as its claim templates ask
    for.
    """
    if not state.live:
        pods = [
            f"{live['metadata']['name']}-{ordinal}"
            for ordinal in range(live["spec"].get("replicas", 1))
        ]
        found = {
            names.claim(it["metadata"]["name"], pod): _storage(it)
            for it in live["spec"].get("volumeClaimTemplates") or ()
            for pod in pods
        }
        return {name: Claim(name, size) for name, size in found.items() if size}
    return {
        it["metadata"]["name"]: Claim(
            it["metadata"]["name"],
            _storage(it),
            _capacity(it),
            (it.get("status") or {}).get("phase") == "Bound",
        )
        for it in state.claims
        if it["metadata"]["namespace"] == live["metadata"]["namespace"]
    }


def _class_of(state: State, workload: Manifest, claim: str) -> str | None:
    place = workload["metadata"]["namespace"], claim
    found = (
        it for it in state.claims if (it["metadata"]["namespace"], it["metadata"]["name"]) == place
    )
    return next((it["spec"].get("storageClassName") for it in found), None)


def _storage(claim: Manifest) -> str:
    return str(
        (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
        or ""
    )


def _capacity(claim: Manifest) -> str:
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage") or "")


def _named(manifest: Manifest) -> tuple[str, str, str]:
    return (
        manifest["kind"],
        manifest["metadata"].get("namespace") or "",
        manifest["metadata"]["name"],
    )
