"""Fills in the repository that publishes a release: its address, and the registry of its images and
charts.

The tree names hosts that nobody can own (RFC 2606: `.invalid`). Whoever registered a name of the
tree that nobody has could otherwise serve images to everyone who follows it, with signatures that
verify.
"""

import re
from pathlib import Path

from sidecars.contract.project import HOME, REGISTRY, is_placeholder
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError

FILLED = ("charts", "docs/_toc.yml", "docs/conf.py", "images", "postrender", "schemas", "sidecars")
"""What users get. The pages about the tree keep its names."""

_REPOSITORY = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*/[\w.-]+")


def fill(root: Path, repository: str) -> list[Path]:
    """Fill in a repository of GitHub, OWNER/NAME, in all files that users get. Returns those that
    have changed.

    `root` is a checkout. Raises ClusterError if the name has another form.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise ClusterError(
            f"REPOSITORY={repository}: write it as OWNER/NAME, as GitHub names the repository"
        )
    changed = []
    for name in run(["git", "ls-files", "-z", "--", *FILLED], cwd=root).split("\0"):
        path = root / name
        if name and path.is_file() and not path.is_symlink():
            before = path.read_bytes()
            after = filled(before, repository)
            if after != before:
                path.write_bytes(after)
                changed.append(path)
    return changed


def filled(content: bytes, repository: str) -> bytes:
    """Return the content of a file with this repository."""
    owner = repository.partition("/")[0]
    replacements = {
        HOME: f"https://github.com/{repository}",
        HOME.rpartition("/")[0]: f"https://github.com/{owner}",
        # Names in a registry are in lower case.
        REGISTRY: f"ghcr.io/{owner.lower()}",
    }
    for former, new in replacements.items():
        content = content.replace(former.encode(), new.encode())
    return content


def check_filled(registry: str) -> None:
    """Raise ClusterError if this registry is a name of the tree, so that nothing can be pushed
    there.
    """
    if is_placeholder(f"{registry}/"):
        raise ClusterError(
            f"{registry} is no registry. Run `make release-fill REPOSITORY=OWNER/NAME` first."
        )
