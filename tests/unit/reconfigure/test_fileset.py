"""Sets of configuration files: `sidecars.reconfigure.fileset`."""

from dataclasses import replace

import pytest

from sidecars.contract import manifest
from sidecars.contract.manifest import Manifest
from sidecars.reconfigure.fileset import (
    FileSet,
    IncompleteError,
    assemble,
    keys_digest,
    manifest_of,
)

KEYS = {"slurm.key": b"secret", "jwt.key": b"other secret"}
FILES = {"slurm.conf": b"ClusterName=c\n", "gres.conf": b"\xff"}
LISTED = Manifest("a" * 64, {name: manifest.digest(content) for name, content in FILES.items()})
FOUND = {**FILES, "manifest.json": manifest.encode(LISTED).encode()}


def test_a_set_has_the_files_of_its_manifest_and_the_keys() -> None:
    found = assemble({**FOUND, "stray": b""}, KEYS)
    assert (found.files, found.keys, found.id.config) == (FILES, KEYS, "a" * 64)
    assert found.everything == {**FILES, **KEYS}


def test_a_set_that_was_stored_with_its_manifest_is_the_same_set() -> None:
    found = assemble(FOUND, KEYS)
    again = assemble({**found.files, "manifest.json": manifest_of(found)}, KEYS)
    assert again == found


@pytest.mark.parametrize("missing", sorted(FOUND))
def test_a_set_without_one_of_its_files_is_incomplete(missing: str) -> None:
    with pytest.raises(IncompleteError, match=f"{missing} is not there yet"):
        assemble({name: content for name, content in FOUND.items() if name != missing}, KEYS)


def test_a_file_with_other_contents_than_listed_is_incomplete() -> None:
    with pytest.raises(
        IncompleteError, match=r"gres\.conf is not the one that manifest\.json lists"
    ):
        assemble({**FOUND, "gres.conf": b""}, KEYS)


def test_another_key_makes_another_set() -> None:
    assert keys_digest(KEYS) == keys_digest(dict(reversed(KEYS.items())))
    assert keys_digest(KEYS) != keys_digest({**KEYS, "jwt.key": b"new"})
    assert keys_digest(KEYS) != keys_digest({"slurm.key": b"secret"})


def test_no_content_shows_in_a_set_as_text() -> None:
    found: FileSet = assemble(FOUND, KEYS)
    assert "secret" not in repr(found)
    assert "secret" not in repr(replace(found, files={}))
