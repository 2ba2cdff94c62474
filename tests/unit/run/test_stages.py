"""The stages of a run, and the commands that repeat them."""

from tests.e2e import order
from tests.run import __main__ as command
from tests.run import stages


def files(stage: stages.Stage) -> list[str]:
    return [word for word in stage.command if word.startswith("tests/")]


def test_a_whole_run_has_each_lane_from_the_start_and_everything_else_beside_them() -> None:
    lanes, others = command.whole()
    assert [stage.lane for stage in lanes] == [*order.LANES]
    assert [stage.name for stage in others] == [
        *("format", "lint", "types", "layers", "unit"),
        *("verify", "docs", "programs of processes", "charts", "slurm", "mutants"),
    ]
    assert not any(stage.nice for stage in lanes)
    assert [stage.name for stage in others if not stage.nice] == [
        "format",
        "lint",
        "types",
        "layers",
    ]
    assert all("--timeout=600" in stage.command for stage in others if stage.name == "unit")
    assert len({stage.cluster for stage in lanes}) == len(lanes)


def test_a_lane_runs_its_files_in_the_order_of_its_list_on_a_cluster_of_its_own() -> None:
    stage = stages.e2e(1)
    assert files(stage) == [f"tests/e2e/{name}.py" for name in order.LANES[1]]
    assert f"--cluster={stage.cluster}" in stage.command


def test_tests_run_in_their_own_lane_and_in_its_order_unless_a_lane_is_given() -> None:
    chosen = [
        "tests/e2e/test_z_leaving.py",
        "tests/e2e/test_states.py::test_a",
        "tests/e2e/test_jobs.py::test_b",
    ]
    assert {stage.lane: files(stage) for stage in stages.lanes(chosen)} == {
        1: ["tests/e2e/test_jobs.py::test_b"],
        2: ["tests/e2e/test_states.py::test_a", "tests/e2e/test_z_leaving.py"],
    }
    assert [(stage.lane, files(stage)) for stage in stages.lanes(chosen, 2)] == [(2, chosen)]


def test_the_command_that_repeats_a_test_names_it_as_one_word_for_the_shell() -> None:
    test = "tests/e2e/test_jobs.py::test_a[one two]"
    again = stages.e2e(1).again(test)
    assert again == f"make e2e LANE=1 T='{test}'"
    assert stages.make("docs").again(None) == "make docs"
    assert (
        stages.unit().again("tests/unit/test_docs.py::test_x")
        == "make check T=tests/unit/test_docs.py::test_x"
    )


def test_names_of_tests_are_separated_by_spaces_and_can_contain_some() -> None:
    assert stages.split(" tests/a.py::t[x y]  tests/b.py ") == ["tests/a.py::t[x y]", "tests/b.py"]
    assert stages.split("  ") == []


def test_some_unit_tests_are_run_without_the_static_checks() -> None:
    assert [files(stage) for stage in stages.check(["tests/unit/test_docs.py"])] == [
        ["tests/unit/test_docs.py"]
    ]
