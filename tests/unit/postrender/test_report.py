"""Reports as text, JSON and SARIF."""

import json
from pathlib import Path

import pytest

from postrender.errors import PostrenderError
from postrender.report import Finding, Run, rendered, shown

FINDINGS = [
    Finding(
        rule="b",
        severity="error",
        message="bad",
        place="document 1 (c/t/a.yaml), line 7, Pod p",
        source="c/t/a.yaml",
        line=7,
    ),
    Finding(rule="a", severity="info", message="so so"),
]


def test_text_has_a_line_for_each_finding_and_the_reason_of_the_end() -> None:
    assert rendered(FINDINGS, "", "text", "stdin") == (
        "slurm-postrender: error: document 1 (c/t/a.yaml), line 7, Pod p: bad "
        "[b]\nslurm-postrender: info: so so [a]\n"
    )
    assert rendered([], "no", "text", "stdin") == "slurm-postrender: no\n"


HOSTILE = "evil\n::add-mask::true\x1b]0;title\a ##[error]x ##vso[task.complete]"


def test_a_finding_is_one_line_without_commands_of_a_terminal_or_a_ci_whatever_it_quotes() -> None:
    quoting = Finding(rule="a", severity="info", message=f"image {HOSTILE}", place=HOSTILE)
    [line] = rendered([quoting], "", "text", "stdin").splitlines()
    assert line.isprintable()
    assert "##[" not in line
    assert "##vso[" not in line


@pytest.mark.parametrize(
    "text", ["::add-mask::true", "  ::error ::x", "\n::stop-commands::x", "\u2028::x"]
)
def test_no_line_begins_as_a_command(text: str) -> None:
    assert shown(text).startswith(": :")
    assert shown("a::b # [x]") == "a::b # [x]"


@pytest.mark.parametrize("named", ["/etc/passwd", "../x", "link/x", "a/../../x"])
def test_a_file_of_the_configuration_is_below_its_folder(named: str, tmp_path: Path) -> None:
    folder = tmp_path / "configuration"
    (folder / "a").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    run = Run(folder=folder)
    for good in ("x", "a/x", "a/../x", str(folder / "x")):
        assert run.file(good, "place") == folder / good
    with pytest.raises(
        PostrenderError, match=f"^place: '{named}' is not below the folder of the configuration, "
    ):
        run.file(named, "place")


def test_json_has_the_fields_of_each_finding() -> None:
    found = json.loads(rendered(FINDINGS, "why", "json", "stdin"))
    assert found["error"] == "why"
    assert found["findings"][0] == {
        "rule": "b",
        "severity": "error",
        "message": "bad",
        "place": "document 1 (c/t/a.yaml), line 7, Pod p",
        "source": "c/t/a.yaml",
        "line": 7,
    }
    assert json.loads(rendered([], "", "json", "stdin")) == {"error": None, "findings": []}


def test_sarif_has_levels_rules_and_lines_of_the_file() -> None:
    (run,) = json.loads(rendered(FINDINGS, "error: bad", "sarif", "rendered.yaml"))["runs"]
    assert run["tool"]["driver"]["rules"] == [{"id": "a"}, {"id": "b"}]
    assert [it["level"] for it in run["results"]] == ["error", "note"]
    assert run["results"][0]["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "rendered.yaml"},
                "region": {"startLine": 7},
            }
        }
    ]
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_a_run_that_failed_otherwise_is_a_notification_of_sarif() -> None:
    (run,) = json.loads(rendered([], "no stream", "sarif", "stdin"))["runs"]
    assert run["results"] == []
    assert run["invocations"] == [
        {
            "executionSuccessful": False,
            "toolExecutionNotifications": [{"level": "error", "message": {"text": "no stream"}}],
        }
    ]
