"""The exporter's environment."""

from pathlib import Path

import pytest

from sidecars import generated
from sidecars.contract import environment as variables
from sidecars.exporter.metrics import DEFAULT_FAMILIES, Family, NameSet
from sidecars.exporter.settings import External, Settings, parse

URL = {"SLURMRESTD_URL": "http://slurm-restapi.slurm:6820/"}


def test_the_address_alone_is_enough() -> None:
    assert parse(URL) == Settings("http://slurm-restapi.slurm:6820")
    assert parse(URL).families == DEFAULT_FAMILIES


def test_all_variables_are_read() -> None:
    found = parse(
        {
            **URL,
            "EXPORTER_TOKEN_FILE": "/token",
            "SLURM_JWT_KEY_FILE": "/key",
            "EXPORTER_USER": "metrics",
            "EXPORTER_INTERVAL_SECONDS": "10",
            "EXPORTER_FAMILIES": "nodes, job",
            "EXPORTER_NAME_SETS": "own,vpenso",
            "EXPORTER_MAX_JOBS": "5",
            "EXPORTER_PORT": "9100",
            "EXPORTER_TLS_CERTIFICATE_FILE": "/tls.crt",
            "EXPORTER_TLS_KEY_FILE": "/tls.key",
        }
    )
    assert found == Settings(
        "http://slurm-restapi.slurm:6820",
        token_file=Path("/token"),
        key_file=Path("/key"),
        user="metrics",
        interval=10,
        families=frozenset({Family.NODES, Family.JOB}),
        name_sets=frozenset({NameSet.OWN, NameSet.VPENSO}),
        most_jobs=5,
        port=9100,
        certificate=(Path("/tls.crt"), Path("/tls.key")),
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SLURMRESTD_URL", "slurm:6820", "http://HOST:PORT"),
        ("EXPORTER_FAMILIES", "nodes,gpus", "'gpus'"),
        ("EXPORTER_NAME_SETS", "schedmd", "own, reference, vpenso"),
        ("EXPORTER_INTERVAL_SECONDS", "0", "at least 1"),
        ("EXPORTER_INTERVAL_SECONDS", "5s", "whole number"),
        ("EXPORTER_PORT", "70000", "1 to 65535"),
        ("EXPORTER_TLS_KEY_FILE", "/k", "EXPORTER_TLS_CERTIFICATE_FILE"),
        ("EXPORTER_TLS_CERTIFICATE_FILE", "/c", "EXPORTER_TLS_KEY_FILE"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_the_remedy(
    name: str, value: str, words: str
) -> None:
    with pytest.raises(ValueError, match=name) as refused:
        parse({**URL, name: value})
    assert words in str(refused.value)


def test_the_packages_docstring_lists_each_variable() -> None:
    import sidecars.exporter

    listed = sidecars.exporter.__doc__ or ""
    for name in vars(variables):
        if name.startswith("EXPORTER_"):
            assert f"| {name} |" in listed


EXTERNAL = {
    **URL,
    "EXPORTER_NODESETS": '[{"name": "cpu", "maxReplicas": 4}]',
    "EXPORTER_EXTERNAL_METRICS_PORT": "8443",
    "EXPORTER_EXTERNAL_METRICS_CERTIFICATE_FILE": "/tls.crt",
    "EXPORTER_EXTERNAL_METRICS_KEY_FILE": "/tls.key",
    "EXPORTER_NAMESPACE": "slurm",
}


def test_external_metrics_are_served_for_the_nodesets_of_a_namespace() -> None:
    found = parse(EXTERNAL)
    assert [it.name for it in found.nodesets] == ["cpu"]
    assert found.external == External(8443, (Path("/tls.crt"), Path("/tls.key")), "slurm")
    assert parse({**EXTERNAL, "EXPORTER_NODESETS": ""}).external is None
    assert parse({**EXTERNAL, "EXPORTER_EXTERNAL_METRICS_PORT": ""}).external is None


async def test_external_metrics_can_be_for_api_servers_alone() -> None:
    authority, _ = await generated.certificate("front-proxy-ca", 2)
    names = {"EXPORTER_EXTERNAL_METRICS_CLIENT_NAMES": "front-proxy-client, other"}
    found = parse({**EXTERNAL, **names, "EXPORTER_EXTERNAL_METRICS_CLIENT_CA": authority}).external
    assert found is not None
    assert found.client_ca == authority.strip()
    assert found.client_names == {"front-proxy-client", "other"}
    with pytest.raises(
        ValueError, match=r"CLIENT_NAMES is 'front-proxy-client, other': it needs .*CLIENT_CA"
    ):
        parse({**EXTERNAL, **names})
    for garbage in (
        "garbage",
        "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----",
        "\x1b\u00e4",
    ):
        with pytest.raises(
            ValueError, match=r"CLIENT_CA is .*requestheader-client-ca-file"
        ) as raised:
            parse({**EXTERNAL, "EXPORTER_EXTERNAL_METRICS_CLIENT_CA": garbage})
        assert str(raised.value).isprintable()


@pytest.mark.parametrize("name", ["EXPORTER_NAMESPACE", "EXPORTER_EXTERNAL_METRICS_KEY_FILE"])
def test_external_metrics_without_a_certificate_or_a_namespace_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        parse({**EXTERNAL, name: ""})
