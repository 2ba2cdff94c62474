"""The sidecar of worker pods that prints slurmd's log, as processes in the namespaces of a
container.
"""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.real.harness import CHARTS, until, until_equal


def test_a_sidecar_misses_no_term_after_its_hook(tmp_path: Path) -> None:
    pod = yaml.safe_load((CHARTS / "slurm-operator" / "workloads" / "slurmd.yaml").read_text())
    [sidecar] = [it for it in pod["spec"]["initContainers"] if it["name"] == "logfile"]
    gate, socket = tmp_path / "gate", tmp_path / "log" / "socket"
    # A start that takes as long as the test wants.
    start = (
        "sh",
        "-c",
        'until test -e "$GATE"; do :; done; exec "$@"',
        "start",
        *sidecar["command"],
    )
    container = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *start],
        env=os.environ | {"GATE": str(gate), "SOCKET": str(socket)},
    )
    try:
        children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
        first = int(until("the first process", lambda: children.read_text().strip(), 300))
        until_equal(
            "it to be a shell", lambda: Path(f"/proc/{first}/comm").read_text(), "sh\n", 300
        )
        os.kill(first, signal.SIGTERM)
        enter = ("nsenter", f"--target={first}", "--pid", "--mount")
        with subprocess.Popen(
            [*enter, *sidecar["lifecycle"]["preStop"]["exec"]["command"]]
        ) as hook:
            with pytest.raises(subprocess.TimeoutExpired):
                hook.wait(1)
            gate.touch()
            assert hook.wait(300) == 0
        assert container.poll() is None, "the kernel has dropped the first TERM"
        os.kill(first, signal.SIGTERM)
        assert container.wait(300) == 0
    finally:
        with suppress(ProcessLookupError):
            container.kill()
        container.wait()
