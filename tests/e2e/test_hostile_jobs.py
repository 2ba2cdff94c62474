"""Users attack: a job what the containers of its worker pod share, and a login what Slurm's
commands of others read.
"""

from tests.e2e.test_states import until_state
from tests.support.real.harness import UNTIL_ENDED, Slurm, seconds, until, until_equal

POD = "slurm-worker-slinky-0"
OPTIONS = (
    "-w",
    "slinky-0",
    "-n1",
    "--mem=16M",
    "--no-requeue",
    "-D",
    "/tmp",  # noqa: S108
    "-o",
    "/tmp/job-%j.out",  # noqa: S108
)

ATTACK = r"""#!/bin/bash
# Prints each attempt that succeeds, each that was not completed, and each completed round.
try() {
  timeout 20 bash -c "$1" >/dev/null 2>&1
  case $? in 0) echo "succeeded: $1";; 12[45]) echo "not tried: $1";; esac
}

round() {
  # Each round shows that its attempts can succeed, and are noticed if they do.
  try true
  for folder in /run/slurm-node /run/slurm-node/hook /var/log/slurm; do
    try "echo 0 > $folder/stop"
    try "echo '1.1 0' > $folder/stop"
    try "echo '1.1 0' > $folder/.stop"
    try "mv $folder/stop $folder/old"
    try "unlink $folder/stop"
    try "mkdir $folder/stop"
    try "touch -d '2038-01-01' $folder/stop"
    try "ln -sf /etc/hostname $folder/stop"
    try "ln -f /run/slurm-node/conf $folder/stop"
    try "mkfifo $folder/stop"
    try "echo 1.1 > $folder/released"
    try "mkdir $folder/released"
    try "touch $folder/released"
    try "echo x > $folder/conf"
    try "unlink $folder/conf"
    try "head -c 1000 /dev/zero > $folder/filling"
    try "chmod 0777 $folder"
    try "rmdir $folder/hook"
    try "mv $folder/hook $folder/old"
    try "mount -o remount,rw $folder"
    try "umount $folder"
  done
  try "ls /run/slurm-node/hook"
  try "ls /var/log/slurm"
  try "echo forged >> /var/log/slurm/slurmd.log"
  try "head -c 1 /var/log/slurm/slurmd.log"
  try "unlink /var/log/slurm/slurmd.log"
  try "cat /etc/slurm/slurm.key"
  for process in /proc/[0-9]*; do
    test "$(stat -c %u $process)" = 0 || continue
    id=${process#/proc/}
    try "kill -STOP $id"
    try "ls $process/root $process/cwd"
    try "ls $process/fd"
    try "cat $process/environ"
    try "echo 1000 > $process/oom_score_adj"
  done
  try "test -e /etc/hostname"
}

# Outlives its job, and looks like a step of Slurm.
mkdir /tmp/hostile && cp /bin/sleep /tmp/hostile/slurmstepd
setsid sh -c 'setsid /tmp/hostile/slurmstepd 600 &' >/dev/null 2>&1 </dev/null

rounds=0
while :; do
  round
  rounds=$((rounds + 1))
  echo "rounds: $rounds"
done
"""


CONTROLS = {"succeeded: true", "succeeded: test -e /etc/hostname"}
"""The first and the last attempt of each round, which do no harm."""

LOGIN = r"""
cd /etc/slurm && echo "in $PWD"
touch /tmp/own && mv /tmp/own /tmp/own.old && (: >>/tmp/own.old) && echo "wrote its own" &&
  rm /tmp/own.old
files="slurm.conf plugstack.conf .slurm.jwks slurm.key"
for file in $files /run/slurm/conf/slurm.conf /run/slurm/mine; do
  (: >>$file) 2>/dev/null && echo "wrote $file"
done
for file in slurm.key /run/slurm/conf /run/slurm/sack.socket; do
  mv $file $file.old 2>/dev/null && echo "moved $file"
done
"""


def submit(slurm: Slurm, user: str, script: str) -> int:
    """Submit a batch script as that user, who isn't root; its job id."""
    command = ("runuser", "-u", user, "--", "sbatch", "--parsable", *OPTIONS)
    return int(slurm.login(*command, stdin=script).strip())


def output(slurm: Slurm, number: int) -> list[str]:
    """The lines that the hostile job has printed."""
    return slurm.worker(POD, "cat", f"/tmp/job-{number}.out").splitlines()  # noqa: S108 - in the worker


def two_more_rounds(slurm: Slurm, number: int) -> None:
    """Wait for two whole rounds of attacks from here on; but for the controls, no attempt may have
    succeeded so far.
    """

    def rounds() -> int:
        return sum(line.startswith("rounds: ") for line in output(slurm, number))

    goal = rounds() + 3
    until("the hostile job to have tried everything", lambda: rounds() >= goal)
    lines = output(slurm, number)
    assert {line for line in lines if line.startswith(("succeeded", "not tried"))} == CONTROLS
    assert min(lines.count(control) for control in CONTROLS) >= goal


def test_a_hostile_job_neither_drains_its_node_nor_ends_another_users_job_nor_delays_the_pods_end(
    slurm: Slurm,
) -> None:
    protected = submit(slurm, "games", UNTIL_ENDED)
    until_state(slurm, protected, "RUNNING")
    hostile = submit(slurm, "news", ATTACK)
    until_state(slurm, hostile, "RUNNING")
    before = slurm.pods()[POD]["metadata"]["uid"]

    two_more_rounds(slurm, hostile)
    assert slurm.nodes()["slinky-0"] in {"mixed", "allocated"}

    slurm.kubernetes.kubectl("-n", "slurm", "delete", "pod", POD, "--wait=false")
    until_equal("the node to drain", lambda: slurm.nodes()["slinky-0"], "draining")
    two_more_rounds(slurm, hostile)
    assert slurm.job(protected)["JobState"] == "RUNNING"
    [slurmd] = [
        it for it in slurm.pods()[POD]["status"]["containerStatuses"] if it["name"] == "slurmd"
    ]
    assert (slurm.pods()[POD]["metadata"]["uid"], list(slurmd["state"])) == (before, ["running"])

    slurm.login("scancel", str(hostile))
    until_state(slurm, hostile, "CANCELLED")
    assert "slurmstepd" in slurm.worker(
        POD, "sh", "-c", "cat /proc/$(pidof -s /tmp/hostile/slurmstepd)/comm"
    )
    with slurm.watching_pods() as watch:
        slurm.end(protected)
        assert slurm.job(protected)["ExitCode"] == "0:0"

        def replaced() -> bool:
            pod = slurm.pods().get(POD)
            return pod is not None and pod["metadata"]["uid"] != before

        until("the pod to be replaced", replaced)
    last = [pod for pod in watch.history if pod["metadata"]["uid"] == before][-1]
    ends = [it["state"]["terminated"]["finishedAt"] for it in last["status"]["containerStatuses"]]
    # By the clocks of slurmctld and of the kubelet.
    assert max(map(seconds, ends)) - seconds(slurm.job(protected)["EndTime"] + "+00:00") < 40
    slurm.until_idle(2)


def test_a_user_of_a_login_node_can_not_write_what_slurms_commands_of_other_users_read(
    slurm: Slurm,
) -> None:
    shown = slurm.login("runuser", "-u", "news", "--", "sh", "-c", f"{LOGIN}exit 0")
    assert shown.splitlines() == ["in /etc/slurm", "wrote its own"]
