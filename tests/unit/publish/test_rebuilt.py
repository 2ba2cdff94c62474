"""Images that are built again, beside those of a release."""

import json
from pathlib import Path

import pytest

from release import __main__ as commands
from release.rebuilt import Change, as_markdown, changes, read
from tests.cluster.errors import ClusterError
from tests.cluster.sbom import Package, document


def test_a_package_with_a_new_version_is_one_change_with_all_images_that_contain_it() -> None:
    former = {
        "login-amd64": {"openssl": "3.5.1", "bash": "5.3"},
        "slurmd-amd64": {"openssl": "3.5.1"},
    }
    now = {"login-amd64": {"openssl": "3.5.2", "bash": "5.3"}, "slurmd-amd64": {"openssl": "3.5.2"}}
    assert changes(former, now) == [
        Change("openssl", "3.5.1", "3.5.2", ("login-amd64", "slurmd-amd64"))
    ]


def test_a_package_that_comes_or_leaves_is_a_change() -> None:
    found = changes({"login-amd64": {"a": "1"}}, {"login-amd64": {"b": "2"}})
    assert found == [
        Change("a", "1", "-", ("login-amd64",)),
        Change("b", "-", "2", ("login-amd64",)),
    ]


def test_images_of_another_architecture_or_without_a_counterpart_are_not_compared() -> None:
    assert (
        changes({"login-arm64": {"a": "1"}, "old-amd64": {"a": "1"}}, {"login-amd64": {"a": "2"}})
        == []
    )


def test_without_changes_no_table_is_written() -> None:
    assert as_markdown([]) == ""
    table = as_markdown([Change("openssl", "3.5.1", "3.5.2", ("login-amd64",))])
    assert "| openssl | 3.5.1 | 3.5.2 | login-amd64 |" in table.splitlines()


def test_the_bill_of_materials_that_the_build_writes_is_read_without_the_image_itself(
    tmp_path: Path,
) -> None:
    packages = [Package("deb", "openssl", "3.5.1", ""), Package("pypi", "aiohttp", "3.13.0", "")]
    written = document("registry.example.com/login:26.05", "abc", packages, "2027-01-15T08:00:00Z")
    (tmp_path / "login-amd64.spdx.json").write_text(json.dumps(written))
    assert read(tmp_path) == {"login-amd64": {"openssl": "3.5.1", "aiohttp": "3.13.0"}}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"packages": [{"name": 1}]}'])
def test_a_file_that_is_no_bill_of_materials_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "login-amd64.spdx.json").write_text(text)
    with pytest.raises(
        ClusterError, match=r"login-amd64\.spdx\.json: not a software bill of materials"
    ):
        read(tmp_path)


def test_a_folder_without_bills_of_materials_is_not_taken_for_one_without_changes(
    tmp_path: Path,
) -> None:
    with pytest.raises(ClusterError, match="contains no NAME-ARCHITECTURE"):
        read(tmp_path)


def test_the_command_writes_the_table_and_prints_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, version in (("former", "3.5.1"), ("build", "3.5.2")):
        (tmp_path / folder).mkdir()
        written = document(
            "registry.example.com/login:26.05", "abc", [Package("deb", "openssl", version, "")], ""
        )
        (tmp_path / folder / "login-amd64.spdx.json").write_text(json.dumps(written))
    monkeypatch.setattr(commands, "BUILD", tmp_path / "build")
    assert commands.main(["changes", "--former", str(tmp_path / "former")]) == 0
    table = capsys.readouterr().out
    assert "| openssl | 3.5.1 | 3.5.2 | login-amd64 |" in table
    assert (tmp_path / "build" / "changes.md").read_text() == table
