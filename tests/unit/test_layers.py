"""Who makes requests: `kube` to Kubernetes, `slurm` to Slurm, and nobody else to either.

How long a module can be, and where its unit test is.
"""

import ast
from pathlib import Path

import pytest

SIDECARS = Path(__file__).parents[2] / "sidecars"
POSTRENDER = Path(__file__).parents[2] / "postrender"
LAYERS = {"kube", "slurm"}
CLIENTS = {"aiohttp", "http.client", "httplib2", "httpx", "kubernetes", "requests", "urllib.request", "urllib3"}
"""What can send a request. `aiohttp.web` only answers them."""
OTHERS = {
    "operator/runtime/real_world.py": {"aiohttp"},
    "reconfigure/status.py": {"http.client"},
    "backup/uploads.py": {"http.client", "urllib.request"},
}
"""What is asked there is neither Kubernetes nor Slurm, but the `reconfigure` sidecar, and a store of backups."""
PROGRAMS = {"kubectl", "helm"}
STARTS_KUBECTL = "explain/kubectl.py"
"""The user's own kubectl, with the user's own rights."""
MODULES = sorted(
    path.relative_to(SIDECARS).as_posix()
    for path in SIDECARS.rglob("*.py")
    if path.relative_to(SIDECARS).parts[0] not in LAYERS
)


def imported(tree: ast.AST) -> set[str]:
    """Dotted names of all that a module imports, at its top or within."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def clients(source: str) -> set[str]:
    """The means to send a request that a module's source takes to hand."""
    found = {name for name in imported(ast.parse(source)) if name != "aiohttp.web"}
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
    found = {path.relative_to(POSTRENDER).as_posix(): clients(path.read_text()) for path in POSTRENDER.rglob("*.py")}
    assert {module: names for module, names in found.items() if names} == {}


def test_each_layer_knows_nothing_of_the_other() -> None:
    for layer, other in (("kube", "sidecars.slurm"), ("slurm", "sidecars.kube")):
        for path in (SIDECARS / layer).glob("*.py"):
            assert not {name for name in imported(ast.parse(path.read_text())) if name.startswith(other)}, path
    for path in (SIDECARS / "kube").glob("*.py"):
        text = path.read_text().replace("slurm-charts", "").replace("Knows nothing of Slurm", "")
        assert "slurm" not in text.lower(), f"{path.name} should know nothing of Slurm"


LONGEST = 500
"""Lines of a module. A longer one has more than one subject. No reason to write densely: divide by subject."""


def too_long(folder: Path) -> dict[str, int]:
    """The modules below a folder with more than `LONGEST` lines, and their number."""
    lines = {path.relative_to(folder).as_posix(): len(path.read_text().splitlines()) for path in folder.rglob("*.py")}
    return {module: number for module, number in lines.items() if number > LONGEST}


def test_a_module_with_a_line_too_many_is_found(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("\n" * (LONGEST + 1))
    (tmp_path / "short.py").write_text("\n" * LONGEST)
    assert too_long(tmp_path) == {"long.py": LONGEST + 1}


def test_no_module_is_too_long() -> None:
    assert too_long(SIDECARS) == {}
    assert too_long(POSTRENDER) == {}


TESTED_BY = {
    "__main__.py": "test_main.py",
    "bridge/passes.py": "bridge/test_main.py",
    "exporter/compatible.py": "exporter/test_families.py",
    "exporter/serving.py": "exporter/test_main.py",
    "logs/records.py": "logs/test_shipper.py",
    "logs/tails.py": "logs/test_shipper.py",
    "operator/accounts/effects.py": "operator/accounts/test_reconcile.py",
    "operator/accounts/wiring.py": "operator/accounts/test_reconcile.py",
    "operator/nodeset/passes.py": "operator/nodeset/test_reconcile.py",
    "operator/runtime/errors.py": "operator/runtime/test_workload.py",
    "operator/runtime/switches.py": "operator/worker_pod/test_topology.py",
    "operator/runtime/topology.py": "operator/worker_pod/test_topology.py",
    "operator/runtime/runtime.py": "operator/test_main.py",
    "operator/users/effects.py": "operator/users/test_reconcile.py",
    "operator/users/wiring.py": "operator/users/test_reconcile.py",
    "policy/accounts/report.py": "operator/accounts/test_reconcile.py",
    "policy/accounts/step.py": "policy/accounts/test_plan.py",
    "policy/autoscaling/fit.py": "policy/autoscaling/test_demand.py",
    "policy/autoscaling/fits.py": "policy/autoscaling/test_demand.py",
    "policy/autoscaling/needs.py": "policy/autoscaling/test_demand.py",
    "policy/autoscaling/records.py": "policy/autoscaling/test_demand.py",
    "policy/autoscaling/room.py": "policy/autoscaling/test_demand.py",
    "policy/autoscaling/spread.py": "policy/autoscaling/test_demand.py",
    "policy/explain/capacity.py": "policy/explain/test_job.py",
    "policy/explain/nodesets.py": "policy/explain/test_job.py",
    "policy/explain/objects.py": "policy/explain/test_properties.py",
    "policy/explain/partition.py": "policy/explain/test_job.py",
    "policy/explain/reasons.py": "policy/explain/test_job.py",
    "policy/explain/records.py": "policy/explain/test_job.py",
    "policy/explain/resources.py": "policy/explain/test_job.py",
    "policy/explain/timeline.py": "policy/explain/test_job.py",
    "policy/nodeset/needs.py": "policy/nodeset/test_decide.py",
    "policy/nodeset/records.py": "policy/nodeset/test_pods.py",
    "policy/users/report.py": "operator/users/test_reconcile.py",
    "simulate/answers.py": "simulate/test_contract.py",
    "simulate/carriers.py": "simulate/test_contract.py",
    "simulate/control.py": "simulate/test_main.py",
    "simulate/external.py": "simulate/test_contract.py",
    "simulate/initial.py": "simulate/test_main.py",
    "simulate/model.py": "simulate/test_contract.py",
    "simulate/records.py": "simulate/test_contract.py",
    "slurm/errors.py": "slurm/test_protocol.py",
    "slurm/rest.py": "slurm/test_carriers.py",
    "workloads/names.py": "workloads/test_controller.py",
    "workloads/topology.py": "policy/test_topology.py",
}
"""Modules whose test has another place than theirs."""

TESTED_POSTRENDER = {
    "clusters.py": "steps/test_check.py",
    "errors.py": "test_reading.py",
}
"""The same of the post-renderer."""


def without_a_test(sources: Path, tests: Path) -> list[str]:
    """The modules that do something and have neither a test of their name nor one for their whole package."""
    found = []
    for path in sorted(sources.rglob("*.py")):
        module = path.relative_to(sources)
        places = [module.parent / f"test_{module.name}", module.parent.parent / f"test_{module.parent.name}.py"]
        tested = any((tests / place).exists() for place in places if place.name != "test_.py")
        if not tested and module.name != "__init__.py" and _does_something(ast.parse(path.read_text())):
            found.append(module.as_posix())
    return found


def _does_something(tree: ast.Module) -> bool:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(
        not (isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant)) for f in functions for it in f.body
    )


def test_a_module_without_a_test_is_found(tmp_path: Path) -> None:
    sources, tests = tmp_path / "sources", tmp_path / "tests"
    for name in ("a.py", "b.py", "package/c.py"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text('def f():\n    "What it does."\n    return 1\n')
    (sources / "records.py").write_text('class Shape:\n    def area(self):\n        "Its area."\n        ...\n')
    tests.mkdir()
    (tests / "test_a.py").touch()
    assert without_a_test(sources, tests) == ["b.py", "package/c.py"]
    (tests / "test_package.py").touch()
    assert without_a_test(sources, tests) == ["b.py"]


def test_each_module_has_a_unit_test_where_it_is_looked_for() -> None:
    tests = Path(__file__).parent
    assert without_a_test(SIDECARS, tests) == sorted(TESTED_BY)
    assert without_a_test(POSTRENDER, tests / "postrender") == sorted(TESTED_POSTRENDER)
    assert [test for test in TESTED_POSTRENDER.values() if not (tests / "postrender" / test).exists()] == []
    assert [test for test in TESTED_BY.values() if not (tests / test).exists()] == []
