"""The operator's command line."""

import pytest

from sidecars.operator.settings import Settings, address, cluster_domain, parse


def test_flags_of_the_chart_are_understood() -> None:
    flags = [
        *(
            "--health-addr=:8081",
            "--metrics-addr=0",
            "--leader-elect=true",
            "--leader-elect-namespace=slinky",
        ),
        "--leader-elect-name=second-slurm-operator",
        *(
            "--namespaces=a,b",
            "--nodeset-workers=4",
            "--propagated-node-conditions=DiskFull,GpuLost",
        ),
    ]
    settings = parse(flags, {"SIDECARS_IMAGE": "sidecars:1"})
    assert settings.namespaces == ("a", "b")
    assert (settings.leader_elect, settings.leader_elect_namespace) == (True, "slinky")
    assert settings.leader_elect_name == "second-slurm-operator"
    assert settings.nodeset_workers == 4
    assert settings.propagated_node_conditions == ("DiskFull", "GpuLost")
    assert settings.sidecars_image == "sidecars:1"


def test_flags_of_schedmds_operator_that_have_no_meaning_here_are_accepted() -> None:
    flags = ["--enable-http2=false", "--profile", "--profile-addr=:6060", "--slurmclient-workers=2"]
    assert parse(flags, {}) == parse([], {})


@pytest.mark.parametrize(
    ("flags", "address", "ipv6"),
    [
        ([], "10.0.0.1", False),
        ([], "fd00::1", True),
        ([], "", False),
        (["--ipv6=false"], "fd00::1", False),
        (["--ipv6"], "10.0.0.1", True),
    ],
)
def test_the_family_of_the_pods_is_that_of_the_operators_own_address(
    flags: list[str], address: str, ipv6: bool
) -> None:
    assert parse(flags, {"POD_IP": address}).ipv6 is ipv6


def test_leader_election_is_off_unless_asked_for() -> None:
    assert not parse([], {}).leader_elect
    assert parse(["--leader-elect"], {}).leader_elect
    assert not parse(["--leader-elect=false"], {}).leader_elect


@pytest.mark.parametrize(
    "flag", ["--nodeset-workers=0", "--leader-elect=maybe", "--nodeset-worker-s=3", "--log-level=x"]
)
def test_a_wrong_flag_is_refused_with_its_name(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([flag], {})
    assert ended.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_an_address_is_host_and_port_or_none() -> None:
    assert address("localhost:80") == ("localhost", 80)
    assert address("[::1]:80") == ("::1", 80)
    assert address(":8081") == ("", 8081)
    assert address("0") is None


@pytest.mark.parametrize("text", ["", "8081", "host:", "host:70000", ":-1"])
def test_an_address_without_a_good_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        address(text)


def test_the_cluster_domain_is_the_one_that_the_kubelet_searches() -> None:
    assert (
        cluster_domain(
            "nameserver 10.0.0.10\nsearch slurm.svc.hpc.example svc.hpc.example hpc.example\n"
        )
        == "hpc.example"
    )
    assert (
        cluster_domain("search example.com\n")
        == Settings.__dataclass_fields__["cluster_domain"].default
    )
