"""That users find every reason that they can be shown: `sidecars.policy.reasons` and the page
generated from it.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from schemas import conditions as page
from schemas import metrics as metrics_page
from sidecars.contract import reasons
from sidecars.contract.explained import Explained
from sidecars.contract.reasons import NodeReason
from sidecars.operator import metrics
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import drain
from sidecars.policy.nodeset.records import Deletion, DesiredPods
from sidecars.policy.reasons import CONDITION_TYPES, EventReason, Mark, Reason, SlurmNodeState
from sidecars.policy.reasons.bridge import BridgeEvent
from sidecars.register import gpus
from sidecars.register.gpus import Found, Wanted
from tests.unit.policy.nodeset.builders import worker

ROOT = Path(__file__).parents[3]
WORKLOADS = ROOT / "charts/slurm-operator/workloads"
SOURCES = sorted((ROOT / "sidecars").glob("**/*.py"))
KINDS = [
    it
    for it in (*Explained.__subclasses__(), *Reason.__subclasses__())
    if it.__module__.startswith("sidecars.")
]
WORDS: list[Explained] = [word for kind in KINDS for word in kind]
IDS = [f"{type(word).__name__}-{word.name}" for word in WORDS]
STATUSES = {"True", "False", "Unknown", "True or False"}
CONVERTED = {"ConfigurationRunning.POD_NOT_STARTED", "ConfigurationRunning.NO_ANSWER"}
"""Reasons that no source names: they come from those of ConfigurationAccepted."""


def calls(name: str) -> Iterator[tuple[str, list[Any]]]:
    """Where a function or class is called, and its arguments: their values as far as the module
    defines them.
    """
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if f"{name}(" not in text:
            continue
        place = path.relative_to(ROOT)
        module = importlib.import_module(
            ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        )
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                yield (
                    f"{place}:{node.lineno}",
                    [value(argument, vars(module)) for argument in node.args],
                )


def value(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of an expression that needs only names of its module, text for a text that is put
    together, else " "None.
    """
    if isinstance(node, ast.JoinedStr | ast.BinOp):
        return ast.unparse(node)
    if not isinstance(node, ast.Constant | ast.Name | ast.Attribute):
        return None
    try:
        return eval(ast.unparse(node), names)  # noqa: S307 - an expression of our own sources
    except (NameError, AttributeError):
        return None


@pytest.mark.parametrize("word", WORDS, ids=IDS)
def test_each_word_has_a_cause_and_a_remedy_in_whole_sentences(word: Explained) -> None:
    for text in (word.cause, word.remedy):
        assert re.match(r"[A-Z`\[]|slurm", text), text
        assert text.endswith("."), text
        assert "|" not in text, "it would end a cell of the table"


@pytest.mark.parametrize(
    "kind", [*CONDITION_TYPES, EventReason, SlurmNodeState, NodeReason, Mark, metrics.Metric]
)
def test_no_word_stands_twice_in_its_class(kind: type[Explained]) -> None:
    assert [name for name, word in kind.__members__.items() if name != word.name] == []


@pytest.mark.parametrize("kind", [*CONDITION_TYPES, EventReason])
def test_a_reason_is_a_word_in_camel_case_as_its_name_in_the_code(kind: type[Explained]) -> None:
    for reason in list(kind):
        assert re.fullmatch(r"[A-Z][A-Za-z]*", reason.value)
        assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", reason.value).upper() == reason.name


@pytest.mark.parametrize("kind", CONDITION_TYPES)
def test_a_reason_names_the_statuses_of_its_condition(kind: type[Reason]) -> None:
    assert {reason.statuses for reason in kind} <= STATUSES


def test_every_class_of_reasons_is_a_condition_type_of_the_page() -> None:
    assert set(Reason.__subclasses__()) == set(CONDITION_TYPES)


def test_conditions_errors_and_deletions_accept_listed_reasons_alone() -> None:
    # mypy checks the callers.
    assert get_type_hints(Condition)["reason"] is Reason
    assert get_type_hints(NotUsableError.__init__)["reason"] in CONDITION_TYPES
    assert (
        get_type_hints(
            Deletion, importlib.import_module("sidecars.policy.nodeset.records").__dict__
        )["event"]
        is EventReason
    )


def test_each_condition_in_the_code_has_a_reason_and_status_that_are_listed_for_its_type() -> None:
    found = 0
    for place, arguments in calls("Condition"):
        if "kube" in place:
            continue
        kind, status, reason = arguments[:3]
        found += 1
        assert reason is None or isinstance(reason, Reason), f"{place}: {reason!r} is not listed"
        if isinstance(reason, Reason):
            assert kind in (None, type(reason).__name__), (
                f"{place}: {kind} with a reason of {type(reason).__name__}"
            )
            assert status is None or status in reason.statuses, (
                f"{place}: {reason!r} with status {status}"
            )
    assert found > 50


def test_each_event_in_the_code_has_a_reason_that_is_listed() -> None:
    # With fewer arguments it is a severity and reason in one, whose type mypy checks.
    found = [(place, arguments[2]) for place, arguments in calls("emit") if len(arguments) == 5]
    assert [
        place for place, reason in found if not isinstance(reason, EventReason | BridgeEvent | None)
    ] == []
    assert sum(isinstance(reason, EventReason) for _, reason in found) > 8


def test_each_listed_reason_is_used() -> None:
    texts = "".join(
        path.read_text(encoding="utf-8") for path in SOURCES if "reasons" not in path.parts
    )
    shown = [word for word in WORDS if isinstance(word, Reason | EventReason)]
    named = {f"{type(word).__name__}.{word.name}" for word in shown}
    assert {name for name in named if name not in texts} == CONVERTED


def test_the_page_has_a_heading_for_each_reason_and_a_row_for_each_other_word() -> None:
    text = page.page() + metrics_page.page()
    for word in WORDS:
        kind = "Event" if isinstance(word, EventReason) else type(word).__name__
        heading = f"\n### {kind}: {word.value}\n"
        assert heading in text or re.search(
            rf"^\| `(SlurmNodeState)?{re.escape(word.value)}` \|", text, re.MULTILINE
        )


def test_every_metric_of_the_operator_is_listed() -> None:
    import prometheus_client

    found = {
        family.name
        for family in prometheus_client.REGISTRY.collect()
        if family.name.startswith("slurm_operator_")
    }
    assert {
        name
        for name in found
        if name not in {metric.value.removesuffix("_total") for metric in metrics.Metric}
    } == set()
    assert found


def pattern(reason: NodeReason) -> str:
    """The reason as a regular expression: words in capitals stand for other texts."""
    return re.sub(r"\b[A-Z]{3,}\b", ".+", re.escape(reason.value).replace(r"\ ", " "))


def named(reason: str) -> Iterator[NodeReason]:
    """The reasons of the list that describe this one."""
    return (it for it in NodeReason if re.fullmatch(pattern(it), reason))


@pytest.mark.parametrize("text", [reasons.RECORD_ORPHANED, reasons.POD_LEAVING, reasons.POD_GONE])
def test_each_fixed_reason_is_listed(text: str) -> None:
    assert text in list(NodeReason)


def test_the_reasons_of_drained_workers_are_listed() -> None:
    pod = replace(worker(0), cordon="user")
    texts = [
        drain.drain_reason(pod, "slurm", "scale-in"),
        drain.drain_reason(pod, "slurm", None),
        drain.drain_reason(replace(pod, cordon=None, drain_requested=True), "slurm", None),
        drain.common_reason(DesiredPods("slurm", 1, "new", name="slinky"), "scale-in"),
        drain.drain_reason(
            replace(pod, kube_node_cordon="Node (k-0) was cordoned, Pod (s/p) must be cordoned"),
            "",
            None,
        ),
        drain.drain_reason(replace(pod, kube_node_cordon="a fan is broken"), "", None),
        gpus.decide(Found((), "NVML"), Wanted(8)).drain,
    ]
    assert [next(named(text or "")) for text in texts] == [
        NodeReason.POD_TERMINATES,
        NodeReason.POD_CORDONED,
        NodeReason.POD_CORDON_REQUESTED,
        NodeReason.PODS_TERMINATE,
        NodeReason.KUBE_NODE_CORDONED,
        NodeReason.KUBE_NODE_CORDONED_FOR,
        NodeReason.GPUS,
    ]


def test_each_place_that_words_a_reason_is_known_here() -> None:
    """Whoever words another reason adds it to the list, and to the tests above."""
    found = {
        f"{path.stem}:{call}"
        for path in SOURCES
        for call in re.findall(r"reasons\.(of_operator|of_pod)\(", path.read_text(encoding="utf-8"))
    }
    assert found == {"drain:of_operator", "gpus:of_pod"}


def test_each_health_check_is_listed() -> None:
    checks = {
        path.stem.removeprefix("health-check-") for path in WORKLOADS.glob("health-check-*.sh")
    }
    listed = {
        it.value.split(": ")[2] for it in NodeReason if it.value.startswith(reasons.HEALTH_PREFIX)
    }
    assert checks == listed
