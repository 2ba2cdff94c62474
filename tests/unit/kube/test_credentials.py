"""Credentials: what is read when, and what the error for a bad piece of them names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import CredentialsError, load_credentials
from tests.unit.kube.kubeconfigs import B64, SECRET, Clock, kubeconfig, token, write

if TYPE_CHECKING:
    from pathlib import Path


def test_a_token_is_sent_and_never_printed(tmp_path: Path) -> None:
    credentials = load_credentials(write(tmp_path, kubeconfig({"token": SECRET})))
    assert credentials.server == "http://127.0.0.1:1"
    assert token(credentials) == f"Bearer {SECRET}"
    assert SECRET not in repr(credentials)


async def test_a_token_file_is_read_again_after_a_minute_and_after_a_refusal(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, "one\n", "token")
    clock = Clock()
    credentials = clock.give(load_credentials(write(tmp_path, kubeconfig({"tokenFile": "token"}))))
    assert (await credentials.access()).authorization == "Bearer one"
    file.write_text("two")
    clock.now = 59
    assert (await credentials.access()).authorization == "Bearer one"
    clock.now = 60
    assert (await credentials.access()).authorization == "Bearer two"
    file.write_text("three")
    credentials.invalidate()
    assert (await credentials.access()).authorization == "Bearer three"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "can't read"), ("", "is empty"), ("a\nb", "no HTTP header may"), ("é", "no HTTP")],
)
def test_a_bad_token_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        write(tmp_path, content, "token")
    credentials = load_credentials(write(tmp_path, kubeconfig({"tokenFile": "token"})))
    with pytest.raises(CredentialsError, match=message):
        token(credentials)


WITHOUT_TLS: dict[str, Any] = {"server": "https://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({}, {"certificate-authority-data": B64}, "the certificate authority is not PEM"),
        (
            {"client-certificate-data": B64, "client-key-data": B64},
            {},
            "certificate and key are not a PEM pair",
        ),
        (
            {},
            {"certificate-authority": "ca.crt"},
            "can't read the certificate authority file .*ca.crt",
        ),
    ],
)
def test_certificates_that_are_none_are_named(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str
) -> None:
    credentials = load_credentials(write(tmp_path, kubeconfig(user, **WITHOUT_TLS, **cluster)))
    with pytest.raises(CredentialsError, match=message):
        token(credentials)
