"""The bridge's command line."""

from decimal import Decimal
from pathlib import Path

import pytest

from sidecars.bridge.core.nodes import NO_USAGE
from sidecars.bridge.settings import Settings, TokenSecret, parse

URL = "http://slurm-restapi.slurm:6820"


def test_only_the_address_of_slurmrestd_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--slurmrestd-url", f"{URL}/"], {"POD_NAMESPACE": "slurm"}) == Settings(
        URL, "slurm"
    )
    with pytest.raises(SystemExit):
        parse([], {})
    assert "--slurmrestd-url" in capsys.readouterr().err


def test_the_address_of_slurmrestd_can_be_of_ipv6() -> None:
    found = parse(["--slurmrestd-url", "http://[fd00::1]:6820/"], {})
    assert found.slurmrestd_url == "http://[fd00::1]:6820"


def test_flags_become_settings() -> None:
    flags = (
        "--jwt-key /k --slurm-user admin --namespace n --tenants t --default-partition p "
        "--health-port 0 --lease l"
    )
    flags += " --tenant-role r --service-account a"
    found = parse(["--slurmrestd-url", URL, *flags.split()], {})
    assert found == Settings(
        URL, "n", Path("/k"), "admin", "t", "r", "a", "p", health_port=0, lease="l"
    )


def test_a_token_comes_from_a_file_or_a_secret_and_replaces_the_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = ["--slurmrestd-url", URL]
    assert parse([*at, "--token-file", "/t"], {}).token_file == Path("/t")
    secret = parse([*at, "--token-secret", "hpc/bridge/SLURM_JWT"], {}).token_secret
    assert secret == TokenSecret("hpc", "bridge", "SLURM_JWT")
    for flags, words in (
        (["--token-secret", "hpc/bridge"], "'hpc/bridge' is not a Secret; give NAMESPACE/NAME/KEY"),
        (["--token-file", "/t", "--jwt-key", "/k"], "not allowed with argument --token-file"),
    ):
        with pytest.raises(SystemExit):
            parse([*at, *flags], {})
        assert words in capsys.readouterr().err


def test_the_reserve_is_a_quantity(capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--slurmrestd-url", URL]
    found = parse([*at, "--reserve-cpu=1500m", "--reserve-memory=1Gi"], {}).reserve
    assert (found.cpus, found.exact, found.memory) == (2, Decimal("1.5"), 1024)
    assert parse(at, {}).reserve == NO_USAGE
    for flag, words in (
        ("--reserve-cpu=-1", "'-1' is negative: give 0 or more"),
        ("--reserve-memory=much", "much"),
    ):
        with pytest.raises(SystemExit):
            parse([*at, flag], {})
        assert words in capsys.readouterr().err


def test_rules_for_devices_are_parsed() -> None:
    rules = '[{"gres": "gpu:1g", "extendedResource": "nvidia.com/mig-1g.5gb"}]'
    found = parse(["--slurmrestd-url", URL, f"--devices={rules}"], {})
    assert found.devices.extended == {"nvidia.com/mig-1g.5gb": "gpu:1g"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--slurmrestd-url", "slurm:6820"],
            "'slurm:6820' is not slurmrestd's address; give http://HOST:PORT",
        ),
        (["--slurmrestd-url", URL, "--health-port", "70000"], "'70000' is not a port"),
        (
            ["--slurmrestd-url", URL, "--devices", '[{"gres": "gpu"}]'],
            "devices[0] (gpu): name either extendedResource",
        ),
    ],
)
def test_a_bad_value_is_named(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(flags, {})
    assert words in capsys.readouterr().err
