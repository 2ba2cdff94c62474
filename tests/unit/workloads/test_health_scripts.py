"""Slurm's HealthCheckProgram and its checks, run by this machine's own shells, with stubs for what
they ask.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.workloads.health_world import FIXTURES, Worker

ONE_FILE = {
    "broken": '#!/bin/sh\ntest ! -e "$SLURM_HEALTH_STATE/broken" || { echo "it\'s \\"broken\\""; '
    "exit 3; }\n"
}
NOTHING_ELSE = ["disk", "memory", "mounts"]
OWN = "slurm-node: health: "
DEADLINE = 60.0


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    """A worker with one check of its own, which fails while the file `broken` exists."""
    return Worker(tmp_path, health={"enabled": True, "skip": NOTHING_ELSE, "checks": ONE_FILE})


@pytest.fixture
def gpus(tmp_path: Path) -> Worker:
    """A worker with eight H100."""
    return with_gpus(tmp_path)


def with_gpus(tmp_path: Path, **health: int) -> Worker:
    made = Worker(tmp_path, gpu={"enabled": True}, health=health)
    made.smi("h100", "0, 0", "1, [N/A]")
    return made


def broken(worker: Worker, yes: bool = True) -> None:
    file = worker.program.parent / "state/broken"
    file.touch() if yes else file.unlink()


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll a condition; fails with what was waited for."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE:g} s for {what}"
        time.sleep(0.02)


# ---- the program
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["", "dash", "bash"])
def test_a_healthy_node_asks_slurm_nothing(worker: Worker, shell: str) -> None:
    worker.registered()
    ran = worker.run(shell=shell)
    assert (ran.status, ran.output, ran.calls) == (0, "", ())


def test_slurmd_is_not_delayed_by_slurm_when_it_starts(worker: Worker) -> None:
    (worker.slurm / "down").touch()
    ran = worker.run()
    assert (ran.status, ran.calls) == (0, ())


def test_what_fails_drains_the_node_and_what_recovers_undrains_it(worker: Worker) -> None:
    worker.registered()
    broken(worker)
    ran = worker.run()
    assert ran.status == 1
    assert ran.output == f"{OWN}broken: its broken\ndrained w-0\n"
    assert ran.calls == (
        "show node w-0",
        f"update NodeName=w-0 State=DRAIN Reason={OWN}broken: its broken",
    )
    assert (worker.state, worker.reason) == ("IDLE+DRAIN+DYNAMIC_NORM", f"{OWN}broken: its broken")
    broken(worker, False)
    ran = worker.run()
    assert (ran.status, ran.output) == (0, "undrained w-0: it is healthy again\n")
    assert (worker.state, worker.reason) == ("IDLE+DYNAMIC_NORM", "")
    assert worker.run().calls == ()


def test_a_node_that_stays_ill_is_drained_once(worker: Worker) -> None:
    worker.registered()
    broken(worker)
    worker.run()
    assert worker.run().calls == ("show node w-0",)


def test_an_ill_node_that_somebody_resumes_is_drained_again(worker: Worker) -> None:
    worker.registered()
    broken(worker)
    worker.run()
    worker.node("IDLE+DYNAMIC_NORM")
    worker.run()
    assert worker.reason == f"{OWN}broken: its broken"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE+DRAIN+DYNAMIC_NORM", "maintenance"),
        ("MIXED+DRAIN", "slurm-node: 7 of 8 expected GPUs found by nvidia-smi"),
        ("IDLE*+DRAIN", "slurm-node: the pod is terminating"),
        ("ALLOCATED+DRAIN", "slurm-operator: Node (kube-0) was cordoned"),
        ("DOWN+DYNAMIC_NORM", "maintenance"),
    ],
)
def test_another_reason_is_neither_replaced_nor_lifted(
    worker: Worker, state: str, reason: str
) -> None:
    worker.registered()
    broken(worker)
    worker.node(state, reason)
    ran = worker.run()
    assert reason in ran.output
    assert ran.calls == ("show node w-0",)
    broken(worker, False)
    worker.run()
    assert (worker.state, worker.reason) == (state, reason)


def test_a_drain_that_a_predecessor_left_is_lifted_by_the_healthy_pod(worker: Worker) -> None:
    worker.node("IDLE+DRAIN+DYNAMIC_NORM", f"{OWN}gpu-count: 7 of 8 GPUs")
    worker.registered()
    assert worker.state == "IDLE+DYNAMIC_NORM"


def test_the_drain_is_lifted_when_nothing_is_checked_any_more(worker: Worker) -> None:
    worker.registered()
    broken(worker)
    worker.run()
    settings = worker.program / "settings"
    settings.write_text(settings.read_text().replace("CHECKS='broken'", "CHECKS=''"))
    assert worker.run().output == "undrained w-0: it is healthy again\n"
    assert worker.run().calls == ()


def test_nothing_is_changed_once_the_pod_is_leaving(worker: Worker) -> None:
    worker.registered()
    broken(worker)
    worker.run()
    (worker.pod / "hook").mkdir()
    (worker.pod / "hook" / "stop").touch()
    broken(worker, False)
    assert worker.run().calls == ()
    assert worker.state == "IDLE+DRAIN+DYNAMIC_NORM"


def test_what_slurm_did_not_get_is_sent_later(worker: Worker) -> None:
    worker.registered()
    broken(worker)
    (worker.slurm / "down").touch()
    ran = worker.run()
    assert (ran.status, ran.output.splitlines()[-1]) == (
        1,
        "Slurm doesn't answer: the next run repeats the request",
    )
    (worker.slurm / "down").unlink()
    worker.run()
    assert worker.state == "IDLE+DRAIN+DYNAMIC_NORM"
    broken(worker, False)
    (worker.slurm / "down").touch()
    worker.run()
    (worker.slurm / "down").unlink()
    worker.run()
    assert worker.state == "IDLE+DYNAMIC_NORM"


def test_a_node_that_is_ill_from_its_start_is_drained_as_soon_as_it_has_registered(
    worker: Worker,
) -> None:
    (worker.program.parent / "state").mkdir()
    broken(worker)
    (worker.slurm / "state").unlink()
    assert worker.run().status == 1
    assert not any(call.startswith("update") for call in worker.calls())
    worker.node("IDLE+DYNAMIC_NORM")
    until(lambda: worker.reason == f"{OWN}broken: its broken", "the drain")


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Worker]:
    """A worker whose check never ends, whatever it gets."""
    check = (
        '#!/bin/sh\necho looking at /home >&2\necho $$ > "$SLURM_HEALTH_STATE/mine"\nwhile '
        ":; do sleep 60; done\n"
    )
    made = Worker(
        tmp_path,
        health={
            "enabled": True,
            "skip": NOTHING_ELSE,
            "checkSeconds": 3,
            "checks": {"stuck": check},
        },
    )
    yield made
    # A first run starts a process that soon runs the program, and with it the check, again.
    until(lambda: not ended(tmp_path), "all that the program has started to end")


def ended(folder: Path) -> bool:
    """End the session of each process whose command line names the folder; whether it found
    one.
    """
    found = False
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if bytes(folder) in (path / "cmdline").read_bytes():
                found, session = True, os.getsid(int(path.name))
                # Just forked, it is in the session of the tests for a moment.
                if session != os.getsid(0):
                    os.killpg(session, signal.SIGKILL)
        except OSError:
            continue
    return found


def test_a_check_that_does_not_end_in_time_fails_and_reports_where(
    hung: Worker, tmp_path: Path
) -> None:
    ran = hung.run()
    assert (ran.status, ran.output) == (1, f"{OWN}stuck: no answer within 3 s, looking at /home\n")
    pid = int((tmp_path / "state/mine").read_text())
    until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(),
        "its end",
    )


def test_a_check_that_the_kernel_blocks_is_not_started_a_second_time(
    hung: Worker, tmp_path: Path
) -> None:
    # The kernel lets it live: what is sent to it is lost.
    script = hung.program / "run"
    hung.put(script, script.read_text().replace("kill -9", ": kill -9"))
    hung.run()
    first = (tmp_path / "state/mine").read_text()
    ran = hung.run()
    assert (
        ran.output.splitlines()[0]
        == f"{OWN}stuck: hasn't ended since it was started, looking at /home"
    )
    assert (tmp_path / "state/mine").read_text() == first


def test_all_that_fails_is_in_one_line_of_plain_characters(tmp_path: Path) -> None:
    checks = {
        "a": "#!/bin/sh\nprintf 'tab\\there\\nsecond line\\n'; exit 1\n",
        "b": "#!/bin/sh\nexit 4\n",
        "c": "#!/bin/sh\necho only on the other output >&2; exit 1\n",
        "d": "#!/no/such/interpreter\n",
        "e": "#!/bin/sh\nhead -c 5000 /dev/zero | tr '\\0' x; exit 1\n",
    }
    made = Worker(tmp_path, health={"enabled": True, "skip": NOTHING_ELSE, "checks": checks})
    made.registered()
    assert made.reason.startswith(
        f"{OWN}a: tab here; b: exit status 4; c: only on the other output; d: sh: "
    )
    assert len(made.reason) <= 250
    assert made.reason.isascii()
    assert made.reason.isprintable()


def test_only_one_runs_at_a_time(worker: Worker) -> None:
    worker.registered()
    lock = worker.program.parent / "state/lock"
    lock.mkdir()
    (lock / "pid").write_text(f"{os.getpid()}\n")
    broken(worker)
    assert (worker.run().status, worker.state) == (0, "IDLE+DYNAMIC_NORM")
    (lock / "pid").write_text("999999999\n")
    assert (worker.run().status, worker.state) == (1, "IDLE+DRAIN+DYNAMIC_NORM")
    assert not lock.exists()


# ---- the checks
# --------------------------------------------------------------------------------------------------


def test_eight_healthy_gpus_pass_all_checks(gpus: Worker) -> None:
    ran = gpus.run()
    assert (ran.status, ran.output) == (0, "")


@pytest.mark.parametrize(
    ("fixture", "reason"),
    [
        ("h100-one-lost", "gpu-count: 7 of 8 GPUs"),
        ("l4", "gpu-count: 1 of 8 GPUs"),
    ],
)
def test_gpus_that_are_missing_drain_the_node(gpus: Worker, fixture: str, reason: str) -> None:
    gpus.registered()
    gpus.smi(fixture)
    gpus.run()
    assert gpus.reason == f"{OWN}{reason}"


def test_more_gpus_than_the_pods_are_no_fault(tmp_path: Path) -> None:
    made = Worker(tmp_path, gpu={"enabled": True, "count": 4})
    made.smi("h100")
    assert made.run().status == 0


def test_mig_devices_are_counted_where_the_nodeset_has_those(tmp_path: Path) -> None:
    gpu = {"enabled": True, "count": 3, "resourceName": "nvidia.com/mig-1g.5gb"}
    made = Worker(tmp_path, gpu=gpu)
    made.smi("a100-mig")
    assert made.run().status == 0
    made.smi("h100")
    assert made.run().output.splitlines()[0] == f"{OWN}gpu-count: 0 of 3 MIG devices"


def test_a_driver_that_is_gone_is_reported_in_its_own_words(gpus: Worker) -> None:
    gpus.registered()
    gpus.answer(
        "nvidia-smi",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        9,
    )
    gpus.run()
    assert gpus.reason == (
        f"{OWN}gpu-answers: nvidia-smi -L: exit status 9: "
        "NVIDIA-SMI has failed because it couldnt communicate with the NVIDIA driver."
    )


def test_an_nvidia_smi_that_hangs_costs_one_check_and_no_more(tmp_path: Path) -> None:
    made = with_gpus(tmp_path, checkSeconds=3)
    made.registered()
    made.stub("nvidia-smi", "#!/bin/sh\nexec sleep 600\n")
    made.run()
    assert made.reason == f"{OWN}gpu-answers: no answer within 3 s"


@pytest.mark.parametrize(
    "garbage", ["", "\x00\x01GPU ?\n", "No devices were found\n", "GPU 0: (UUID: GPU-\n"]
)
def test_an_nvidia_smi_that_prints_garbage_has_shown_no_gpu(gpus: Worker, garbage: str) -> None:
    gpus.registered()
    gpus.answer("nvidia-smi", garbage)
    gpus.run()
    assert gpus.reason.startswith(f"{OWN}gpu-count: ")
    assert gpus.reason.endswith("of 8 GPUs")


def test_the_libraries_of_a_driver_of_gke_are_found(gpus: Worker) -> None:
    smi = (
        f"case $LD_LIBRARY_PATH in *:/usr/local/nvidia/lib64) cat {FIXTURES / 'h100.txt'} ;; *) "
        "exit 12 ;; esac"
    )
    gpus.stub("nvidia-smi", f"#!/bin/sh\n{smi}\n")
    assert gpus.run(LD_LIBRARY_PATH="/opt/lib").output == ""


def test_no_nvidia_smi_at_all_is_a_reason(gpus: Worker) -> None:
    (gpus.program.parent / "bin/nvidia-smi").unlink()
    assert gpus.check("gpu-answers") == (1, "slurmd's container has no nvidia-smi")


@pytest.mark.parametrize("bad", ["3, 1", "3, Yes", "3, 12345"])
def test_memory_errors_that_do_not_heal_drain_the_node(gpus: Worker, bad: str) -> None:
    gpus.smi("h100", "0, 0", "1, No", "2, [N/A]", bad, "4, [Not Supported]", "5, [Unknown Error]")
    gpus.run()
    assert gpus.check("gpu-ecc") == (1, "uncorrected memory errors on GPU 3")


def test_a_driver_without_such_counters_reports_nothing_of_memory(gpus: Worker) -> None:
    gpus.smi("l4", 'Field "remapped_rows.failure" is not a valid field to query.')
    gpus.check("gpu-answers")
    assert gpus.check("gpu-ecc") == (0, "")


XID = (
    "[ 5000.123456] NVRM: Xid (PCI:0000:2a:00): {}, pid='<unknown>', name=<unknown>, GPU has "
    "fallen off the bus.\n"
)


@pytest.mark.parametrize(
    ("number", "since", "found"),
    [
        (79, "4000.10", (1, "Xid 79 on GPU 0000:2a:00")),
        (79, "6000.10", (0, "")),  # before this pod
        (31, "4000.10", (0, "")),  # an application's fault
        (7, "4000.10", (0, "")),
        (79, "", (1, "Xid 79 on GPU 0000:2a:00")),
    ],
)
def test_an_xid_that_needs_a_repair_counts_from_the_pods_start(
    gpus: Worker, number: int, since: str, found: tuple[int, str]
) -> None:
    gpus.answer(
        "dmesg",
        "[    0.000000] Linux version\n" + XID.format(number) + "[ 5001.000000] usb 1-1: new\n",
    )
    state = gpus.program.parent / "state"
    state.mkdir()
    if since:
        (state / "started").write_text(since)
    assert gpus.check("gpu-xid") == found


def test_which_xids_count_can_be_set(tmp_path: Path) -> None:
    made = Worker(tmp_path, gpu={"enabled": True}, health={"xids": [31]})
    made.answer("dmesg", XID.format(31) + XID.format(79))
    assert made.check("gpu-xid") == (1, "Xid 31 on GPU 0000:2a:00")


def test_a_kernel_log_that_may_not_be_read_reports_nothing(gpus: Worker) -> None:
    gpus.stub(
        "dmesg",
        "#!/bin/sh\necho 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1\n",
    )
    assert gpus.check("gpu-xid") == (0, "")


DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\noverlay 100 {0} 1 {1} /tmp\n"


@pytest.mark.parametrize(
    ("used", "passes"), [("97%", True), ("98%", False), ("100%", False), ("-", True)]
)
def test_a_full_disk_drains_the_node(tmp_path: Path, used: str, passes: bool) -> None:
    made = Worker(tmp_path, health={"enabled": True, "disks": [str(tmp_path), "/no/such/folder"]})
    made.answer("df", DF.format(99, used))
    expected = (0, "") if passes else (1, f"{tmp_path} has less than 3 % of its room left")
    assert made.check("disk") == expected


def test_a_disk_without_inodes_drains_the_node(tmp_path: Path) -> None:
    made = Worker(
        tmp_path, health={"enabled": True, "disks": [str(tmp_path)], "diskFreePercent": 1}
    )
    made.stub(
        "df",
        "#!/bin/sh\ncase $2 in -i) u=100% ;; *) u=5% ;; esac\necho x; echo a 1 2 3 $u "
        f"{tmp_path}\n",
    )
    assert made.check("disk") == (1, f"{tmp_path} has less than 1 % of its inodes left")


@pytest.mark.parametrize(("available", "passes"), [(1000, False), (1300, True)])
def test_memory_that_is_used_up_drains_the_node(
    tmp_path: Path, available: int, passes: bool
) -> None:
    made = Worker(tmp_path, health={"enabled": True})
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemTotal: 128000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n")
    expected = (0, "") if passes else (1, "less than 1 % of the memory is available")
    assert made.check("memory", MEMINFO=str(memory)) == expected
    memory.write_text("MemTotal: 128000 kB\n")
    assert made.check("memory", MEMINFO=str(memory)) == (0, "")


def mounts(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "mounts"
    file.write_text("".join(f"{line}\n" for line in lines))
    return str(file)


def test_a_mount_whose_server_lost_it_drains_the_node(tmp_path: Path) -> None:
    made = Worker(tmp_path, health={"enabled": True})
    made.stub(
        "stat", "#!/bin/sh\necho \"stat: cannot statx '$1': Stale file handle\" >&2; exit 1\n"
    )
    listed = mounts(tmp_path, "proc /proc proc rw 0 0", "nas:/a /data/a\\040b nfs4 rw,vers=4.2 0 0")
    assert made.check("mounts", MOUNTS=listed) == (1, "/data/a b: Stale file handle")
    assert made.check("mounts", MOUNTS=mounts(tmp_path, "/dev/sda1 / ext4 rw 0 0")) == (0, "")


def test_a_mount_that_blocks_its_readers_is_named(tmp_path: Path) -> None:
    made = Worker(tmp_path, health={"enabled": True, "checkSeconds": 3, "skip": ["disk", "memory"]})
    made.registered()
    made.stub("stat", "#!/bin/sh\nexec sleep 60\n")
    made.run(MOUNTS=mounts(tmp_path, "nas:/a /data nfs rw 0 0"))
    assert made.reason == f"{OWN}mounts: no answer within 3 s, looking at /data"


def test_folders_that_must_be_there_are_asked_for(tmp_path: Path) -> None:
    made = Worker(tmp_path, health={"enabled": True, "paths": [str(tmp_path), "/no/such/folder"]})
    none = mounts(tmp_path)
    assert made.check("mounts", MOUNTS=none) == (1, "/no/such/folder: No such file or directory")


def test_on_workers_with_job_logs_the_container_gets_each_line_too(
    worker: Worker, tmp_path: Path
) -> None:
    folder = tmp_path / "job-logs"
    folder.mkdir()
    worker.run(SLURM_LOGS_DIR=str(folder))
    assert list(folder.iterdir()) == []
    broken(worker)
    ran = worker.run(SLURM_LOGS_DIR=str(folder))
    assert (folder / "health").read_text() == ran.output
    assert f"{OWN}broken: its broken\n" in ran.output
    assert (folder / "health").stat().st_mode & 0o777 == 0o644
