"""One pass over one Accounting."""

from sidecars.custom_resources import ACCOUNTINGS
from sidecars.kube import Manifest
from sidecars.operator.accounting import observe
from sidecars.operator.keys import distribution, generation
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import order
from sidecars.policy import upgrades
from sidecars.workloads import accounting as render
from sidecars.workloads.resources import Accounting, ResourceError, read


async def reconcile(runtime: Runtime, key: Key) -> None:
    """Bring slurmdbd to what the Accounting describes; report."""
    manifest = runtime.caches.accountings.store.get(*key)
    if manifest is None or manifest["metadata"].get("deletionTimestamp"):
        return
    failure: NotUsableError | None = None
    try:
        accounting = read(Accounting, manifest)
        facts = await runtime.lookup.namespace_facts(accounting.namespace, manifest)
        # First, because the embedded database waits for it.
        await generation.password(runtime, accounting)
        if not accounting.spec.external and observe.shares_its_key(runtime, accounting):
            distribution.wait_for(runtime, accounting.namespace, render.slurm_key(accounting))

        def objects() -> list[Manifest]:
            if accounting.spec.external:
                return []
            secrets = observe.secrets(runtime, accounting, facts)
            return render.objects(accounting, facts, secrets, runtime.lookup.controllers_of(*key))

        with workload.usable():
            rendered = objects()
        blocked = order.arrange(runtime, rendered, "slurmdbd", upgrades.NOTHING)
        await workload.apply_all(runtime, manifest, "Accounting", lambda: rendered)
        ready = blocked.condition if blocked is not None else observe.readiness(runtime, accounting)
    except (NotUsableError, ResourceError) as error:
        failure = error if isinstance(error, NotUsableError) else None
        ready = workload.refused(runtime, manifest, error)
    await runtime.status.report(ACCOUNTINGS, manifest, [ready])
    workload.raise_retried(failure)
