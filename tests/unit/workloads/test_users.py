"""Declared users in the pods of a cluster: `sidecars.workloads.users`."""

from typing import Any

import pytest

from sidecars.contract import paths
from sidecars.workloads import accounting as slurmdbd
from sidecars.workloads import controller as slurmctld
from sidecars.workloads import loginset as login
from sidecars.workloads import nodeset, restapi
from sidecars.workloads.assembly import find
from sidecars.workloads.config import compose
from sidecars.workloads.resources import Controller, Manifest
from tests.support import builders
from tests.support.builders import mounts, volume

DECLARING: dict[str, Any] = {"usersRef": {"name": "slurm-declared-users", "key": "users.yaml"}}
STORAGE = {"host": "db", "passwordKeyRef": {"name": "mariadb-password", "key": "password"}}


def workloads_of(controller: Controller) -> dict[str, Manifest]:
    """What runs each daemon, by the name of its container; a worker pod as a workload of one."""
    facts = builders.facts()
    secrets = slurmdbd.Secrets(password=b"p", slurm_key=b"k")
    rendered = [
        *slurmctld.objects(controller, (), facts),
        *restapi.objects(builders.restapi(), controller, facts, {"slurm.conf": ""}),
        *login.objects(builders.loginset(), controller, facts),
        *slurmdbd.objects(builders.accounting(storageConfig=STORAGE), facts, secrets, [controller]),
    ]
    found = {
        it["spec"]["template"]["spec"]["containers"][0]["name"]: it
        for it in rendered
        if it["kind"] in {"StatefulSet", "Deployment"}
    }
    return found | {
        "slurmd": {
            "spec": {"template": nodeset.pod_template(builders.nodeset(), controller, facts)}
        }
    }


def test_every_daemon_mounts_the_folder_of_libnss_extrausers_whole() -> None:
    found = workloads_of(builders.controller(**DECLARING))
    assert set(found) == {"slurmctld", "slurmrestd", "login", "slurmdbd", "slurmd"}
    for container, workload in found.items():
        mounted = mounts(workload, container)[paths.USERS]
        # A file that is mounted by its own path never changes in a running pod. Without the
        # ConfigMap pods start.
        assert volume(workload, mounted)["configMap"] == {
            "name": "slurm-users",
            "optional": True,
            "defaultMode": 0o444,
        }
    assert paths.USERS in mounts(found["slurmctld"], "check"), (
        "a dry run resolves the groups of partitions"
    )


def test_without_declared_users_no_pod_changes() -> None:
    for container, workload in workloads_of(builders.controller()).items():
        assert paths.USERS not in mounts(workload, container)


def config(controller: Controller, extra: str = "") -> list[str]:
    """The lines of the login nodes' sshd_config."""
    rendered = login.objects(builders.loginset(extraSshdConfig=extra), controller, builders.facts())
    return [str(line) for line in find(rendered, "ConfigMap")["data"]["sshd_config"].splitlines()]


def test_sshd_asks_for_the_keys_of_each_user_but_root_unless_the_site_has_a_command() -> None:
    declaring = builders.controller(**DECLARING)
    keys = [
        "AuthorizedKeysCommand /usr/bin/cat /var/lib/extrausers/keys-%u",
        "AuthorizedKeysCommandUser nobody",
    ]
    lines = config(declaring, "MaxAuthTries 3")
    at = lines.index("Match User *,!root")
    assert lines[at + 1 : at + 4] == ["Include /var/lib/extrausers/sshd.conf", *keys]
    assert lines.index("MaxAuthTries 3") < at < lines.index("Match User root")
    own = "authorizedkeyscommand /usr/bin/sss_ssh_authorizedkeys\nAuthorizedKeysCommandUser nobody"
    with_own = config(declaring, own)
    assert "Include /var/lib/extrausers/sshd.conf" in with_own
    assert keys[0] not in with_own
    assert "Match User *,!root" in config(declaring, "# AuthorizedKeysCommand none")
    assert "Match User *,!root" not in config(builders.controller())


def test_workers_with_ssh_ask_for_the_keys_too() -> None:
    of = builders.nodeset(
        ssh={"enabled": True, "sssdConfRef": {"name": "slurm-sssd-conf", "key": "sssd.conf"}}
    )
    found = nodeset.objects(of, builders.controller(**DECLARING), builders.facts())
    [text] = [it["data"]["sshd_config"] for it in found if "sshd_config" in it.get("data", {})]
    assert "AuthorizedKeysCommand /usr/bin/cat /var/lib/extrausers/keys-%u" in text.splitlines()


def test_declaring_users_is_a_new_revision_and_a_former_one_keeps_its_pods() -> None:
    without, declaring, facts = (
        builders.controller(),
        builders.controller(**DECLARING),
        builders.facts(),
    )
    of = builders.nodeset()
    before, after = nodeset.revision(of, without, facts), nodeset.revision(of, declaring, facts)
    assert before.hash != after.hash
    # The files of an earlier release have no such overlay.
    base = {
        name: file for name, file in before.data["base"]["files"].items() if name != "slurmd-users"
    }
    former = nodeset.Revision(before.hash, before.data | {"base": {"files": base}})
    assert nodeset.pod_template(of, declaring, facts, former) == nodeset.pod_template(
        of, without, facts, before
    )
    pod = {"spec": {"template": nodeset.pod_template(of, without, facts, after)}}
    assert paths.USERS in mounts(pod, "slurmd"), "until it is replaced"


def test_other_users_of_the_same_controller_are_the_same_revision() -> None:
    facts = builders.facts()
    other = builders.controller(usersRef={"name": "site-users", "key": "users.yaml"})
    assert (
        nodeset.revision(builders.nodeset(), other, facts).hash
        == nodeset.revision(builders.nodeset(), builders.controller(**DECLARING), facts).hash
    )


@pytest.mark.parametrize("extra", ["GroupUpdateTime=600", "groupupdatetime=600"])
def test_slurmctld_reads_members_of_groups_more_often_unless_the_user_sets_it(extra: str) -> None:
    def lines(controller: Controller) -> list[str]:
        text = compose(controller, (), builders.facts()).files["slurm.conf"]
        return [line for line in text.splitlines() if line.lower().startswith("groupupdatetime")]

    assert lines(builders.controller()) == []
    assert lines(builders.controller(**DECLARING)) == ["GroupUpdateTime=30"]
    assert lines(builders.controller(**DECLARING, extraConf=extra)) == [extra]


def test_slurmdbd_of_several_clusters_has_the_users_of_the_first_that_declares_some() -> None:
    named = [builders.controller({"name": name}, **DECLARING) for name in ("b", "a")]
    secrets = slurmdbd.Secrets(password=b"p", slurm_key=b"k")
    rendered = slurmdbd.objects(
        builders.accounting(storageConfig=STORAGE),
        builders.facts(),
        secrets,
        [builders.controller(), *named],
    )
    workload = find(rendered, "StatefulSet")
    assert volume(workload, "users")["configMap"]["name"] == "a-users"
