"""Random texts and host keys."""

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
