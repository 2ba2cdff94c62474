"""The user's kubectl: its answers, and its errors by kind."""

from pathlib import Path

import pytest

from sidecars.explain.kubectl import Forbidden, Kubectl, KubectlError, NoKubectl, NotFound
from tests.unit.explain.fake_kubectl import NOT_FOUND, FakeKubectl, forbidden


@pytest.fixture
def fake(tmp_path: Path) -> FakeKubectl:
    return FakeKubectl(tmp_path / "fake")


def test_the_options_precede_the_command(fake: FakeKubectl) -> None:
    fake.lists("/api/v1/nodes", "Node", {"metadata": {"name": "a"}})
    assert fake.program("--context=x").read("/api/v1/nodes")["items"] == [
        {"metadata": {"name": "a"}}
    ]
    assert fake.kubectl("--context=x").read("/api/v1/nodes")["items"] == [
        {"metadata": {"name": "a"}}
    ]
    assert fake.asked() == [["--context=x", "get", "--raw", "/api/v1/nodes"]]


def test_a_missing_right_is_named(fake: FakeKubectl) -> None:
    fake.paths["/x"] = forbidden("list", "nodesets", "slinky.slurm.net")
    with pytest.raises(
        Forbidden,
        match=r'^the right to list nodesets\.slinky\.slurm\.net in the namespace "slurm"$',
    ):
        fake.program().read("/x")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (NOT_FOUND, NotFound),
        ((1, "", "Unable to connect to the server: dial tcp: i/o timeout"), NoKubectl),
        (
            (
                1,
                "",
                (
                    "The connection to the server 10.0.0.1:6443 was refused - did you specify the "
                    "right host or port?"
                ),
            ),
            NoKubectl,
        ),
        ((1, "", "error: something else"), KubectlError),
        ((0, "<html>", ""), KubectlError),
    ],
)
def test_an_error_has_its_kind(
    fake: FakeKubectl, answer: tuple[int, str, str], kind: type[KubectlError]
) -> None:
    fake.paths["/x"] = answer
    with pytest.raises(KubectlError) as caught:
        fake.program().read("/x")
    assert type(caught.value) is kind


def test_a_kubectl_that_does_not_exist_is_an_error_that_reports_it(tmp_path: Path) -> None:
    with pytest.raises(NoKubectl, match="can't be started"):
        Kubectl((), str(tmp_path / "none")).read("/x")


def test_a_namespace_of_no_context_is_default(fake: FakeKubectl) -> None:
    fake.namespace = ""
    assert fake.program().namespace() == "default"


def test_what_a_command_prints_is_kept_whatever_its_status(fake: FakeKubectl) -> None:
    fake.executed["a"] = (3, "half", "command terminated with exit code 3")
    done = fake.program().execute("slurm", "a", "c", ("true",), 5)
    assert (done.status, done.out) == (3, "half")


def test_a_command_that_does_not_start_is_an_error(fake: FakeKubectl) -> None:
    fake.executed["a"] = forbidden("create", "pods/exec")
    with pytest.raises(Forbidden, match="the right to create pods/exec"):
        fake.program().execute("slurm", "a", "c", ("true",), 5)
