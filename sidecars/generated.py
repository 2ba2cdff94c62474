"""Random texts, host keys and certificates that the operator, the bridge or the role `secrets`
generates.
"""

import asyncio
import secrets
import string
import tempfile
from collections.abc import Sequence
from pathlib import Path

KEY_CHARACTERS, PASSWORD_CHARACTERS = 1024, 32


class GenerationError(RuntimeError):
    """Host keys or a certificate can't be generated: the reason, and the remedy."""


def text(characters: int) -> str:
    """Random letters and digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(characters))


async def host_keys(types: Sequence[str]) -> dict[str, str]:
    """Generate new sshd host keys. Return them by file name, private ones in OpenSSH's format.
    Raises GenerationError if ssh-keygen fails.
    """
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
                raise GenerationError(
                    f"ssh-keygen -t {kind}: {output.decode(errors='replace').strip()}"
                )
            for file in (path, path.with_name(path.name + ".pub")):
                keys[file.name] = file.read_text()
    return keys


async def certificate(host: str, days: int) -> tuple[str, str]:
    """Return a new certificate that its own key has signed, for one DNS name, and this key, as PEM.
    No file has the key.

    Clients trust it where it is itself in their list of authorities. Raises GenerationError if
    openssl fails.
    """
    key = await _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    words = [
        "req",
        "-x509",
        "-new",
        "-key",
        "/dev/stdin",
        "-days",
        str(days),
        "-subj",
        f"/CN={host.split('.')[0]}",
    ]
    for extension in (
        f"subjectAltName=DNS:{host}",
        "keyUsage=critical,digitalSignature,keyCertSign",
        "extendedKeyUsage=serverAuth",
    ):
        words += ["-addext", extension]
    return await _openssl(*words, stdin=key), key


async def fits(certificate: str, key: str) -> bool:
    """Return whether the key is that of the certificate. Raises GenerationError if openssl is
    missing.
    """
    try:
        public = await _openssl("x509", "-pubkey", "-noout", stdin=certificate)
        return public == await _openssl("pkey", "-pubout", stdin=key)
    except UnreadableError:
        return False


class UnreadableError(GenerationError):
    """openssl has failed."""


async def _openssl(*words: str, stdin: str = "") -> str:
    try:
        openssl = await asyncio.create_subprocess_exec(
            *("openssl", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise GenerationError("openssl is missing: install openssl") from error
    try:
        out, failure = await openssl.communicate(stdin.encode())
    finally:
        if openssl.returncode is None:  # the program stops
            openssl.kill()
            await openssl.wait()
    if openssl.returncode != 0:
        raise UnreadableError(f"openssl {words[0]}: {failure.decode(errors='replace').strip()}")
    return out.decode()
