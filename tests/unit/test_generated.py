"""Random texts, host keys and certificates."""

import pytest

from sidecars import generated


def test_texts_are_long_and_never_the_same() -> None:
    first, second = generated.text(64), generated.text(64)
    assert len(first) == len(second) == 64
    assert first != second
    assert first.isalnum()


async def test_host_keys_come_in_pairs() -> None:
    keys = await generated.host_keys(["ed25519"])
    assert sorted(keys) == ["ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"]
    assert keys["ssh_host_ed25519_key.pub"].startswith("ssh-ed25519 ")


async def test_what_ssh_keygen_refuses_is_reported() -> None:
    with pytest.raises(generated.GenerationError, match="ssh-keygen -t nonsense: "):
        await generated.host_keys(["nonsense"])


async def test_a_certificate_fits_its_own_key_alone() -> None:
    certificate, key = await generated.certificate("webhook.slurm.svc", 2)
    other, _ = await generated.certificate("webhook.slurm.svc", 2)
    assert await generated.fits(certificate, key)
    assert not await generated.fits(other, key)
    assert not await generated.fits("", key)
    assert not await generated.fits(certificate, "")


async def test_what_openssl_refuses_is_reported() -> None:
    with pytest.raises(generated.GenerationError, match="openssl req: "):
        await generated.certificate("two names,DNS:", 2)


async def test_a_missing_openssl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(generated.GenerationError, match="openssl is missing: install openssl"):
        await generated.fits("", "")
