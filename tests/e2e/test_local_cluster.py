"""`make up` and `make down` as a newcomer types them, on a cluster of their own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import cache
from tests.cluster.install import pod_troubles
from tests.cluster.local import existing
from tests.cluster.tools import tool
from tests.support.real.harness import CHARTS, REPOSITORY, Kubernetes, until

NAME = "probe"


def command(word: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make WORD` without make, so that the name of the cluster can be given."""
    return subprocess.run(
        [sys.executable, "-m", "tests.cluster", word, "--name", NAME],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def traces(marks: list[str], iptables_save: str | Path) -> list[str]:
    """Whatever on this machine bears one of the marks: processes, mounts, links, packet filter
    rules, cgroups.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if int(process.name) != os.getpid():
            found.append(f"process {words}")
    found += [f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines()]
    found += [f"link {path.name}" for path in Path("/sys/class/net").iterdir()]
    rules = subprocess.run([iptables_save], capture_output=True, text=True, check=True).stdout
    found += [f"rule {line}" for line in rules.splitlines()]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob("*/*")]
    return [trace for trace in found if any(re.search(mark, trace) for mark in marks)]


@pytest.fixture(scope="module", autouse=True)
def _gone_afterwards() -> Iterator[None]:
    yield
    command("down")


def test_up_that_is_killed_goes_on_where_it_was_and_runs_a_job() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "up", "--name", NAME],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("control plane"):
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    done = command("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"^slinky-\d+$", done.stdout, re.MULTILINE)) == [
        "slinky-0",
        "slinky-1",
    ]


def test_up_again_does_nothing_and_reports_it() -> None:
    done = command("up")
    assert done.returncode == 0, done.stderr
    assert "nothing was done" in done.stdout


def test_values_with_an_unknown_key_are_refused_before_anything_changes(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("nodesets:\n  slinky:\n    replcas: 3\n")
    done = command("up", VALUES=str(values))
    assert done.returncode == 1
    assert "replcas" in done.stderr
    assert "nothing was done" in command("up").stdout


def test_a_release_that_is_upgraded_with_a_values_file_of_ones_own_runs_jobs_and_accounting(
    tmp_path: Path,
) -> None:
    kubernetes = Kubernetes(existing(NAME).kubeconfig, tool("kubectl"), tool("helm"))
    own = tmp_path / "mine.yaml"
    own.write_text(
        "nodesets: {cpu: {replicas: 3}}\n"
        "loginsets: {login: {}}\n"
        "partitions: {all: {enabled: true}}\n"
        "accounting: {enabled: true, mariadb: {enabled: true}}\n"
    )
    chart = CHARTS / "slurm"
    files = ("-f", str(chart / "examples" / "without-cgroup-v2.yaml"), "-f", str(own))
    kubernetes.helm("upgrade", "slurm", str(chart), "-n", "slurm", *files)

    def login(*words: str) -> str:
        return kubernetes.kubectl(
            "-n", "slurm", "exec", "deploy/slurm-login-login", "-c", "login", "--", *words
        )

    until(
        "accounting to know the cluster",
        lambda: (
            "slurm_slurm"
            in login("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster").split()
        ),
    )
    until(
        "an idle worker on each of the three Kubernetes nodes",
        lambda: (
            {f"cpu-{number} idle" for number in range(3)}
            <= {*login("sinfo", "-hNo", "%N %T").splitlines()}
        ),
    )
    hosts = login("srun", "-w", "cpu-[0-2]", "hostname").split()
    assert sorted(hosts) == ["cpu-0", "cpu-1", "cpu-2"]
    assert not [
        line
        for pod in kubernetes.items("-n", "slurm", "pods")
        for line in pod_troubles(pod)
        if "Pull" in line
    ]


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = command("up", KUBECONFIG=str(tmp_path / "missing"))
    assert done.returncode == 1
    assert str(tmp_path / "missing") in done.stderr


def test_down_leaves_nothing_behind() -> None:
    home = cache.root() / "clusters" / NAME
    record = json.loads((home / "state" / "cluster.json").read_text())
    index, folders = record["index"], record["iptables"]
    iptables_save = Path(folders[0]) / "iptables-save" if folders else "iptables-save"
    marks = [
        re.escape(f"{home}/"),
        rf"slurm-br{index}\b",
        rf"slurm-v{index}n",
        rf"slurm-charts-{NAME}\b",
    ]
    assert traces(marks, iptables_save), "the marks of a running cluster are found"
    assert command("down").returncode == 0
    until("nothing to be left", lambda: not traces(marks, iptables_save))
    assert "no local cluster exists" in command("down").stdout
