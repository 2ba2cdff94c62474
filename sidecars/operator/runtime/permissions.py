"""Watched namespaces whose objects the operator may not read. Nothing is decided there, and no
other namespace waits.

The chart grants a Role in each watched namespace. It is missing in a namespace that was deleted and
created again.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from sidecars.kube import Reflector
from sidecars.operator.runtime.caches import Caches
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready

RETRY_SECONDS = 10.0


def unreadable(caches: Caches) -> dict[str, str]:
    """Return the namespaces in which the operator lacks rights, and for each what it lacks and the
    remedy.

    A namespace that is being deleted or does not exist needs none.
    """
    lacking: dict[str, set[str]] = {}
    for reflector in caches:
        for namespace, leaving in reflector.refused.items():
            if not leaving:
                lacking.setdefault(namespace, set()).add(reflector.resource.plural)
    return {namespace: _message(namespace, lacking[namespace]) for namespace in sorted(lacking)}


def _message(namespace: str, plurals: set[str]) -> str:
    return (
        f"the operator may not list {', '.join(sorted(plurals))} in namespace {namespace} and "
        f"changes nothing there: run helm upgrade for the operator's release with {namespace} in "
        "operator.namespaces, which grants a Role"
    )


def when_readable(
    runtime: Runtime, cache: Reflector[Any], reconcile: Callable[[Key], Awaitable[float | None]]
) -> Callable[[Key], Awaitable[float | None]]:
    """`reconcile` for objects of `cache` whose namespace can be read. The condition `Ready` of
    others names why not.

    In a namespace that is being deleted, objects that are being deleted are reconciled too: their
    finalizers are removed without the Role, which is gone.
    """
    reflectors = tuple(runtime.caches)

    async def one_pass(key: Key) -> float | None:
        namespace, name = key
        refused = [it for it in reflectors if namespace in it.refused]
        found = cache.store.get(namespace, name) if refused else None
        if found is None:
            return await reconcile(key)
        if isinstance(found, dict):
            if found["metadata"].get("deletionTimestamp") and all(
                it.refused[namespace] for it in refused
            ):
                return await reconcile(key)
            message = _message(namespace, {it.resource.plural for it in refused})
            await runtime.status.report(
                cache.resource, found, [Condition("Ready", "False", Ready.FORBIDDEN, message)]
            )
        return RETRY_SECONDS

    return one_pass
