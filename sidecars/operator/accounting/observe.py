"""What a pass over one Accounting looks at."""

from dataclasses import replace

from sidecars.contract import project
from sidecars.contract.manifest import SLURM_JWKS
from sidecars.kube import STATEFUL_SETS
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.workloads import accounting as render
from sidecars.workloads import names
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Accounting, ResourceError


def shares_its_key(runtime: Runtime, accounting: Accounting) -> bool:
    """Return whether a Controller keeps the keys that slurmdbd is given. Without one it has
    slurm.key alone.
    """
    name = render.slurm_key(accounting).name
    return any(
        item["metadata"]["namespace"] == accounting.namespace
        and (item["spec"].get("slurmKeyRef") or {}).get("name") == name
        for item in runtime.caches.controllers.store.values()
    )


def secrets(runtime: Runtime, accounting: Accounting, facts: Facts) -> render.Secrets:
    """Read the secrets that slurmdbd.conf is rendered from. Raises MissingReferenceError,
    ResourceError and NotUsableError.
    """
    namespace = accounting.namespace
    password = render.storage_of(accounting).password_key_ref
    return render.Secrets(
        password=runtime.lookup.secret_value(
            namespace, facts, password, "spec.storageConfig.passwordKeyRef"
        ),
        slurm_key=_salt(runtime, accounting)
        or runtime.lookup.secret_value(
            namespace, facts, render.slurm_key(accounting), "spec.slurmKeyRef"
        ),
    )


def _salt(runtime: Runtime, accounting: Accounting) -> bytes:
    """Return the keys that slurmdbd has, whatever its Secret was swapped for, empty if no
    Controller keeps them.
    """
    name = names.slurm_jwks(render.slurm_key(accounting).name)
    secret = runtime.contents.secret(accounting.namespace, name)
    return secret.data.get(SLURM_JWKS, b"") if secret is not None else b""


def readiness(runtime: Runtime, accounting: Accounting) -> Condition:
    """Return the condition `Ready`. Raises ResourceError for an external slurmdbd without an
    address.
    """
    if accounting.spec.external:
        where = accounting.spec.external_config
        if where is None:
            raise ResourceError(
                "spec.externalConfig", "must say where the external slurmdbd is (host and port)"
            )
        message = f"slurmdbd runs outside this Kubernetes cluster, at {where.host}:{where.port}"
        return Condition("Ready", "True", Ready.EXTERNAL, message)
    name = names.accounting(accounting.name)
    ready = workload.readiness(runtime, STATEFUL_SETS, accounting.namespace, name)
    if ready.reason is not Ready.PODS_NOT_READY:
        return ready
    storage = render.storage_of(accounting)
    remedy = project.remedy([str(accounting.spec.slurmdbd.get("image", ""))])
    return replace(
        ready,
        message=(
            "slurmdbd isn't ready: it is starting, or can't use its database. Check that "
            f"{storage.host}:{storage.port} answers, and accepts user {storage.username!r} with "
            f"the password in Secret {storage.password_key_ref.name!r}"
            + (
                ", and that its certificate is signed by an authority in Secret "
                f"{storage.tls.ca_key_ref.name!r}"
                if storage.tls is not None
                else ""
            )
            + "; see `kubectl -n "
            f"{accounting.namespace} logs {name}-0`"
            + (f". If it shows ErrImagePull: {remedy}" if remedy else "")
        ),
    )
