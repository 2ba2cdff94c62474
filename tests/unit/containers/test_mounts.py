"""Mounts: their text, and mount points within images with hostile links."""

from pathlib import Path

import pytest

from sidecars.containers.errors import ContainerError
from sidecars.containers.mounts import Mount, parse, prepare, unique


def test_a_mount_is_a_source_with_or_without_a_target() -> None:
    assert parse("/home,/a/b:/c/,", "CONTAINER_MOUNTS") == (
        Mount("/home", "/home"),
        Mount("/a/b", "/c"),
    )
    assert parse("", "CONTAINER_MOUNTS") == ()


def test_a_mount_is_read_only_if_it_is_asked_for() -> None:
    assert parse("/data:/data:ro,/a:/b:rw", "--container-mounts") == (
        Mount("/data", "/data", read_only=True),
        Mount("/a", "/b"),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("home", "isn't an absolute path"),
        ("/a/../etc", "without `..`"),
        ("/a:b", "isn't an absolute path"),
        ("/a:/b/..", "without `..`"),
        ("/a\n", "isn't an absolute path"),
        ("-x", "isn't an absolute path"),
        ("/a:/b:rslave+ro", r"has the options 'rslave\+ro'.*SOURCE:TARGET:ro"),
        ("/a:/", "would replace the whole image"),
        ("/", "would replace the whole image"),
        ("/srv/data:/data", "which the runtime uses itself"),
    ],
)
def test_what_is_no_mount_is_refused_with_the_setting_and_the_reason(
    text: str, reason: str
) -> None:
    with pytest.raises(ContainerError, match=f"^CONTAINER_MOUNTS: .*{reason}"):
        parse(text, "CONTAINER_MOUNTS")


def test_of_two_mounts_with_one_target_the_last_counts_and_parents_come_first() -> None:
    mounts = (Mount("/x", "/a/b"), Mount("/y", "/a"), Mount("/z", "/a/b"), Mount("/w", "/a-b"))
    assert unique(mounts) == (Mount("/y", "/a"), Mount("/z", "/a/b"), Mount("/w", "/a-b"))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    root = tmp_path / "rootfs"
    root.mkdir()
    return root


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").touch()
    return str(tmp_path / "source")


def test_a_missing_mount_point_is_created_in_the_image(image: Path, source: str) -> None:
    assert prepare(str(image), Mount(source, "/a/b")) == Mount(source, "/a/b")
    assert (image / "a/b").is_dir()
    assert prepare(str(image), Mount(f"{source}/file", "/a/c/file")) == Mount(
        f"{source}/file", "/a/c/file"
    )
    assert (image / "a/c/file").is_file()


def test_links_of_the_image_are_followed_within_it(image: Path, source: str) -> None:
    (image / "var").mkdir()
    (image / "home").symlink_to("var/home")
    (image / "data").symlink_to("/var/../../../var/data")
    assert prepare(str(image), Mount(source, "/home/x")).target == "/var/home/x"
    assert prepare(str(image), Mount(source, "/data")).target == "/var/data"
    assert (image / "var/data").is_dir()


def test_a_link_out_of_the_image_leads_nowhere_else(
    image: Path, source: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (image / "escape").symlink_to(outside)
    (image / "up").symlink_to("../../outside")
    prepare(str(image), Mount(source, "/escape/new"))
    prepare(str(image), Mount(source, "/up/new"))
    assert list(outside.iterdir()) == []


def test_links_in_a_circle_are_refused(image: Path, source: str) -> None:
    (image / "a").symlink_to("b")
    (image / "b").symlink_to("a")
    with pytest.raises(ContainerError, match="too many symbolic links"):
        prepare(str(image), Mount(source, "/a/x"))


def test_a_folder_is_not_mounted_over_a_file_and_nothing_through_one(
    image: Path, source: str
) -> None:
    (image / "file").touch()
    (image / "folder").mkdir()
    with pytest.raises(ContainerError, match="the image has a file at /file"):
        prepare(str(image), Mount(source, "/file"))
    with pytest.raises(ContainerError, match="the image has a folder at /folder"):
        prepare(str(image), Mount(f"{source}/file", "/folder"))
    with pytest.raises(ContainerError, match="the image has a file at /file/x"):
        prepare(str(image), Mount(source, "/file/x"))


def test_a_source_that_does_not_exist_is_named(image: Path) -> None:
    with pytest.raises(ContainerError, match=r"^mount /no/such: it doesn't exist on "):
        prepare(str(image), Mount("/no/such", "/a"))
