"""The step `preview`."""

import json
from pathlib import Path

import pytest
import yaml

from postrender.errors import PostrenderError
from postrender.preview import live
from postrender.preview.state import State
from postrender.preview.words import NOTHING
from postrender.report import Run
from tests.support.streams import applied, stream
from tests.unit.postrender.expand import streams


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run in a folder that has the former render: one worker less."""
    (tmp_path / "before.yaml").write_text(
        yaml.safe_dump_all([*streams.stream()[:-1], streams.nodeset(replicas=1)])
    )
    return Run(folder=tmp_path, namespace="slurm")


def test_the_preview_is_written_and_nothing_is_passed_on(run: Run) -> None:
    step = {"preview": {"before": "before.yaml", "output": "preview.md", "format": "markdown"}}
    with pytest.raises(
        PostrenderError, match=r"nothing is passed on after a preview .*; it is in preview\.md"
    ):
        applied(stream(*streams.stream()), step, run=run)
    text = (run.folder / "preview.md").read_text()
    assert "### Workers" in text
    assert "spec.replicas is added: 2" in text or "spec.replicas: 1 → 2" in text


def test_the_stream_is_passed_on_as_it_is_if_asked_for(run: Run) -> None:
    given = stream(*streams.stream())
    step = {
        "preview": {
            "before": "before.yaml",
            "output": "preview.json",
            "format": "json",
            "proceed": True,
        }
    }
    assert applied(given, step, run=run).written() == stream(*streams.stream()).written()
    found = json.loads((run.folder / "preview.json").read_text())
    assert [it["action"] for it in found["workers"][0]["workers"]] == ["create"]


def test_without_a_file_it_is_written_to_stderr_and_into_the_reason(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PostrenderError, match="1 worker is created"):
        applied(stream(*streams.stream()), {"preview": {"before": "before.yaml"}}, run=run)
    assert "1 worker is created" in capsys.readouterr().err


def test_a_live_cluster_is_asked_with_the_release(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def read(after: list[object], namespace: str, release: str) -> tuple[list[object], State]:
        asked.append((namespace, release))
        return list(after), State(0.0, live=True)

    monkeypatch.setattr(live, "read", read)
    run.release = "slurm"
    step = {"preview": {"live": True, "output": "out", "proceed": True}}
    plain = stream({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}})
    applied(plain, step, run=run)
    assert asked == [("slurm", "slurm")]
    assert (run.folder / "out").read_text() == f"{NOTHING}\n"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "set either `live: true`, or `before`"),
        ({"live": True, "before": "x"}, "set either `live: true`, or `before`"),
        ({"before": "none.yaml"}, r"the former render .*none\.yaml can't be read: No such file"),
        ({"before": "broken.yaml"}, r"broken\.yaml: document 1, line 1"),
        (
            {"before": "../before.yaml"},
            r"preview\.before: '\.\./before\.yaml' is not below the folder",
        ),
        (
            {"before": "before.yaml", "output": "/srv/x"},
            r"preview\.output: '/srv/x' is not below the folder",
        ),
        (
            {"before": "before.yaml", "workloads": "/etc"},
            r"preview\.workloads: '/etc' is not below the folder",
        ),
        (
            {"before": "before.yaml", "output": "no/folder"},
            r"preview\.output: 'no/folder' can't be written",
        ),
    ],
    ids=[
        "nothing",
        "both",
        "missing",
        "broken",
        "before elsewhere",
        "output elsewhere",
        "workloads elsewhere",
        "output",
    ],
)
def test_what_cannot_be_previewed_is_named(
    run: Run, settings: dict[str, object], message: str
) -> None:
    (run.folder / "broken.yaml").write_text("kind: [\n")
    with pytest.raises(PostrenderError, match=message):
        applied(stream(*streams.stream()), {"preview": settings}, run=run)
