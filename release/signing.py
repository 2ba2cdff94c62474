"""The commands that sign what was published. They need the identity of the release workflow.

Pure. Programs and formats: https://docs.sigstore.dev/cosign/
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Artifact:
    """What a registry has after a release. `digest` is that of all architectures, or of the
    chart.
    """

    repository: str
    tags: tuple[str, ...]
    digest: str
    sboms: tuple[tuple[str, str], ...] = ()
    """For an image: the digest of each architecture, and the file with its software bill of
    materials.
    """

    @property
    def reference(self) -> str:
        """The repository with the digest, which no later push changes."""
        return f"{self.repository}@{self.digest}"


def commands(artifacts: Iterable[Artifact], checksums: str) -> list[list[str]]:
    """Return all commands, in the order in which they must run. `checksums` is the file with the
    checksums of the release.
    """
    found = []
    for artifact in artifacts:
        # --recursive: the images of all architectures, which a container runtime may name by their
        # own digests.
        recursive = ["--recursive"] if artifact.sboms else []
        found.append(["cosign", "sign", "--yes", *recursive, artifact.reference])
        for digest, file in artifact.sboms:
            place = f"{artifact.repository}@{digest}"
            found.append(
                ["cosign", "attest", "--yes", "--type=spdxjson", f"--predicate={file}", place]
            )
    found.append(["cosign", "sign-blob", "--yes", f"--bundle={checksums}.sigstore.json", checksums])
    return found


def subjects(artifacts: Iterable[Artifact]) -> str:
    """Return the artifacts as a file of sha256sum, from which GitHub's provenance attestation takes
    its subjects.
    """
    return "".join(
        f"{artifact.digest.removeprefix('sha256:')}  {artifact.repository}\n"
        for artifact in sorted(artifacts, key=lambda each: each.repository)
    )
