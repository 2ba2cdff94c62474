"""The commands of a release."""

from pathlib import Path

import pytest

from release import __main__ as commands


def test_the_check_of_the_repository_succeeds_and_reports_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert commands.main(["check"]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_check_of_another_tag_fails_with_each_problem_on_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert commands.main(["check", "--tag", "v9.9.9"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("The tag v9.9.9 is not that of pyproject.toml.")


def test_nothing_is_published_without_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "BUILD", tmp_path)
    assert commands.main(["publish", "--registry=registry.example/a"]) == 1
    assert capsys.readouterr().err == (
        f"release: {tmp_path}: no images-ARCHITECTURE.tar. Run `make release-images` first.\n"
    )


def test_nothing_is_published_to_a_registry_of_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "BUILD", tmp_path)
    assert commands.main(["publish"]) == 1
    assert "make release-fill" in capsys.readouterr().err


def test_a_failed_signature_ends_the_command_with_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "artifacts.json").write_text("[]")
    program = tmp_path / "cosign"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(commands, "BUILD", tmp_path)
    assert commands.main(["sign"]) == 3
