"""Names of images: what users write, and what hostile users write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.containers.errors import ContainerError
from sidecars.containers.references import Folder, Image, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("docker://ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("team/image", "docker.io/team/image:latest"),
        ("docker.io/ubuntu", "docker.io/library/ubuntu:latest"),
        (
            "docker://registry.example:5000/team/image:1.2_x-y",
            "registry.example:5000/team/image:1.2_x-y",
        ),
        ("localhost/a/b/c", "localhost/a/b/c:latest"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        ("nvcr.io#nvidia/pytorch:25.01-py3", "nvcr.io/nvidia/pytorch:25.01-py3"),
        ("10.0.0.4:5000#/cosmoflow:0.4", "10.0.0.4:5000/cosmoflow:0.4"),
        (f"registry.example/image@{DIGEST}", f"registry.example/image@{DIGEST}"),
        (f"registry.example/image:tag@{DIGEST}", f"registry.example/image@{DIGEST}"),
    ],
)
def test_an_image_has_a_registry_a_path_and_a_tag_or_digest(text: str, want: str) -> None:
    found = parse(text)
    assert isinstance(found, Image)
    assert found.name == want


def test_a_name_without_a_registry_is_one_of_the_sites_registry() -> None:
    found = parse("ubuntu:24.04", "registry.example:5000")
    assert isinstance(found, Image)
    assert found.name == "registry.example:5000/ubuntu:24.04"


def test_an_absolute_path_is_the_folder_of_an_unpacked_image() -> None:
    assert parse("/shared/images/box") == Folder("/shared/images/box")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ":",
            "@",
            "#",
            "docker://",
            "docker:///x",
            "-x",
            "--authfile=/etc/passwd",
            "--authfile=/x/y",
            "-x/y",
            "x/-y",
        ),
        *(
            "../x",
            "x/../y",
            "registry.example/../x",
            "registry.example//x",
            "x/",
            "./x",
            "~/x",
            "x\\y",
        ),
        *(
            "ubuntu\n",
            "ubuntu:24.04\n",
            "ubuntu:24\n.04",
            "ubuntu x",
            "ubuntu\0",
            "ubuntu;id",
            "$(id)",
            "`id`",
            "x'y",
            'x"y',
        ),
        *("oci:/etc:x", "dir:/etc", "docker-archive:/x", "http://registry.example/x"),
        *(
            "Ubuntu",
            "registry.example:port/x",
            "registry.example:123456/x",
            "-registry.example/x",
            "a..b.c/x",
        ),
        *(
            "x:-tag",
            "x:" + "a" * 129,
            "x@sha256:abc",
            "x@md5:" + "0" * 32,
            f"x@{DIGEST.upper()}",
            f"x@{DIGEST}\n",
        ),
        *("ünïcode", "x/ü", "x:ü", "a" * 513, "user@registry.example#x"),
    ],
)
def test_what_names_no_image_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ContainerError, match=r"^--container: .*(?s:.*)ubuntu:24\.04"):
        parse(text)


@pytest.mark.parametrize("text", ["./image.sqsh", "/shared/x.sqsh", "x.squashfs", "~/x.sqfs"])
def test_a_squashfs_file_is_refused_with_how_to_unpack_it(text: str) -> None:
    with pytest.raises(ContainerError, match=r"is a squashfs file.*unsquashfs -d"):
        parse(text)


def test_a_relative_path_is_refused_as_one() -> None:
    with pytest.raises(ContainerError, match="a folder needs its absolute path"):
        parse("./images/box")


@pytest.mark.parametrize("text", ["/a\nb", "/a\0b", "/a:b"])
def test_a_path_that_the_runtime_would_misread_is_refused(text: str) -> None:
    with pytest.raises(ContainerError, match="rename the folder"):
        parse(text)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_every_text_is_refused_or_becomes_a_name_without_surprises(text: str) -> None:
    try:
        found = parse(text)
    except ContainerError:
        return
    name = found.name if isinstance(found, Image) else "docker.io/x"
    assert not set(name) - set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@"
    )
    assert name[0] not in "-./:@"
    assert "/../" not in name
