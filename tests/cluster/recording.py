"""`python -m tests.cluster.recording`: what the animation of the README shows, recorded on the
local cluster of `make up`.

A scale-in waits for a job, a typo in slurm.conf is refused, and a pending job is explained.
Commands and outputs are written to schemas/terminal_recording.json, from which `make generate`
draws docs/images/demo.svg. The cluster is afterwards as before.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas import terminal_picture
from tests.cluster import local
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool
from tests.cluster.waiting import until

ROOT = Path(__file__).parents[2]
NODESET = "nodesets.slinky.slurm.net/slurm-worker-slinky"
CONTROLLER = "controllers.slinky.slurm.net"
LOGIN = "kubectl -n slurm exec deploy/slurm-login-slinky --"
NODESETS = "kubectl -n slurm get nodesets"
MESSAGE = (
    """-o jsonpath='{.items[0].status.conditions[?(@.type=="ConfigurationAccepted")].message}'"""
)
READY = "-o jsonpath='{.items[0].status.conditions[0].message}'"
TYPO = "controller.extraConfMap.SchedulerParameter=bf_interval=30"
SECONDS = 120.0


@dataclass
class Recorder:
    """Runs commands as a reader would type them, and keeps what they print."""

    environment: dict[str, str]
    scenes: list[terminal_picture.Scene] = field(default_factory=list)

    def run(self, command: str) -> str:
        """What the command prints. Raises ClusterError if it fails."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode:
            raise ClusterError(f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout.rstrip("\n")

    def scene(self, title: str) -> None:
        """Begin an empty screen."""
        self.scenes.append({"title": title, "steps": []})

    def show(self, command: str, until_it_has: str = "") -> str:
        """Run a command, again until it prints this, and keep it."""
        found = ""

        def printed() -> bool:
            nonlocal found
            found = self.run(command)
            return until_it_has in found

        until(printed, f"{until_it_has!r} of {command}", SECONDS)
        self.scenes[-1]["steps"].append({"command": command, "output": found.splitlines()})
        return found

    def wait(self, what: str, command: str, expected: Callable[[str], bool]) -> None:
        """Run a command that isn't shown until its output is as expected."""
        until(lambda: expected(self.run(command)), what, SECONDS, pause=1.0)


def record(recorder: Recorder) -> None:
    """The three scenes."""
    workers = f"{NODESETS} -o jsonpath='{{.items[0].status.readyReplicas}}'"
    recorder.wait("two workers", workers, lambda it: it == "2")
    recorder.scene("A scale-in waits for the job on the worker")
    job = recorder.show(f"{LOGIN} sbatch --parsable -N2 --wrap 'srun sleep 30'")
    state = f"{LOGIN} squeue -h -j {job} -o %T"
    recorder.wait("the job to run", state, lambda it: it == "RUNNING")
    recorder.show(f"kubectl -n slurm scale {NODESET} --replicas=1")
    recorder.show(NODESETS, "Draining")
    recorder.show(f"{NODESETS} {READY}", "still running")
    recorder.show(f"{LOGIN} sinfo -R -o '%n: %E'", "slurm-operator")
    recorder.wait("the job to end", state, lambda it: it == "")
    recorder.show(NODESETS, "Ready")

    recorder.scene("A typo in slurm.conf is refused, with its line")
    upgrade = "helm upgrade slurm charts/slurm -n slurm --reuse-values"
    before = recorder.run("helm -n slurm history slurm --max 1 -o json")
    recorder.show(f"{upgrade} --set-string {TYPO} | head -1")
    recorder.show(f"kubectl -n slurm get {CONTROLLER}", "ConfigurationRefused")
    recorder.show(f"kubectl -n slurm get {CONTROLLER} {MESSAGE}")
    recorder.show(f"{LOGIN} srun hostname")
    revision = json.loads(before)[-1]["revision"]
    recorder.run(f"helm -n slurm rollback slurm {revision}")
    accepted = f"kubectl -n slurm get {CONTROLLER}"
    recorder.wait("the former configuration", accepted, lambda it: "Refused" not in it)

    recorder.scene("Why is my job pending?")
    job = recorder.show(f"{LOGIN} sbatch --parsable -N9 --wrap hostname")
    reason = f"{LOGIN} squeue -h -j {job} -o %r"
    recorder.wait("its reason", reason, lambda it: it not in {"None", "Priority"})
    recorder.show(f"kubectl slurm explain job {job}")


def restore(recorder: Recorder) -> None:
    """End the jobs, and run as many workers as before."""
    recorder.run(f"{LOGIN} sh -c 'squeue -h -o %A | xargs --no-run-if-empty scancel'")
    recorder.run(f"kubectl -n slurm scale {NODESET} --replicas=2")


def main(arguments: Sequence[str]) -> int:
    """The command."""
    cluster = local.existing(arguments[0] if arguments else local.default_name())
    with tempfile.TemporaryDirectory() as folder:
        for name in ("kubectl", "helm"):
            (Path(folder) / name).symlink_to(tool(name))
        path = f"{folder}:{os.environ['PATH']}"
        recorder = Recorder(
            {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "110"}
        )
        plugin = Path(folder) / "kubectl-slurm"
        program = "kubectl -n slinky exec deploy/slurm-operator -- slurm-sidecars plugin"
        recorder.run(f"{program} > '{plugin}'")
        plugin.chmod(0o755)
        try:
            record(recorder)
        finally:
            restore(recorder)
    terminal_picture.write(recorder.scenes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
