"""Random texts and host keys that the operator, or the role `secrets`, generates for a cluster."""

import asyncio
import secrets
import string
import tempfile
from collections.abc import Sequence
from pathlib import Path

KEY_CHARACTERS, PASSWORD_CHARACTERS = 1024, 32


class GenerationError(RuntimeError):
    """Host keys can't be generated: the reason, and the remedy."""


def text(characters: int) -> str:
    """Random letters and digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(characters))


async def host_keys(types: Sequence[str]) -> dict[str, str]:
    """New sshd host keys by file name, private ones in OpenSSH's format. Raises GenerationError if ssh-keygen fails."""
    keys: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in types:
            path = Path(folder) / f"ssh_host_{kind}_key"
            try:
                keygen = await asyncio.create_subprocess_exec(
                    *("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)),
                    stderr=asyncio.subprocess.PIPE,
                )
            except FileNotFoundError as error:
                raise GenerationError("ssh-keygen is missing: install openssh-client") from error
            try:
                _, output = await keygen.communicate()
            finally:
                if keygen.returncode is None:  # the program stops
                    keygen.kill()
                    await keygen.wait()
            if keygen.returncode != 0:
                raise GenerationError(f"ssh-keygen -t {kind}: {output.decode(errors='replace').strip()}")
            for file in (path, path.with_name(path.name + ".pub")):
                keys[file.name] = file.read_text()
    return keys
