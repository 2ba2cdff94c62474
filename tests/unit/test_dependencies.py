"""The packages that the programs need are the same in the lock's source, the project and the
README.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def of_requirements(name: str) -> set[str]:
    """Return the requirements of a source of the lock, without comments and references."""
    lines = (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith(("#", "-"))}


def package(requirement: str) -> str:
    """Return the name that a requirement begins with."""
    return re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]


def of_readme() -> dict[str, str]:
    """Return the reason of each package in the README's table."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## Runtime dependencies\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return {row[0]: row[1] for row in rows[2:]}


def test_the_project_and_the_lock_require_the_same_versions_of_the_same_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime = of_requirements("runtime")
    assert set(project["dependencies"]) == runtime
    added = set(project["optional-dependencies"]["postrender"])
    assert added == of_requirements("postrender") - runtime


def test_the_readme_names_each_package_with_a_reason_and_no_other() -> None:
    required = of_requirements("runtime") | of_requirements("postrender")
    reasons = of_readme()
    assert set(reasons) == {package(it) for it in required}
    assert all(reasons.values())
