"""The lines of a configuration as Slurm reads them: `sidecars.policy.configuration.reading`."""

import re

from sidecars.policy.configuration.reading import Finding, Reading
from sidecars.workloads.config import compose
from tests.support import builders
from tests.support.builders import controller
from tests.support.linting import errors, findings


def reading_of(extra_conf: str, files: dict[str, str | bytes]) -> Reading:
    """The reading of a Controller's files."""
    of = controller(extraConf=extra_conf, configFileRefs=[{"name": "own"}])
    return Reading(compose(of, (), builders.facts(config_maps={"own": files})))


def test_the_lines_of_an_included_file_stand_where_it_is_included() -> None:
    reading = reading_of("KillWait=1\nInclude more.conf\nKillWait=3", {"more.conf": "KillWait=2\n"})
    found = [
        (it.file, it.value, it.ours) for it in reading.lines("slurm.conf") if it.key == "killwait"
    ]
    assert found == [
        ("slurm.conf", "1", False),
        ("more.conf", "2", False),
        ("slurm.conf", "3", False),
    ]
    assert reading.findings == []


def test_the_cluster_name_may_be_part_of_an_included_files_name() -> None:
    reading = reading_of(
        "Include /etc/slurm/extra-%c.conf", {"extra-slurm_slurm.conf": "KillWait=2\n"}
    )
    assert [it.value for it in reading.lines("slurm.conf") if it.key == "killwait"] == ["2"]


def test_a_file_that_includes_itself_is_an_error() -> None:
    [found] = errors(
        findings("Include a.conf", config_maps={"own": {"a.conf": "Include a.conf\n"}})
    )
    assert "the file includes itself" in found


def test_a_finding_of_a_whole_file_has_no_line() -> None:
    assert str(Finding(file="a", line=None, origin="", severity="error", message="m")) == "a: m"


def test_a_finding_reports_where_the_line_comes_from() -> None:
    [found] = findings("TaskPlugin=task/none\nPartitionName=p Nodes=nosuch")
    assert re.fullmatch(
        r"slurm\.conf line \d+ \(spec\.extraConf line 2\): PartitionName=p names nosuch, .*",
        str(found),
    )
    [found] = findings(
        config_maps={"own": {"gres.conf": "#\nName=gpu Nome=1"}}, extra_conf="GresTypes=gpu"
    )
    assert str(found).startswith(
        "gres.conf line 2 (ConfigMap own key gres.conf): Nome is no key of gres.conf"
    )
