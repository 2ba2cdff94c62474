"""The manifest of the configuration's files and their legal names: `sidecars.contract.manifest`."""

import json

import pytest

from sidecars.contract.manifest import (
    Manifest,
    ManifestError,
    decode,
    digest,
    encode,
    unfit_file_name,
)

A = "a" * 64


def test_a_manifest_is_read_back() -> None:
    manifest = Manifest(A, {"slurm.conf": digest(b"x"), "b.conf": digest(b"y")})
    assert decode(encode(manifest)) == decode(encode(manifest).encode()) == manifest


def test_the_text_depends_on_the_content_only() -> None:
    assert encode(Manifest(A, {"a": "1", "b": "2"})) == encode(Manifest(A, {"b": "2", "a": "1"}))


@pytest.mark.parametrize(
    "name", ["slurm.conf", "gres.conf", "prolog.sh", "50-a", "-x", "_x", "Prolog.D"]
)
def test_a_file_may_have_a_plain_name(name: str) -> None:
    assert unfit_file_name(name) is None


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (".hidden.conf", "dot"),
        (".", "dot"),
        ("..", "dot"),
        ("..data", "dot"),
        ("a/b", "characters"),
        ("", "characters"),
        ("ä.conf", "characters"),
        ("a b", "characters"),
        ("slurm.key", "provides"),
        ("jwks.json", "provides"),
        ("manifest.json", "provides"),
    ],
)
def test_why_a_file_can_not_have_a_name_is_reported(name: str, want: str) -> None:
    assert want in (unfit_file_name(name) or "")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "can't be read"),
        ("[]", "can't be read"),
        ('{"files": {}}', "can't be read"),
        (json.dumps({"files": {"slurm.conf": A}, "sha256": "x"}), "no digest"),
        (json.dumps({"files": {"slurm.conf": A}, "sha256": 7}), "no digest"),
        (json.dumps({"files": {"slurm.conf": A, ".x": A}, "sha256": A}), "can't be a file"),
        (json.dumps({"files": {"gres.conf": A}, "sha256": A}), "lists no slurm.conf"),
    ],
)
def test_what_is_no_manifest_is_refused_with_a_reason(text: str, want: str) -> None:
    with pytest.raises(ManifestError, match=want):
        decode(text)
