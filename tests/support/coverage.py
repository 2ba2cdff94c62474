"""Which unit tests of its own package reach a module.

The tests of a package are those in the folder of its name, and the file of its name. They reach the
module of their own name, what they import of the package, and what that imports of it.
"""

import ast
from pathlib import Path

TESTED_ELSEWHERE = {
    "sidecars": {
        "operator/accounts/wiring.py": "operator/accounts/test_reconcile.py",
        "operator/runtime/topology.py": "operator/worker_pod/test_topology.py",
        "operator/users/wiring.py": "operator/users/test_reconcile.py",
        "operator/accounts/core/report.py": "operator/accounts/test_reconcile.py",
        "policy/users/report.py": "operator/users/test_reconcile.py",
    },
    "postrender": {"clusters.py": "steps/test_check.py"},
}
"""Modules that no test of their own package reaches: what they do shows in that of another."""


def imported(tree: ast.AST) -> set[str]:
    """Return the dotted names of all that a module imports, at its top or within."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


class Coverage:
    """The modules in `sources`, a package, and the unit tests in `tests`."""

    def __init__(self, sources: Path, tests: Path) -> None:
        self._sources = sources
        self._tests = tests
        self._modules = {
            ".".join((sources.name, *it.relative_to(sources).with_suffix("").parts)): it
            for it in sorted(sources.rglob("*.py"))
        }
        self._imports = {
            name: self._of_ours(ast.parse(path.read_text())) for name, path in self._modules.items()
        }
        self._hops: dict[Path, dict[str, int]] = {}

    def by(self, module: str) -> list[Path]:
        """Return the tests that reach the module, the nearest first.

        `module` is its path in `sources`, such as `operator/main.py`.
        """
        path = Path(module)
        places = [
            self._tests / path.parent / f"test_{path.name}",
            self._tests / path.parent.parent / f"test_{path.parent.name}.py",
        ]
        noted = TESTED_ELSEWHERE.get(self._sources.name, {}).get(module)
        if noted is not None:
            places.insert(0, self._tests / noted)
        named = [it for it in places if it.is_file()]
        name = ".".join((self._sources.name, *path.with_suffix("").parts))
        hops = {
            test: reached[name]
            for test in sorted((self._tests / path.parent).glob("test_*.py"))
            if name in (reached := self._reached(test, name.rpartition(".")[0]))
        }
        return [*named, *sorted(hops.keys() - set(named), key=lambda it: (hops[it], it))]

    def without(self) -> list[str]:
        """Return the modules that do something and that no test of their package reaches."""
        noted = TESTED_ELSEWHERE.get(self._sources.name, {})
        modules = [it.relative_to(self._sources).as_posix() for it in self._modules.values()]
        return [
            it
            for it in modules
            if Path(it).name != "__init__.py"
            and _does_something(ast.parse((self._sources / it).read_text()))
            and not [test for test in self.by(it) if test != self._tests / noted.get(it, "")]
        ]

    def _reached(self, test: Path, package: str) -> dict[str, int]:
        """Return the modules of the package that the test imports, with the modules between."""
        if test not in self._hops:
            hops: dict[str, int] = {}
            nearest = self._of_ours(ast.parse(test.read_text()))
            while nearest:
                hops |= dict.fromkeys(nearest, max(hops.values(), default=-1) + 1)
                further = {other for it in nearest for other in self._imports[it]}
                nearest = {it for it in further - hops.keys() if it.startswith(f"{package}.")}
            self._hops[test] = hops
        return self._hops[test]

    def _of_ours(self, tree: ast.AST) -> set[str]:
        names = imported(tree)
        return (names | {it.rpartition(".")[0] for it in names}) & self._modules.keys()


def _does_something(tree: ast.Module) -> bool:
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return any(
        not (isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant))
        for f in functions
        for it in f.body
    )
