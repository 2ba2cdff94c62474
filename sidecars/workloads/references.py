"""The Secrets and ConfigMaps that a custom resource refers to by name.

Read from the plain JSON: a resource that can't be used for some fault elsewhere still waits for
what it refers to.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from sidecars.workloads import names

SECRETS = {
    "Controller": ("slurmKeyRef", "nextSlurmKeyRef", "jwtKeyRef", "jwtHs256KeyRef", "usersRef"),
    "Accounting": (
        *("slurmKeyRef", "jwtKeyRef", "jwtHs256KeyRef", "storageConfig.passwordKeyRef"),
        *(f"storageConfig.tls.{name}" for name in ("caKeyRef", "clientSecretRef")),
    ),
    "LoginSet": ("sssdConfRef",),
    "NodeSet": ("ssh.sssdConfRef",),
    "Token": ("jwtKeyRef", "jwtHs256KeyRef", "secretRef"),
}
"""Fields of `spec` that name a Secret, by kind."""

CONFIG_MAPS = {
    "Controller": (
        "jwksKeyRef",
        "declaredAccountsRef",
        "configFileRefs",
        "prologScriptRefs",
        "epilogScriptRefs",
        "prologSlurmctldScriptRefs",
        "epilogSlurmctldScriptRefs",
    ),
    "Accounting": ("jwksKeyRef",),
}
"""Fields of `spec` that name a ConfigMap, or a list of them, by kind."""


Kind = Literal["Secret", "ConfigMap"]


class Reference(NamedTuple):
    """A Secret or ConfigMap, whether it exists or not."""

    kind: Kind
    namespace: str
    name: str


def of(manifest: dict[str, Any]) -> frozenset[Reference]:
    """Return what the custom resource refers to, including the Secrets whose names derive from its
    own or from a reference.
    """
    kind, metadata = manifest.get("kind", ""), manifest["metadata"]
    namespace, spec = metadata["namespace"], manifest.get("spec") or {}
    secrets = {name for path in SECRETS.get(kind, ()) for name in _names(spec, path)}
    if kind in {"Controller", "Accounting"}:
        secrets |= {names.slurm_jwks(name) for name in _names(spec, "slurmKeyRef")}
    elif kind == "LoginSet":
        secrets.add(names.ssh_host_keys(metadata["name"]))
    elif kind == "Token" and not list(_names(spec, "secretRef")):
        secrets.add(names.token_secret(metadata["name"], spec.get("username") or ""))
    config_maps = {name for path in CONFIG_MAPS.get(kind, ()) for name in _names(spec, path)}
    return frozenset(
        {
            *(Reference("Secret", namespace, name) for name in secrets),
            *(Reference("ConfigMap", namespace, name) for name in config_maps),
        }
    )


def _names(spec: Any, path: str) -> Iterator[str]:
    """Yield the non-empty names in a reference, or in a list of them. Yield none where the path
    leads nowhere.
    """
    found = spec
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    for item in found if isinstance(found, list) else [found]:
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            yield name
