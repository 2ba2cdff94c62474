"""What the sidecars of a worker pod may import costs nothing but the standard library."""

import subprocess
import sys

CORE = ("conf", "errors", "extra", "hostlists", "protocol", "records", "rest", "states", "tokens")


def test_the_core_imports_nothing_outside_the_standard_library() -> None:
    program = (
        f"import sys, importlib; [importlib.import_module('sidecars.slurm.' + name) for name in {CORE!r}]; "
        "print(*sorted({name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, '.'); " + program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    loaded = {name for name in run.stdout.split() if not name.startswith(("_", "sitecustomize"))}
    assert loaded == {"sidecars"}
