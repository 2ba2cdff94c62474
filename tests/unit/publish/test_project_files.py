"""The files by which GitHub asks reporters and updates dependencies."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))


def loaded(path: Path) -> dict[str, Any]:
    """A YAML file."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", FORMS, ids=lambda path: str(path.stem))
def test_an_issue_form_has_what_github_requires(path: Path) -> None:
    form = loaded(path)
    assert form.keys() >= {"name", "description", "body"}
    assert {field["type"] for field in form["body"]} <= {
        "input",
        "textarea",
        "dropdown",
        "checkboxes",
        "markdown",
    }
    identities = [field["id"] for field in form["body"]]
    assert len(set(identities)) == len(identities)
    assert all(field["attributes"]["label"] for field in form["body"])
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_a_vulnerability_is_reported_privately() -> None:
    """GitHub itself links to SECURITY.md where issues are created."""
    assert "*Report a vulnerability*" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_dependabot_updates_the_actions_and_every_go_module() -> None:
    updates = {
        update["package-ecosystem"]: update
        for update in loaded(ROOT / ".github" / "dependabot.yml")["updates"]
    }
    modules = {f"/{path.parent.relative_to(ROOT)}" for path in ROOT.glob("tests/**/go.mod")}
    assert set(updates["gomod"]["directories"]) == modules
    assert updates["github-actions"]["directory"] == "/"


def test_the_locked_python_packages_are_updated_with_the_target_that_locks_them() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    scripts = [
        step.get("run", "")
        for step in loaded(ROOT / ".github/workflows/update.yaml")["jobs"]["python"]["steps"]
    ]
    assert "make lock UPGRADE=1" in scripts
    locks = re.findall(r"uv pip compile.*", makefile)
    assert locks
    assert [lock for lock in locks if "$(if $(UPGRADE),--upgrade)" not in lock] == []
