"""slurmdbd with a real MariaDB, in a Slurm cluster of its own beside the one of the other tests;
and its upgrade.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import upgrading
from tests.support.real import object_store
from tests.support.real.configuration import until_saved
from tests.support.real.foreign import address, foreign_pod
from tests.support.real.harness import (
    CHARTS,
    VALUES,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
)
from tests.support.real.kills import stop_operator

ACCOUNTING = VALUES.with_name("accounting-values.yaml")

OLDER = """update slurm_acct_db.accounted_slurm_job_table set
time_submit = time_end - 3456001, time_eligible = time_end - 3456001,
time_start = time_end - 3456001,
time_end = time_end - 3456000 where job_name = 'purged' and time_end > unix_timestamp() - 86400"""
"""Has the job end forty days earlier."""


@pytest.fixture(scope="module")
def accounted(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A cluster with accounting and one worker. The operator exists, because `slurm` is."""
    found = Slurm(kubernetes, "accounted")
    install(found)
    for kind in ("accountings", "controllers", "restapis"):

        def ready(kind: str = kind) -> bool | None:
            of = kubernetes.get("-n", found.namespace, f"{kind}.slinky.slurm.net", "slurm")
            return condition(of, "Ready").get("status") == "True" or None

        until(f"{kind} slurm to be Ready", ready)
    found.until_idle(1)
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace)
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false")


def install(slurm: Slurm, *values: str, **tags: str) -> None:
    """Install or upgrade the release, with these values, these tags of the daemons' images and the
    values files.
    """
    images = [
        f"{upgrading.IMAGES[daemon]}={upgrading.reference(daemon, tag)}"
        for daemon, tag in tags.items()
    ]
    slurm.kubernetes.helm(
        *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", slurm.namespace),
        *(
            "-f",
            str(VALUES),
            "-f",
            str(ACCOUNTING),
            "--set",
            ",".join(["nodesets.slinky.replicas=1", *values, *images]),
        ),
    )


def accounts(slurm: Slurm, *options: str) -> dict[str, tuple[str, str]]:
    """Account and state of each job that slurmdbd knows, by the job's name. `options`: of sacct."""
    lines = slurm.login(
        "sacct", "-n", "-X", "-P", "-a", *options, "-o", "jobname,account,state"
    ).splitlines()
    return {name: (account, state) for name, account, state in (line.split("|") for line in lines)}


def until_in_database(slurm: Slurm, name: str, account: str) -> None:
    """Wait until slurmdbd knows the job with this name and account as completed."""

    def known() -> tuple[object, list[str]]:
        # What slurmctld still has to send shows whose fault it is.
        return accounts(slurm).get(name), re.findall(
            r"DBD Agent queue size: *([0-9]+)", slurm.login("sdiag")
        )

    until(
        f"{name} to be in the database",
        known,
        is_it=lambda answer: answer[0] == (account, "COMPLETED"),
    )


def statement(slurm: Slurm, sql: str) -> None:
    """Execute it in the database."""
    client = (
        'mariadb --no-defaults -S /run/mysqld/mysqld.sock -u slurm -p"$(cat '
        '/etc/mariadb-password/password)" -e "$0"'
    )
    slurm.kubernetes.kubectl(
        "-n", slurm.namespace, "exec", "slurm-mariadb-0", "--", "sh", "-c", client, sql
    )


def slurmdbd(slurm: Slurm) -> str:
    """The uid of slurmdbd's pod, once it is ready."""
    pod = slurm.kubernetes.get("-n", slurm.namespace, "pod", "slurm-accounting-0")
    return str(pod["metadata"]["uid"]) if condition(pod, "Ready").get("status") == "True" else ""


def until_back(slurm: Slurm, before: str) -> None:
    """Wait until another pod than this (a uid, or "" for any) has slurmdbd, and clients reach it.

    A pod is ready a moment before its Service leads to it, and a connection in that moment is
    refused.
    """
    until("slurmdbd to be back", lambda: slurmdbd(slurm) not in {"", before} or None)
    until("slurmdbd to answer clients", lambda: slurm.login("sacctmgr", "-n", "show", "cluster"))


def test_a_job_is_charged_to_the_account_that_was_made_for_it(accounted: Slurm) -> None:
    assert (
        "accounted_slurm"
        in accounted.login("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster").split()
    )
    accounted.login("sacctmgr", "-i", "add", "account", "physics")
    accounted.login("sacctmgr", "-i", "add", "user", "root", "account=physics")
    accounted.login("srun", "-J", "charged", "-A", "physics", "true")
    until_in_database(accounted, "charged", "physics")


def test_a_restart_of_slurmdbd_loses_no_job_and_no_archive(accounted: Slurm) -> None:
    before = slurmdbd(accounted)
    inside = ("-n", accounted.namespace, "exec", "slurm-accounting-0", "-c", "slurmdbd", "--")
    [folder] = re.findall(
        r"^ArchiveDir += (\S+)$", accounted.login("sacctmgr", "show", "configuration"), re.MULTILINE
    )
    accounted.kubernetes.kubectl(*inside, "touch", f"{folder}/of-former-slurmdbd")
    accounted.kubernetes.kubectl(
        "-n", accounted.namespace, "delete", "pod", "slurm-accounting-0", "--wait=false"
    )
    names = [f"meanwhile-{number}" for number in range(3)]
    for name in names:
        accounted.login("srun", "-J", name, "true")
    until_back(accounted, before)
    assert "of-former-slurmdbd" in accounted.kubernetes.kubectl(*inside, "ls", folder).split()

    def known() -> bool | None:
        found = accounts(accounted)
        return all(found.get(name, ("", ""))[1] == "COMPLETED" for name in names) or None

    until("the jobs of the meantime to be in the database", known)
    assert (
        "physics"
        in accounted.login("sacctmgr", "-n", "-P", "show", "account", "format=account").split()
    )


def test_a_job_that_was_purged_is_in_a_file_of_the_volume_and_can_be_loaded_after_a_restart(
    accounted: Slurm,
) -> None:
    accounted.login("srun", "-J", "purged", "-A", "physics", "true")
    until_in_database(accounted, "purged", "physics")
    inside = ("-n", accounted.namespace, "exec", "slurm-accounting-0", "-c", "slurmdbd", "--")
    kubectl = accounted.kubernetes.kubectl
    folder = "/var/spool/slurm-archive"

    def is_older() -> bool:
        # slurmctld may report the job's end again, and slurmdbd writes it then.
        statement(accounted, OLDER)
        return "purged" in accounts(accounted, *since, "-E", "now-39days")

    since = ("-S", "now-60days")
    until("the job to be old", is_older)
    # sacctmgr looks whether the folder or the file exists where it runs itself; slurmdbd uses its
    # own.
    accounted.login("mkdir", "-p", folder)
    accounted.login(
        "sacctmgr", "-i", "archive", "dump", f"Directory={folder}", "Jobs", "PurgeJobAfter=30days"
    )
    assert "purged" not in accounts(accounted, *since)
    assert "charged" in accounts(accounted, *since)
    before = slurmdbd(accounted)
    kubectl("-n", accounted.namespace, "delete", "pod", "slurm-accounting-0", "--wait=false")
    until_back(accounted, before)
    [file] = [it for it in kubectl(*inside, "ls", folder).split() if "job_table" in it]
    accounted.login("touch", f"{folder}/{file}")
    accounted.login("sacctmgr", "-i", "archive", "load", f"file={folder}/{file}")
    assert accounts(accounted, *since)["purged"] == ("physics", "COMPLETED")


def test_another_password_in_database_and_secret_reaches_slurmdbd(accounted: Slurm) -> None:
    before = slurmdbd(accounted)
    kubectl = accounted.kubernetes.kubectl
    statement(accounted, "SET PASSWORD = PASSWORD('rotated #1')")
    data = base64.b64encode(b"rotated #1").decode()
    patch = f'{{"data":{{"password":"{data}"}}}}'
    kubectl("-n", accounted.namespace, "patch", "secret", "slurm-mariadb", "-p", patch)
    accounted.login("srun", "-J", "rotated", "-A", "physics", "true")
    until_back(accounted, before)
    until_in_database(accounted, "rotated", "physics")

    def events() -> str:
        return kubectl(
            "-n", accounted.namespace, "get", "events", "-o", "jsonpath={.items[*].message}"
        )

    # Events are written after what they report.
    until("the event", lambda: "slurmdbd conf changed" in events())
    assert "rotated #1" not in events()


def until_job(slurm: Slurm, name: str, end: str) -> None:
    """Wait until the Kubernetes Job has ended in this way, and fail with its logs if it has ended
    otherwise.
    """

    def ended() -> bool | None:
        job = slurm.kubernetes.get("-n", slurm.namespace, "job", name)
        found = [
            each for each in ("Complete", "Failed") if condition(job, each).get("status") == "True"
        ]
        logs = ("-n", slurm.namespace, "logs", f"job/{name}", "--all-containers", "--ignore-errors")
        assert found in ([], [end]), slurm.kubernetes.kubectl(*logs)
        return found == [end] or None

    until(f"Job {name}: {end}", ended)


@pytest.fixture
def outside(accounted: Slurm) -> Iterator[tuple[str, ...]]:
    """A store for copies of the backups, and the values with which they go there."""
    keys = [f"--from-literal={name}={value}" for name, value in object_store.KEYS.items()]
    with object_store.running(accounted.kubernetes):
        accounted.kubernetes.kubectl(
            "-n", accounted.namespace, "create", "secret", "generic", "backup-store", *keys
        )
        store = {
            "bucket": object_store.BUCKET,
            "endpoint": object_store.ENDPOINT,
            "secretName": "backup-store",
        }
        yield tuple(f"backup.s3.{name}={value}" for name, value in store.items())


def test_state_and_database_are_restored_from_the_store_when_the_volume_of_the_backups_is_lost_too(
    accounted: Slurm, outside: tuple[str, ...]
) -> None:
    """With the commands of docs/backup.md."""
    install(accounted, *outside)
    kubectl, here = accounted.kubernetes.kubectl, ("-n", accounted.namespace)
    blocked = accounted.submit("#!/bin/sh\ntrue\n", "--hold")
    running = accounted.submit("#!/bin/sh\nsleep 600\n")
    until_equal("the job to run", lambda: accounted.job(running)["JobState"], "RUNNING")
    until_saved(accounted, running)
    kubectl(*here, "create", "job", "backup-now", "--from=cronjob/slurm-backup")
    # slurmctld writes all of its state when it ends, or five minutes after its first start. The
    # backup waits for that.
    kubectl(*here, "delete", "pod", "slurm-controller-0")
    until_equal("slurmctld to be back", lambda: accounted.job(blocked)["JobState"], "PENDING")
    until_job(accounted, "backup-now", "Complete")
    logs = kubectl(*here, "logs", "job/backup-now", "--all-containers")
    assert "database.sql.gz" in logs
    assert re.search(r"copied backup \S+ to s3://backups/accounted/slurm", logs)
    accounted.login("sacctmgr", "-i", "add", "account", "chemistry")
    lost = accounted.submit("#!/bin/sh\ntrue\n", "--hold")

    kubectl(*here, "create", "job", "too-early", "--from=cronjob/slurm-restore")
    until_job(accounted, "too-early", "Failed")
    assert "Stop it first" in kubectl(*here, "logs", "job/too-early")
    assert "PENDING" in accounted.login("squeue", "--noheader", "--format=%T", f"--jobs={lost}")

    kubectl(*here, "delete", "job", "backup-now", "too-early", "--wait=true")
    kubectl(*here, "delete", "persistentvolumeclaim", "slurm-backup", "--wait=true")
    install(accounted, *outside)

    daemons = ("slurm-controller", "slurm-accounting")
    stop_operator(accounted.kubernetes)
    kubectl(*here, "scale", "statefulset", *daemons, "--replicas=0")
    kubectl(
        *here,
        "wait",
        "--for=delete",
        *(f"pod/{name}-0" for name in daemons),
        "--timeout=120s",
        timeout=130,
    )
    for job, source in (
        ("restore-state", "slurm-restore"),
        ("restore-database", "slurm-restore-database"),
    ):
        kubectl(*here, "create", "job", job, f"--from=cronjob/{source}")
    for job in ("restore-state", "restore-database"):
        until_job(accounted, job, "Complete")
    kubectl(*here, "scale", "statefulset", *daemons, "--replicas=1")
    kubectl("-n", "slinky", "scale", "deployment", "slurm-operator", "--replicas=1")

    until_equal("slurmctld to answer", lambda: accounted.job(blocked)["JobState"], "PENDING")
    assert str(lost) not in accounted.login("squeue", "--noheader", "--format=%i").split()
    assert accounted.job(running)["JobState"] == "RUNNING"
    until_back(accounted, "")
    known = accounted.login("sacctmgr", "-n", "-P", "show", "account", "format=account").split()
    assert "physics" in known
    assert "chemistry" not in known
    accounted.login("scancel", str(running))
    accounted.login("scontrol", "release", str(blocked))
    until_equal(
        "the job of the backup to end", lambda: accounted.job(blocked)["JobState"], "COMPLETED"
    )


def test_a_user_added_to_the_values_runs_jobs_within_a_minute_and_no_pod_restarts(
    accounted: Slurm,
) -> None:
    accounted.login("sacctmgr", "-i", "add", "account", "theirs", "fairshare=7")
    # Daemons that the test before has started again answer before they are ready.
    until_equal(
        "all pods to be ready", lambda: len(upgrading.uids(accounted)), len(upgrading.IMAGES)
    )
    before = upgrading.uids(accounted)
    declared = {
        "accounts": {"lasers": {"fairshare": 3, "limits": {"MaxJobs": 9}}},
        "qos": {"urgent": {"priority": 5, "limits": {"GrpTRES": {"cpu": 64}}}},
    }
    declare(
        accounted, declared, users={"root": {"accounts": ["lasers"], "qos": ["normal", "urgent"]}}
    )
    # Until the user is in the account, Slurm runs the job in the user's default account, because it
    # enforces none here.
    job = (
        "srun",
        "-J",
        "declared",
        "-A",
        "lasers",
        "-q",
        "urgent",
        "sh",
        "-c",
        "echo $SLURM_JOB_ACCOUNT",
    )
    until_equal("a job of the user in the account", lambda: accounted.login(*job).strip(), "lasers")
    until_equal("the declaration to be applied", lambda: applied(accounted)[0], "Applied")
    until_in_database(accounted, "declared", "lasers")

    # What someone else changes comes back, and nothing else does.
    accounted.login(
        "sacctmgr", "-i", "modify", "account", "lasers", "set", "fairshare=8", "grpjobs=4"
    )
    until_equal("the share to be set back", lambda: share(accounted, "lasers"), ("3", "4", "9"))

    # A job keeps its account and its user, and only what came from here is deleted.
    blocked = accounted.submit("#!/bin/sh\nsleep 600\n", "-A", "lasers", "-q", "urgent")
    declare(accounted, {"prune": True})
    message = until(
        "the deletion to be refused",
        lambda: applied(accounted)[1] if applied(accounted)[0] == "Refused" else None,
    )
    assert "7001" in message
    accounted.login("scancel", str(blocked))
    until_equal("everything declared to be gone", lambda: applied(accounted)[0], "Applied")
    left = accounted.login("sacctmgr", "-n", "-P", "show", "account", "format=account").split()
    assert {"theirs", "root"} <= set(left)
    assert "lasers" not in left
    assert (
        "urgent"
        not in accounted.login("sacctmgr", "-n", "-P", "show", "qos", "format=name").split()
    )
    assert share(accounted, "theirs")[0] == "7"
    until_equal("the same pods to be ready", lambda: upgrading.uids(accounted), before)
    declare(accounted, {})


def declare(slurm: Slurm, declared: dict[str, Any], users: dict[str, Any] | None = None) -> None:
    """Upgrade the release with these accounts and users."""
    slurm.kubernetes.helm(
        *(
            "upgrade",
            "slurm",
            str(CHARTS / "slurm"),
            "-n",
            slurm.namespace,
            "-f",
            str(VALUES),
            "-f",
            str(ACCOUNTING),
        ),
        *(
            "--set",
            "nodesets.slinky.replicas=1",
            "--set-json",
            f"accounting.declared={json.dumps(declared)}",
        ),
        *("--set-json", f"users={json.dumps(users or {})}"),
    )


def applied(slurm: Slurm) -> tuple[str, str]:
    """Reason and message of the condition `AccountsApplied`; empty without one."""
    found = condition(
        slurm.kubernetes.get("-n", slurm.namespace, "controllers.slinky.slurm.net", "slurm"),
        "AccountsApplied",
    )
    return found.get("reason", ""), found.get("message", "")


def share(slurm: Slurm, account: str) -> tuple[str, ...]:
    """Fair share, GrpJobs and MaxJobs of an account."""
    show = ("show", "associations", f"account={account}", "user=", "format=share,grpjobs,maxjobs")
    return tuple(slurm.login("sacctmgr", "-n", "-P", *show).strip().split("|"))


def test_slurmctld_takes_the_token_of_a_token_resource(accounted: Slurm) -> None:
    manifest = """
    {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "Token", "metadata": {"name": "api"},
     "spec": {"username": "root", "lifetime": "1h",
              "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"}}}
    """
    accounted.kubernetes.kubectl("-n", accounted.namespace, "apply", "-f", "-", stdin=manifest)

    def token() -> str | None:
        found = accounted.kubernetes.items("-n", accounted.namespace, "secrets")
        blocked = [
            item["data"]["SLURM_JWT"]
            for item in found
            if item["metadata"]["name"] == "api-jwt-root"
        ]
        return base64.b64decode(blocked[0]).decode() if blocked else None

    good = until("the token", token)
    ask = ["sh", "-c", "read -r SLURM_JWT; export SLURM_JWT; sinfo -h -o %D 2>&1 || true"]
    assert accounted.login(*ask, stdin=f"{good}\n").strip() == "1"
    wrong = re.sub(r"\.[^.]*$", ".AAAA", good)
    assert accounted.login(*ask, stdin=f"{wrong}\n").strip() != "1"


def test_a_pod_of_another_tenant_reaches_neither_slurmdbd_nor_its_database(
    accounted: Slurm,
) -> None:
    with foreign_pod(accounted.kubernetes) as foreign:
        for daemon, port in (("slurmdbd", 6819), ("mariadb", 3306)):
            assert not foreign.connects(
                address(accounted.kubernetes, accounted.namespace, daemon), port
            ), daemon


def until_ready_reports(slurm: Slurm, kind: str, reason: str) -> str:
    """Wait until the condition Ready of the resource `slurm` of a kind gives this reason; its
    message.
    """

    def look() -> str | None:
        of = slurm.kubernetes.get("-n", slurm.namespace, f"{kind}.slinky.slurm.net", "slurm")
        found = condition(of, "Ready")
        current = (
            found.get("observedGeneration") == of["metadata"]["generation"]
            and found["reason"] == reason
        )
        return str(found["message"]) if current else None

    return until(f"{kind} slurm to be {reason}", look)


def test_another_release_of_slurm_rolls_in_order_with_jobs_running_through_and_never_back(
    accounted: Slurm,
) -> None:
    newer = dict.fromkeys(upgrading.IMAGES, upgrading.NEXT)
    with upgrading.next_release(accounted.kubernetes):
        accounted.until_idle(1)
        through = accounted.submit_until_ended("-J", "through", "-n1", "--no-requeue")
        accounted.until_running(through)
        names = [f"begins-{seconds}" for seconds in range(5, 30, 5)]
        for name in names:
            begin = f"--begin=now+{name.removeprefix('begins-')}"
            accounted.submit("#!/bin/sh\nsleep 1\n", "-J", name, "-n1", "--no-requeue", begin)

        # All images at once.
        with accounted.watching_pods(upgrading.PODS) as watch:
            install(accounted, **newer)
            wanted = {upgrading.reference(daemon, tag) for daemon, tag in newer.items()}
            worker = [
                upgrading.reference("slurmd", tag) for tag in (upgrading.RELEASE, upgrading.NEXT)
            ]
            until_equal(
                "all pods but the worker to run the new images",
                lambda: set(upgrading.uids(accounted).values()),
                wanted ^ set(worker),
            )
            accounted.end(through)
            until_equal(
                "all pods to run the new images",
                lambda: set(upgrading.uids(accounted).values()),
                wanted,
            )
            for kind in ("accountings", "controllers", "restapis"):
                until_ready_reports(accounted, kind, "Ready")
            accounted.until_idle(1)
        upgrading.assert_in_order(watch)
        states = dict.fromkeys(("through", *names), "COMPLETED")

        def completed() -> bool:
            return {
                name: state for name, (_, state) in accounts(accounted).items()
            }.items() >= states.items()

        until("all jobs to be in the database as completed", completed)

        # And the daemons with a state back again.
        before = upgrading.uids(accounted)
        install(
            accounted, **newer | {"slurmdbd": upgrading.RELEASE, "slurmctld": upgrading.RELEASE}
        )
        for kind, daemon in (("accountings", "slurmdbd"), ("controllers", "slurmctld")):
            reported = until_ready_reports(accounted, kind, "OlderThanState")
            assert f"{daemon} {upgrading.RELEASE}" in reported
            assert f"what {daemon} {upgrading.NEXT} has stored" in reported
        assert accounted.login("srun", "hostname") == "slinky-0\n"
        install(accounted, **newer)
        for kind in ("accountings", "controllers"):
            until_ready_reports(accounted, kind, "Ready")
        until_equal("the same pods to be ready", lambda: upgrading.uids(accounted), before)
