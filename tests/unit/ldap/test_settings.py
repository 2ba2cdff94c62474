"""The file that the chart writes."""

import json
from pathlib import Path

import pytest

from sidecars.ldap.settings import Attributes, read


def test_omitted_settings_are_those_of_rfc_2307(tmp_path: Path) -> None:
    file = tmp_path / "ldap.json"
    file.write_text(
        json.dumps({"uri": "ldaps://a", "base": "dc=x", "attributes": {"name": "sAMAccountName"}})
    )
    found = read(file)
    assert found.attributes == Attributes(name="sAMAccountName")
    assert found.user_filter == "(objectClass=posixAccount)"
    assert found.bind_dn is None


@pytest.mark.parametrize(
    "text", ["{", '{"uri": "ldaps://a"}', '{"uri": "ldaps://a", "base": "x", "typo": 1}']
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ldap.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=str(file)):
        read(file)
