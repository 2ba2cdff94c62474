"""Why a Kubernetes node can't pull an image, and what to do about it."""

import re
from collections.abc import Mapping

REASONS = ("ErrImagePull", "ImagePullBackOff")
"""The reasons for which a container waits for its image."""

_REMEDIES: Mapping[str, str] = {
    r"x509|certificate": "The Kubernetes nodes don't trust the registry's certificate. Add the "
    "certificate of its authority to the container runtime of each node: "
    "/etc/containerd/certs.d/HOST/hosts.toml for containerd, "
    "/etc/containers/certs.d/HOST/ca.crt for CRI-O, or the settings of your Kubernetes "
    "distribution.",
    r"HTTP response to HTTPS client": "The registry answers the Kubernetes nodes with HTTP. Use "
    "one with HTTPS, or allow it in the container runtime of each node.",
    r"no match for platform": "The image is not for the architecture of the Kubernetes node. Run "
    "make up on a host with its architecture.",
    (
        r"\b40[13]\b|unauthori[sz]ed|forbidden|denied|authentication required"
    ): "The registry refuses the Kubernetes nodes. Log in on this host with a password that may "
    "pull (docker login), or name a Secret of your own in global.imagePullSecrets of VALUES.",
    r"not found|manifest unknown": "The registry doesn't have the image. Run make up with "
    "REGISTRY, which pushes it.",
}
"""A pattern of the error, and its remedy. Errors that may pass are not listed."""


def remedy(trouble: str) -> str | None:
    """The remedy for a container, given why it isn't well. None: no pull fails, or one that may
    succeed later.
    """
    if not any(reason in trouble for reason in REASONS):
        return None
    return next(
        (text for pattern, text in _REMEDIES.items() if re.search(pattern, trouble, re.IGNORECASE)),
        None,
    )
