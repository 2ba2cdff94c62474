"""Which errors of a pull end a run, and with which remedy."""

import pytest

from tests.cluster import pulls

IMAGE = "registry.example/team/slurmd:26.05@sha256:" + "401403" * 10 + "abcd"


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "hosts.toml",
        ),
        ("http: server gave HTTP response to HTTPS client", "Use one with HTTPS"),
        ("no match for platform in manifest: not found", "architecture"),
        ("failed to fetch anonymous token: 401 Unauthorized", "docker login"),
        ("pull access denied, repository does not exist", "docker login"),
        (f"failed to resolve reference: {IMAGE}: not found", "Run make up with REGISTRY"),
    ],
)
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_error_that_stays_has_a_remedy(reason: str, message: str, word: str) -> None:
    found = pulls.remedy(f"pod p, slurmd: {reason}: {message}")
    assert found is not None
    assert word in found


@pytest.mark.parametrize(
    "trouble",
    [
        f"pod p, slurmd: ErrImagePull: failed to pull {IMAGE}: dial tcp: i/o timeout",
        "pod p, slurmd: ErrImagePull: 503 Service Unavailable",
        "pod p, slurmd: CrashLoopBackOff: x509: certificate has expired",
    ],
)
def test_an_error_that_may_pass_or_that_is_not_one_of_a_pull_has_none(trouble: str) -> None:
    assert pulls.remedy(trouble) is None
