"""Keys and passwords that the operator generates: once each, into Secrets without data that ask for
it.

A chart that is rendered without access to the cluster can't know which keys exist. So it renders a
Secret without data and with the annotation names.GENERATE, which the operator fills. What it has
filled, it never changes.
"""

import base64
import contextlib
from collections.abc import Sequence

from sidecars import generated
from sidecars.kube import SECRETS, STATEFUL_SETS, Conflict, Manifest, NotFound
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.reasons import Ready
from sidecars.workloads import accounting as slurmdbd
from sidecars.workloads import controller as slurmctld
from sidecars.workloads import names
from sidecars.workloads.references import Reference
from sidecars.workloads.resources import Accounting, Controller, KeySelector


async def keys(runtime: Runtime, controller: Controller) -> None:
    """Generate the keys of a Slurm cluster. The contents of the Secrets have been read.

    Raises NotUsableError while a key is missing that was asked for, ApiError, and ResourceError.
    """
    if controller.spec.external:
        return
    namespace = controller.namespace
    slurm_key, jwt_key = slurmctld.slurm_key(controller), slurmctld.jwt_key(controller)
    if not any(_asks(runtime, namespace, selector) for selector in (slurm_key, jwt_key)):
        return
    # A StatefulSet of SchedMD's operator, which is yet to be taken over, uses its keys too.
    live = await workload.find(runtime, STATEFUL_SETS, namespace, names.controller(controller.name))
    distributed = runtime.contents.exists(
        Reference("Secret", namespace, names.slurm_jwks(slurm_key.name))
    )
    runs = bool(runtime.caches.slurmctld_pods.store.by("controller", (namespace, controller.name)))
    made = [
        await _generate(
            runtime, namespace, selector, generated.KEY_CHARACTERS, used=used, immutable=True
        )
        for selector, used in (
            (slurm_key, distributed or runs or live is not None),
            # A slurmctld whose StatefulSet doesn't exist may have any key.
            (jwt_key, _mounts(live, jwt_key.name) if live is not None else runs),
        )
    ]
    _wait_for(made)


async def password(runtime: Runtime, accounting: Accounting) -> None:
    """Generate the password of slurmdbd's database, like `keys`."""
    if accounting.spec.external:
        return
    storage = slurmdbd.storage_of(accounting)
    conf = runtime.caches.own_secrets.store.get(
        accounting.namespace, names.accounting(accounting.name)
    )
    lines = (
        conf.data.get("slurmdbd.conf", b"").decode(errors="replace").splitlines()
        if conf is not None
        else []
    )
    used = slurmdbd.host_line(storage) in lines
    selector = storage.password_key_ref
    characters = generated.PASSWORD_CHARACTERS
    _wait_for(
        [
            await _generate(
                runtime, accounting.namespace, selector, characters, used=used, immutable=False
            )
        ]
    )


async def _generate(
    runtime: Runtime,
    namespace: str,
    selector: KeySelector,
    characters: int,
    *,
    used: bool,
    immutable: bool,
) -> str:
    """Fill the Secret; what was generated, or empty. `used`: whether a former value is in use,
    which is then lost.
    """
    secret = runtime.contents.secret(namespace, selector.name)
    if secret is None or not _asks(runtime, namespace, selector):
        return ""
    if used:
        raise NotUsableError(
            Ready.KEY_LOST,
            f"Secret {selector.name!r} has lost {selector.key!r}, which the cluster uses. Restore "
            "the Secret from a backup: none is generated, because the daemons have the former one",
        )
    text = generated.text(characters)
    patch = {
        # Only into the very Secret that had no value.
        "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "annotations": {names.GENERATED: selector.key},
        },
        "data": {selector.key: base64.b64encode(text.encode()).decode()},
        **({"immutable": True} if immutable else {}),
    }
    # Where the cache is behind, the Secret's event wakes this resource again.
    with contextlib.suppress(Conflict, NotFound):
        await runtime.client.merge_patch(SECRETS, namespace, selector.name, patch)
    return f"{selector.key!r} in Secret {selector.name!r}"


def _asks(runtime: Runtime, namespace: str, selector: KeySelector) -> bool:
    """Return whether the Secret exists, has no value, and asks for one."""
    secret = runtime.contents.secret(namespace, selector.name)
    if secret is None or secret.immutable or selector.key in secret.data:
        return False
    return secret.metadata.annotations.get(names.GENERATE) == selector.key


def _wait_for(made: Sequence[str]) -> None:
    """Wait for the cache to show what was generated, before anything starts. Raises
    NotUsableError.
    """
    if what := " and ".join(filter(None, made)):
        raise NotUsableError(Ready.WAITING_FOR_KEYS, f"{what} is being generated")


def _mounts(live: Manifest, secret: str) -> bool:
    """Return whether the pods of a StatefulSet mount the Secret."""
    volumes = live["spec"]["template"]["spec"].get("volumes", ())
    sources = [
        source for volume in volumes for source in volume.get("projected", {}).get("sources", ())
    ]
    return any(source.get("secret", {}).get("name") == secret for source in sources)
