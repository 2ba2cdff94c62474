"""Reading the YAML folder, laying overlays on, filling in variables."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecars.contract.project import VERSION
from sidecars.workloads import structure
from sidecars.workloads.structure import StructureError, Workloads
from tests.support import builders

ROOT = Path(__file__).parents[3]


def pod(**spec: Any) -> dict[str, Any]:
    """A Pod called `${name}`."""
    return {"kind": "Pod", "metadata": {"name": "${name}"}, "spec": spec}


def rendered(document: dict[str, Any], **variables: Any) -> dict[str, Any]:
    """The document as a base without overlays."""
    [found] = Workloads({"base": [document]}).render("base", [], {"name": "a"} | variables)
    return found


def test_a_variable_in_a_text_is_replaced() -> None:
    assert rendered(pod(host="${name}.${domain}:${port}"), domain="b", port=22)["spec"] == {
        "host": "a.b:22"
    }


def test_a_variable_that_stands_alone_keeps_its_type() -> None:
    found = rendered(
        pod(replicas="${replicas}", strategy="${strategy}"),
        replicas=3,
        strategy={"type": "Recreate"},
    )
    assert found["spec"] == {"replicas": 3, "strategy": {"type": "Recreate"}}


def test_none_removes_the_field_or_the_item() -> None:
    assert rendered(pod(strategy="${gone}", list=["a", "${gone}"]), gone=None)["spec"] == {
        "list": ["a"]
    }


def test_a_list_in_the_place_of_an_item_is_spliced_in() -> None:
    assert rendered(pod(list=["a", "${more}", "d"]), more=["b", "c"])["spec"] == {
        "list": ["a", "b", "c", "d"]
    }


def test_a_dollar_sign_escapes_itself_and_shell_variables_are_left_alone() -> None:
    text = "$HOME $(date) $((1 + 1)) $${shell} ${name}"
    assert rendered(pod(script=text))["spec"] == {"script": "$HOME $(date) $((1 + 1)) ${shell} a"}


def test_values_of_variables_are_not_filled_in_again() -> None:
    assert rendered(pod(conf="x ${user}"), user="${name}")["spec"] == {"conf": "x ${name}"}


def test_an_unknown_variable_is_an_error_that_names_file_and_place() -> None:
    with pytest.raises(
        StructureError, match=r"base\.yaml: spec: host: \$\{nmae\} isn't one of name"
    ):
        rendered(pod(host="${nmae}"))


def test_a_structure_within_a_text_is_an_error() -> None:
    with pytest.raises(StructureError, match="no text or number"):
        rendered(pod(host="x-${list}"), list=[])


def test_an_overlay_is_merged_into_the_object_of_its_kind_and_name() -> None:
    base = pod(containers=[{"name": "c", "image": "i"}], hostname="h")
    overlay = pod(containers=[{"name": "c", "args": ["x"]}], hostname=None)
    other = {"kind": "ConfigMap", "metadata": {"name": "${name}"}}
    workloads = Workloads({"base": [base], "base-more": [overlay, other]})
    assert workloads.render("base", ["more"], {"name": "a"}) == [
        {
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "i", "args": ["x"]}]},
        },
        {"kind": "ConfigMap", "metadata": {"name": "a"}},
    ]
    assert workloads.render("base", [], {"name": "a"})[0]["spec"] == base["spec"]


def test_a_missing_overlay_is_an_error() -> None:
    with pytest.raises(StructureError, match=r"base-more.yaml is missing"):
        Workloads({"base": [pod()]}).render("base", ["more"], {"name": "a"})


def folder(path: Path, **files: str) -> Path:
    """A folder of these files, stamped with this version."""
    for name, text in ({"version": f"version: {VERSION}"} | files).items():
        (path / f"{name}.yaml").write_text(text)
    return path


def test_a_folder_is_read_as_streams_of_objects(tmp_path: Path) -> None:
    found = structure.load(
        folder(tmp_path, login="# about\n---\nkind: Service\n---\nkind: Deployment\n")
    )
    assert found.files == {"login": [{"kind": "Service"}, {"kind": "Deployment"}]}


def test_a_folder_of_another_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    with pytest.raises(StructureError, match=f"belongs to version 9.9.9, this is {VERSION}"):
        structure.load(folder(tmp_path, version="version: 9.9.9"))


def test_a_folder_without_a_stamp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StructureError, match=r"version\.yaml doesn't exist"):
        structure.load(tmp_path)


@pytest.mark.parametrize("text", ["a: [", "- a\n", "when: 2026-01-01\n", "\tx"])
def test_a_file_without_objects_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StructureError, match=str(tmp_path)):
        structure.load(folder(tmp_path, login=text))


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION


def test_a_part_is_a_base_with_its_overlays() -> None:
    assert set(builders.workloads().part("slurmctld").files) == {
        "slurmctld", "slurmctld-existing-claim", "slurmctld-ha", "slurmctld-new-claim",
        "slurmctld-no-claim", "slurmctld-users",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["slurmctld", "slurmdbd", "slurmrestd", "login"])
def test_each_container_beside_the_jobs_requests_cpu_and_memory(name: str) -> None:
    specs = [
        it["spec"]["template"]["spec"]
        for it in builders.workloads().files[name]
        if "template" in it.get("spec", {})
    ]
    containers = [
        each for spec in specs for each in [*spec.get("initContainers", ()), *spec["containers"]]
    ]
    assert containers
    without = [
        each["name"]
        for each in containers
        if set(each.get("resources", {}).get("requests", ())) != {"cpu", "memory"}
    ]
    assert without == []


def scripts() -> list[tuple[str, str]]:
    """Every script in the folder, with the name of its file."""
    found: list[tuple[str, str]] = []

    def search(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                search(name, item)
        elif isinstance(value, list):
            if value[:2] == ["sh", "-c"]:
                found.append((name, value[2]))
            for item in value:
                search(name, item)

    for name, documents in builders.workloads().files.items():
        search(name, list(documents))
    return found


def test_there_are_scripts_to_check() -> None:
    assert {name for name, _ in scripts()} == {
        "login",
        "slurmctld",
        "slurmctld-ha",
        "slurmd",
        "slurmd-logs",
    }


@pytest.mark.parametrize(("name", "script"), scripts())
def test_a_script_is_plain_shell(name: str, script: str) -> None:
    checked = subprocess.run(
        ["sh", "-n"],
        input=script.replace("${stopSeconds}", "1"),
        text=True,
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, ""), name


@pytest.mark.parametrize(
    "path", sorted(structure.folder(None).glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_file_states_in_its_first_line_what_it_is(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert all(
        isinstance(document, dict)
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    )
