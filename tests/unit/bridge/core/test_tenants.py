"""The entries of the ConfigMap that maps namespaces to Slurm users."""

import pytest

from sidecars.bridge.core import tenants
from sidecars.bridge.core.tenants import Tenant, TenantError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write JSON such as"),
        ('{"user": 5}', "write JSON such as"),
        ('{"user": "ada", "shell": "sh"}', "unknown field"),
        ('{"user": "root"}', "user is root"),
        ('{"user": "0"}', "is not a user name"),
        ('{"user": "ada", "partitions": ["a b"]}', "partitions has 'a b'"),
        ('{"user": "ada", "maxPriority": -1}', "maxPriority"),
        ('{"user": "ada", "maxPriority": 2147483648}', "maxPriority"),
        ('{"user": "ada", "maxPriority": "9"}', "maxPriority"),
    ],
)
def test_a_wrong_tenant_is_refused_and_named(text: str, words: str) -> None:
    with pytest.raises(TenantError, match=words) as refused:
        tenants.parse("team", text, "slurm-bridge")
    assert "team" in str(refused.value)


def test_pods_of_a_tenant_set_a_priority_only_where_it_has_one() -> None:
    assert tenants.parse("team", '{"user": "ada"}', "p").max_priority == 0
    assert tenants.parse("team", '{"user": "ada", "maxPriority": 9}', "p").max_priority == 9


def test_one_wrong_tenant_does_not_affect_the_others() -> None:
    good, bad = tenants.parse_all({"a": '{"user": "ada"}', "b": "{"}, "slurm-bridge")
    assert good == {"a": Tenant("ada", ("slurm-bridge",))}
    assert list(bad) == ["b"]
