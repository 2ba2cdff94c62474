"""The role `plugin`: prints the file `kubectl-slurm`, which needs Python 3.11 and kubectl alone.

The file is a zip archive that Python runs. It contains the modules that `sidecars.explain.main`
imports. The same sources always give the same file.
"""

import ast
import io
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from sidecars.commandline import Parser

_ROOT = "sidecars"
START = "sidecars.explain.main"
_LINE = b"#!/usr/bin/env python3\n"
_MAIN = """import sys

if sys.version_info < (3, 11):
    sys.exit("kubectl slurm: Python 3.11 or later is needed")

from sidecars.explain.main import main

sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def main(arguments: Sequence[str]) -> int:
    """Write the file; 0 if done, 2 for a wrong argument or a terminal as output."""
    parser = Parser(prog="slurm-sidecars plugin", description="Print the file kubectl-slurm.")
    parser.add_argument(
        "file", nargs="?", type=Path, help="where to write it; default: standard output"
    )
    given = parser.parse_args(arguments)
    if given.file is not None:
        given.file.write_bytes(build())
        given.file.chmod(0o755)
        return 0
    if sys.stdout.isatty():
        parser.error("redirect the output to a file: slurm-sidecars plugin > kubectl-slurm")
    sys.stdout.buffer.write(build())
    return 0


def build() -> bytes:
    """Return the file."""
    content = io.BytesIO()
    content.write(_LINE)
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in [("__main__.py", _MAIN), *sorted(_files())]:
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return content.getvalue()


def modules(start: str = START) -> set[str]:
    """Return the modules in a file that begins with this one, by their names."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        # An import of a module runs its packages too.
        parents = [name.rpartition(".")[0]] if "." in name else []
        if name in found or _source(name) is None:
            continue
        found.add(name)
        waiting += [*parents, *_imports(ast.parse(_source(name) or ""))]
    return found


def _files() -> Iterator[tuple[str, str]]:
    for name in modules():
        is_package = _path(name).is_dir()
        yield (
            name.replace(".", "/") + ("/__init__.py" if is_package else ".py"),
            _source(name) or "",
        )


def _path(name: str) -> Path:
    base = Path(str(resources.files(_ROOT)))
    return base.joinpath(*name.split(".")[1:])


def _source(name: str) -> str | None:
    """Return the text of a module of this product, or None for another one."""
    if name.partition(".")[0] != _ROOT:
        return None
    path = _path(name)
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file.read_text()
    return None


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports when it runs, and names in packages that may be modules."""
    for node in ast.iter_child_nodes(tree):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node)
