"""Whose token the pods of a custom resource get."""

from typing import Any

import pytest

from sidecars.workloads import identity
from sidecars.workloads.resources import ResourceError

TOKEN: dict[str, Any] = {"serviceAccountToken": {"path": "token"}}
ALLOWED = ("slurm/mine",)
SETTING = "the setting of the administrator"


def check(**spec: Any) -> None:
    identity.check({"automountServiceAccountToken": False, **spec}, "slurm", ALLOWED, SETTING)


def projected(*sources: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {"sources": list(sources)}}]


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_a_token_of_the_account_of_another_program_is_refused_with_place_value_and_remedy(
    field: str,
) -> None:
    with pytest.raises(ResourceError) as caught:
        check(automountServiceAccountToken=True, **{field: "slurm-bridge"})
    assert caught.value.field == "spec.template.spec.automountServiceAccountToken"
    assert "ServiceAccount 'slurm-bridge': set it to false" in caught.value.problem
    assert (
        "have an administrator add 'slurm/slurm-bridge' to the setting of the administrator"
        in caught.value.problem
    )


@pytest.mark.parametrize(
    "source",
    [
        TOKEN,
        {
            "podCertificate": {
                "signerName": "kubernetes.io/kube-apiserver-client-pod",
                "keyType": "ED25519",
            }
        },
    ],
)
def test_a_projected_token_is_refused_like_a_mounted_one(source: dict[str, Any]) -> None:
    with pytest.raises(ResourceError) as caught:
        check(
            serviceAccountName="slurm-bridge",
            volumes=projected({"configMap": {"name": "a"}}, source),
        )
    assert caught.value.field == "spec.template.spec.volumes[1].projected.sources"
    assert f"remove the {next(iter(source))}" in caught.value.problem


@pytest.mark.parametrize(
    ("volume", "field", "problem"),
    [
        ("x", "volumes[0]", "a text stands where a map belongs"),
        ({"projected": "x"}, "volumes[0].projected", "a text stands where a map belongs"),
        ({"projected": [TOKEN]}, "volumes[0].projected", "a list stands where a map belongs"),
        (
            {"projected": {"sources": TOKEN}},
            "volumes[0].projected.sources",
            "a map stands where a list belongs",
        ),
        (
            {"projected": {"sources": [{}, 5]}},
            "volumes[0].projected.sources[1]",
            "a number stands where a map belongs",
        ),
    ],
)
def test_what_is_no_volume_is_refused_with_its_place(volume: Any, field: str, problem: str) -> None:
    with pytest.raises(ResourceError) as caught:
        check(volumes=[volume])
    assert (caught.value.field, caught.value.problem) == (f"spec.template.spec.{field}", problem)


def test_a_volume_without_sources_is_fine() -> None:
    check(volumes=[None, {"projected": None}, {"projected": {"sources": None}}])
    check(volumes=[{"projected": {"sources": [None]}}])


@pytest.mark.parametrize(
    "spec", [{}, {"automountServiceAccountToken": None}, {"automountServiceAccountToken": True}]
)
def test_the_token_of_the_namespaces_own_account_is_refused_too(spec: dict[str, Any]) -> None:
    with pytest.raises(ResourceError, match="ServiceAccount 'default'"):
        identity.check(spec, "slurm", ALLOWED, SETTING)


def test_an_account_without_its_token_is_fine() -> None:
    check(
        serviceAccountName="slurm-bridge",
        volumes=projected({"configMap": {"name": "a"}}, {"downwardAPI": {}}),
    )


def test_an_account_that_an_administrator_allows_may_have_its_token_in_its_namespace_alone() -> (
    None
):
    check(serviceAccountName="mine", automountServiceAccountToken=True, volumes=projected(TOKEN))
    with pytest.raises(ResourceError, match="'other/mine'"):
        identity.check({"serviceAccountName": "mine"}, "other", ALLOWED, SETTING)
