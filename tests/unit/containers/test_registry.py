"""Reading from registries, with shell scripts instead of skopeo and umoci."""

import json
import os
from pathlib import Path

import pytest

from sidecars.containers.errors import ContainerError
from sidecars.containers.references import Image, parse
from sidecars.containers.registry import Registry, explain

DIGEST = "sha256:" + "a" * 64
CONFIG = {"Env": ["A=1"], "WorkingDir": "/app"}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for programs; they write their arguments into the file `asked`."""
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>{folder.parent}/asked\n{script}\n')
    path.chmod(0o755)


def registry(programs: Path, *insecure: str, **environment: str) -> Registry:
    return Registry(
        frozenset(insecure), {"PATH": f"{programs}:{os.environ['PATH']}", **environment}, 5, 5
    )


def image(text: str = "registry.example:5000/team/box:1") -> Image:
    found = parse(text)
    assert isinstance(found, Image)
    return found


def asked(programs: Path) -> str:
    return (programs.parent / "asked").read_text()


def layout(folder: Path, config: object = CONFIG) -> str:
    """A script that writes an OCI layout as `skopeo copy … oci:FOLDER:image` does."""
    blobs = {
        "m1": json.dumps({"config": {"digest": "sha256:c1"}}),
        "c1": json.dumps({"config": config}),
    }
    for name, text in blobs.items():
        (folder / name).write_text(text)
    (folder / "index").write_text(json.dumps({"manifests": [{"digest": "sha256:m1"}]}))
    return (
        f'for last; do :; done; to=${{last#oci:}}; to=${{to%:image}}; mkdir -p "$to/blobs/sha256"\n'
        f'cp {folder}/m1 {folder}/c1 "$to/blobs/sha256"; cp {folder}/index "$to/index.json"'
    )


def test_the_digest_of_a_tag_is_asked_for_with_a_deadline_and_with_tls(programs: Path) -> None:
    program(programs, "skopeo", f"echo {DIGEST}")
    assert registry(programs).digest(image()) == DIGEST
    assert asked(programs) == (
        "skopeo --command-timeout=5s inspect --no-tags --format={{.Digest}} "
        "docker://registry.example:5000/team/box:1\n"
    )


def test_only_registries_that_the_site_lists_are_asked_without_tls(programs: Path) -> None:
    program(programs, "skopeo", f"echo {DIGEST}")
    registry(programs, "registry.example:5000").digest(image())
    registry(programs, "registry.example").digest(image())
    assert asked(programs).count("--tls-verify=false") == 1


def test_the_users_own_file_of_credentials_is_used(programs: Path) -> None:
    program(programs, "skopeo", f"echo {DIGEST}")
    registry(programs, REGISTRY_AUTH_FILE="/home/alice/auth.json").digest(image())
    assert "inspect --authfile=/home/alice/auth.json --no-tags" in asked(programs)


def test_an_image_is_copied_by_its_digest_unpacked_and_the_copy_deleted(
    programs: Path, tmp_path: Path
) -> None:
    program(programs, "skopeo", layout(tmp_path))
    program(programs, "umoci", 'for last; do :; done; mkdir "$last" && echo hello >"$last/file"')
    root = tmp_path / "making/rootfs"
    root.mkdir(parents=True)
    assert registry(programs).unpack(image(), DIGEST, root) == CONFIG
    assert (root / "file").read_text() == "hello\n"
    assert [path.name for path in root.parent.iterdir()] == ["rootfs"]
    assert f"docker://registry.example:5000/team/box@{DIGEST} oci:{root.parent}/oci:image" in asked(
        programs
    )


def test_a_failure_to_unpack_names_the_image_and_deletes_the_copy(
    programs: Path, tmp_path: Path
) -> None:
    program(programs, "skopeo", layout(tmp_path))
    program(programs, "umoci", "echo 'unpack: write: no space left on device' >&2; exit 1")
    root = tmp_path / "making/rootfs"
    root.mkdir(parents=True)
    with pytest.raises(
        ContainerError,
        match=r"^registry\.example.*no space left on device: an administrator must enlarge",
    ):
        registry(programs).unpack(image(), DIGEST, root)
    assert list(root.parent.iterdir()) == []


def test_a_manifest_that_leads_out_of_the_layout_is_refused(programs: Path, tmp_path: Path) -> None:
    script = layout(tmp_path)
    (tmp_path / "index").write_text(
        json.dumps({"manifests": [{"digest": "sha256:../../../index"}]})
    )
    program(programs, "skopeo", script)
    root = tmp_path / "making/rootfs"
    root.mkdir(parents=True)
    with pytest.raises(ContainerError, match="not an OCI image"):
        registry(programs).unpack(image(), DIGEST, root)


def test_a_program_that_hangs_is_ended(programs: Path) -> None:
    program(programs, "skopeo", "exec sleep 60")
    found = Registry(frozenset(), {"PATH": f"{programs}:{os.environ['PATH']}"}, -9.8, 5)
    with pytest.raises(ContainerError, match="has not ended after"):
        found.digest(image())


def test_a_missing_program_is_named(programs: Path) -> None:
    with pytest.raises(ContainerError, match="skopeo isn't in the image of slurmd"):
        Registry(frozenset(), {"PATH": str(programs)}, 5, 5).digest(image())


def test_a_program_that_can_not_be_executed_is_named(programs: Path) -> None:
    (programs / "skopeo").touch()
    with pytest.raises(
        ContainerError, match="team/box:1: skopeo can't be started: Permission denied"
    ):
        Registry(frozenset(), {"PATH": str(programs)}, 5, 5).digest(image())


def test_a_changed_file_of_credentials_is_noticed(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "auth.json"
    found = registry(programs, REGISTRY_AUTH_FILE=str(file), HOME=str(tmp_path))
    states = {found.credentials()}
    for place in (
        file,
        tmp_path / ".docker/config.json",
        tmp_path / ".config/containers/auth.json",
    ):
        place.parent.mkdir(parents=True, exist_ok=True)
        for text in ("first", "second one"):
            place.write_text(text)
            states.add(found.credentials())
            assert found.credentials() in states
    assert len(states) == 7


def test_an_answer_without_a_digest_is_refused(programs: Path) -> None:
    program(programs, "skopeo", "echo hello")
    with pytest.raises(ContainerError, match="returned no digest, but 'hello'"):
        registry(programs).digest(image())


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (
            "reading manifest 1 in x/y: manifest unknown",
            "the registry has no such image: check its name and its tag",
        ),
        (
            "reading manifest: unauthorized: authentication required",
            (
                "by `srun --pty skopeo login --authfile /home/alice/auth.json "
                "registry.example:5000` on a login node"
            ),
        ),
        ("requested access to the resource is denied", "skopeo login --authfile"),
        (
            "dial tcp 192.0.2.1:5000: connect: connection refused",
            "the registry registry.example:5000 doesn't answer on ",
        ),
        ("dial tcp: lookup registry.example: no such host", "doesn't answer on "),
        ("context deadline exceeded", "doesn't answer on "),
        ("http: server gave HTTP response to HTTPS client", "containers.insecureRegistries"),
        (
            "x509: certificate signed by unknown authority",
            "the certificate of the registry isn't trusted on ",
        ),
        (
            "write /x: no space left on device",
            "an administrator must enlarge the volume of the image cache",
        ),
        (r"manifest unknown: \"docker://x\"", 'its tag (manifest unknown: "docker://x")'),
        ("something else", "registry.example:5000/team/box:1: something else"),
        ("", "no reason given"),
    ],
)
def test_errors_of_registries_are_explained(error: str, want: str) -> None:
    line = f'time="2026-01-01T00:00:00Z" level=fatal msg="{error}"\n' if error else ""
    found = explain(image(), line, "/home/alice/auth.json", insecure=False)
    assert want in found
    assert "\n" not in found
    assert "level=fatal" not in found


def test_the_login_to_a_registry_without_tls_names_the_option() -> None:
    found = explain(image(), "unauthorized", "/auth.json", insecure=True)
    assert (
        "`srun --pty skopeo login --tls-verify=false --authfile /auth.json registry.example:5000`"
        in found
    )
