"""One pass over one Accounting."""

from dataclasses import replace

from sidecars.kube import STATEFUL_SETS, Manifest
from sidecars.operator import upgrade, workload
from sidecars.operator.caches import ACCOUNTINGS
from sidecars.operator.context import Context, Key, NotUsableError
from sidecars.operator.controller import keys
from sidecars.policy import upgrades
from sidecars.policy.conditions import Condition
from sidecars.slurm import jwks
from sidecars.workloads import accounting as render
from sidecars.workloads import names
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Accounting, ResourceError, read


async def reconcile(context: Context, key: Key) -> None:
    """Bring slurmdbd to what the Accounting says; report."""
    manifest = context.caches.accountings.store.get(*key)
    if manifest is None or manifest["metadata"].get("deletionTimestamp"):
        return
    try:
        accounting = read(Accounting, manifest)
        if not accounting.spec.external and _shares_its_key(context, accounting):
            keys.wait_for(context, accounting.namespace, render.slurm_key(accounting))
        facts = context.namespace_facts(accounting.namespace)

        def objects() -> list[Manifest]:
            if accounting.spec.external:
                return []
            return render.objects(accounting, facts, _secrets(context, accounting, facts))

        with workload.usable():
            rendered = objects()
        held = upgrade.arrange(context, rendered, "slurmdbd", upgrades.NOTHING)
        await workload.apply_all(context, manifest, "Accounting", lambda: rendered)
        ready = held.condition if held is not None else _readiness(context, accounting)
    except (NotUsableError, ResourceError) as error:
        ready = workload.refused(context, manifest, error)
    await context.report(ACCOUNTINGS, manifest, [ready])


def _shares_its_key(context: Context, accounting: Accounting) -> bool:
    """Whether a Controller keeps the keys that slurmdbd is given; without one it has slurm.key alone."""
    name = render.slurm_key(accounting).name
    return any(
        item["metadata"]["namespace"] == accounting.namespace
        and (item["spec"].get("slurmKeyRef") or {}).get("name") == name
        for item in context.caches.controllers.store.values()
    )


def _secrets(context: Context, accounting: Accounting, facts: Facts) -> render.Secrets:
    """Raises MissingReferenceError and ResourceError."""
    namespace = accounting.namespace
    password = render.storage_of(accounting).password_key_ref
    return render.Secrets(
        password=context.secret_value(namespace, facts, password, "spec.storageConfig.passwordKeyRef"),
        slurm_key=_salt(context, accounting)
        or context.secret_value(namespace, facts, render.slurm_key(accounting), "spec.slurmKeyRef"),
    )


def _salt(context: Context, accounting: Accounting) -> bytes:
    """The keys that slurmdbd has, whatever its Secret was swapped for; empty if no Controller keeps them."""
    name = names.slurm_jwks(render.slurm_key(accounting).name)
    secret = context.caches.secrets.store.get(accounting.namespace, name)
    return secret.data.get(jwks.FILE, b"") if secret is not None else b""


def _readiness(context: Context, accounting: Accounting) -> Condition:
    if accounting.spec.external:
        where = accounting.spec.external_config
        if where is None:
            raise ResourceError("spec.externalConfig", "must say where the external slurmdbd is (host and port)")
        said = f"slurmdbd runs outside this Kubernetes cluster, at {where.host}:{where.port}"
        return Condition("Ready", "True", "External", said)
    name = names.accounting(accounting.name)
    ready = workload.readiness(context, STATEFUL_SETS, accounting.namespace, name)
    if ready.reason != "PodsNotReady":
        return ready
    storage = render.storage_of(accounting)
    return replace(
        ready,
        message=(
            "slurmdbd isn't ready: it starts, or waits for its database: "
            f"is {storage.host}:{storage.port} up, and does it take user {storage.username!r} with the password in "
            f"Secret {storage.password_key_ref.name!r}? `kubectl -n {accounting.namespace} logs {name}-0` tells"
        ),
    )
