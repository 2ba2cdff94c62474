"""The pictures of the dashboards: each panel with the recorded answers to its queries."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from schemas import dashboard_pictures, dashboards, grafana
from schemas.dashboard_pictures import svg

SPACE = "{http://www.w3.org/2000/svg}"


def series(values: list[float | None], **labels: str) -> dict[str, Any]:
    return {"labels": labels, "values": values}


def drawn(panel: grafana.Panel, *answers: list[dict[str, Any]]) -> ET.Element:
    """The picture of a dashboard with one panel."""
    return ET.fromstring(  # noqa: S314
        svg(grafana.Dashboard("One", (panel,)), {panel.title: list(answers)}, 60.0)
    )


def texts(picture: ET.Element) -> list[str]:
    return [it.text or "" for it in picture.iter(f"{SPACE}text")]


def lines(picture: ET.Element) -> list[list[tuple[float, float]]]:
    """The points of each line."""
    found = [it.get("d", "") for it in picture.iter(f"{SPACE}path") if it.get("class") == "line"]
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)] for path in found
    ]


@pytest.mark.parametrize(
    ("value", "unit", "want"),
    [
        (0.625, "percentunit", "62.5 %"),
        (3 * 2**30, "bytes", "3 GiB"),
        (90.0, "s", "1.5 min"),
        (0.0025, "s", "2.5 ms"),
        (0.0, "s", "0"),
        (12.0, "short", "12"),
        (25_000.0, "short", "25 k"),
        (2.5, "reqps", "2.5 req/s"),
    ],
)
def test_a_value_is_shown_with_its_unit(value: float, unit: str, want: str) -> None:
    assert dashboard_pictures.shown(value, unit) == want


def test_a_number_is_the_last_value_of_its_query() -> None:
    assert "7" in texts(drawn(grafana.stat("Nodes", "n"), [series([3.0, 7.0])]))
    assert "No data" in texts(drawn(grafana.stat("Nodes", "n"), []))


def test_a_line_rises_with_its_values_and_has_a_gap_where_prometheus_has_none() -> None:
    panel = grafana.graph("Load", ("l", "{{node}}"))
    picture = drawn(panel, [series([0.0, 1.0, None, 2.0, 2.0], node="a-0")])
    first, second = lines(picture)
    # The y axis of SVG points down.
    assert [x for x, _ in first] < [x for x, _ in second]
    assert first[0][1] > first[1][1] > second[0][1] == second[1][1]
    assert "a-0" in texts(picture)


def test_stacked_lines_add_up() -> None:
    panel = grafana.stack("Nodes", ("n", "{{state}}"))
    low, high = lines(
        drawn(panel, [series([1.0, 1.0], state="idle"), series([1.0, 1.0], state="down")])
    )
    axis = low[0][1] + (low[0][1] - high[0][1])
    assert high[0][1] < low[0][1] < axis
    assert low[0][1] == low[1][1]


def test_a_table_has_a_column_for_each_label_and_a_row_for_each_series_that_exists_now() -> None:
    panel = grafana.table("Nodes", "n")
    found = texts(
        drawn(panel, [series([1.0], node="a-0", state="idle"), series([None], node="gone")])
    )
    assert found[2:] == ["node", "state", "Value", "a-0", "idle", "1"]


def test_a_legend_that_does_not_fit_names_how_many_more_there_are() -> None:
    panel = grafana.graph("Load", ("l", "{{n}}"))
    found = texts(drawn(panel, [series([1.0, 2.0], n=f"n{number}") for number in range(9)]))
    assert {"n5", "+3 more"} <= set(found)
    assert "n6" not in found


def test_a_legend_of_long_names_names_how_many_more_there_are() -> None:
    panel = grafana.graph("Load", ("l", "{{n}}"))
    found = texts(
        drawn(
            panel,
            [
                series([1.0, 2.0], n=f"MESSAGE_NODE_REGISTRATION_STATUS_{number}")
                for number in "abc"
            ],
        )
    )
    assert {"MESSAGE_NODE_REGISTRATION_STATUS_a", "+2 more"} <= set(found)


def test_text_of_slurm_is_no_markup() -> None:
    found = texts(drawn(grafana.graph("Load", ("l", "{{n}}")), [series([1.0, 2.0], n="<a&b>")]))
    assert "<a&b>" in found


@pytest.mark.parametrize("name", dashboards.DASHBOARDS)
def test_each_dashboard_has_a_picture_with_all_its_panels(name: str) -> None:
    dashboard = dashboards.DASHBOARDS[name]
    picture = ET.fromstring(dashboard_pictures.picture(name, dashboard))  # noqa: S314
    # A long title has two lines.
    shown = " ".join(texts(picture))
    assert [panel.title for panel in dashboard.panels if panel.title not in shown] == []
