"""Login nodes: sshd configuration, host keys, Service and Deployment."""

from collections.abc import Mapping

from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, LoginSet, Manifest

HOST_KEY_TYPES = ("rsa", "ecdsa", "ed25519")


def host_keys_secret(loginset: LoginSet, keys: Mapping[str, str]) -> Manifest:
    """The immutable Secret with the host keys, to be created once and never changed.

    `keys` maps file names as sshd wants them (`ssh_host_rsa_key`, `ssh_host_rsa_key.pub`, likewise for every one of
    HOST_KEY_TYPES; private keys in OpenSSH's PEM) to their text. Raises ValueError when one is missing.
    """
    raise NotImplementedError


def objects(loginset: LoginSet, controller: Controller, facts: Facts) -> list[Manifest]:
    """ConfigMap, Service and Deployment, in the order to apply them.

    `facts.secrets` must hold the host keys' Secret (names.ssh_host_keys). Raises ResourceError, MissingReferenceError.
    """
    raise NotImplementedError
