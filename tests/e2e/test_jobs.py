"""Jobs on a freshly installed cluster."""

from collections.abc import Callable
from functools import partial

from tests.support.real.harness import Slurm, until_equal


def test_every_node_is_idle_after_installation(slurm: Slurm) -> None:
    slurm.until_idle(2)
    assert set(slurm.nodes()) == {"slinky-0", "slinky-1"}


def test_a_shell_of_the_login_node_completes_slurms_options_and_partitions(slurm: Slurm) -> None:
    # What bash does at the Tab key after these words.
    completed = """
    complete_line() {
      COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMPREPLY=()
      _comp_load "$1" || return
      "$(complete -p "$1" | sed 's/.* -F \\([^ ]*\\) .*/\\1/')" "$1" "${@: -1}" "${@: -2:1}"
      printf '%s\\n' "${COMPREPLY[@]}"
    }
    complete_line sbatch --parti
    complete_line sbatch -p ""
    """
    found = {word.rstrip("=,") for word in slurm.login("bash", "-ic", completed).split()}
    assert {"--partition", "slinky"} <= found


def test_srun_runs_on_two_nodes(slurm: Slurm) -> None:
    assert sorted(slurm.login("srun", "-N2", "hostname").split()) == ["slinky-0", "slinky-1"]


def test_sbatch_writes_its_output_on_the_node_it_ran_on(slurm: Slurm) -> None:
    number = slurm.submit(
        "#!/bin/sh\necho sum $((20 + 22)) on $SLURMD_NODENAME\n", "-w", "slinky-1"
    )
    until_equal("the batch job to complete", lambda: slurm.job(number)["JobState"], "COMPLETED")
    assert (
        slurm.worker("slurm-worker-slinky-1", "cat", f"/tmp/job-{number}.out")  # noqa: S108
        == "sum 42 on slinky-1\n"
    )


def test_slurmctld_login_and_workers_resolve_each_others_names(slurm: Slurm) -> None:
    def until_known(by: str, name: str, address: str, ask: Callable[..., str]) -> None:
        # Of a pod that was replaced a moment ago, DNS may still have the former address in its
        # cache.
        until_equal(
            f"{by} to resolve {name}", lambda: ask("getent", "hosts", name).split()[0], address
        )

    def slurmctld(*words: str) -> str:
        inside = ("-n", "slurm", "exec", "slurm-controller-0", "-c", "slurmctld", "--")
        return slurm.kubernetes.kubectl(*inside, *words)

    slurm.until_idle(2)
    worker = partial(slurm.worker, "slurm-worker-slinky-0")
    address = slurm.pods()["slurm-worker-slinky-1"]["status"]["podIP"]
    until_known("the login node", "slinky-1", address, slurm.login)
    until_known("another worker", "slinky-1", address, worker)
    login, address = slurm.login("sh", "-c", "hostname; hostname -i").split()
    until_known("slurmctld", login, address, slurmctld)
    until_known("a worker", login, address, worker)


def test_a_nodes_record_names_its_pod_and_kubernetes_node(slurm: Slurm) -> None:
    pod = slurm.pods()["slurm-worker-slinky-0"]
    record = slurm.login("scontrol", "-o", "show", "node", "slinky-0")
    assert pod["metadata"]["uid"] in record
    assert f"NodeAddr={pod['status']['podIP']} " in record
    assert f"InstanceId={pod['spec']['nodeName']}" in record
