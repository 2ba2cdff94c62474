"""Values files in the shapes of SchedMD's charts 1.0 to 1.3, and what they become here.

Each file of tests/configurations/migration has two YAML documents: the values file, and what is
expected of it:

- `about`: its subject. `of`: the charts of SchedMD whose shape it has. `chart`: `slurm-operator`,
  else `slurm`.
- `objects`: what is installed, KIND/NAME → how the object differs from the one of its kind in
  `base.yaml`. null removes a field, or an object that would be installed without values. Objects of
  other kinds are described in full. `stem` and `namespace` are those of their names.
- `contains`: for the operator, KIND/NAME → path → value. Of a list, the items that it must have.
- `warns`: what Helm prints all the same, without the place in Helm's source.
- `refused`: instead of both, the lines of the message with which the values are refused, all of
  them.

Objects of `helm test` aren't installed, and are left out. Custom resources are compared in their
meaning: after the defaults of their definitions, without what is empty or off. What a file must
become is written from the documentation of SchedMD's charts, never copied from our own output.
"""

import configparser
import functools
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from schemas import definitions, sources
from sidecars.workloads import names
from tests.charts import objects
from tests.cluster.commands import environment
from tests.cluster.tools import tool

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "configurations" / "migration"
BASE = FOLDER / "base.yaml"
OURS = ("NetworkPolicy",)
"""Kinds of objects that SchedMD's charts don't have, and that change no other object."""

CHART_LABELS = (
    "helm.sh/chart",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
)
IDENTITY_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
)
"""Labels that SchedMD's charts put on no object but the PodDisruptionBudget, which has the first
two.
"""

GENERATED = "generated"
"""What stands for the content of a Secret that the operator generates."""

ANY = "ANY"
"""What stands for any text."""

SECONDS = 60


@dataclass(frozen=True)
class Case:
    """One file."""

    name: str
    values: str
    expected: dict[str, Any]

    @property
    def chart(self) -> str:
        """Name of the chart."""
        return str(self.expected.get("chart", "slurm"))


def cases() -> list[Case]:
    """All files, in the order of their names."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        if path != BASE:
            values, _, expected = path.read_text(encoding="utf-8").partition("\n---\n")
            found.append(Case(path.stem, f"{values}\n", yaml.safe_load(expected)))
    return found


def problems(chosen: list[Case]) -> list[str]:
    """What differs from the expectations, with the name of the file."""
    tool("helm")
    base = yaml.safe_load(BASE.read_text(encoding="utf-8"))
    with ThreadPoolExecutor(2) as threads:
        each = threads.map(
            lambda case: [f"{case.name}: {problem}" for problem in problems_of(case, base)], chosen
        )
        return [problem for found in each for problem in found]


def problems_of(case: Case, base: dict[str, Any]) -> list[str]:
    """What differs from the expectations of one file."""
    release, namespace = (
        ("slurm-operator", "slinky") if case.chart == "slurm-operator" else ("slurm", "slurm")
    )
    words: list[str | Path] = [
        release,
        ROOT / "charts" / case.chart,
        f"--namespace={namespace}",
        "--values=-",
        "--skip-tests",
    ]
    done = subprocess.run(
        [tool("helm"), "template", *words],
        env=environment(),
        input=case.values,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    received = [line for line in done.stderr.splitlines() if line.strip()]
    if "refused" in case.expected:
        return refusal_problems(done.returncode, received, case.expected["refused"])
    if done.returncode:
        return ["refused:", *received]
    found = warning_problems(received, case.expected.get("warns", []))
    manifests = [
        each for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if each is not None
    ]
    found += [problem for manifest in manifests for problem in objects.problems(manifest, "1.37.0")]
    if "contains" in case.expected:
        return found + contained_problems(manifests, case.expected["contains"])
    expected = wanted(case.expected.get("objects") or {}, base, case.expected.get("stem", "slurm"))
    return found + object_problems(manifests, expected, case.expected.get("namespace", namespace))


def refusal_problems(status: int, received: list[str], lines: list[str]) -> list[str]:
    """What differs from a refusal with these lines."""
    if not status:
        return [f"taken, though it should be refused: {lines}"]
    listed = [line.strip() for line in received if line.startswith("  ")]
    given = listed or [line.partition("): ")[2] for line in received[:1]]
    return [f"not reported: {line}" for line in lines if line not in given] + [
        f"also reported: {line}" for line in given if line not in lines
    ]


def warning_problems(received: list[str], lines: list[str]) -> list[str]:
    """What differs from these warnings of Helm, which it may repeat."""
    given = {re.sub(r"^\S+\.go:\d+: ", "", line) for line in received}
    return [f"not printed: {line}" for line in lines if line not in given] + [
        f"unexpected: {line}" for line in sorted(given) if line not in lines
    ]


def wanted(differing: dict[str, Any], base: dict[str, Any], stem: str) -> dict[str, Any]:
    """The meaning of all objects that must be installed, by KIND/NAME."""
    result = {}
    for name, difference in {
        **{key: {} for key in _named(base["always"], stem, "")},
        **differing,
    }.items():
        if difference is not None:
            kind, _, own = name.partition("/")
            usual = _named(base["kinds"].get(kind, {}), stem, own.rpartition("-worker-")[2])
            usual = sources.merged(usual, _named(base["objects"], stem, "").get(name, {}))
            result[name] = meaning(kind, sources.merged(usual, difference))
    return result


def object_problems(manifests: list[Any], expected: dict[str, Any], namespace: str) -> list[str]:
    """Objects that are missing, not expected, in another namespace, or different."""
    found = []
    given = {}
    for manifest in manifests:
        if manifest["kind"] not in OURS:
            name = f"{manifest['kind']}/{manifest['metadata']['name']}"
            given[name] = meaning(manifest["kind"], content(manifest))
            if manifest["metadata"].get("namespace", namespace) != namespace:
                found.append(f"{name}: in namespace {manifest['metadata']['namespace']}")
    found += [f"{name}: missing" for name in sorted(expected.keys() - given.keys())]
    found += [f"{name}: not expected" for name in sorted(given.keys() - expected.keys())]
    for name in sorted(expected.keys() & given.keys()):
        found += [f"{name}{difference}" for difference in differences(expected[name], given[name])]
    return found


def contained_problems(
    manifests: list[Any], expected: dict[str, dict[str, Any] | None]
) -> list[str]:
    """Values of objects that are missing or different."""
    given = {
        f"{manifest['kind']}/{manifest['metadata']['name']}": manifest for manifest in manifests
    }
    found = []
    for name, paths in expected.items():
        if paths is None and name in given:
            found.append(f"{name}: not expected")
        for path, value in (paths or {}).items():
            present = _at(given.get(name), path)
            if isinstance(value, list) and isinstance(present, list):
                found += [f"{name}.{path}: no {item}" for item in value if item not in present]
            elif present != value:
                found.append(f"{name}.{path}: {present}, expected {value}")
    return found


def content(manifest: dict[str, Any]) -> dict[str, Any]:
    """An object as the files describe it: its spec, or else what it has instead, and the metadata
    of the user.
    """
    ours = {
        *CHART_LABELS,
        *(IDENTITY_LABELS[2:] if manifest["kind"] == "PodDisruptionBudget" else IDENTITY_LABELS),
    }
    labels = {
        key: text for key, text in manifest["metadata"].get("labels", {}).items() if key not in ours
    }
    annotations = _structured(manifest["metadata"].get("annotations", {}))
    generated = annotations.pop(names.GENERATE, None)
    own = {"labels": labels, "annotations": annotations}
    if manifest["kind"] == "Secret":
        inner = ({generated: GENERATED} if generated else {}) | manifest.get("stringData", {})
    elif manifest["kind"] == "ConfigMap":
        inner = manifest.get("data", {})
    elif "spec" in manifest:
        inner = dict(manifest["spec"])
        if "annotations" in inner.get("template", {}).get("metadata", {}):
            metadata = inner["template"]["metadata"]
            template_metadata = {**metadata, "annotations": _structured(metadata["annotations"])}
            inner["template"] = {**inner["template"], "metadata": template_metadata}
    else:
        inner = {key: value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}
    return {**inner, "metadata": own}


def meaning(kind: str, described_object: dict[str, Any]) -> dict[str, Any]:
    """An object after the defaults of its definition, without what is empty or off."""
    result: dict[str, Any] = _plain(described_object)
    if "sssd.conf" in result:
        result["sssd.conf"] = _ini(result["sssd.conf"])
    if kind in definitions.KINDS:
        result = _defaulted(_spec(kind), result)
    return {key: value for key, value in result.items() if key == "persistence" or not _off(value)}


def differences(expected: Any, given: Any, path: str = "") -> list[str]:
    """Paths at which two values differ, with both."""
    if isinstance(expected, dict) and isinstance(given, dict):
        found = []
        for key in sorted(expected.keys() | given.keys()):
            found += differences(expected.get(key), given.get(key), f"{path}.{key}")
        return found
    return (
        []
        if expected == given or (expected == ANY and given)
        else [f"{path}: {given!r}, expected {expected!r}"]
    )


@functools.cache
def _spec(kind: str) -> sources.Schema:
    version = definitions.definition(kind)["spec"]["versions"][0]
    return dict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def _ini(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return {
        name: {key: item.replace(", ", ",") for key, item in parser.items(name)}
        for name in parser.sections()
    }


def _at(value: Any, path: str) -> Any:
    """What is at a path, such as `spec.containers.0.image`; None if nothing is."""
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else (value or {}).get(step)
    return value


def _structured(annotations: dict[str, str]) -> dict[str, Any]:
    """Annotations, those with a list in YAML or JSON as that list."""
    return {
        key: yaml.safe_load(text) if text.startswith(("[", "- ")) else text
        for key, text in annotations.items()
    }


def _off(value: Any) -> bool:
    return isinstance(value, dict) and value.get("enabled") is False


def _named(value: Any, stem: str, key: str) -> Any:
    """A part of base.yaml for the stem of all names, and for the nodeset of a key."""
    if isinstance(value, list):
        return [_named(item, stem, key) for item in value]
    if isinstance(value, dict):
        return {_named(name, stem, key): _named(item, stem, key) for name, item in value.items()}
    return value.replace("STEM", stem).replace("KEY", key) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """Without null and what is empty."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: _plain(item) for key, item in value.items()}
    return {
        key: item for key, item in items.items() if item is not None and item not in ({}, [], "")
    }


def _defaulted(schema: sources.Schema, value: Any) -> Any:
    if isinstance(value, list):
        return [_defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, child in schema.get("properties", {}).items():
        if name not in result and "default" in child:
            result[name] = child["default"]
        if name in result:
            result[name] = _defaulted(child, result[name])
    return result
