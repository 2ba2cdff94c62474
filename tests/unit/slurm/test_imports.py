"""What the sidecars of a worker pod may import costs nothing but the standard library."""

import pkgutil
import subprocess
import sys

from sidecars import contract

CORE = ("conf", "errors", "hostlists", "protocol", "records", "rest", "states", "tokens")


def test_the_core_imports_nothing_outside_the_standard_library() -> None:
    modules = [f"sidecars.slurm.{name}" for name in CORE]
    modules += [
        found.name for found in pkgutil.iter_modules(contract.__path__, "sidecars.contract.")
    ]
    program = (
        f"import sys, importlib; [importlib.import_module(name) for name in {modules!r}]; "
        "print(*sorted({name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, '.'); " + program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {name for name in run.stdout.split() if not name.startswith(("_", "sitecustomize"))}
    assert loaded == {"sidecars"}
