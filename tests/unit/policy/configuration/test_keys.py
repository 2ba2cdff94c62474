"""Rules about single keys: `sidecars.policy.configuration.keys`."""

import pytest

from tests.support.linting import findings


@pytest.mark.parametrize(
    ("version", "severity"),
    [("26.05", "error"), ("25.11.3", "error"), ("26.11", "warning"), (None, "warning")],
)
def test_an_unknown_key_of_an_unknown_version_is_a_warning(
    version: str | None, severity: str
) -> None:
    [found] = findings("Nosuch=1", version=version)
    assert found.severity == severity


def test_a_key_that_is_set_twice_alike_is_a_warning() -> None:
    [found] = findings("SlurmdTimeout=3\nSlurmdTimeout=3")
    assert (found.severity, "SlurmdTimeout is set already" in found.message) == ("warning", True)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("SlurmctldLogFile=/tmp/x", "the log won't show"),
        ("AccountingStorageHost=db.example.com", "spec.accountingRef decides"),
        ("MaxNodeCount=10", "nodes beyond it are lost"),
        ("Include /opt/site/slurm.conf", "doesn't know files outside of /etc/slurm"),
        ("NodeSet=z Nodes=nosuch", "which no NodeName line defines"),
    ],
)
def test_what_may_be_meant_is_a_warning(line: str, reported: str) -> None:
    [found] = findings(line)
    assert (found.severity, reported in found.message) == ("warning", True)


def test_what_the_operator_writes_itself_may_be_repeated() -> None:
    assert findings("AuthType=auth/slurm\nSlurmctldPort=6817\nMaxNodeCount=1024") == ()


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (
            "AccountingStoragePass=hunter2\nAccountingStoragePass=hunter3",
            (
                "AccountingStoragePass=REDACTED contradicts AccountingStoragePass=REDACTED in "
                "slurm.conf line"
            ),
        ),
        (
            'JobCompPass="hunter2 too"\nJobCompPass=hunter3',
            "JobCompPass=REDACTED contradicts JobCompPass=REDACTED",
        ),
        (
            "JobCompLoc=http://u:hunter2@a\nJobCompLoc=b",
            "JobCompLoc=b contradicts JobCompLoc=http://REDACTED@a in",
        ),
        (
            "AccountingStoragePass=hunter2 hunter3",
            "what follows AccountingStoragePass should be Key=Value",
        ),
        ("AccountingStoragePass hunter2", "(spec.extraConf line 1): it should be Key=Value"),
        ("KillWait=5 hunter2", "what follows KillWait should be Key=Value"),
    ],
)
def test_no_password_of_a_configuration_is_shown(lines: str, reported: str) -> None:
    found = " ".join(map(str, findings(lines)))
    assert reported in found
    assert "hunter" not in found
