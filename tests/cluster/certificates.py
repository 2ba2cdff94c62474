"""The certificates of a local cluster: one authority, serving and client certificates, and the
service-account keys.

Created with the openssl program; kept with the cluster's state. Not for anything but a local
cluster.
"""

import base64
import secrets
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path

from tests.cluster import cache
from tests.cluster.commands import run

_DAYS = "365"


class Authority:
    """A certificate authority in `folder`. Every file is created once; private keys are readable by
    their owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        if not self.certificate.exists():
            key = self._key("ca")
            made = run(
                [
                    "openssl",
                    "req",
                    "-x509",
                    "-new",
                    "-key",
                    key,
                    "-subj",
                    "/CN=slurm-charts-local",
                    "-days",
                    _DAYS,
                    "-addext",
                    "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
                ]
            )
            cache.write(self.certificate, made)

    @property
    def certificate(self) -> Path:
        """The authority's own certificate."""
        return self.folder / "ca.crt"

    def issue(
        self, name: str, user: str, groups: Iterable[str] = (), hosts: Iterable[str] = ()
    ) -> tuple[Path, Path]:
        """Certificate and key files for `user`; with `hosts` (DNS names and addresses) it serves as
        well.
        """
        certificate = self.folder / f"{name}.crt"
        key = self._key(name)
        if not certificate.exists():
            subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
            request = run(["openssl", "req", "-new", "-key", key, "-subj", subject])
            extensions = self.folder / f".{name}.ext"
            names = [f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts]
            lines = [
                "basicConstraints=CA:FALSE",
                "keyUsage=critical,digitalSignature,keyEncipherment",
            ]
            lines.append("extendedKeyUsage=clientAuth" + (",serverAuth" if names else ""))
            if names:
                lines.append(f"subjectAltName={','.join(names)}")
            extensions.write_text("\n".join(lines) + "\n")
            made = run(
                [
                    "openssl",
                    "x509",
                    "-req",
                    "-CA",
                    self.certificate,
                    "-CAkey",
                    self.folder / "ca.key",
                    "-days",
                    _DAYS,
                    "-set_serial",
                    f"0x{secrets.token_hex(12)}",
                    "-extfile",
                    extensions,
                ],
                stdin=request,
            )
            extensions.unlink()
            cache.write(certificate, made)
        return certificate, key

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """Files of a public and a private key that no certificate is created for."""
        public = self.folder / f"{name}.pub"
        private = self._key(name)
        if not public.exists():
            cache.write(public, run(["openssl", "pkey", "-in", private, "-pubout"]))
        return public, private

    def _key(self, name: str) -> Path:
        key = self.folder / f"{name}.key"
        if not key.exists():
            made = run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"])
            cache.write(key, made, mode=0o600)
        return key


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def kubeconfig(
    server: str, authority: Path, certificate: Path, key: Path, cluster: str
) -> Mapping[str, object]:
    """A kubeconfig that contains its certificates."""

    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": server, "certificate-authority-data": inline(authority)},
            }
        ],
        "users": [
            {
                "name": certificate.stem,
                "user": {
                    "client-certificate-data": inline(certificate),
                    "client-key-data": inline(key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": certificate.stem}}],
    }
