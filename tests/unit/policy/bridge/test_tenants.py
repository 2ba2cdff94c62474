"""The entries of the ConfigMap that maps namespaces to Slurm users."""

import pytest

from sidecars.policy.bridge import tenants
from sidecars.policy.bridge.tenants import Tenant, TenantError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write JSON such as"),
        ('{"user": 5}', "write JSON such as"),
        ('{"user": "ada", "shell": "sh"}', "unknown field"),
        ('{"user": "root"}', "user is root"),
        ('{"user": "0"}', "is not a user name"),
        ('{"user": "ada", "partitions": ["a b"]}', "partitions has 'a b'"),
    ],
)
def test_a_wrong_tenant_is_refused_and_named(text: str, words: str) -> None:
    with pytest.raises(TenantError, match=words) as refused:
        tenants.parse("team", text, "slurm-bridge")
    assert "team" in str(refused.value)


def test_one_wrong_tenant_does_not_affect_the_others() -> None:
    good, bad = tenants.parse_all({"a": '{"user": "ada"}', "b": "{"}, "slurm-bridge")
    assert good == {"a": Tenant("ada", ("slurm-bridge",))}
    assert list(bad) == ["b"]
