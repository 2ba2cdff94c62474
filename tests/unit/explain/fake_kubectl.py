"""A kubectl that answers from a folder: a script, so that the edge starts it as it starts the real
one.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecars.explain.kubectl import Kubectl, Output

_SCRIPT = """#!{python}
import json, sys
from pathlib import Path
given = json.loads(Path({file!r}).read_text())
words = [it for it in sys.argv[1:] if not it.startswith("--context")]
if words[:2] == ["get", "--raw"]:
    status, out, err = given["paths"].get(words[2], given["other"])
elif words[0] == "config":
    status, out, err = 0, given["namespace"], ""
else:
    pod = words[words.index("exec") + 1]
    missing = [1, "", "Error from server (NotFound): pods not found"]
    status, out, err = given["exec"].get(pod, missing)
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""
NOT_FOUND = (
    1,
    "",
    "Error from server (NotFound): the server could not find the requested resource",
)
EMPTY = (0, json.dumps({"kind": "List", "items": []}), "")


def forbidden(verb: str, resource: str, group: str = "") -> tuple[int, str, str]:
    """The API server's refusal."""
    cannot = (
        f'User "ada" cannot {verb} resource "{resource}" in API group "{group}" in the '
        'namespace "slurm"'
    )
    text = f"Error from server (Forbidden): {resource} is forbidden: {cannot}"
    return 1, "", text


@dataclass(frozen=True)
class InProcess(Kubectl):
    """The same answers without a process: quick on a busy host."""

    fake: "FakeKubectl | None" = None

    def _run(self, words: tuple[str, ...], seconds: float) -> Output:
        assert self.fake is not None
        return self.fake.answer((*self.options, *words))


@dataclass
class FakeKubectl:
    """What it answers. Paths that aren't listed have `other`."""

    folder: Path
    paths: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    executed: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """By pod."""
    namespace: str = "slurm"
    other: tuple[int, str, str] = EMPTY
    calls: list[list[str]] = field(default_factory=list)

    def lists(self, path: str, kind: str, *items: dict[str, Any]) -> None:
        """The answer at a path: a list."""
        self.paths[path] = 0, json.dumps({"kind": f"{kind}List", "items": list(items)}), ""

    def kubectl(self, *options: str) -> Kubectl:
        """A client that gets these answers."""
        return InProcess(options, fake=self)

    def program(self, *options: str) -> Kubectl:
        """A client that starts the program."""
        return Kubectl(options, str(self.write()))

    def answer(self, given: tuple[str, ...]) -> Output:
        """What the program would print."""
        self.calls.append(list(given))
        words = [it for it in given if not it.startswith("--context")]
        if words[:2] == ["get", "--raw"]:
            return Output(*self.paths.get(words[2], self.other))
        if words[0] == "config":
            return Output(0, self.namespace, "")
        return Output(*self.executed.get(words[words.index("exec") + 1], NOT_FOUND))

    def write(self) -> Path:
        """The program."""
        self.folder.mkdir(exist_ok=True)
        file, program = self.folder / "answers.json", self.folder / "kubectl"
        answers = {
            "paths": self.paths,
            "exec": self.executed,
            "namespace": self.namespace,
            "other": self.other,
        }
        file.write_text(json.dumps(answers))
        program.write_text(_SCRIPT.format(python=sys.executable, file=str(file)))
        program.chmod(0o755)
        return program

    def asked(self) -> list[list[str]]:
        """The arguments of each call."""
        return self.calls
