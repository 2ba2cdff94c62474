"""Login nodes' objects."""

import base64
from typing import Any

import pytest

from sidecars.workloads import loginset as render
from sidecars.workloads.assembly import find
from sidecars.workloads.facts import NOTHING, MissingReferenceError
from sidecars.workloads.resources import LoginSet, Manifest
from tests.support import builders
from tests.support.builders import controller, env, loginset, mounts, part, pod_spec, volume

KEYS = {
    f"ssh_host_{kind}_key{end}": f"{kind}{end}"
    for kind in ("rsa", "ecdsa", "ed25519")
    for end in ("", ".pub")
}


def objects(of: LoginSet | None = None, **facts: Any) -> list[Manifest]:
    """What is rendered."""
    return render.objects(of or loginset(), controller(), builders.facts(**facts))


def deployment(of: LoginSet | None = None, **facts: Any) -> Manifest:
    """The Deployment among it."""
    return find(objects(of, **facts), "Deployment")


def annotations(of: LoginSet | None = None, **facts: Any) -> dict[str, str]:
    """The annotations of its pods."""
    found: dict[str, str] = deployment(of, **facts)["spec"]["template"]["metadata"]["annotations"]
    return found


def test_there_is_a_config_map_a_service_and_a_deployment() -> None:
    rendered = objects(
        loginset(
            replicas=0, service={"spec": {"type": "LoadBalancer"}}, strategy={"type": "Recreate"}
        )
    )
    assert [(item["kind"], item["metadata"]["name"]) for item in rendered] == [
        ("ConfigMap", "slurm-login-slinky-ssh-config"),
        ("Service", "slurm-login-slinky"),
        ("Deployment", "slurm-login-slinky"),
    ]
    assert rendered[1]["spec"]["type"] == "LoadBalancer"
    assert rendered[1]["spec"]["ports"] == [
        {"name": "login", "port": 22, "protocol": "TCP", "targetPort": "login"}
    ]
    assert (rendered[2]["spec"]["replicas"], rendered[2]["spec"]["strategy"]) == (
        0,
        {"type": "Recreate"},
    )


def test_no_strategy_means_the_one_of_kubernetes() -> None:
    assert "strategy" not in deployment()["spec"]


def test_sshd_config_and_authorized_keys_have_the_users_lines_at_the_end() -> None:
    of = loginset(
        rootSshAuthorizedKeys="ssh-ed25519 AAAA root\nssh-rsa BBBB",
        extraSshdConfig="LoginGraceTime 10",
    )
    data = find(objects(of), "ConfigMap")["data"]
    assert data["authorized_keys"].splitlines()[-2:] == ["ssh-ed25519 AAAA root", "ssh-rsa BBBB"]
    lines = data["sshd_config"].splitlines()
    at = lines.index("LoginGraceTime 10")
    assert lines[at - 1] == "### EXTRA CONFIG ###"
    assert lines[at + 3] == "Match User root", (
        "the user's lines come first, for sshd takes a key's first value"
    )
    for line in ("Include /etc/ssh/sshd_config.d/*.conf", "UsePAM yes", "X11Forwarding yes"):
        assert line in lines
    assert "Subsystem sftp internal-sftp" in lines


def test_host_keys_are_kept_in_an_immutable_secret() -> None:
    secret = render.host_keys_secret(loginset(), KEYS)
    assert secret["metadata"]["name"] == "slurm-login-slinky-ssh-host-keys"
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "LoginSet"
    assert secret["immutable"] is True
    assert {
        name: base64.b64decode(value).decode() for name, value in secret["data"].items()
    } == KEYS


def test_an_incomplete_set_of_host_keys_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lack ssh_host_rsa_key\.pub$"):
        render.host_keys_secret(loginset(), KEYS | {"ssh_host_rsa_key.pub": ""})


def test_pods_wait_for_their_host_keys() -> None:
    with pytest.raises(MissingReferenceError, match="slurm-login-slinky-ssh-host-keys"):
        objects(
            secrets={"slurm-auth-slurm": {"slurm.key": ""}, "slurm-sssd-conf": {"sssd.conf": ""}}
        )


def test_sackd_gets_its_configuration_from_slurmctld() -> None:
    assert env(deployment(), "login") == {
        "SACKD_OPTIONS": "--conf-server slurm-controller.slurm:6817"
    }


def test_options_of_the_user_come_after_ours() -> None:
    of = loginset(
        login={"env": [{"name": "SACKD_OPTIONS", "value": "-v"}, {"name": "TZ", "value": "UTC"}]}
    )
    assert env(deployment(of), "login") == {
        "SACKD_OPTIONS": "--conf-server slurm-controller.slurm:6817 -v",
        "TZ": "UTC",
    }


def test_a_user_who_names_another_server_means_it() -> None:
    of = loginset(login={"env": [{"name": "SACKD_OPTIONS", "value": "--conf-server other:1"}]})
    assert env(deployment(of), "login") == {"SACKD_OPTIONS": "--conf-server other:1"}


def test_workers_are_found_by_their_bare_names() -> None:
    spec = pod_spec(deployment())
    assert spec["dnsConfig"] == {"searches": ["slurm-workers-slurm.slurm.svc.cluster.local"]}
    assert (spec["enableServiceLinks"], spec["automountServiceAccountToken"]) == (False, False)


def test_login_pods_have_the_label_of_their_cluster_by_which_network_policies_admit_them() -> None:
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    assert (labels["app.kubernetes.io/name"], labels["slinky.slurm.net/cluster"]) == (
        "login",
        "slurm",
    )


def test_the_login_container_has_keys_sshd_and_sssd_configuration() -> None:
    workload = deployment()
    found = mounts(workload, "login")
    assert {path for path, name in found.items() if name == "ssh-host-keys"} == {
        f"/etc/ssh/{key}" for key in KEYS
    }
    assert found["/etc/ssh/sshd_config"] == "ssh-config"
    assert found["/etc/slurm-login"] == "ssh-config"
    assert found["/etc/sssd/sssd.conf"] == "sssd-conf"
    assert (found["/etc/slurm"], found["/run/slurm"]) == ("slurm-etc", "sackd-dir")
    modes = {
        item["path"]: item["mode"]
        for item in volume(workload, "ssh-host-keys")["projected"]["sources"][0]["secret"]["items"]
    }
    assert modes == {name: 0o644 if name.endswith(".pub") else 0o600 for name in KEYS}


def test_a_login_pod_is_ready_within_a_second_of_its_socket_and_is_seldom_asked_later() -> None:
    login = part(deployment(), "login")
    looks = {name: login[name]["exec"]["command"] for name in ("startupProbe", "readinessProbe")}
    assert set(map(tuple, looks.values())) == {("test", "-S", "/run/slurm/sack.socket")}
    assert login["startupProbe"]["periodSeconds"] == 1
    assert login["readinessProbe"].get("periodSeconds", 10) == 10


def test_sssd_is_left_out_where_none_is_named() -> None:
    of = loginset(sssdConfRef=None)
    assert "/etc/sssd/sssd.conf" not in mounts(deployment(of), "login")
    assert annotations(of)["slinky.slurm.net/sssd-conf-hash"] == NOTHING


def test_the_port_can_be_moved_for_the_hosts_network() -> None:
    of = loginset(
        login={"ports": [{"name": "login", "containerPort": 2222}]},
        template={"spec": {"hostNetwork": True}},
    )
    assert part(deployment(of), "login")["ports"] == [{"name": "login", "containerPort": 2222}]


def test_the_key_is_copied_for_slurm_by_a_container_that_can_do_no_more() -> None:
    workload = deployment()
    assert mounts(workload, "initconf") == {
        "/mnt/etc/slurm": "slurm-etc",
        "/mnt/run/slurm": "sackd-dir",
        "/mnt/slurm": "slurm-config",
    }
    assert part(workload, "initconf")["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["CHOWN"],
    }
    assert part(deployment(loginset(initconf={"image": "alpine"})), "initconf")["image"] == "alpine"


@pytest.mark.parametrize(
    "change", [{"rootSshAuthorizedKeys": "ssh-rsa C"}, {"extraSshdConfig": "MaxAuthTries 1"}]
)
def test_what_running_pods_take_over_restarts_none_and_has_a_digest(change: dict[str, Any]) -> None:
    assert deployment(loginset(**change)) == deployment()
    digests = {
        render.ssh_config_digest(of, controller(), builders.facts())
        for of in (loginset(**change), loginset())
    }
    assert len(digests) == 2


def test_the_files_that_change_in_a_running_pod_are_mounted_as_a_folder() -> None:
    of = part(deployment(), "login")["volumeMounts"]
    folder, include = (
        next(item for item in of if item["mountPath"] == path)
        for path in ("/etc/slurm-login", "/etc/ssh/sshd_config")
    )
    assert "subPath" not in folder
    data = find(objects(), "ConfigMap")["data"]
    assert data[include["subPath"]] == "Include /etc/slurm-login/sshd_config\n"


def test_a_login_node_asks_an_external_slurmctld() -> None:
    cluster = controller(external=True, externalConfig={"host": "my-controller", "port": 6817})
    workload = find(render.objects(loginset(), cluster, builders.facts()), "Deployment")
    assert env(workload, "login") == {"SACKD_OPTIONS": "--conf-server my-controller:6817"}
