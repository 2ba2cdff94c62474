"""What the tests of the exporter share: expositions read by prometheus_client's own parser."""

from collections.abc import Mapping

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as text_families

from sidecars.exporter.compatible import METRICS
from sidecars.exporter.samples import Samples, page

Values = Mapping[tuple[str, ...], float]


def everything() -> Samples:
    """Samples of all metrics."""
    return Samples(METRICS)


def parsed(text: bytes, *, openmetrics: bool = False) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by metric and by the values of its labels, in the order of their names. Each
    series occurs once.
    """
    families = (openmetrics_families if openmetrics else text_families)(text.decode())
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in families:
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            assert labels not in series, f"{sample.name}{labels} occurs twice"
            series[labels] = sample.value
    return found


def values(samples: Samples) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of samples, as a scraper reads them."""
    return parsed(page([samples.blocks()], openmetrics=False))


def nonzero(series: Values) -> dict[tuple[str, ...], float]:
    """The values that aren't 0."""
    return {labels: value for labels, value in series.items() if value}
