"""The workflows of GitHub run what a developer can run, with no more permissions than they need."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
TARGETS = set(
    re.findall(
        r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
)
NEEDED = {
    "check": {"actions": "read", "contents": "read"},
    "images": {"contents": "read"},
    "publish": {
        "attestations": "write",
        "contents": "read",
        "id-token": "write",
        "packages": "write",
    },
    "page": {"contents": "write"},
}
"""What each job of the release does: read the tests' result, build, push and sign, create the
release page.
"""


def workflow(path: Path) -> dict[str, Any]:
    """A workflow as YAML."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


RELEASE = workflow(ROOT / ".github" / "workflows" / "release.yaml")


def steps(found: dict[str, Any]) -> list[dict[str, Any]]:
    """All steps of a workflow, in their order."""
    return [step for job in found["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_every_target_that_a_workflow_makes_exists(path: Path) -> None:
    made = {
        name
        for step in steps(workflow(path))
        for name in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))
    }
    assert made <= TARGETS


@pytest.mark.parametrize("job", ["images", "publish"])
def test_a_release_has_the_names_of_its_repository_before_anything_is_built_or_pushed(
    job: str,
) -> None:
    made = [step["run"] for step in RELEASE["jobs"][job]["steps"] if "make " in step.get("run", "")]
    assert made[0] == 'make release-fill generate REPOSITORY="$GITHUB_REPOSITORY"'


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it(path: Path) -> None:
    used = re.findall(r"^ *(?:- )?uses: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(used) == sum("uses" in step for step in steps(workflow(path)))
    assert [
        action
        for action in used
        if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
    ] == []


def test_every_action_in_a_recipe_is_pinned_to_a_commit_and_no_download_is_unpacked_unseen() -> (
    None
):
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    used = {
        (name, it)
        for name, text in texts.items()
        for it in re.findall(r"^ *- uses: (.*)$", text, re.MULTILINE)
    }
    assert "preview.md" in {name for name, _ in used}
    assert {
        it for it in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", it[1])
    } == set()
    assert [
        name for name, text in texts.items() if re.search(r"curl [^\n]*\| *(?:tar|sh|bash)\b", text)
    ] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_builds_of_images_get_the_mirror_of_the_settings_because_ubuntu_has_none_of_debian(
    path: Path,
) -> None:
    for step in steps(workflow(path)):
        if "sudo" in step.get("run", ""):
            assert step["env"] == {"DEBIAN_MIRROR": "${{ vars.DEBIAN_MIRROR }}"}
            assert "--preserve-env=PATH,DEBIAN_MIRROR " in step["run"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_no_checkout_leaves_a_token_behind(path: Path) -> None:
    checkouts = [
        step
        for step in steps(workflow(path))
        if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert all(step.get("with", {}).get("persist-credentials") is False for step in checkouts)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_a_job_that_can_write_to_the_repository_runs_no_program_of_a_package(path: Path) -> None:
    for job in workflow(path)["jobs"].values():
        if {"contents", "pull-requests"} & {
            name for name, right in job.get("permissions", {}).items() if right == "write"
        }:
            scripts = "\n".join(step.get("run", "") for step in job["steps"])
            assert not re.search(r"^\s*(?:make|pip|uv|python3?|npm|npx)\b", scripts, re.MULTILINE)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_packages_are_installed_by_the_lock_with_its_hashes_alone(path: Path) -> None:
    assert [
        step["run"] for step in steps(workflow(path)) if "pip install" in step.get("run", "")
    ] == []


def test_what_builds_the_site_can_not_publish_it() -> None:
    jobs = workflow(ROOT / ".github" / "workflows" / "docs.yaml")["jobs"]
    builds = [job for job in jobs.values() if any("run" in step for step in job["steps"])]
    assert [job["permissions"] for job in builds] == [{"contents": "read"}]


def test_each_job_of_the_release_has_the_permissions_that_it_needs_and_no_others() -> None:
    assert RELEASE["permissions"] == {}
    assert {name: job["permissions"] for name, job in RELEASE["jobs"].items()} == NEEDED


def test_a_release_begins_with_a_tag_and_checks_it_before_anything_else() -> None:
    assert RELEASE["on"] == {"push": {"tags": ["v*"]}}
    first = next(step["run"] for step in RELEASE["jobs"]["check"]["steps"] if "run" in step)
    assert first == 'make release-check TAG="$GITHUB_REF_NAME"'
    order = ["check", "images", "publish", "page"]
    assert [job.get("needs") for job in RELEASE["jobs"].values()] == [None, *order[:-1]]
    assert list(RELEASE["jobs"]) == order


def test_a_release_needs_tests_that_have_passed_on_the_main_branch() -> None:
    script = RELEASE["jobs"]["check"]["steps"][-1]["run"]
    (listed,) = re.findall(r"gh run list .*", script)
    assert {"--workflow ci.yaml", "--branch main", "--event push", "--status success"} <= set(
        re.findall(r"--\w+ [\w.]+", listed)
    )


def test_a_version_with_a_release_page_is_not_published_again() -> None:
    runs = [step["run"] for step in RELEASE["jobs"]["publish"]["steps"] if "run" in step]
    assert "gh release list" in runs[0]
    assert 'grep --fixed-strings --line-regexp --quiet -- "$GITHUB_REF_NAME"' in runs[0]
    assert "exit 1" in runs[0]


def test_images_are_built_on_both_architectures() -> None:
    assert RELEASE["jobs"]["images"]["strategy"]["matrix"]["runner"] == [
        "ubuntu-24.04",
        "ubuntu-24.04-arm",
    ]


def test_everything_that_is_published_is_signed_and_has_a_provenance() -> None:
    published = RELEASE["jobs"]["publish"]["steps"]
    runs = [step["run"] for step in published if "run" in step]
    assert runs[2:] == ["make release-publish", "make release-sign"]
    attested = [
        step["with"]["subject-checksums"]
        for step in published
        if "attest-build-provenance" in step.get("uses", "")
    ]
    assert attested == [
        "build/release/published/subjects.txt",
        "build/release/published/files/checksums.txt",
    ]


def test_no_text_that_an_outsider_chooses_becomes_part_of_a_script() -> None:
    scripts = [step["run"] for path in WORKFLOWS for step in steps(workflow(path)) if "run" in step]
    assert [script for script in scripts if "${{" in script] == []
