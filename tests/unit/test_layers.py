"""Who sends requests: `kube` to Kubernetes, `slurm` to Slurm, and no other layer to either.

Which tests a module has.
"""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.coverage import TESTED_ELSEWHERE, Coverage, imported

ROOT = Path(__file__).parents[2]
SIDECARS = ROOT / "sidecars"
POSTRENDER = ROOT / "postrender"
LAYERS = {"kube", "slurm"}
CLIENTS = {
    "aiohttp",
    "http.client",
    "httplib2",
    "httpx",
    "kubernetes",
    "requests",
    "urllib.request",
    "urllib3",
}
"""What can send a request. `aiohttp.web` only answers them."""
OTHERS = {
    "operator/runtime/real_world.py": {"aiohttp"},
    "reconfigure/status.py": {"http.client"},
    "backup/uploads.py": {"http.client", "urllib.request"},
}
"""Those that are asked are neither Kubernetes nor Slurm, but the `reconfigure` sidecar, and a store
of backups.
"""
PROGRAMS = {"kubectl", "helm"}
STARTS_KUBECTL = "explain/kubectl.py"
"""The user's own kubectl, with the user's own rights."""
MODULES = sorted(
    path.relative_to(SIDECARS).as_posix()
    for path in SIDECARS.rglob("*.py")
    if path.relative_to(SIDECARS).parts[0] not in LAYERS
)


FAULTS = {"aiohttp.http.HttpProcessingError"}
"""Of what a server receives."""


def clients(source: str) -> set[str]:
    """The means to send a request that a module's source takes to hand."""
    found = imported(ast.parse(source)) - {"aiohttp.web", *FAULTS}
    return {client for client in CLIENTS for name in found if f"{name}.".startswith(f"{client}.")}


def test_the_search_finds_each_way_to_import_a_client() -> None:
    assert clients("import aiohttp, json") == {"aiohttp"}
    assert clients("from aiohttp import ClientSession, web") == {"aiohttp"}
    assert clients("def f():\n    from http import client") == {"http.client"}
    assert clients("import urllib.request as r") == {"urllib.request"}
    assert clients("from aiohttp import web\nimport http.server, urllib.parse") == set()


@pytest.mark.parametrize("module", MODULES)
def test_only_the_layers_of_kubernetes_and_slurm_send_requests(module: str) -> None:
    source = (SIDECARS / module).read_text()
    assert clients(source) == OTHERS.get(module, set())
    words = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    assert module == STARTS_KUBECTL or not PROGRAMS & words


def test_the_post_renderer_sends_no_request() -> None:
    """A preview of a live cluster reads through `sidecars.kube`."""
    found = {
        path.relative_to(POSTRENDER).as_posix(): clients(path.read_text())
        for path in POSTRENDER.rglob("*.py")
    }
    assert {module: names for module, names in found.items() if names} == {}


def test_each_layer_knows_nothing_of_the_other() -> None:
    for layer, other in (("kube", "sidecars.slurm"), ("slurm", "sidecars.kube")):
        for path in (SIDECARS / layer).glob("*.py"):
            assert not {
                name for name in imported(ast.parse(path.read_text())) if name.startswith(other)
            }, path
    for path in (SIDECARS / "kube").glob("*.py"):
        text = path.read_text().replace("slurm-charts", "").replace("Knows nothing of Slurm", "")
        assert "slurm" not in text.lower(), f"{path.name} should know nothing of Slurm"


STANDARD = ("contract", "explain", "containers", "logs", "register", "node", "reconfigure")
"""What runs in images or pods that have nothing but Python, or costs each worker pod memory."""
OPERATORS = SIDECARS / "explain" / "gres"
"""Of these, what runs in the operator's pod."""


@pytest.mark.parametrize("package", STANDARD)
def test_what_runs_everywhere_needs_the_standard_library_alone(package: str) -> None:
    modules = sorted(
        ".".join(("sidecars", *path.relative_to(SIDECARS).with_suffix("").parts))
        for path in (SIDECARS / package).rglob("*.py")
        if path.name != "__init__.py" and path.parent != OPERATORS
    )
    program = (
        f"import sys, importlib; [importlib.import_module(name) for name in {modules!r}]; "
        "print(*{name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {name for name in run.stdout.split() if not name.startswith(("_", "sitecustomize"))}
    assert loaded == {"sidecars"}


def test_the_programs_that_none_may_import_are_all_programs() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts = {it["name"]: it for it in linter["contracts"]}
    layers = contracts["layers of sidecars, in which each package has its place"]["layers"]
    protected = contracts["programs are started, and never imported"]["protected_modules"]
    assert protected == [f"sidecars.{name}" for name in layers[1].split(" | ")]


def test_a_module_without_a_test_is_found(tmp_path: Path) -> None:
    sources, tests = tmp_path / "sources", tmp_path / "tests"
    for name in ("a.py", "b.py", "package/c.py", "package/d.py", "package/e.py"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text('def f():\n    "What it does."\n    return 1\n')
    (sources / "records.py").write_text(
        'class Shape:\n    def area(self):\n        "Its area."\n        ...\n'
    )
    (tests / "package").mkdir(parents=True)
    (tests / "test_a.py").touch()
    everything = ["b.py", "package/c.py", "package/d.py", "package/e.py"]
    assert Coverage(sources, tests).without() == everything
    (tests / "package" / "test_both.py").write_text("from sources.package import c\n")
    assert Coverage(sources, tests).without() == ["b.py", "package/d.py", "package/e.py"]
    with (sources / "package" / "c.py").open("a") as module:
        module.write("from sources.package.d import f as g\n")
    assert Coverage(sources, tests).without() == ["b.py", "package/e.py"]
    (tests / "test_package.py").touch()
    assert Coverage(sources, tests).without() == ["b.py"]


def test_each_module_is_reached_by_a_unit_test_of_its_package() -> None:
    tests = Path(__file__).parent
    for sources, folder in ((SIDECARS, tests), (POSTRENDER, tests / "postrender")):
        elsewhere = TESTED_ELSEWHERE[sources.name]
        assert Coverage(sources, folder).without() == sorted(elsewhere)
        assert [test for test in elsewhere.values() if not (folder / test).exists()] == []
