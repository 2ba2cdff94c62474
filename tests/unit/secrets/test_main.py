"""Secrets are generated once, and tokens renewed: `sidecars.secrets.main`."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sidecars.kube import SECRETS, STATEFUL_SETS, Client, Manifest
from sidecars.secrets import main as role
from sidecars.secrets.main import SecretError, generate
from sidecars.slurm.tokens import claims, signed_by
from sidecars.workloads import names
from tests.support.kube_double import KubeDouble
from tests.unit.postrender.expand import streams

NOW = 1_800_000_000.0
CONTROLLER = streams.controller()


def secret(name: str, generate_key: str = "", **data: str) -> Manifest:
    encoded = {
        key.replace("_", "."): base64.b64encode(value.encode()).decode()
        for key, value in data.items()
    }
    annotations = {names.GENERATE: generate_key} if generate_key else {}
    return {
        "metadata": {"namespace": "slurm", "name": name, "annotations": annotations},
        "data": encoded,
    }


def empty_keys() -> list[Manifest]:
    return [secret("slurm-auth-slurm", "slurm.key"), secret("slurm-auth-jwt", "jwt.key")]


def full_keys() -> list[Manifest]:
    return [secret("slurm-auth-slurm", slurm_key="s"), secret("slurm-auth-jwt", jwt_key="j" * 32)]


async def run(resources: Sequence[Manifest], server: KubeDouble, now: float = NOW) -> None:
    async with Client.connect(server.credentials) as client:
        await generate(client, resources, now)


def value(server: KubeDouble, name: str, key: str) -> str:
    return base64.b64decode(server.objects(SECRETS)["slurm", name]["data"][key]).decode()


def token(**spec: Any) -> Manifest:
    reference = {"name": "slurm-auth-jwt", "key": "jwt.key"}
    return streams.custom("Token", "ci", **{"username": "ci", "jwtKeyRef": reference, **spec})


async def test_empty_keys_are_filled_once_and_can_not_be_changed() -> None:
    async with KubeDouble() as server:
        for item in empty_keys():
            server.put(SECRETS, item)
        await run([CONTROLLER], server)
        first = (
            value(server, "slurm-auth-slurm", "slurm.key"),
            value(server, "slurm-auth-jwt", "jwt.key"),
        )
        assert [len(it) for it in first] == [1024, 1024]
        assert first[0] != first[1]
        assert all(it["immutable"] for it in server.objects(SECRETS).values())
        await run([CONTROLLER], server)
        assert first == (
            value(server, "slurm-auth-slurm", "slurm.key"),
            value(server, "slurm-auth-jwt", "jwt.key"),
        )


async def test_a_key_that_running_daemons_have_is_not_replaced() -> None:
    async with KubeDouble() as server:
        for item in empty_keys():
            server.put(SECRETS, item)
        metadata = {"namespace": "slurm", "name": "slurm-controller"}
        server.put(STATEFUL_SETS, {"metadata": metadata, "status": {"readyReplicas": 1}})
        with pytest.raises(
            SecretError, match=r"has lost 'slurm\.key', which the cluster uses\. Restore the Secret"
        ):
            await run([CONTROLLER], server)
        assert server.objects(SECRETS)["slurm", "slurm-auth-slurm"]["data"] == {}


@pytest.mark.parametrize(
    ("created", "annotations", "is_lost"),
    [
        ("2026-11-23T10:00:00Z", {}, False),
        ("2026-11-23T10:00:05Z", {}, True),
        ("2026-11-23T09:00:00Z", {names.GENERATED: "slurm.key"}, True),
        ("2026-11-23T09:00:00Z", {names.GENERATED: "other"}, False),
    ],
)
async def test_a_key_of_daemons_that_restart_is_not_replaced(
    created: str, annotations: dict[str, str], is_lost: bool
) -> None:
    keys, jwt = empty_keys()
    keys["metadata"]["creationTimestamp"] = created
    keys["metadata"]["annotations"] |= annotations
    metadata = {
        "namespace": "slurm",
        "name": "slurm-controller",
        "creationTimestamp": "2026-11-23T10:00:00Z",
    }
    async with KubeDouble() as server:
        server.put(SECRETS, keys)
        server.put(
            SECRETS,
            jwt | {"metadata": jwt["metadata"] | {"creationTimestamp": "2026-11-23T09:00:00Z"}},
        )
        server.put(STATEFUL_SETS, {"metadata": metadata, "status": {"readyReplicas": 0}})
        if is_lost:
            with pytest.raises(SecretError, match=r"has lost 'slurm\.key'.*Restore the Secret"):
                await run([CONTROLLER], server)
            assert server.objects(SECRETS)["slurm", "slurm-auth-slurm"]["data"] == {}
        else:
            await run([CONTROLLER], server)
            assert len(value(server, "slurm-auth-slurm", "slurm.key")) == 1024


async def test_a_secret_that_nobody_asked_to_fill_is_an_error() -> None:
    async with KubeDouble() as server:
        with pytest.raises(
            SecretError, match="Secret slurm/slurm-auth-slurm doesn't exist: create it"
        ):
            await run([CONTROLLER], server)
        server.put(SECRETS, secret("slurm-auth-slurm"))
        with pytest.raises(SecretError, match=r"has no key 'slurm\.key': add it"):
            await run([CONTROLLER], server)


async def test_nothing_is_generated_for_daemons_elsewhere() -> None:
    external = streams.controller(external=True, externalConfig={"host": "ctld", "port": 6817})
    database = streams.accounting(external=True, externalConfig={"host": "dbd", "port": 6819})
    async with KubeDouble() as server:
        await run([external, database], server)
        assert server.objects(SECRETS) == {}


async def test_slurmdbd_gets_its_configuration_with_the_password_and_follows_it() -> None:
    async with KubeDouble() as server:
        server.put(SECRETS, secret("mariadb", "password"))
        await run([streams.accounting()], server)
        password = value(server, "mariadb", "password")
        assert (
            f"StoragePass={password}"
            in value(server, "slurm-accounting", "slurmdbd.conf").splitlines()
        )
        assert (
            "ownerReferences"
            not in server.objects(SECRETS)["slurm", "slurm-accounting"]["metadata"]
        )
        server.put(SECRETS, secret("mariadb", password="other"))
        await run([streams.accounting()], server)
        assert (
            "StoragePass=other" in value(server, "slurm-accounting", "slurmdbd.conf").splitlines()
        )


async def test_host_keys_are_made_once() -> None:
    async with KubeDouble() as server:
        await run([streams.loginset()], server)
        first = value(server, "slurm-login-slinky-ssh-host-keys", "ssh_host_ed25519_key")
        assert "OPENSSH PRIVATE KEY" in first
        await run([streams.loginset()], server)
        assert value(server, "slurm-login-slinky-ssh-host-keys", "ssh_host_ed25519_key") == first


async def test_a_token_is_signed_and_renewed_before_the_next_run_would_be_too_late() -> None:
    async with KubeDouble() as server:
        for item in full_keys():
            server.put(SECRETS, item)
        await run([token()], server)
        first = value(server, "ci-jwt-ci", "SLURM_JWT")
        assert signed_by(first, b"j" * 32)
        found = claims(first)
        assert found is not None
        assert (found.username, found.expires) == ("ci", int(NOW) + 900)
        await run([token()], server, NOW + 60)
        assert value(server, "ci-jwt-ci", "SLURM_JWT") == first
        await run([token()], server, NOW + 600)
        assert value(server, "ci-jwt-ci", "SLURM_JWT") != first


async def test_a_token_that_is_not_renewed_stays_and_one_needs_its_key() -> None:
    async with KubeDouble() as server:
        for item in full_keys():
            server.put(SECRETS, item)
        await run([token(refresh=False)], server)
        first = value(server, "ci-jwt-ci", "SLURM_JWT")
        assert server.objects(SECRETS)["slurm", "ci-jwt-ci"]["immutable"] is True
        await run([token(refresh=False)], server, NOW + 5000)
        assert value(server, "ci-jwt-ci", "SLURM_JWT") == first
        server.put(SECRETS, secret("slurm-auth-jwt"))
        with pytest.raises(SecretError, match=r"has no key 'jwt\.key': add it"):
            await run([token()], server)


def test_usage_and_what_cannot_be_read_end_with_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit) as caught:
        role.main([])
    assert caught.value.code == 2
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    file = tmp_path / "resources.json"
    file.write_text(json.dumps([CONTROLLER]))
    assert role.main([str(file)]) == 1
    assert str(tmp_path / "none") in caplog.text
