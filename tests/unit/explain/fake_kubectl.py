"""A kubectl that answers from a folder: a script, so that the edge starts it as it starts the real one."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecars.explain.kubectl import Kubectl

_SCRIPT = """#!{python}
import json, sys
from pathlib import Path
given = json.loads(Path({file!r}).read_text())
words = [it for it in sys.argv[1:] if not it.startswith("--context")]
with Path({log!r}).open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if words[:2] == ["get", "--raw"]:
    status, out, err = given["paths"].get(words[2], given["other"])
elif words[0] == "config":
    status, out, err = 0, given["namespace"], ""
else:
    pod = words[words.index("exec") + 1]
    status, out, err = given["exec"].get(pod, [1, "", "Error from server (NotFound): pods not found"])
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""
NOT_FOUND = (1, "", "Error from server (NotFound): the server could not find the requested resource")
EMPTY = (0, json.dumps({"kind": "List", "items": []}), "")


def forbidden(verb: str, resource: str, group: str = "") -> tuple[int, str, str]:
    """The API server's refusal."""
    cannot = f'User "ada" cannot {verb} resource "{resource}" in API group "{group}" in the namespace "slurm"'
    text = f"Error from server (Forbidden): {resource} is forbidden: {cannot}"
    return 1, "", text


@dataclass
class FakeKubectl:
    """What it answers. Paths that aren't listed have `other`."""

    folder: Path
    paths: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    executed: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """By pod."""
    namespace: str = "slurm"
    other: tuple[int, str, str] = EMPTY

    def lists(self, path: str, kind: str, *items: dict[str, Any]) -> None:
        """The answer at a path: a list."""
        self.paths[path] = 0, json.dumps({"kind": f"{kind}List", "items": list(items)}), ""

    def kubectl(self, *options: str) -> Kubectl:
        """The client of it."""
        return Kubectl(options, str(self.write()))

    def write(self) -> Path:
        """The program."""
        self.folder.mkdir(exist_ok=True)
        file, program = self.folder / "answers.json", self.folder / "kubectl"
        answers = {"paths": self.paths, "exec": self.executed, "namespace": self.namespace, "other": self.other}
        file.write_text(json.dumps(answers))
        program.write_text(_SCRIPT.format(python=sys.executable, file=str(file), log=str(self.folder / "log")))
        program.chmod(0o755)
        return program

    def asked(self) -> list[list[str]]:
        """The arguments of each call."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
