"""Kubeconfigs and service accounts: what is found, and what the error for a bad one names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import CredentialsError, load_credentials
from sidecars.kube.kubeconfig import from_service_account
from tests.unit.kube.kubeconfigs import B64, SECRET, kubeconfig, token, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        (
            {},
            {"certificate-authority-data": "%"},
            "cluster 'c': certificate-authority-data is not base64",
        ),
        ({"client-certificate-data": B64}, {}, "user 'c': client-key .* is missing"),
        ({"client-key": "x"}, {}, "user 'c': client-certificate .* is missing"),
        ({"username": "u", "password": SECRET}, {}, "user 'c': username is not supported"),
        ({"auth-provider": {"name": "gcp"}}, {}, "user 'c': auth-provider is not supported"),
        ({}, {"proxy-url": "http://proxy"}, "cluster 'c': proxy-url is not supported"),
        ({}, {"server": "127.0.0.1:6443"}, "server is '127.0.0.1:6443', not a URL"),
        ({}, {"server": "https://"}, "server is 'https://', not a URL"),
        ({}, {"server": "https://host:99999"}, "server is 'https://host:99999', not a URL"),
        ({}, {"server": "https://[::1"}, r"server is 'https://\[::1', not a URL"),
        ({}, {"server": 6443}, r"Expected `str`, got `int` - at `\$.clusters\[0\].cluster.server`"),
        ({"token": 7}, {}, r"Expected `str \| null`, got `int` - at `\$.users\[0\].user.token`"),
        (
            {"exec": {"command": "x"}},
            {},
            r"missing required field `apiVersion` - at `\$.users\[0\].user.exec`",
        ),
        (
            {"exec": {"command": "x", "apiVersion": "v1", "interactiveMode": "Always"}},
            {},
            "exec.interactiveMode is Always",
        ),
        (
            {"exec": {"command": "x", "apiVersion": "v1", "interactiveMode": "Sometimes"}},
            {},
            r"Invalid enum value 'Sometimes' - at `\$.users\[0\].user.exec.interactiveMode`",
        ),
    ],
)
def test_what_is_wrong_in_a_kubeconfig_is_named_by_file_and_field(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, kubeconfig(user, **cluster))
    with pytest.raises(CredentialsError, match=message) as error:
        load_credentials(path)
    assert str(path) in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [hush-hush", "is not YAML at line 1"),
        ("\x00", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        ("- a", "Expected `object`, got `array`"),
        ("", "Expected `object`, got `null`"),
        ("{}", "current-context is not set"),
        ("current-context: x", r"contexts has no 'x' \(it has: none\)"),
        (kubeconfig({}) | {"users": []}, "users has no 'c'"),
        (kubeconfig({}) | {"clusters": None}, "clusters has no 'c'"),
    ],
)
def test_a_kubeconfig_with_missing_parts_is_refused_and_they_are_named(
    tmp_path: Path, content: Any, message: str
) -> None:
    with pytest.raises(CredentialsError, match=message) as error:
        load_credentials(write(tmp_path, content))
    assert SECRET not in str(error.value)


def test_a_kubeconfig_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CredentialsError, match=r"kubeconfig .*nowhere: can't be read: No such file"
    ):
        load_credentials(tmp_path / "nowhere")
    path = tmp_path / "binary"
    path.write_bytes(b"a: \xc3\x28")
    with pytest.raises(CredentialsError, match="is not YAML"):
        load_credentials(path)


def test_the_current_context_decides(tmp_path: Path) -> None:
    config = kubeconfig({"token": "one"})
    config["users"].append({"name": "other", "user": {"token": "two"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "other"}})
    config["current-context"] = "other"
    assert token(load_credentials(write(tmp_path, config))) == "Bearer two"


def test_the_files_of_kubeconfig_are_merged_and_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = write(tmp_path, kubeconfig({"token": "one"}), "one")
    two = write(tmp_path, kubeconfig({"token": "two"}, name="d"), "two")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'nowhere'}:{one}:{two}")
    assert token(load_credentials()) == "Bearer one"
    monkeypatch.setenv("KUBECONFIG", f"{two}:{one}")
    assert token(load_credentials()) == "Bearer two"


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    write(tmp_path, "secret", "token")
    credentials = from_service_account(tmp_path)
    assert credentials.server == "https://[fd00::1]:443"
    with pytest.raises(
        CredentialsError, match=r"can't read the certificate authority file .*ca.crt"
    ):
        token(credentials)


def test_a_pod_without_a_mounted_token_is_refused_with_the_path_of_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(CredentialsError, match=rf"no {tmp_path}/token\); set KUBECONFIG"):
        from_service_account(tmp_path)


def test_without_any_credentials_the_error_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(
        CredentialsError, match=r"KUBERNETES_SERVICE_HOST is not set.*set KUBECONFIG"
    ):
        from_service_account(tmp_path)
