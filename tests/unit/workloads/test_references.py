"""The index of references is complete: whatever a render asks for is in it."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from sidecars.workloads import (
    accounting,
    config,
    controller,
    loginset,
    nodeset,
    references,
    restapi,
)
from sidecars.workloads.facts import Facts, digest
from tests.support import builders

ALL_OF_CONTROLLER: dict[str, Any] = {
    **builders.KEYS,
    "nextSlurmKeyRef": {"name": "next", "key": "slurm.key"},
    "jwksKeyRef": {"name": "jwks", "key": "jwks.json"},
    "configFileRefs": [{"name": "files"}, {"name": "more-files"}],
    "prologScriptRefs": [{"name": "prolog"}],
    "epilogScriptRefs": [{"name": "epilog"}],
    "prologSlurmctldScriptRefs": [{"name": "prolog-slurmctld"}],
    "epilogSlurmctldScriptRefs": [{"name": "epilog-slurmctld"}],
}
OF_CONTROLLER = {
    *(
        ("Secret", name)
        for name in ("slurm-auth-slurm", "slurm-auth-slurm-jwks", "slurm-auth-jwt", "next")
    ),
    *(("ConfigMap", it) for it in ("jwks", "files", "more-files", "prolog", "epilog")),
    *(("ConfigMap", it) for it in ("prolog-slurmctld", "epilog-slurmctld")),
}


def found(kind: str, name: str, spec: Any) -> set[tuple[str, str]]:
    manifest = {"kind": kind, "metadata": {"name": name, "namespace": "slurm"}, "spec": spec}
    got = references.of(manifest)
    assert {reference.namespace for reference in got} <= {"slurm"}
    return {(reference.kind, reference.name) for reference in got}


@pytest.mark.parametrize(
    ("kind", "spec", "want"),
    [
        ("Controller", ALL_OF_CONTROLLER, OF_CONTROLLER),
        (
            "Accounting",
            builders.KEYS
            | {
                "jwksKeyRef": {"name": "jwks"},
                "storageConfig": {
                    "passwordKeyRef": {"name": "password", "key": "p"},
                    "tls": {
                        "caKeyRef": {"name": "ca", "key": "ca.crt"},
                        "clientSecretRef": {"name": "client"},
                    },
                },
            },
            {
                *(
                    ("Secret", it)
                    for it in (
                        "slurm-auth-slurm",
                        "slurm-auth-slurm-jwks",
                        "slurm-auth-jwt",
                        "password",
                        "ca",
                        "client",
                    )
                ),
                ("ConfigMap", "jwks"),
            },
        ),
        (
            "LoginSet",
            {"sssdConfRef": {"name": "sssd"}},
            {("Secret", "sssd"), ("Secret", "it-ssh-host-keys")},
        ),
        (
            "NodeSet",
            {"ssh": {"enabled": True, "sssdConfRef": {"name": "sssd"}}},
            {("Secret", "sssd")},
        ),
        ("NodeSet", {}, set()),
        ("RestApi", {"controllerRef": {"name": "slurm"}}, set()),
        (
            "Token",
            {"jwtHs256KeyRef": {"name": "old", "key": "k"}, "username": "ann"},
            {("Secret", "old"), ("Secret", "it-jwt-ann")},
        ),
        (
            "Token",
            {"jwtKeyRef": {"name": "jwt"}, "secretRef": {"name": "mine"}, "username": "ann"},
            {("Secret", "jwt"), ("Secret", "mine")},
        ),
    ],
)
def test_each_field_that_names_a_secret_or_config_map_is_a_reference(
    kind: str, spec: Any, want: set[tuple[str, str]]
) -> None:
    assert found(kind, "it", spec) == want


@pytest.mark.parametrize(
    "spec", [None, {}, {"slurmKeyRef": "text", "configFileRefs": {"name": 7}, "jwtKeyRef": {}}]
)
def test_what_cannot_be_read_refers_to_nothing(spec: Any) -> None:
    assert found("Controller", "it", spec) == set()


def test_what_has_no_kind_refers_to_nothing() -> None:
    assert (
        references.of({"metadata": {"namespace": "slurm", "name": "it"}, "spec": builders.KEYS})
        == frozenset()
    )


class Asked(Mapping[str, Any]):
    """Objects that all exist. Remembers which were asked for."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.names: set[str] = set()
        self._content = content

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        self.names.add(name)
        return self._content

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a render must not list objects")

    def __len__(self) -> int:
        raise AssertionError("a render must not count objects")


def test_no_render_asks_for_anything_that_is_not_in_the_index() -> None:
    keys = ("slurm.key", "jwt.key", "sssd.conf", "slurm.jwks", "password")
    secrets = Asked({key: digest(key) for key in keys})
    config_maps = Asked({"jwks.json": "{}"})
    facts: Facts = builders.facts(secrets=secrets, config_maps=config_maps)
    spec = {**ALL_OF_CONTROLLER}
    cluster = builders.controller(**spec)
    workers = builders.nodeset(ssh={"enabled": True, "sssdConfRef": builders.SSSD})
    logins = builders.loginset()
    storage = {
        "host": "db",
        "port": 3306,
        "database": "d",
        "username": "u",
        "passwordKeyRef": {"name": "password", "key": "password"},
    }
    database = builders.accounting(jwksKeyRef=spec["jwksKeyRef"], storageConfig=storage)
    config_set = config.compose(cluster, [workers], facts)
    controller.workload(cluster, config_set, facts)
    nodeset.objects(workers, cluster, facts)
    nodeset.pod_template(workers, cluster, facts)
    nodeset.revision(workers, cluster, facts, 0)
    loginset.objects(logins, cluster, facts)
    restapi.objects(builders.restapi(), cluster, facts, {})
    accounting.objects(database, facts, accounting.Secrets(password=b"p", slurm_key=b"k"))
    index = set()
    for kind, name, item in (
        ("Controller", "slurm", cluster),
        ("NodeSet", workers.name, workers),
        ("LoginSet", logins.name, logins),
        ("Accounting", "slurm", database),
    ):
        index |= found(kind, name, msgspec.to_builtins(item.spec))
    assert {("Secret", name) for name in secrets.names} | {
        ("ConfigMap", it) for it in config_maps.names
    } <= index
    assert {"slurm-auth-slurm", "slurm-auth-jwt", "slurm-sssd-conf"} <= secrets.names
    assert {"jwks", "files", "prolog", "epilog-slurmctld"} <= config_maps.names
