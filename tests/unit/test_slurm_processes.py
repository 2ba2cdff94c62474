"""That the tests of the kind slurm are given to processes by what they share."""

from pathlib import Path

from tests.slurm.conftest import SHARE_KUBERNETES, process_of

ROOT = Path(__file__).parents[2]
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "tests" / "slurm").glob("test_*.py")
}


def test_the_files_that_share_a_kubernetes_use_its_fixture_and_have_none_of_their_own() -> None:
    using = {
        name
        for name, text in FILES.items()
        if "plane: ControlPlane" in text and "def plane(" not in text
    }
    assert using == set(SHARE_KUBERNETES)


def test_the_files_that_share_a_kubernetes_run_in_one_process_and_each_other_one_in_its_own() -> (
    None
):
    shared = {process_of(f"{name}::test_it[a::b]") for name in SHARE_KUBERNETES}
    assert len(shared) == 1
    others = FILES.keys() - set(SHARE_KUBERNETES)
    assert {process_of(f"{name}::test_it") for name in others} == others
    assert process_of("tests/integration/test_crds.py::test_it") == "tests/integration/test_crds.py"
