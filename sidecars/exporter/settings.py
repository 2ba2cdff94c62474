"""The exporter's environment as one typed record; the variables are listed in the package's
docstring.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from sidecars.contract import environment as variables
from sidecars.contract import paths
from sidecars.contract.environment import number
from sidecars.contract.text import printable
from sidecars.exporter.declared import Declared, declared
from sidecars.exporter.metrics import DEFAULT_FAMILIES, Family, NameSet

W = TypeVar("W", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class External:
    """How external.metrics.k8s.io is served."""

    port: int
    certificate: tuple[Path, Path]
    namespace: str
    client_ca: str = ""
    """PEM: only clients with a certificate of this authority may read. "": all may."""
    client_names: frozenset[str] = frozenset()
    """Common names of these certificates. Empty: any."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one exporter."""

    slurmrestd_url: str
    token_file: Path | None = None
    """None: tokens are signed with the key in `key_file`."""
    key_file: Path = Path(paths.JWT_KEY)
    user: str = "slurm"
    interval: float = 30.0
    """Seconds between two reads of the same data."""
    families: frozenset[Family] = DEFAULT_FAMILIES
    name_sets: frozenset[NameSet] = frozenset({NameSet.OWN})
    most_jobs: int = 1000
    port: int = 8080
    certificate: tuple[Path, Path] | None = None
    """Certificate and key for TLS; None: plain HTTP."""
    nodesets: tuple[Declared, ...] = ()
    checks: Path | None = None
    """The folder with the results of checks; None: they are not served."""
    external: External | None = None
    """None: external.metrics.k8s.io is not served."""


def parse(environment: Mapping[str, str]) -> Settings:
    """Read the variables. Raises ValueError, which names the variable, the value and the remedy."""
    url = environment.get(variables.SLURMRESTD_URL, "")
    if not url.startswith(("http://", "https://")):
        raise ValueError(
            f"{variables.SLURMRESTD_URL} is {url!r}: give slurmrestd's address, http://HOST:PORT"
        )
    interval = number(environment, variables.EXPORTER_INTERVAL_SECONDS, 30)
    if interval < 1:
        raise ValueError(f"{variables.EXPORTER_INTERVAL_SECONDS} is 0: give at least 1 second")
    port = number(environment, variables.EXPORTER_PORT, 8080)
    if not 0 < port < 65_536:
        raise ValueError(f"{variables.EXPORTER_PORT} is {port}: give a port from 1 to 65535")
    nodesets = declared(environment.get(variables.EXPORTER_NODESETS, ""))
    token_file = environment.get(variables.EXPORTER_TOKEN_FILE)
    return Settings(
        slurmrestd_url=url.rstrip("/"),
        token_file=Path(token_file) if token_file else None,
        key_file=Path(environment.get(variables.SLURM_JWT_KEY_FILE) or paths.JWT_KEY),
        user=environment.get(variables.EXPORTER_USER) or "slurm",
        interval=float(interval),
        families=_words(environment, variables.EXPORTER_FAMILIES, Family, DEFAULT_FAMILIES),
        name_sets=_words(
            environment, variables.EXPORTER_NAME_SETS, NameSet, frozenset({NameSet.OWN})
        ),
        most_jobs=number(environment, variables.EXPORTER_MAX_JOBS, 1000),
        port=port,
        certificate=_certificate(
            environment, variables.EXPORTER_TLS_CERTIFICATE_FILE, variables.EXPORTER_TLS_KEY_FILE
        ),
        nodesets=nodesets,
        checks=Path(folder)
        if (folder := environment.get(variables.EXPORTER_CHECKS_FOLDER))
        else None,
        external=_external(environment) if nodesets else None,
    )


def _external(environment: Mapping[str, str]) -> External | None:
    port = number(environment, variables.EXPORTER_EXTERNAL_METRICS_PORT, 0)
    if not port:
        return None
    files = (
        variables.EXPORTER_EXTERNAL_METRICS_CERTIFICATE_FILE,
        variables.EXPORTER_EXTERNAL_METRICS_KEY_FILE,
    )
    certificate = _certificate(environment, *files)
    namespace = environment.get(variables.EXPORTER_NAMESPACE, "")
    if certificate is None or not namespace:
        needed = ", ".join((*files, variables.EXPORTER_NAMESPACE))
        raise ValueError(
            f"{variables.EXPORTER_EXTERNAL_METRICS_PORT} is {port}: it needs {needed} as well"
        )
    authority, names = _clients(environment)
    return External(port, certificate, namespace, authority, names)


def _clients(environment: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """Return the authority and the names of clients that may read."""
    authority = environment.get(variables.EXPORTER_EXTERNAL_METRICS_CLIENT_CA, "").strip()
    names = environment.get(variables.EXPORTER_EXTERNAL_METRICS_CLIENT_NAMES, "")
    found = frozenset(name.strip() for name in names.split(",") if name.strip())
    variable = variables.EXPORTER_EXTERNAL_METRICS_CLIENT_CA
    if found and not authority:
        raise ValueError(
            f"{variables.EXPORTER_EXTERNAL_METRICS_CLIENT_NAMES} is {names!r}: it needs "
            f"{variable} as well"
        )
    if authority:
        try:
            ssl.create_default_context(cadata=authority)
        except (ssl.SSLError, TypeError, ValueError) as error:
            source = (
                "take requestheader-client-ca-file of the ConfigMap "
                "extension-apiserver-authentication"
            )
            raise ValueError(
                f"{variable} is {printable(authority, 80)!r}, no PEM: {error}; {source}"
            ) from None
    return authority, found


def _words(
    environment: Mapping[str, str], name: str, kind: type[W], default: frozenset[W]
) -> frozenset[W]:
    words = [word.strip() for word in environment.get(name, "").split(",") if word.strip()]
    unknown = [word for word in words if word not in {str(known) for known in kind}]
    if unknown:
        raise ValueError(
            f"{name} has {unknown[0]!r}, which doesn't exist; choose from {', '.join(kind)}"
        )
    return frozenset(map(kind, words)) or default


def _certificate(
    environment: Mapping[str, str], first: str, second: str
) -> tuple[Path, Path] | None:
    certificate, key = environment.get(first, ""), environment.get(second, "")
    if bool(certificate) != bool(key):
        raise ValueError(
            f"of {first} and {second} only one is set: TLS needs a certificate and its key"
        )
    return (Path(certificate), Path(key)) if certificate else None
