"""`python -m tests.charts [CHART…]`: everything that can be tested of the charts without a
cluster.

For each chart: `helm lint --strict`, its helm-unittest suites, chart-testing's lint, and for its
defaults and each values file in `ci/`, `examples/` and tests/configurations/all-values: the objects
that Helm 3 and Helm 4 render are the same, right for the oldest and the newest Kubernetes that is
tested, have the recommended labels, and run no container as root that the documentation doesn't
list. A values file with digests changes the images that Helm
renders, and nothing else, and `global.imageRegistry` the registry of all of them. With everything
enabled, `global.imageRepository` is the place of all images of this project (placed). Values files
in the shapes of SchedMD's charts become what they become there (migration). Prometheus' promtool
reads the alerts and the dashboards (monitoring).
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from release import packages, rehearsal
from schemas import chart_values, image_digests, image_list, resource_fields
from sidecars.contract.project import REGISTRY
from tests.charts import (
    chart_testing,
    coverage,
    examples,
    migration,
    monitoring,
    objects,
    placed,
)
from tests.cluster.commands import environment
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool

ROOT = Path(__file__).parents[2]
ALL_VALUES = ROOT / "tests" / "configurations" / "all-values"
OLDEST, NEWEST = "1.29.0", "1.37.0"
SECONDS = 1200
"""For one program, also on a busy host."""
ALL_IMAGES = {
    "slurm": (
        "accounting.enabled=true,accounting.mariadb.enabled=true,backup.enabled=true,loginsets.a.replicas=1,"
        "nodesets.a.replicas=1"
    ),
    "slurm-operator": "operator.enabled=true",
    "slurm-exporter": "exporter.enabled=true",
    "slurm-bridge": "controllers.replicas=1",
}
"""Values with which a chart renders all of its images."""
EXTERNAL = "controller.external=true,accounting.enabled=true,accounting.external=true"
"""Values of the chart `slurm` for daemons outside Kubernetes."""


@dataclass(frozen=True)
class Case:
    """A chart with a values file, or with its defaults."""

    chart: Path
    values: Path | None

    @property
    def name(self) -> str:
        """Short, for people."""
        return f"{self.chart.name} with {self.values.name if self.values else 'its defaults'}"

    def arguments(self) -> list[str]:
        """For Helm."""
        return [str(self.chart), *([f"--values={self.values}"] if self.values else [])]


def main(arguments: Sequence[str]) -> int:
    """The command; 0 means that all is well."""
    everything = sorted(path.parent for path in (ROOT / "charts").glob("*/Chart.yaml"))
    parser = argparse.ArgumentParser(
        prog="python -m tests.charts", description="Test the charts without a cluster."
    )
    parser.add_argument(
        "chart", nargs="*", help=f"of {', '.join(chart.name for chart in everything)}; default: all"
    )
    chosen = parser.parse_args(arguments).chart
    if unknown := set(chosen) - {chart.name for chart in everything}:
        parser.error(f"no such chart: {', '.join(sorted(unknown))}")
    charts = [chart for chart in everything if not chosen or chart.name in chosen]
    # The longest are first, so that two processes end at about the same time.
    steps: dict[str, Callable[[list[Path]], list[str]]] = {
        "helm-unittest": suites,
        "values of SchedMD's charts": of_other_charts,
        "rendered objects": rendered,
        "examples in the documentation": documented,
        "alerts and dashboards": monitoring.problems,
        "helm lint": lint,
        "chart-testing": linted_by_chart_testing,
        "labels and users": labelled,
        "packages": packaged,
        "images pinned by digest": pinned,
        "images below one path": placed_together,
        "warnings of Helm": silent,
        "values and schemas": schemas_and_values,
        "fields of custom resources": fields_arrive,
    }
    failed = False
    with ProcessPoolExecutor(2) as processes:
        results = processes.map(partial(timed, charts), steps.values())
        for name, (found, seconds) in zip(steps, results, strict=True):
            print(f"{'FAILED' if found else 'ok    '} {name} ({seconds:.0f} s)", flush=True)
            for problem in found:
                print(f"  {problem}", flush=True)
            failed = failed or bool(found)
    return 1 if failed else 0


def timed(charts: list[Path], step: Callable[[list[Path]], list[str]]) -> tuple[list[str], float]:
    """The problems that a step finds, and how many seconds it took."""
    started = time.monotonic()
    try:
        found = step(charts)
    except ClusterError as error:
        found = [str(error)]
    return found, time.monotonic() - started


def schemas_and_values(charts: list[Path]) -> list[str]:
    """Every key of a schema is in a values file, and every chart has a schema."""
    found = []
    for chart in charts:
        if chart.name not in chart_values.charts():
            found.append(f"{chart.name}: add the file schemas/values/{chart.name}.yaml")
            continue
        documents = [
            yaml.safe_load(path.read_text())
            for path in [chart / "values.yaml", *values_files(chart)]
        ]
        missing = coverage.unmentioned(chart_values.load(chart.name), documents)
        found += [f"{chart.name}: no values file mentions {path}" for path in missing]
    return found


def fields_arrive(charts: list[Path]) -> list[str]:
    """Every field of a custom resource that values have is in one that a values file renders."""
    found = []
    for chart in charts:
        if chart.name == resource_fields.CHART:
            words = [f"--values={values}" for values in values_files(chart)]
            manifests = [
                each for word in [*words, f"--set={EXTERNAL}"] for each in template(chart, [word])
            ]
            found += [
                f"{chart.name}: the value of {path} is not in the resource"
                for kind in resource_fields.PASSED
                for path in coverage.lost(kind, manifests)
            ]
    return found


def lint(charts: list[Path]) -> list[str]:
    """`helm lint --strict` accepts the charts, and refuses a typo in values, with Helm 3 and Helm
    4.
    """
    found = []
    for chart in charts:
        for program in ("helm", "helm4"):
            done = run([tool(program), "lint", "--set=typo=1", str(chart)])
            if not done.returncode or "typo: unknown key" not in done.stdout + done.stderr:
                found.append(f"{chart.name}: {program} lint does not refuse an unknown key")
    for case in cases(charts):
        done = run(
            [tool("helm"), "lint", "--strict", f"--kube-version={NEWEST}", *case.arguments()]
        )
        if done.returncode:
            found += [f"{case.name}:", *lines(done)]
    return found


def silent(charts: list[Path]) -> list[str]:
    """Helm 3 and Helm 4 package and lint the charts without a warning."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for chart in charts:
            for program in ("helm", "helm4"):
                for words in (["package", f"--destination={folder}"], ["lint"]):
                    done = run([tool(program), *words, str(chart)])
                    if done.returncode or done.stderr.strip():
                        found += [f"{chart.name}: {program} {words[0]}:", *lines(done)]
    return found


def rendered(charts: list[Path]) -> list[str]:
    """Objects that Kubernetes would take, the same from Helm 3 and Helm 4."""
    todo = [(case, version) for case in cases(charts) for version in (oldest(case.chart), NEWEST)]
    tool("helm")
    tool("helm4")
    with ThreadPoolExecutor(2) as threads:
        return [
            problem
            for found in threads.map(lambda each: rendered_case(*each), todo)
            for problem in found
        ]


def oldest(chart: Path) -> str:
    """The oldest Kubernetes that the chart admits, or OLDEST."""
    wanted: str = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"]
    return max(OLDEST, wanted.removeprefix(">= ").removesuffix("-0"))


def rendered_case(case: Case, version: str) -> list[str]:
    """Problems of one chart, values file and version of Kubernetes."""
    name = f"{case.name} on Kubernetes {version}"
    outputs: list[list[Any]] = []
    for program in ("helm", "helm4"):
        words = [
            "template",
            "test",
            *case.arguments(),
            "--namespace=test",
            f"--kube-version={version}",
        ]
        done = run([tool(program), *words])
        if done.returncode:
            return [f"{name}: {program}:", *lines(done)]
        outputs.append(
            [
                each
                for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)
                if each is not None
            ]
        )
    found = [problem for manifest in outputs[0] for problem in objects.problems(manifest, version)]
    if sorted(map(comparable, outputs[0])) != sorted(map(comparable, outputs[1])):
        found.append("Helm 3 and Helm 4 render different objects")
    return [f"{name}: {problem}" for problem in found]


def labelled(charts: list[Path]) -> list[str]:
    """Every object of the charts has the recommended labels, and no pod has one that changes with
    the version. No container of these pods may run as root, unless the documentation lists it.
    """
    found = []
    for case in cases(charts):
        # The objects of the user have the labels of the user.
        words = [] if case.chart.name == "slurm-operator-crds" else ["--set-json=extraObjects=[]"]
        done = run(
            [
                tool("helm"),
                "template",
                "test",
                *case.arguments(),
                f"--kube-version={NEWEST}",
                *words,
            ]
        )
        if done.returncode:
            found += [f"{case.name}:", *lines(done)]
            continue
        manifests = [
            each for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if each is not None
        ]
        found += [
            f"{case.name}: {problem}"
            for each in manifests
            for problem in (*objects.label_problems(each), *objects.root_problems(each))
        ]
    return found


def packaged(charts: list[Path]) -> list[str]:
    """The packages of a release render what the charts render, and have all files that users
    expect.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for package in packages.package_all(ROOT, Path(folder) / "packages"):
            subprocess.run(["tar", "-xzf", package, "-C", folder], check=True)
        for chart in charts:
            problems = rehearsal.package_problems(Path(folder) / chart.name, chart)
            found += [f"{chart.name}: {problem}" for problem in problems]
    return found


def pinned(charts: list[Path]) -> list[str]:
    """With the values file of `make lock-images`, every image has its digest, and nothing else
    differs.

    A user who sets another tag after it gets an image without a digest.
    """
    found = []
    for chart in charts:
        if images := image_digests.chart_images(chart):
            digests = {
                image: f"sha256:{hashlib.sha256(str(image).encode()).hexdigest()}"
                for image in images.values()
            }
            with tempfile.TemporaryDirectory() as folder:
                values = Path(folder) / image_digests.LOCK
                values.write_text(image_digests.values_text(images, digests))
                default = objects_of(chart, [])
                locked = objects_of(chart, [f"--values={values}"])
                tags = [f"--set-string={'.'.join(place)}.tag=other" for place in images]
                other = objects_of(chart, [f"--values={values}", *tags])
            expected = with_digests(
                default, {str(image): f"{image}@{digest}" for image, digest in digests.items()}
            )
            if sorted(map(comparable, locked)) != sorted(map(comparable, expected)):
                found.append(f"{chart.name}: digests change more than images, or not all images")
            unlisted = sorted(without_digest(default) - set(image_list.of_chart(chart).values()))
            found += [
                f"{chart.name}: image {image} is not in the list of images" for image in unlisted
            ]
            mirrored = without_digest(
                objects_of(chart, ["--set=global.imageRegistry=mirror.example:5000/a/"])
            )
            expected_images = {
                f"mirror.example:5000/a/{image.partition('/')[2]}"
                for image in without_digest(default)
            }
            if mirrored != expected_images:
                found.append(
                    f"{chart.name}: global.imageRegistry gives {sorted(mirrored ^ expected_images)}"
                )
            missing = sorted(without_digest(locked))
            found += [
                f"{chart.name}: image {image} has no digest: it isn't in values.yaml"
                for image in missing
            ]
            if "@sha256:" in json.dumps(other):
                found.append(
                    f"{chart.name}: an image with another tag than that of values.yaml keeps the "
                    "digest"
                )
    return found


def placed_together(charts: list[Path]) -> list[str]:
    """With everything enabled, `global.imageRepository` alone decides where all images of this
    project are.
    """
    found = []
    for chart in charts:
        every = image_list.of_chart(chart).values()
        own = [image for image in every if image.startswith(f"{REGISTRY}/")]
        if not own:
            continue
        values = yaml.safe_load((ALL_VALUES / f"{chart.name}.yaml").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "values.yaml"
            path.write_text(json.dumps(placed.without_images(values)))
            manifests = template(
                chart, [f"--values={path}", f"--set=global.imageRepository={placed.PLACE}/"]
            )
        problems = placed.problems(
            manifests, own, others=(set(every) - set(own)) | placed.of_the_site(values)
        )
        found += [f"{chart.name}: {problem}" for problem in problems]
    return found


def objects_of(chart: Path, words: list[str]) -> list[Any]:
    """The objects of a chart with all of its images."""
    return template(chart, [f"--set={ALL_IMAGES[chart.name]}", *words])


def template(chart: Path, words: list[str]) -> list[Any]:
    """The objects of a chart. Raises ClusterError with Helm's message."""
    done = run([tool("helm"), "template", "test", str(chart), *words])
    if done.returncode:
        raise ClusterError("\n".join(lines(done)))
    return [
        each for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if each is not None
    ]


def with_digests(value: Any, references: dict[str, str]) -> Any:
    """A value in which each text that is one of the references is replaced."""
    if isinstance(value, dict):
        return {key: with_digests(item, references) for key, item in value.items()}
    if isinstance(value, list):
        return [with_digests(item, references) for item in value]
    return references.get(value, value) if isinstance(value, str) else value


def without_digest(value: Any) -> set[str]:
    """The images in a value that have no digest."""
    if isinstance(value, dict):
        own = {
            str(item)
            for key, item in value.items()
            if key == "image" and "@sha256:" not in str(item)
        }
        return own.union(*map(without_digest, value.values()))
    return set().union(*map(without_digest, value)) if isinstance(value, list) else set()


def of_other_charts(charts: list[Path]) -> list[str]:
    """Values files in the shapes of SchedMD's charts."""
    names = {chart.name for chart in charts}
    return migration.problems([case for case in migration.cases() if case.chart in names])


def documented(charts: list[Path]) -> list[str]:
    """The values in the documentation can be rendered, and its Kubernetes objects fit their
    schemas.
    """
    found = examples.of_folder(ROOT)
    names = {chart.name for chart in charts}
    todo = [
        (each.place, chart, values)
        for each in found
        for chart, values in each.values()
        if chart in names
    ]
    tool("helm")
    with ThreadPoolExecutor(2) as threads:
        rendered = [
            problem
            for each in threads.map(lambda each: example_problems(*each), todo)
            for problem in each
        ]
    written = [
        (each.place, problem)
        for each in found
        for it in each.objects()
        for problem in objects.problems(it, NEWEST)
    ]
    return [*rendered, *(f"{place}: {problem}" for place, problem in written)]


def example_problems(place: str, chart: str, values: Any) -> list[str]:
    """What Helm reports about one example of values, and what Kubernetes would about the
    objects.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values.yaml"
        path.write_text(json.dumps(values))
        words = [
            "template",
            "slurm",
            str(ROOT / "charts" / chart),
            f"--values={path}",
            "--namespace=slurm",
        ]
        done = run([tool("helm"), *words, f"--kube-version={NEWEST}"])
    if done.returncode:
        return [f"{place}: {line}" for line in lines(done)]
    manifests = [
        each for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if each is not None
    ]
    found = [problem for manifest in manifests for problem in objects.problems(manifest, NEWEST)]
    return (
        [f"{place}: {problem}" for problem in found]
        if manifests
        else [f"{place}: no object is rendered"]
    )


def comparable(manifest: Any) -> str:
    """An object as text, Secrets included: a chart that rendered other keys each time would change
    them.
    """
    return json.dumps(manifest, sort_keys=True, default=str)


def suites(charts: list[Path]) -> list[str]:
    """helm-unittest."""
    found = []
    for chart in charts:
        done = run(
            [
                tool("helm-unittest"),
                "--strict",
                "--color=false",
                "--file=tests/**/*_test.yaml",
                str(chart),
            ]
        )
        if done.returncode:
            found += [f"{chart.name}:", *lines(done)]
    return found


def linted_by_chart_testing(charts: list[Path]) -> list[str]:
    """chart-testing's lint."""
    files = [path for chart in charts for path in chart_testing.values_files(chart)]
    try:
        chart_testing.run("lint", [chart.name for chart in charts], values=files, seconds=SECONDS)
    except ClusterError as error:
        return str(error).splitlines()
    return []


def cases(charts: list[Path]) -> Iterator[Case]:
    """Each chart with its defaults, and with each of its values files."""
    for chart in charts:
        yield Case(chart, None)
        for values in values_files(chart):
            yield Case(chart, values)


def values_files(chart: Path) -> list[Path]:
    """The values files that the chart is tested with: those of chart-testing, examples, and one
    with all keys.
    """
    return [*chart_testing.values_files(chart), ALL_VALUES / f"{chart.name}.yaml"]


def run(
    words: list[str | Path], cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program run to its end."""
    try:
        return subprocess.run(
            words,
            cwd=cwd,
            env=environment(env),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{words[0]}: not done after {SECONDS} s") from None


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a program printed."""
    return [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
