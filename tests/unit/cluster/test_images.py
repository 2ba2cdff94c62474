"""The build without a container engine: what builds a layer again, and what lies in the archive."""

import gzip
import hashlib
import json
import os
import re
import stat
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from schemas.image_digests import chart_images
from schemas.image_digests import charts as charts_with_images
from sidecars.operator.settings import parse
from tests.cluster import images
from tests.cluster.containerfile import Config
from tests.cluster.errors import ClusterError
from tests.cluster.images import Image, Layer, debian_mirror, image_config, plan

INSTALL = "RUN --mount=type=bind,source=images/{0},target=/mnt/image sh /mnt/image/setup.sh\n"
SIDECARS = """FROM docker.io/library/debian:forky-slim AS python
RUN install python
FROM python AS wheels
COPY requirements.txt /requirements.txt
RUN install wheels
FROM python
COPY --from=wheels /opt/wheels /opt/wheels
COPY sidecars /opt/sidecars
"""


def context(folder: Path, **containerfiles: str) -> Path:
    """A repository whose images are all built from the layers base and slurm and one of their own,
    save those given.
    """
    for name in (*images.IMAGES, "base", "slurm"):
        definition = folder / "images" / name
        definition.mkdir(parents=True)
        (definition / "setup.sh").write_text(f"echo {name}\n")
    for name in images.IMAGES:
        steps = "".join(INSTALL.format(part) for part in ("base", "slurm", name))
        text = containerfiles.get(
            name, f"FROM docker.io/library/debian:forky-slim\n{steps}USER 401\n"
        )
        (folder / "images" / name / "Containerfile").write_text(text)
    (folder / "sidecars").mkdir()
    (folder / "sidecars" / "main.py").write_text("print()\n")
    (folder / "requirements.txt").write_text("aiohttp\n")
    return folder


def chains(folder: Path) -> dict[str, list[str]]:
    """Keys of the layers by image, lowest first."""
    return {image.reference.split("/")[-1].split(":")[0]: keys(image) for image in plan(folder)}


def keys(image: Image) -> list[str]:
    return [layer.key for layer in image.top.chain]


def changed(before: list[str], after: list[str]) -> list[int]:
    return [place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def test_the_packages_of_an_image_are_those_of_its_topmost_list_and_its_python_packages(
    tmp_path: Path,
) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for tree, names in ((lower, "old 1: MIT\n"), (upper, "old 1: MIT\nnew 2: see file\n")):
        (tree / "usr/share/doc").mkdir(parents=True)
        (tree / "usr/share/doc/IMAGE-LICENSES").write_text(names)
    (upper / "opt/slurm-sidecars/aiohttp-3.dist-info").mkdir(parents=True)
    (upper / "opt/slurm-sidecars/aiohttp-3.dist-info/METADATA").write_text(
        "Name: aiohttp\nVersion: 3\n"
    )
    found = images.packages([lower, upper])
    assert [(each.kind, each.name, each.version) for each in found] == [
        ("deb", "old", "1"),
        ("deb", "new", "2"),
        ("pypi", "aiohttp", "3"),
    ]


def test_the_images_that_are_built_are_those_that_the_charts_and_the_operator_name_by_default() -> (
    None
):
    charts = [images.REPOSITORY / "charts" / name for name in charts_with_images(images.REPOSITORY)]
    named = {str(image) for chart in charts for image in chart_images(chart).values()}
    assert {image.reference for image in plan()} == named
    assert parse([], {}).sidecars_image in named


def test_the_page_about_a_local_cluster_builds_every_image_by_its_name() -> None:
    page = (images.REPOSITORY / "docs/local.md").read_text(encoding="utf-8")
    listed = re.findall(r"^ *for image in (.*); do$", page, re.MULTILINE)
    assert [set(names.split()) for names in listed] == [
        {image.reference.rpartition("/")[2] for image in plan()}
    ]


def test_images_that_begin_alike_share_their_layers(tmp_path: Path) -> None:
    made = chains(context(tmp_path))
    assert made["slurmd"][:3] == made["login"][:3]
    assert made["slurmd"][3] != made["login"][3]


def test_a_changed_definition_makes_its_layer_anew_and_those_above_it(tmp_path: Path) -> None:
    before = chains(context(tmp_path))
    (tmp_path / "images/slurm/setup.sh").write_text("echo other\n")
    after = chains(tmp_path)
    assert changed(before["slurmd"], after["slurmd"]) == [2, 3]


def test_layers_and_archives_that_another_checkout_has_used_within_a_day_are_kept(
    tmp_path: Path,
) -> None:
    wanted = plan(context(tmp_path / "checkout"))
    used = {key for image in wanted for key in keys(image)}
    made = [tmp_path / "layers" / name for name in (*used, "of-another-checkout", "of-nobody")]
    made += [tmp_path / "archives" / name for name in ("this", "of-another-checkout", "of-nobody")]
    week_ago = time.time() - 7 * 86400
    for folder in made:
        folder.mkdir(parents=True)
        if folder.name != "of-another-checkout":
            os.utime(folder, (week_ago, week_ago))
    images.prune(tmp_path, tmp_path / "archives/this", wanted)
    assert [folder.name for folder in made if not folder.is_dir()] == ["of-nobody", "of-nobody"]
    assert all(folder.stat().st_mtime > week_ago + 86400 for folder in made if folder.is_dir())


def test_the_layers_of_an_image_whose_files_are_read_are_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [image] = plan(names=("login-jupyter",))
    sources = [it.source for it in image.top.chain if it.source]
    made = [tmp_path / "images/layers" / key for key in {*keys(image), sources[0].key}]
    for folder in made:
        folder.mkdir(parents=True)
        (folder / "layer.json").write_text('{"digest": "", "diff_id": "", "size": 0}')
        os.utime(folder, (0, 0))
    assert len(images.trees(tmp_path, "login-jupyter")) == len(keys(image))
    assert all(folder.stat().st_mtime > time.time() - 3600 for folder in made)


def test_an_executable_bit_makes_a_layer_anew(tmp_path: Path) -> None:
    before = chains(context(tmp_path))
    (tmp_path / "images/slurmd/setup.sh").chmod(0o755)
    assert changed(before["slurmd"], chains(tmp_path)["slurmd"]) == [3]


def test_what_python_leaves_behind_and_containerfiles_make_no_layer_anew(tmp_path: Path) -> None:
    before = chains(context(tmp_path, sidecars=SIDECARS))
    (tmp_path / "sidecars/__pycache__").mkdir()
    (tmp_path / "sidecars/__pycache__/main.cpython-311.pyc").write_text("")
    containerfile = tmp_path / "images/slurmd/Containerfile"
    containerfile.write_text(containerfile.read_text() + "USER 0\n")
    assert chains(tmp_path) == before


def test_changed_code_leaves_the_layers_of_its_requirements(tmp_path: Path) -> None:
    before = chains(context(tmp_path, sidecars=SIDECARS))
    (tmp_path / "sidecars/main.py").write_text("print(1)\n")
    assert changed(before["sidecars"], chains(tmp_path)["sidecars"]) == [3]


def test_changed_requirements_make_the_layer_copied_from_their_stage_anew(tmp_path: Path) -> None:
    before = chains(context(tmp_path, sidecars=SIDECARS))
    (tmp_path / "requirements.txt").write_text("msgspec\n")
    assert changed(before["sidecars"], chains(tmp_path)["sidecars"]) == [2, 3]


def test_a_base_that_is_no_debian_suite_is_refused(tmp_path: Path) -> None:
    folder = context(tmp_path, login="FROM docker.io/library/alpine:3\n")
    with pytest.raises(ClusterError, match=r"FROM docker\.io/library/alpine:3"):
        plan(folder)


def test_a_base_pinned_by_digest_is_built_from_the_same_debian_suite(tmp_path: Path) -> None:
    before = chains(context(tmp_path))
    containerfile = tmp_path / "images/slurmd/Containerfile"
    text = containerfile.read_text()
    containerfile.write_text(text.replace("forky-slim", f"forky-slim@sha256:{'a' * 64}"))
    assert containerfile.read_text() != text
    assert chains(tmp_path) == before


def test_a_copy_from_a_stage_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = context(
        tmp_path, login="FROM docker.io/library/debian:forky\nCOPY --from=nowhere /a /a\n"
    )
    with pytest.raises(ClusterError, match="COPY --from=nowhere"):
        plan(folder)


def test_the_mirror_is_the_first_that_has_debian() -> None:
    assert (
        debian_mirror("http://a.example/debian-security/\nhttp://b.example/debian/\n")
        == "http://b.example/debian"
    )
    assert debian_mirror("http://a.example/ubuntu/\n") is None


def packed(folder: Path) -> tuple[dict[str, Any], Path]:
    """What is recorded of the layer packed from the tree in `folder`, and where it lies."""
    target = folder / "layer.tar.gz"
    return images._pack(folder / "tree", target), target


def test_a_packed_layer_is_what_is_recorded_of_it(tmp_path: Path) -> None:
    (tmp_path / "tree/etc").mkdir(parents=True)
    (tmp_path / "tree/etc/passwd").write_text("root\n")
    (tmp_path / "tree/etc/link").symlink_to("passwd")
    facts, blob = packed(tmp_path)
    data = blob.read_bytes()
    assert facts == {
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "diff_id": f"sha256:{hashlib.sha256(gzip.decompress(data)).hexdigest()}",
        "size": len(data),
    }
    with tarfile.open(blob) as archive:
        assert archive.getnames() == ["etc", "etc/link", "etc/passwd"]
        assert archive.getmember("etc/link").linkname == "passwd"


def test_a_deleted_file_becomes_a_whiteout(tmp_path: Path) -> None:
    (tmp_path / "tree/etc").mkdir(parents=True)
    os.mknod(tmp_path / "tree/etc/motd", stat.S_IFCHR, 0)
    _, blob = packed(tmp_path)
    with tarfile.open(blob) as archive:
        assert archive.getnames() == ["etc", "etc/.wh.motd"]
        assert archive.getmember("etc/.wh.motd").isreg()


def test_the_archive_contains_every_image_by_name_and_shared_layers_once(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    facts, path = packed(tmp_path)
    base = Layer(None, "base", suite="forky")
    made = [Image(f"registry.example/{name}:1", base, Config(user=name)) for name in ("a", "b")]
    blob = images.Blob(path, facts["digest"], facts["diff_id"], facts["size"])
    archive_path = tmp_path / "images.tar"
    images._write_archive(archive_path, made, {base.key: blob})

    with tarfile.open(archive_path) as archive:
        names = archive.getnames()
        assert len(names) == len(set(names))
        content = {name: read(archive, name) for name in names}
    for name, data in content.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    index = json.loads(content["index.json"])
    assert [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]] == [
        "registry.example/a:1",
        "registry.example/b:1",
    ]
    for entry, user in zip(index["manifests"], "ab", strict=True):
        manifest = json.loads(content[blob_name(entry["digest"])])
        config = json.loads(content[blob_name(manifest["config"]["digest"])])
        assert [layer["digest"] for layer in manifest["layers"]] == [facts["digest"]]
        assert config["rootfs"]["diff_ids"] == [facts["diff_id"]]
        assert config["config"]["User"] == user


@pytest.fixture
def archive_content(tmp_path: Path) -> dict[str, bytes]:
    """The files of an archive with two images, which share their one layer."""
    (tmp_path / "tree" / "etc").mkdir(parents=True)
    (tmp_path / "tree" / "etc" / "motd").write_text("hello\n")
    facts, path = packed(tmp_path)
    base = Layer(None, "base", suite="forky")
    made = [
        Image(f"registry.example:5000/slurm/{name}:26.05", base, Config(labels={"a": name}))
        for name in ("a", "b")
    ]
    images._write_archive(
        tmp_path / "images.tar",
        made,
        {base.key: images.Blob(path, facts["digest"], facts["diff_id"], facts["size"])},
    )
    with tarfile.open(tmp_path / "images.tar") as archive:
        assert all(member.isreg() and not member.name.startswith(("/", "..")) for member in archive)
        return {name: read(archive, name) for name in archive.getnames()}


def blob(content: dict[str, bytes], descriptor: dict[str, Any], media_type: str) -> bytes:
    """The blob of a descriptor, which must be of this type, size and digest."""
    data = content[blob_name(descriptor["digest"])]
    assert descriptor["mediaType"] == f"application/vnd.oci.image.{media_type}"
    assert descriptor["size"] == len(data)
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    return data


def test_the_archive_is_an_image_layout_as_kind_k3d_and_minikube_load_it(
    archive_content: dict[str, bytes],
) -> None:
    # https://github.com/opencontainers/image-spec: image-layout.md, image-index.md, manifest.md,
    # config.md
    assert json.loads(archive_content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(archive_content["index.json"])
    assert index["schemaVersion"] == 2
    for descriptor, name in zip(index["manifests"], "ab", strict=True):
        # containerd takes the name of the image from either annotation.
        assert set(descriptor["annotations"].values()) == {
            f"registry.example:5000/slurm/{name}:26.05"
        }
        assert descriptor["annotations"].keys() == {
            "io.containerd.image.name",
            "org.opencontainers.image.ref.name",
        }
        manifest = json.loads(blob(archive_content, descriptor, "manifest.v1+json"))
        assert (manifest["schemaVersion"], manifest["mediaType"]) == (2, descriptor["mediaType"])
        config = json.loads(blob(archive_content, manifest["config"], "config.v1+json"))
        assert {key: config[key] for key in ("architecture", "os")} == descriptor["platform"]
        layers = [
            gzip.decompress(blob(archive_content, each, "layer.v1.tar+gzip"))
            for each in manifest["layers"]
        ]
        found = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        assert config["rootfs"] == {"type": "layers", "diff_ids": found}


def test_the_archive_has_the_list_of_images_with_which_docker_load_finds_them(
    archive_content: dict[str, bytes],
) -> None:
    # As docker save writes it beside an image layout, since Docker 25.
    index = json.loads(archive_content["index.json"])["manifests"]
    listed = json.loads(archive_content["manifest.json"])
    assert [each["RepoTags"] for each in listed] == [
        [f"registry.example:5000/slurm/{name}:26.05"] for name in "ab"
    ]
    for each, descriptor in zip(listed, index, strict=True):
        manifest = json.loads(archive_content[blob_name(descriptor["digest"])])
        assert each["Config"] == blob_name(manifest["config"]["digest"])
        assert each["Layers"] == [blob_name(layer["digest"]) for layer in manifest["layers"]]


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


def blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def test_a_container_gets_a_path_and_only_what_is_set() -> None:
    made = image_config(Config(environment={"SLURM_JWT": "daemon"}, entrypoint=("slurmrestd",)), [])
    assert made["config"] == {
        "Env": [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURM_JWT=daemon",
        ],
        "Entrypoint": ["slurmrestd"],
    }


def test_the_repository_defines_each_image_and_names_its_title_and_licence() -> None:
    made = {
        image.reference.split("/")[-1].split(":")[0]: image
        for image in plan(names=(*images.IMAGES, *images.VARIANTS))
    }
    folder = images.REPOSITORY / "images"
    assert set(made) == {path.parent.name for path in folder.glob("*/Containerfile")}
    for name, image in made.items():
        assert image.config.labels["org.opencontainers.image.title"] == name
        assert image.config.labels["org.opencontainers.image.licenses"]
        program = folder / name / "rootfs/usr/local/bin" / image.config.entrypoint[-1]
        assert os.access(program, os.X_OK) or not program.exists()


def test_a_variant_continues_the_layers_and_the_configuration_of_the_image_that_it_names() -> None:
    [below] = plan(names=("slurmd",))
    [variant] = plan(names=("slurmd-mpi",))
    assert keys(variant)[:-1] == keys(below)
    assert (variant.config.entrypoint, variant.config.ports) == (
        below.config.entrypoint,
        below.config.ports,
    )
    assert variant.config.labels["org.opencontainers.image.title"] == "slurmd-mpi"


def test_building_needs_root_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs root"):
        images.build_images(tmp_path, lambda _: None)


@pytest.mark.parametrize("image", plan(), ids=lambda image: str(image.reference))
def test_every_image_has_the_labels_of_the_oci_specification(image: Image) -> None:
    labels = {
        key.removeprefix("org.opencontainers.image."): text
        for key, text in image.config.labels.items()
    }
    assert labels.keys() >= {"title", "description", "licenses", "source", "vendor", "version"}
    name, _, tag = image.reference.rpartition("/")[2].partition(":")
    assert (labels["title"], labels["version"]) == (name, tag)
    assert all(labels.values())
