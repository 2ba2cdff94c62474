"""The user's kubectl: reads objects, and runs commands in pods."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any

READ_SECONDS = 60.0
"""For one answer. The kubeconfig may name a program that asks a person to log in, and a busy API
server repeats requests of kubectl later.
"""


class KubectlError(Exception):
    """kubectl failed. The text is its own."""


class Forbidden(KubectlError):
    """The user lacks a right. The text names it."""


class NotFound(KubectlError):
    """No such object, or no such kind."""


class NoKubectl(KubectlError):
    """kubectl can't be started, or reaches no API server."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command in a pod printed."""

    status: int
    out: str
    err: str


_CANNOT = re.compile(
    r'cannot (\S+) resource "([^"]+)" in API group "([^"]*)"(?: (at the cluster scope|in the '
    r'namespace "[^"]+"))?'
)
_UNREACHABLE = (
    "Unable to connect",
    "was refused",
    "no such host",
    "i/o timeout",
    "Client.Timeout",
    "certificate",
)
_NO_OPTIONS: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`options` select the cluster: `--context`, `--kubeconfig`."""

    options: tuple[str, ...] = _NO_OPTIONS
    program: str = "kubectl"

    def read(self, path: str) -> Any:
        """Return the JSON at a path of the API server. Raises KubectlError."""
        try:
            return json.loads(self.text(path))
        except ValueError:
            raise KubectlError(f"{path}: the API server's answer is no JSON") from None

    def text(self, path: str) -> str:
        """Return the text at a path of the API server, such as a log. Raises KubectlError."""
        done = self._run(("get", "--raw", path), READ_SECONDS)
        if done.status != 0:
            raise _error(done.err or done.out)
        return done.out

    def namespace(self) -> str:
        """Return the namespace of the kubeconfig's context, `default` without one. Raises
        KubectlError.
        """
        done = self._run(
            ("config", "view", "--minify", "-o", "jsonpath={..namespace}"), READ_SECONDS
        )
        return done.out.strip() or "default"

    def execute(
        self, namespace: str, pod: str, container: str, words: tuple[str, ...], seconds: float
    ) -> Output:
        """Run a command in a container. Raises KubectlError if it can't be started."""
        done = self._run(("-n", namespace, "exec", pod, "-c", container, "--", *words), seconds)
        if (
            done.status != 0
            and not done.out
            and done.err.startswith(("Error from server", "error:", "Unable", "The conn"))
        ):
            raise _error(done.err)
        return done

    def _run(self, words: tuple[str, ...], seconds: float) -> Output:
        try:
            done = subprocess.run(
                (self.program, *self.options, *words),
                capture_output=True,
                timeout=seconds,
                check=False,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            raise NoKubectl(f"no answer within {seconds:g} s") from None
        except OSError as error:
            raise NoKubectl(f"{self.program} can't be started: {error.strerror}") from error
        return Output(
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )


def _error(text: str) -> KubectlError:
    line = " ".join(text.split())
    cannot = _CANNOT.search(line)
    if cannot is not None or "(Forbidden)" in line:
        if cannot is None:
            return Forbidden(line)
        verb, resource, group, where = cannot.groups()
        return Forbidden(
            f"the right to {verb} {resource}{'.' + group if group else ''} {where or ''}".strip()
        )
    if (
        "(NotFound)" in line
        or "could not find the requested resource" in line
        or "not found" in line
    ):
        return NotFound(line)
    return NoKubectl(line) if any(word in line for word in _UNREACHABLE) else KubectlError(line)
