"""How the end-to-end tests speak to the cluster: kubectl and Helm as a user would call them, and
one way to wait.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.commands import environment
from tests.support.real.reading import Reader, ReadError, look_of
from tests.support.real.shells import GoneError, NotStartedError, Shells
from tests.support.real.watching import PodWatch as PodWatch

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parents[3]
CHARTS = REPOSITORY / "charts"
VALUES = CHARTS / "slurm" / "ci" / "local-values.yaml"
SSH = (
    *("ssh", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
    *("-o", "BatchMode=yes"),
)
"""Without a question to the user."""
NODESET = "slurm-worker-slinky"
WILL_COME = 300.0
"""Seconds to wait for what will come, on any host. A wait ends as soon as it comes."""
UNTIL_ENDED = '#!/bin/sh\nuntil [ -e "/tmp/end-$SLURM_JOB_ID" ]; do sleep 0.5; done\n'
"""A job that runs until `Slurm.end`, so that no test depends on how long a job takes."""


class CommandError(AssertionError):
    """A command of a test failed; the text contains its output."""


def until(
    what: str,
    look: Callable[[], T | None],
    seconds: float = WILL_COME,
    pause: float = 0.25,
    is_it: Callable[[Any], bool] = bool,
    *,
    promise: float | None = None,
) -> T:
    """The first answer of `look` that is it; fails naming `what` and the last answer or error when
    the time is over.

    `promise`: the seconds within which the product promises it. Where the product records both
    times, compare those instead: this clock also counts what a busy host needs to look.
    """
    limit = seconds if promise is None else promise
    deadline = time.monotonic() + limit
    last: object = None
    while (looked := time.monotonic()) < deadline:
        try:
            answer = look()
        except (CommandError, subprocess.TimeoutExpired) as error:
            # A command that hangs, as one does in a pod that has just been replaced, is no answer;
            # the deadline stays.
            last = error
        else:
            if answer is not None and is_it(answer):
                return answer
            last = answer
        # Of two cores, a test must not take one for its looks.
        time.sleep(max(pause, min(time.monotonic() - looked, 2)))
    promised = "" if promise is None else ", which is promised within that time"
    raise AssertionError(f"waited {limit:.0f} s for {what}{promised}; last: {last}")


def until_equal(
    what: str,
    look: Callable[[], object],
    expected: object,
    seconds: float = WILL_COME,
    *,
    promise: float | None = None,
) -> None:
    """Wait until `look` answers what is expected; fails as `until` does, with the last answer."""
    until(
        f"{what} ({expected!r})",
        look,
        seconds,
        is_it=lambda answer: answer == expected,
        promise=promise,
    )


@dataclass(frozen=True)
class _Place:
    """A container of a pod that exists."""

    namespace: str
    pod: str
    uid: str
    container: str


@dataclass(frozen=True)
class Kubernetes:
    """A cluster, by its kubeconfig."""

    kubeconfig: Path
    kubectl_path: Path
    helm_path: Path

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Standard output of kubectl. Raises CommandError."""
        return self._run([self.kubectl_path, *words], stdin, timeout)

    def helm(self, *words: str, stdin: str | None = None, timeout: float = 300) -> str:
        """Standard output of Helm. Raises CommandError."""
        return self._run([self.helm_path, *words], stdin, timeout)

    def get(self, *words: str) -> Any:
        """`kubectl get … -o json`. Raises CommandError."""
        look = look_of(words)
        if look is None:
            return json.loads(self.kubectl("get", *words, "-o", "json"))
        try:
            return self._reader.read(look)
        except ReadError as error:
            raise CommandError(str(error)) from error

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.kubeconfig)

    def items(self, *words: str) -> list[dict[str, Any]]:
        """The items of `kubectl get … -o json`, empty when the kind isn't served."""
        try:
            return list(self.get(*words)["items"])
        except CommandError as error:
            if "doesn't have a resource type" in str(error) or "NotFound" in str(error):
                return []
            raise

    def describe(self) -> str:
        """What an administrator would look at first."""
        slurmctld = (
            "-l",
            "app.kubernetes.io/name=slurmctld",
            "-c",
            "logfile",
            "--prefix",
            "--tail=60",
        )
        looks = (
            ("get", "pods,slurm", "--all-namespaces", "-o", "wide"),
            ("exec", "-n", "slurm", "deploy/slurm-login-slinky", "--", "squeue", "--all"),
            (
                "exec",
                "-n",
                "slurm",
                "deploy/slurm-login-slinky",
                "--",
                "sinfo",
                "--all",
                "-N",
                "-o",
                "%N %T %E",
            ),
            ("get", "events", "-n", "slurm", "--sort-by=.lastTimestamp"),
            ("logs", "-n", "slinky", "deploy/slurm-operator", "--tail=60"),
            *(("logs", "-n", namespace, *slurmctld) for namespace in ("slurm", "doubled")),
            ("logs", "-n", "slurm", "slurm-controller-0", "-c", "reconfigure", "--tail=20"),
            (
                "get",
                "-n",
                "slurm",
                "controllers.slinky.slurm.net",
                "slurm",
                "-o",
                "jsonpath={.status.conditions}",
            ),
            (
                "logs",
                "-n",
                "slurm",
                "-l",
                "app.kubernetes.io/name=slurmd",
                "-c",
                "node",
                "--prefix",
                "--tail=20",
            ),
            (
                "logs",
                "-n",
                "slurm",
                "-l",
                "app.kubernetes.io/name=slurmd",
                "-c",
                "slurmd",
                "--prefix",
                "--tail=20",
            ),
            ("exec", "-n", "slurm", "deploy/slurm-login-slinky", "--", "scontrol", "show", "node"),
        )
        found = []
        for look in looks:
            try:
                found.append(f"$ kubectl {' '.join(look)}\n{self.kubectl(*look)[-6000:]}")
            except (CommandError, subprocess.TimeoutExpired) as error:
                found.append(str(error))
        return "\n".join(found)

    def execute(
        self,
        namespace: str,
        target: str,
        container: str,
        *words: str,
        timeout: float = 60,
        stdin: str = "",
        repeatable: bool = False,
    ) -> str:
        """Standard output of a command in a container, in a shell that stays there. Raises
        CommandError.

        `target`: a pod's name, or deploy/NAME for a running pod of the Deployment that isn't about
        to end. Each pod has shells of its own, so none runs in the predecessor of the pod that
        bears the name now. The command runs once at most; one that is `repeatable` may run twice.
        """
        place = self._place(namespace, target, container)
        option = ("-c", container) if container else ()
        if place is None:
            # kubectl waits for a pod, or reports why none can be used.
            flags = ("-i",) if stdin else ()
            given = stdin or None
            exec_ = ("exec", *flags, "-n", namespace, target, *option, "--", *words)
            return self.kubectl(*exec_, timeout=timeout, stdin=given)
        start = [
            str(self.kubectl_path),
            "exec",
            "-i",
            "-n",
            namespace,
            place.pod,
            *option,
            "--",
            "sh",
        ]
        shells = self._shells_in(place, start)
        try:
            try:
                done = shells.run(words, timeout, stdin)
            except GoneError:
                if not repeatable:
                    raise
                done = shells.run(words, timeout, stdin)
        except NotStartedError as error:
            raise CommandError(f"{' '.join(start)}: {error}") from error
        except GoneError as error:
            text = f"the shell has ended, and it is unknown whether the command has run: {error}"
            raise CommandError(f"{' '.join(words[:8])}: {text}") from error
        if done.status:
            raise CommandError(
                f"{' '.join(words[:8])}: rc {done.status}\n{done.output}{done.errors}"
            )
        return done.output

    def close(self) -> None:
        """End the shells of `execute`."""
        for shells in self._shells.values():
            shells.close()

    def _place(self, namespace: str, target: str, container: str) -> _Place | None:
        """The container in which commands for this target run; None while no pod of it runs."""
        kind, _, name = target.rpartition("/")
        if not kind:
            pods = [self.get("-n", namespace, "pod", name)]
        else:
            labels = self.get("-n", namespace, "deployment", name)["spec"]["selector"][
                "matchLabels"
            ]
            chosen = ",".join(f"{key}={value}" for key, value in labels.items())
            pods = self.items("-n", namespace, "pods", "-l", chosen)

        def rank(pod: dict[str, Any]) -> tuple[bool, bool, str]:
            metadata = pod["metadata"]
            ready = condition(pod, "Ready").get("status") == "True"
            return "deletionTimestamp" in metadata, not ready, metadata["creationTimestamp"]

        running = sorted((pod for pod in pods if pod["status"]["phase"] == "Running"), key=rank)
        if not running:
            return None
        metadata = running[0]["metadata"]
        return _Place(namespace, metadata["name"], metadata["uid"], container)

    def _shells_in(self, place: _Place, start: list[str]) -> Shells:
        if place not in self._shells:
            # Pods come and go by the hundred.
            for other, shells in list(self._shells.items()):
                if shells.gone:
                    shells.close()
                    self._shells.pop(other, None)
        return self._shells.setdefault(place, Shells(start, self.environment))

    @cached_property
    def _shells(self) -> dict[_Place, Shells]:
        return {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of kubectl and Helm."""
        return environment(
            {
                "KUBECONFIG": str(self.kubeconfig),
                # kubectl asks the API server for its kinds once, and again for one that it does not
                # know.
                "KUBECACHEDIR": str(self.kubeconfig.with_name("kubectl")),
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/nonexistent",
            }
        )

    def _run(self, words: list[Any], stdin: str | None, timeout: float) -> str:
        command = [str(word) for word in words]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment,
            check=False,
        )
        if done.returncode != 0:
            raise CommandError(
                f"{' '.join(command[:8])}: rc {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout


@dataclass(frozen=True)
class Slurm:
    """The Slurm cluster of release `slurm` in a namespace, seen from its login pod."""

    kubernetes: Kubernetes
    namespace: str = "slurm"

    def login(self, *words: str, timeout: float = 60, stdin: str | None = None) -> str:
        """Run a command in the login pod."""
        return self._execute("deploy/slurm-login-slinky", "login", words, timeout, stdin)

    def worker(self, pod: str, *words: str, timeout: float = 60, stdin: str | None = None) -> str:
        """Run a command in a worker's slurmd container."""
        return self._execute(pod, "slurmd", words, timeout, stdin)

    def controller(self, *words: str, timeout: float = 60) -> str:
        """Run a command beside slurmctld, in the first of its pods."""
        return self._execute("slurm-controller-0", "slurmctld", words, timeout, None)

    def _execute(
        self, target: str, container: str, words: tuple[str, ...], timeout: float, stdin: str | None
    ) -> str:
        return self.kubernetes.execute(
            *(self.namespace, target, container, *words),
            timeout=timeout,
            stdin=stdin or "",
            repeatable=not stdin and _only_asks(words),
        )

    def nodes(self) -> dict[str, str]:
        """State by node, as `sinfo` words it (`idle`, `mixed`, `drained`, …)."""
        lines = self.login("sinfo", "-h", "-N", "-o", "%N %T").split("\n")
        return dict(line.split() for line in lines if line.strip())

    def submit(self, script: str, *options: str) -> int:
        """Submit a batch script; its job id."""
        return int(
            self.login(
                "sbatch",
                "--parsable",
                "-o",
                "/tmp/job-%j.out",  # noqa: S108
                *options,
                stdin=script,
            ).strip()
        )

    def job(self, number: int) -> dict[str, str]:
        """`scontrol show job` as fields."""
        text = self.login("scontrol", "-o", "show", "job", str(number))
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def submit_until_ended(self, *options: str) -> int:
        """Submit a job that runs until `end`; its id."""
        return self.submit(UNTIL_ENDED, *options)

    def states(self, *jobs: int) -> list[str]:
        """The state of each job and of each task of an array."""
        return self.login(
            "squeue", "-h", "-r", "-t", "all", "-j", ",".join(map(str, jobs)), "-o", "%T"
        ).split()

    def until_running(self, *jobs: int) -> None:
        """Wait until all of these jobs run."""
        until_equal(f"jobs {jobs} to run", lambda: self.states(*jobs), ["RUNNING"] * len(jobs))

    def end(self, job: int) -> None:
        """Have a job of UNTIL_ENDED complete. It must still run at this moment, and have been
        started only once.
        """
        now = self.job(job)
        assert (now["JobState"], now["Restarts"]) == ("RUNNING", "0"), (
            f"job {job} has not run until here: {now}"
        )
        [pod] = [
            name
            for name, it in self.pods().items()
            if it["spec"].get("hostname") == now["BatchHost"]
        ]
        self.worker(pod, "touch", f"/tmp/end-{job}")  # noqa: S108
        until_equal(f"job {job} to complete", lambda: self.states(job), ["COMPLETED"])
        # slurmctld forgets a job five minutes after its end.
        assert self.job(job)["Restarts"] == "0"

    def scale(self, replicas: int) -> None:
        """Scale the NodeSet as a user would."""
        self.kubernetes.kubectl(
            "-n",
            self.namespace,
            "scale",
            "nodesets.slinky.slurm.net",
            NODESET,
            f"--replicas={replicas}",
        )

    def pods(self) -> dict[str, dict[str, Any]]:
        """Worker pods by name."""
        found = self.kubernetes.items(
            "-n", self.namespace, "pods", "-l", "app.kubernetes.io/name=slurmd"
        )
        return {pod["metadata"]["name"]: pod for pod in found}

    def until_idle(self, count: int, seconds: float = WILL_COME) -> None:
        """Wait until Slurm has exactly `count` nodes and all are idle."""

        def look() -> bool | None:
            states = self.nodes()
            return True if len(states) == count and set(states.values()) <= {"idle"} else None

        until(f"{count} idle nodes in Slurm", look, seconds)

    @contextmanager
    def watching_pods(self, selector: str = "app.kubernetes.io/name=slurmd") -> Iterator[PodWatch]:
        """Record every change of the pods that the labels select while the block runs."""
        k8s = self.kubernetes
        command = [str(k8s.kubectl_path), "-n", self.namespace, "get", "pods", "-l", selector]
        watch = PodWatch()
        # A file and not a pipe: the test reads it at the end only, and a full pipe would stop the
        # watch.
        with tempfile.TemporaryFile("w+") as events:
            process = subprocess.Popen(
                [*command, "-o", "json", "--watch", "--output-watch-events"],
                stdout=events,
                env=k8s.environment,
            )
            try:
                until("the watch to begin", lambda: os.fstat(events.fileno()).st_size, 60)
                yield watch
            finally:
                process.terminate()
                process.wait()
                events.seek(0)
                watch.read(events.read())


@contextmanager
def watched(kubernetes: Kubernetes, *words: str) -> Iterator[Path]:
    """A file to which `kubectl get` with these words writes at first and after each change: it
    misses none.
    """
    command = [str(kubernetes.kubectl_path), "get", *words, "--watch"]
    with tempfile.NamedTemporaryFile("w") as file:
        process = subprocess.Popen(command, stdout=file, env=kubernetes.environment)
        path = Path(file.name)
        try:
            until("the watch to begin", lambda: path.stat().st_size, 60)
            yield path
            assert process.poll() is None, "the watch has ended early"
        finally:
            process.terminate()
            process.wait()


def _only_asks(words: tuple[str, ...]) -> bool:
    """Whether this command of Slurm's changes nothing."""
    command, *rest = words
    return command in {"sinfo", "squeue", "sacct", "sdiag"} or (
        command == "scontrol" and "show" in rest[:2]
    )


def seconds(text: str) -> float:
    """An RFC 3339 time as epoch seconds."""
    return datetime.fromisoformat(text).timestamp()


def condition(thing: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of an object's status; {} if it was never set."""
    for entry in thing.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return dict(entry)
    return {}
