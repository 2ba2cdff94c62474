"""A worker's container for the health scripts: stubs of scontrol, nvidia-smi and dmesg, first in
PATH.
"""

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecars.workloads import nodeset as render
from tests.support import builders

FIXTURES = Path(__file__).parents[2] / "fixtures/gpu/nvidia-smi"

# A Slurm with one node whose state and reason are the files beside it; update does what slurmctld
# does.
_SCONTROL = """#!/bin/sh
cd SLURM || exit 1
echo "$*" >> calls
test ! -e down || exit 1
case "$1 $2" in
  "show node")
    test -e state || { echo "Node $3 not found"; exit 1; }
    echo "NodeName=$3 Arch=x86_64 CoresPerSocket=1"
    echo "   State=$(cat state) ThreadsPerCore=1 TmpDisk=0 Weight=1"
    test ! -s reason || echo "   Reason=$(cat reason) [root@2026-11-21T16:00:00]"
    ;;
  update*)
    for word; do
      case "$word" in
        State=DRAIN) echo IDLE+DRAIN+DYNAMIC_NORM > state ;;
        State=UNDRAIN) echo IDLE+DYNAMIC_NORM > state; : > reason ;;
        Reason=*) echo "${word#Reason=}" > reason ;;
      esac
    done
    ;;
esac
"""


@dataclass(frozen=True)
class Ran:
    """What one run of the program did."""

    status: int
    output: str
    calls: tuple[str, ...]


class Worker:
    """A worker's container, its Slurm, and the ConfigMap of the NodeSet that `spec` creates."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self._folder = folder
        self.slurm, self.program, self.pod = folder / "slurm", folder / "health", folder / "pod"
        for part in (self.slurm, self.program, self.pod, folder / "bin"):
            part.mkdir()
        of = builders.nodeset(**spec)
        [manifest] = [
            found
            for found in render.objects(of, builders.controller(), builders.facts())
            if found["metadata"]["name"].endswith("-health")
        ]
        for name, text in manifest["data"].items():
            self.put(self.program / name, text)
        self.stub("scontrol", _SCONTROL.replace("SLURM", shlex.quote(str(self.slurm))))
        self.stub("dmesg", "#!/bin/sh\n")
        self.node("IDLE+DYNAMIC_NORM")

    def put(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def stub(self, name: str, text: str) -> None:
        """A program of this name."""
        self.put(self._folder / "bin" / name, text)

    def answer(self, name: str, text: str, status: int = 0) -> None:
        """A program of this name that prints a text."""
        message = self._folder / f"{name}.output"
        message.write_text(text)
        self.stub(name, f"#!/bin/sh\ncat {shlex.quote(str(message))}\nexit {status}\n")

    def smi(self, fixture: str, *rows: str) -> None:
        """nvidia-smi that lists a fixture, and has these rows for queries."""
        listing = FIXTURES / f"{fixture}.txt"
        self.stub(
            "nvidia-smi",
            f"#!/bin/sh\ncase $1 in -L) cat {listing} ;; *) printf '%s\\n' {shlex.join(rows)} ;; "
            "esac\n",
        )

    def node(self, state: str, reason: str = "") -> None:
        """What Slurm has of the node."""
        (self.slurm / "state").write_text(f"{state}\n")
        (self.slurm / "reason").write_text(f"{reason}\n" if reason else "")

    @property
    def state(self) -> str:
        return (self.slurm / "state").read_text().strip()

    @property
    def reason(self) -> str:
        return (self.slurm / "reason").read_text().strip()

    def calls(self) -> tuple[str, ...]:
        """All words that scontrol was called with."""
        try:
            return tuple((self.slurm / "calls").read_text().splitlines())
        except FileNotFoundError:
            return ()

    def run(self, *, shell: str = "", **environment: str) -> Ran:
        """slurmd runs the program once."""
        before = len(self.calls())
        command = [shell] * bool(shell) + [str(self.program / "run")]
        known = {
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
            "SLURMD_NODENAME": "w-0",
            "SLURM_HEALTH_STATE": str(self._folder / "state"),
            "SLURM_NODE_DIR": str(self.pod),
        }
        done = subprocess.run(
            command,
            env=known | environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.stderr == ""
        return Ran(done.returncode, done.stdout, self.calls()[before:])

    def registered(self) -> None:
        """slurmd has started, registered and run the program for a second time."""
        self.run()
        self.run()

    def check(self, name: str, **environment: str) -> tuple[int, str]:
        """One check alone with the ConfigMap's settings: status and first line."""
        (self._folder / "state").mkdir(exist_ok=True)
        folder = shlex.quote(str(self.program))
        script = f"set -a; . {folder}/settings; exec {folder}/check-{name}"
        known = {
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
            "SLURM_HEALTH_STATE": str(self._folder / "state"),
        }
        done = subprocess.run(
            ["sh", "-c", script],
            env=known | environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout.partition("\n")[0]
