"""A NodeSet with GPUs that don't exist: typed resources, what a job sees, and what a missing GPU
does.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.fake_gpus import NODESET, WORKER, FakeGpus, gpu_nodeset, values
from tests.support.real.harness import Slurm, condition, until

TYPE = "nvidia_h100_80gb_hbm3"
STATE = "/run/slurm-health"


@pytest.fixture(scope="module")
def gpus(slurm: Slurm) -> Iterator[FakeGpus]:
    """Eight GPUs, and a NodeSet that uses them."""
    with gpu_nodeset(slurm) as fake:
        yield fake


def node(slurm: Slurm) -> dict[str, str]:
    """`scontrol show node gpu-0` as fields, Reason to the end of its line."""
    text = slurm.login("sh", "-c", "scontrol show node gpu-0 2>&1 || true")
    fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
    return fields | {"Reason": text.partition("Reason=")[2].partition("\n")[0]}


def until_state(slurm: Slurm, state: str) -> dict[str, str]:
    def look() -> dict[str, str] | None:
        found = node(slurm)
        return (
            found
            if found.get("State", "").split("+")[: state.count("+") + 1] == state.split("+")
            else None
        )

    return until(f"gpu-0 to be {state}", look)


def replace_worker(slurm: Slurm) -> None:
    """Delete the GPU worker; returns when its successor runs."""
    uid = slurm.pods()[WORKER]["metadata"]["uid"]
    slurm.kubernetes.kubectl("-n", "slurm", "delete", "pod", WORKER, "--wait=false")

    def successor() -> bool:
        pod = slurm.pods().get(WORKER)
        return (
            pod is not None
            and pod["metadata"]["uid"] != uid
            and pod["status"]["phase"] == "Running"
        )

    until("the next GPU worker", successor)


def test_one_word_in_the_values_gives_a_typed_nodeset_whose_jobs_see_their_gpus(
    slurm: Slurm, gpus: FakeGpus
) -> None:
    found = until_state(slurm, "IDLE+DYNAMIC_NORM")
    assert found["Gres"].startswith(f"gpu:{TYPE}:8")
    log = slurm.kubernetes.kubectl("-n", "slurm", "logs", WORKER, "-c", "register")
    assert f"GPUs: gpu:{TYPE}:8 (nvidia-smi" in log
    seen = slurm.login(
        "srun", "-p", "all", f"--gres=gpu:{TYPE}:2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"
    )
    assert seen.strip() == "0,1"


def test_a_worker_that_lacks_a_gpu_registers_drained_with_the_reason(
    slurm: Slurm, gpus: FakeGpus
) -> None:
    until_state(slurm, "IDLE+DYNAMIC_NORM")
    gpus.lose(gpus.uuids[3])
    replace_worker(slurm)
    found = until_state(slurm, "IDLE+DRAIN")
    assert found["Reason"].startswith("slurm-node: 7 of 8 expected GPUs found by nvidia-smi")
    gpus.lose()
    replace_worker(slurm)
    assert until_state(slurm, "IDLE+DYNAMIC_NORM")["Gres"].startswith(f"gpu:{TYPE}:8")


def test_a_gpu_that_is_lost_while_jobs_may_run_drains_the_node_and_its_return_undrains_it(
    slurm: Slurm, gpus: FakeGpus
) -> None:
    until_state(slurm, "IDLE+DYNAMIC_NORM")
    gpus.lose(gpus.uuids[3])
    assert until_state(slurm, "IDLE+DRAIN")["Reason"].startswith(
        "slurm-node: health: gpu-count: 7 of 8 GPUs [root@"
    )
    gpus.lose()
    assert not until_state(slurm, "IDLE+DYNAMIC_NORM")["Reason"]


def test_an_administrators_drain_is_not_lifted_with_the_return_of_a_gpu(
    slurm: Slurm, gpus: FakeGpus
) -> None:
    until_state(slurm, "IDLE+DYNAMIC_NORM")
    slurm.login("scontrol", "update", "NodeName=gpu-0", "State=DRAIN", "Reason=maintenance")
    gpus.lose(gpus.uuids[3])
    until(
        "a check to see seven GPUs",
        lambda: "7 of 8" in slurm.worker(WORKER, "cat", f"{STATE}/gpu-count.out"),
    )
    gpus.lose()
    until(
        "a check to see eight again",
        lambda: not slurm.worker(WORKER, "cat", f"{STATE}/gpu-count.out"),
    )
    found = until_state(slurm, "IDLE+DRAIN")
    assert found["Reason"].startswith("maintenance [")
    slurm.login("scontrol", "update", "NodeName=gpu-0", "State=UNDRAIN")


def doctor(slurm: Slurm) -> str:
    """What `doctor gres` prints in the operator's pod."""
    words = ("sh", "-c", "slurm-sidecars doctor gres -n slurm; echo status $?")
    return slurm.kubernetes.kubectl("-n", "slinky", "exec", "deploy/slurm-operator", "--", *words)


def test_the_doctor_finds_all_well_and_what_a_lost_gpu_does(slurm: Slurm, gpus: FakeGpus) -> None:
    until_state(slurm, "IDLE+DYNAMIC_NORM")
    well = doctor(slurm)
    assert f"gpu-0 on {gpus.kube_node}: asks for 8; Gres=gpu:{TYPE}:8" in well
    assert well.endswith("all is well\nstatus 0\n")
    gpus.lose(gpus.uuids[3])
    until_state(slurm, "IDLE+DRAIN")
    ill = doctor(slurm)
    assert "! Slurm node gpu-0: is drained: slurm-node: health: gpu-count: 7 of 8 GPUs" in ill
    assert ill.endswith("status 1\n")
    gpus.lose()
    until_state(slurm, "IDLE+DYNAMIC_NORM")


def test_a_part_of_a_nodes_gpus_is_refused_with_the_reason(slurm: Slurm, gpus: FakeGpus) -> None:
    values(
        slurm.kubernetes, *NODESET, "nodesets.part.gpu.enabled=true", "nodesets.part.gpu.count=4"
    )

    def refused() -> bool:
        nodeset = slurm.kubernetes.get(
            "-n", "slurm", "nodesets.slinky.slurm.net", "slurm-worker-part"
        )
        found = condition(nodeset, "Ready")
        return (
            found.get("reason") == "FewerGpusThanNode" and "set gpu.count to 8" in found["message"]
        )

    until("the NodeSet to say why", refused)
    assert "slurm-worker-part-0" not in slurm.pods()
