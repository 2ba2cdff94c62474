"""Custom resources as records: what they accept, refuse, and that they are the CRDs' fields."""

import contextlib
import time
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sidecars.workloads import resources
from sidecars.workloads.resources import Controller, NodeSet, ResourceError, duration, read
from sidecars.workloads.resources.common import Part
from sidecars.workloads.resources.reading import KINDS

NODESET = {
    "apiVersion": "slinky.slurm.net/v1beta1",
    "kind": "NodeSet",
    "metadata": {"name": "gpu", "namespace": "slurm"},
    "spec": {"controllerRef": {"name": "slurm"}},
}


CRDS = Path(__file__).parents[3] / "charts" / "slurm-operator-crds" / "templates"


def crd(kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition of the chart, without what Helm puts into its metadata."""
    text = (CRDS / f"{resources.PLURALS[kind]}.yaml").read_text(encoding="utf-8")
    plain = "\n".join(line for line in text.splitlines() if "{{" not in line)
    definition: dict[str, Any] = yaml.load(plain, yaml.CSafeLoader)
    return definition


def with_spec(**fields: Any) -> dict[str, Any]:
    """A NodeSet manifest with these fields in its spec."""
    return NODESET | {"spec": {"controllerRef": {"name": "slurm"}} | fields}


def parts(annotation: Any) -> Iterator[type[Part]]:
    """The records in a type, also inside optionals and lists."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is not None:
        for argument in typing.get_args(annotation):
            yield from parts(argument)


def differences(record: type[Part], schema: dict[str, Any], place: str) -> Iterator[str]:
    """Where a record's fields and defaults aren't those of an OpenAPI schema."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(record)}
    properties = schema.get("properties", {})
    for name in fields.keys() ^ properties.keys():
        yield f"{place}.{name} is only in the {'record' if name in fields else 'CRD'}"
    for name in sorted(fields.keys() & properties.keys()):
        field, inner = fields[name], properties[name]
        if (
            "default" in inner
            and not isinstance(inner["default"], dict)
            and field.default != inner["default"]
        ):
            yield (
                f"{place}.{name} defaults to {field.default!r} in the record, "
                f"{inner['default']!r} in the CRD"
            )
        for part in parts(field.type):
            yield from differences(part, inner.get("items", inner), f"{place}.{name}")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_record_has_the_fields_and_defaults_of_its_crd(kind: str) -> None:
    [version] = crd(kind)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(KINDS[kind])}
    found = [
        difference
        for field in ("spec", "status")
        for difference in differences(fields[field], schema[field], field)
    ]
    assert found == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_plural_is_that_of_its_crd(kind: str) -> None:
    assert (
        crd(kind)["spec"]["names"] | {"kind": kind, "plural": resources.PLURALS[kind]}
        == crd(kind)["spec"]["names"]
    )


def test_a_manifest_with_nothing_but_the_required_has_the_defaults() -> None:
    nodeset = read(NodeSet, NODESET)
    assert (nodeset.spec.replicas, nodeset.spec.scaling_mode, nodeset.spec.node_records) == (
        1,
        "StatefulSet",
        "Delete",
    )
    assert nodeset.spec.workload_disruption_protection is True
    assert nodeset.spec.update_strategy.rolling_update.max_unavailable == "25%"


def test_null_counts_as_absent_at_any_depth() -> None:
    nodeset = read(
        NodeSet, with_spec(replicas=None, partition=None, template={"metadata": {"labels": None}})
    )
    assert nodeset.spec.replicas == 1
    assert nodeset.spec.template.metadata.labels is None


def test_zero_and_false_are_not_absent() -> None:
    nodeset = read(NodeSet, with_spec(replicas=0, workloadDisruptionProtection=False))
    assert nodeset.spec.replicas == 0
    assert nodeset.spec.workload_disruption_protection is False


def test_an_unknown_field_is_ignored() -> None:
    assert read(NodeSet, with_spec(fromAnotherRelease=1)).spec.replicas == 1


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (with_spec(replicas="3"), "spec.replicas"),
        (with_spec(scalingMode="Deployment"), "spec.scalingMode"),
        (
            with_spec(updateStrategy={"rollingUpdate": {"maxUnavailable": []}}),
            "spec.updateStrategy.rollingUpdate",
        ),
        (with_spec(ssh={"enabled": True, "sssdConfRef": {"name": "x"}}), "spec.ssh.sssdConfRef"),
        (NODESET | {"spec": {}}, "spec"),
        (NODESET | {"apiVersion": "slinky.slurm.net/v1alpha1"}, "apiVersion"),
        (NODESET | {"kind": "Pod"}, "kind"),
    ],
)
def test_a_wrong_manifest_is_refused_with_the_field(manifest: dict[str, Any], field: str) -> None:
    with pytest.raises(ResourceError) as caught:
        read(NodeSet, manifest)
    assert caught.value.field.startswith(field)
    assert str(caught.value).startswith(field)


def test_the_cluster_is_named_after_its_namespace_unless_the_controller_names_it() -> None:
    manifest: dict[str, Any] = {"metadata": {"name": "slurm", "namespace": "hpc"}}
    assert read(Controller, manifest).cluster_name == "hpc_slurm"
    assert read(Controller, manifest | {"spec": {"clusterName": "big"}}).cluster_name == "big"


@pytest.mark.parametrize(
    ("prefix", "name"),
    [(None, "gpu"), ("foo-", "foo"), ("-a-b- rest", "a-b"), ("", "gpu"), ("-", "gpu")],
)
def test_the_name_in_slurm_is_the_hostname_prefix_without_its_dashes(
    prefix: str | None, name: str
) -> None:
    assert read(NodeSet, with_spec(template={"spec": {"hostname": prefix}})).slurm_name == name


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("60s", 60), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25), ("2h3m4s", 7384)],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert duration(text, "spec.lifetime") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "60", "1 m", "-1s", "1d", "s", "1m 30s", "٣s", "9" * 400 + "h", "3000000h"]
)
def test_a_text_that_is_no_duration_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.lifetime: "):
        duration(text, "spec.lifetime")


@pytest.mark.parametrize("text", ["9" * 20_000, "1s" + "9" * 20_000 + "x", "." * 200_000])
def test_a_long_text_that_is_no_duration_costs_milliseconds_and_is_quoted_in_part(
    text: str,
) -> None:
    began = time.process_time()
    with pytest.raises(ResourceError) as caught:
        duration(text, "spec.lifetime")
    assert time.process_time() - began < 0.3
    assert len(str(caught.value)) < 200


@given(
    st.from_regex(r"([0-9]{0,40}\.?[0-9]{0,10}(ns|us|µs|ms|s|m|h| |d)){0,4}", fullmatch=True)
    | st.text(max_size=20)
)
def test_any_text_is_a_duration_or_a_resource_error(text: str) -> None:
    with contextlib.suppress(ResourceError):
        assert 0 <= duration(text, "x") < 2**63 / 1e9
