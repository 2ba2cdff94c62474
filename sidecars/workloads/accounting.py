"""slurmdbd: its configuration, Secret, Service and StatefulSet."""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sidecars.contract import manifest, ports
from sidecars.slurm import conf
from sidecars.workloads import assembly, names, slurm_conf_lines, users
from sidecars.workloads.assembly import text
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import (
    Accounting,
    Controller,
    DatabaseTLS,
    Json,
    KeySelector,
    Manifest,
    ResourceError,
    StorageConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What the render needs in the clear: the database's password, and slurm.key, which only salts
    a hash.
    """

    password: bytes = field(repr=False)
    slurm_key: bytes = field(repr=False)


def slurmdbd_conf(accounting: Accounting, password: bytes, *, ipv6: bool = False) -> str:
    """slurmdbd.conf (https://slurm.schedmd.com/slurmdbd.conf.html): our lines, then the user's,
    which win.

    A line break that ends the password is left out: it is the editor's. Raises ResourceError, which
    never shows the password, for characters that a line can't contain.
    """
    storage = storage_of(accounting)
    jwks = ",jwks=/etc/slurm/jwks.json" if accounting.spec.jwks_key_ref else ""
    lists = {
        "AuthAltParameters": f"jwt_key=/etc/slurm/jwt.key{jwks}",
        "AuthInfo": "use_client_ids",
        **(slurm_conf_lines.IPV6 if ipv6 else {}),
    }
    if storage.tls is not None:
        lists["StorageParameters"] = ",".join(
            f"{option}=/etc/slurm/{file}" for option, file, _, _ in _certificates(storage.tls)
        )
    extra = accounting.spec.extra_conf
    try:
        merged = conf.merge_lists(lists, conf.parse(extra))
    except conf.ConfError as error:
        raise ResourceError("spec.extraConf", str(error)) from error
    return _compose(
        [
            [
                "### GENERAL ###",
                f"DbdHost={names.accounting(accounting.name)}-0",
                f"DbdPort={ports.SLURMDBD}",
                "SlurmUser=slurm",
            ],
            [
                "### PLUGINS & PARAMETERS ###",
                "AuthType=auth/slurm",
                "AuthAltTypes=auth/jwt",
                *(f"{key}={value}" for key, value in lists.items()),
            ],
            ["### STORAGE ###", *_storage(storage, password)],
            # slurmdbd runs in the foreground and logs to the pod's log.
            ["### LOGGING ###", "LogFile=/dev/null"],
            ["### EXTRA CONFIG ###", extra.rstrip("\n")] if extra.strip() else [],
            [
                "### MERGED CONFIG ###",
                *(conf.render(key, value) for key, value in sorted(merged.items())),
            ]
            if merged
            else [],
        ]
    )


def objects(
    accounting: Accounting, facts: Facts, secrets: Secrets, controllers: Iterable[Controller] = ()
) -> list[Manifest]:
    """Secret, Service and StatefulSet, in the order to apply them; nothing for an external
    slurmdbd.

    `controllers`: those that use it. slurmdbd gets the users of the first that declares some.

    Raises ResourceError for an Accounting that can't be rendered and MissingReferenceError for one
    whose references don't exist yet.
    """
    if accounting.spec.external:
        return []
    slurm, jwt, jwks = slurm_key(accounting), _jwt_key(accounting), accounting.spec.jwks_key_ref
    declaring = users.first_declaring(controllers)
    text_of_conf = slurmdbd_conf(accounting, secrets.password, ipv6=facts.site.ipv6)
    rendered = facts.site.workloads.render(
        "slurmdbd",
        users.overlays(declaring),
        {
            "name": accounting.name,
            "conf": base64.b64encode(text_of_conf.encode()).decode(),
            # Whoever may read StatefulSets must not be able to try out passwords: the hash is
            # keyed.
            "confHash": hmac.new(
                secrets.slurm_key, text_of_conf.encode(), hashlib.sha256
            ).hexdigest(),
            "slurmKeySecret": slurm.name,
            "slurmKeyKey": slurm.key,
            "slurmJwksSecret": names.slurm_jwks(slurm.name),
            "slurmKeyHash": facts.slurm_keys(slurm, "spec.slurmKeyRef"),
            "jwtKeySecret": jwt.name,
            "jwtKeyKey": jwt.key,
            "jwtKeyHash": facts.secret(jwt, "spec.jwtKeyRef"),
            "jwksSource": _jwks_source(jwks, facts) if jwks else None,
            "databaseTlsSources": _tls_sources(storage_of(accounting).tls, facts),
            **users.variables(declaring),
        },
    )
    stateful_set = assembly.find(rendered, "StatefulSet")
    stateful_set["spec"]["template"] = assembly.pod_template(
        stateful_set["spec"]["template"],
        accounting,
        accounting.spec.template,
        {"slurmdbd": accounting.spec.slurmdbd},
    )
    return [
        assembly.owned(assembly.find(rendered, "Secret"), accounting),
        assembly.service(assembly.find(rendered, "Service"), accounting, accounting.spec.service),
        assembly.owned(stateful_set, accounting),
    ]


def slurm_key(accounting: Accounting) -> KeySelector:
    """Return the Secret key of auth/slurm. Raises ResourceError when the Accounting names none."""
    if accounting.spec.slurm_key_ref is None:
        raise ResourceError("spec.slurmKeyRef", "must name the Secret with Slurm's key")
    return accounting.spec.slurm_key_ref


def storage_of(accounting: Accounting) -> StorageConfig:
    """Return the database. Raises ResourceError when the Accounting names none."""
    if accounting.spec.storage_config is None:
        raise ResourceError("spec.storageConfig", "must describe slurmdbd's database")
    return accounting.spec.storage_config


def _jwt_key(accounting: Accounting) -> KeySelector:
    if accounting.jwt_key_ref is None:
        raise ResourceError(
            "spec.jwtKeyRef", "must name the Secret with the key that signs Slurm's tokens"
        )
    return accounting.jwt_key_ref


def _jwks_source(jwks: KeySelector, facts: Facts) -> Json:
    facts.config_map(jwks, "spec.jwksKeyRef")  # slurmdbd doesn't start without it
    return {"configMap": {"name": jwks.name, "items": [{"key": jwks.key, "path": manifest.JWKS}]}}


def _certificates(tls: DatabaseTLS) -> Iterator[tuple[str, str, KeySelector, str]]:
    """Yield the option of StorageParameters, the file, the Secret and the field of each certificate
    and key.
    """
    place = "spec.storageConfig.tls"
    yield "SSL_CA", "database-ca.crt", tls.ca_key_ref, f"{place}.caKeyRef"
    if tls.client_secret_ref is not None:
        name, place = tls.client_secret_ref.name, f"{place}.clientSecretRef"
        yield "SSL_CERT", "database.crt", KeySelector(name=name, key="tls.crt"), place
        yield "SSL_KEY", "database.key", KeySelector(name=name, key="tls.key"), place


def _tls_sources(tls: DatabaseTLS | None, facts: Facts) -> list[Json]:
    """Return the sources of the files. slurmdbd reads them at each connection to the database."""
    found: list[Json] = []
    for _, file, selector, place in _certificates(tls) if tls is not None else ():
        facts.secret(selector, place)
        items = [{"key": selector.key, "path": file}]
        found.append({"secret": {"name": selector.name, "items": items}})
    return found


def _storage(storage: StorageConfig, password: bytes) -> list[str]:
    place = "spec.storageConfig"
    selector = storage.password_key_ref
    try:
        line = conf.render("StoragePass", password.decode().removesuffix("\n").removesuffix("\r"))
    except ValueError:  # its text could show the password
        problem = (
            f"the password in key {selector.key!r} of Secret {selector.name!r} is empty, or has "
            "what a line of slurmdbd.conf can't contain: a line break, a control character, or a "
            "quote beside a space or `#`; choose another password"
        )
        raise ResourceError(f"{place}.passwordKeyRef", problem) from None
    return [
        "StorageType=accounting_storage/mysql",
        host_line(storage),
        f"StoragePort={storage.port}",
        *(
            [_line("StorageUser", storage.username, f"{place}.username")]
            if storage.username
            else []
        ),
        _line("StorageLoc", storage.database, f"{place}.database"),
        line,
    ]


def host_line(storage: StorageConfig) -> str:
    """Return the line of slurmdbd.conf that names the database's host. Raises ResourceError."""
    return _line("StorageHost", storage.host, "spec.storageConfig.host")


def _line(key: str, value: str, place: str) -> str:
    try:
        return conf.render(key, text(value, place))
    except ValueError as error:
        raise ResourceError(place, str(error)) from error


def _compose(sections: Iterable[Sequence[str]]) -> str:
    return "".join("#\n" + "".join(f"{line}\n" for line in lines) for lines in sections if lines)
