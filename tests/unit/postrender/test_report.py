"""Reports as text, JSON and SARIF."""

import json

from postrender.report import Finding, rendered

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
        "slurm-postrender: error: document 1 (c/t/a.yaml), line 7, Pod p: bad [b]\nslurm-postrender: info: so so [a]\n"
    )
    assert rendered([], "no", "text", "stdin") == "slurm-postrender: no\n"


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
        {"physicalLocation": {"artifactLocation": {"uri": "rendered.yaml"}, "region": {"startLine": 7}}}
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
