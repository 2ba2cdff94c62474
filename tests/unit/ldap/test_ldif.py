"""LDIF, as ldapsearch prints it."""

import pytest

from sidecars.ldap.ldif import LdifError, entries


def test_entries_have_all_values_of_their_attributes() -> None:
    text = (
        "dn: uid=a,dc=x\nuid: a\nsshPublicKey: k 1\nsshPublicKey;lang-en: k 2\n\n\ndn: "
        "uid=b,dc=x\nCN:b\n"
    )
    assert list(entries(text)) == [
        {"dn": ["uid=a,dc=x"], "uid": ["a"], "sshpublickey": ["k 1", "k 2"]},
        {"dn": ["uid=b,dc=x"], "cn": ["b"]},
    ]


def test_base64_folded_lines_comments_and_references_are_understood() -> None:
    text = "# refldap://x\ndn:: dWlkPcOk\ncn: a\n b\n# a comment\n  that continues\njpeg:: /9j/\n\n"
    text += "ref: ldap://y\n\n# pagedresults\n"
    assert list(entries(text)) == [{"dn": ["uid=ä"], "cn": ["ab"]}]


@pytest.mark.parametrize(
    "text", ["dn: a\nnothing\n", "dn: a\n: x\n", "dn: a\nphoto:< file:///etc/passwd\n"]
)
def test_what_is_no_ldif_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(LdifError, match="line 2"):
        list(entries(text))


def test_nothing_is_no_entry() -> None:
    assert list(entries("")) == list(entries("\n\n")) == []
