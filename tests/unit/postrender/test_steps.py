"""Steps in order, and what ends a run."""

from typing import Any

import pytest

from postrender import configuration, steps
from postrender.errors import PostrenderError
from postrender.report import Finding, Run
from postrender.stream import Stream
from tests.support.streams import applied, config_map, objects, stream


def test_each_step_works_on_the_result_of_the_one_before() -> None:
    done = applied(
        stream(config_map("one")),
        {"labels": {"set": {"a": "b"}}},
        {"annotations": {"set": {"c": "d"}, "select": [{"labels": {"a": "b"}}]}},
    )
    (found,) = objects(done)
    assert found["metadata"] == {"name": "one", "labels": {"a": "b"}, "annotations": {"c": "d"}}


def test_an_error_that_a_step_finds_ends_the_run_and_a_warning_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def apply(stream: Stream, step: configuration.StepSettings[Any], run: Run) -> None:
        run.add(
            Finding(
                rule="r", severity=step.settings["set"]["as"], message="bad", place="document 1"
            )
        )

    monkeypatch.setattr("postrender.steps.labels.apply", apply, raising=False)
    import postrender.steps.labels

    monkeypatch.setattr(postrender.steps.labels, "apply", apply)
    run = Run()
    for severity in ("ignore", "info", "warning"):
        applied(stream(config_map("one")), {"labels": {"set": {"as": severity}}}, run=run)
    assert [it.severity for it in run.findings] == ["info", "warning"]
    assert str(run.findings[1]) == "warning: document 1: bad [r]"
    wanted = configuration.steps({"steps": [{"labels": {"set": {"as": "error"}}}] * 2}, "file")
    with pytest.raises(
        PostrenderError,
        match=r"^file: steps\[0\].labels: 1 error, listed above: nothing is passed on$",
    ):
        steps.apply(stream(config_map("one")), wanted, run)
