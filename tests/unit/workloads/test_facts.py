"""Digests of what the pods read."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.workloads.facts import (
    NOTHING,
    Facts,
    MissingReferenceError,
    UnreadKeys,
    UnreadObjects,
    combined,
    config_map_contents,
    config_map_digests,
    digest,
)
from sidecars.workloads.resources import KeySelector, LocalObjectReference
from tests.support import builders


def test_the_same_content_has_the_same_digest_wherever_it_is_kept() -> None:
    encoded = base64.b64encode(b"text").decode()
    assert (
        config_map_digests({"k": "text"})
        == config_map_digests(None, {"k": encoded})
        == {"k": digest("text")}
    )
    assert config_map_digests(None) == {}
    facts = builders.facts(
        config_maps={
            "a": config_map_contents({"k": "text"}),
            "b": config_map_contents(None, {"k": encoded}),
        }
    )
    for name in ("a", "b"):
        assert facts.config_map(KeySelector(name=name, key="k"), "spec.x") == digest("text")


maps = st.dictionaries(
    st.text("ab", max_size=2), st.dictionaries(st.text("ab", max_size=2), st.text("ab", max_size=2))
)


@given(maps, maps)
def test_different_content_has_a_different_combined_digest(
    one: dict[str, dict[str, str]], two: dict[str, dict[str, str]]
) -> None:
    def content(of: dict[str, dict[str, str]]) -> set[tuple[str, str, str]]:
        return {(name, key, value) for name, keys in of.items() for key, value in keys.items()}

    assert (combined(one) == combined(two)) == (content(one) == content(two))


@given(maps)
def test_the_order_of_objects_and_keys_does_not_matter(of: dict[str, dict[str, str]]) -> None:
    backwards = {name: dict(reversed(keys.items())) for name, keys in reversed(of.items())}
    assert combined(backwards) == combined(of)


def test_a_missing_object_or_key_is_named_with_the_field_that_asks_for_it() -> None:
    facts = builders.facts(secrets={"a": {"k": "1"}})
    assert facts.secret(KeySelector(name="a", key="k"), "spec.x") == "1"
    with pytest.raises(MissingReferenceError, match=r"^spec\.x: Secret 'b' doesn't exist$"):
        facts.secret(KeySelector(name="b", key="k"), "spec.x")
    with pytest.raises(
        MissingReferenceError, match=r"^spec\.x: key 'l' in Secret 'a' doesn't exist$"
    ):
        facts.secret(KeySelector(name="a", key="l"), "spec.x")
    with pytest.raises(MissingReferenceError, match=r"^spec\.y: ConfigMap 'm' doesn't exist$"):
        facts.files([LocalObjectReference(name="m")], "spec.y")


def test_a_secret_with_unknown_contents_has_each_key_with_the_digest_of_nothing() -> None:
    found = Facts(site=builders.facts().site, secrets={"keys": UnreadKeys()})
    selector = KeySelector(name="keys", key="any")
    assert found.secret(selector, "spec.slurmKeyRef") == NOTHING
    assert "any" in UnreadKeys()
    with pytest.raises(MissingReferenceError):
        found.secret(KeySelector(name="other", key="any"), "spec.slurmKeyRef")
    assert (
        Facts(site=found.site, secrets=UnreadObjects()).secret(selector, "spec.slurmKeyRef")
        == NOTHING
    )
