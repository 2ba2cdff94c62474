"""How ldapsearch is asked, and what its answers mean. tests/integration/ldap asks a real
directory.
"""

import asyncio
from pathlib import Path

import pytest

from sidecars.ldap import search
from sidecars.ldap.directory import Person, Team
from sidecars.ldap.settings import Attributes, Settings

SETTINGS = Settings(
    uri="ldaps://a", base="dc=x", group_base="ou=g,dc=x", bind_dn="cn=r", start_tls=True
)
SECRET = "a secret"


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder: `out` is what ldapsearch prints, `code` how it ends; `call` shows how it was
    called.
    """
    program = tmp_path / "ldapsearch"
    program.write_text(
        f"""#!/bin/sh
cd {tmp_path}
cat >stdin
printf '%s\\n' "$@" >call
env >environment
cat out
echo "what went wrong: $(cat stdin)" >&2
exit $(cat code)
"""
    )
    program.chmod(0o755)
    (tmp_path / "code").write_text("0")
    (tmp_path / "out").write_text("")
    (tmp_path / "password").write_text(f"{SECRET}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def people(settings: Settings, folder: Path) -> tuple[list[Person], list[str]]:
    return asyncio.run(search.people(settings, folder / "password", None))


def test_the_password_is_in_no_argument_and_not_in_the_environment(answers: Path) -> None:
    assert people(SETTINGS, answers) == ([], [])
    assert (answers / "stdin").read_text() == SECRET
    assert SECRET not in (answers / "call").read_text() + (answers / "environment").read_text()
    words = (answers / "call").read_text().split("\n")
    assert words[words.index("-b") + 1] == "dc=x"
    assert "-ZZ" in words
    assert "LDAPTLS_REQCERT=demand" in (answers / "environment").read_text().split("\n")


def test_an_error_in_which_the_server_returns_the_password_is_reported_without_it(
    answers: Path,
) -> None:
    (answers / "code").write_text("49")
    with pytest.raises(search.SearchError, match=r"what went wrong: \*\*\*\. Correct") as caught:
        people(SETTINGS, answers)
    assert SECRET not in str(caught.value)


def test_a_filter_is_never_an_option(answers: Path) -> None:
    people(Settings(uri="ldaps://a", base="dc=x", user_filter="-y/etc/passwd"), answers)
    words = (answers / "call").read_text().split("\n")
    assert words[words.index("--") + 1] == "-y/etc/passwd"
    assert "-D" not in words


def test_users_are_read_and_what_is_none_is_reported(answers: Path) -> None:
    entry = (
        "uid: {0}\nuidNumber: {1}\ngidNumber: 20001\nhomeDirectory: /h/{0}\nloginShell: "
        "/bin/sh\nsshPublicKey: k\n"
    )
    (answers / "out").write_text(
        f"dn: a\n{entry.format('a', 10001)}cn: A\n\ndn: b\n{entry.format('b', '1e4')}\n\ndn: "
        "c\ncn: C\n"
    )
    found, wrong = people(SETTINGS, answers)
    assert found == [Person("a", "a", 10001, 20001, "A", "/h/a", "/bin/sh", ["k"])]
    assert wrong == [
        "b: `uidNumber` is '1e4', and must be a number",
        "c: it has no attribute `uid`; add it, or narrow the filter",
    ]
    names = Attributes(name="cn")
    other = Settings(  # noqa: S604
        uri="ldaps://a", base="x", home="/home/%u", shell="/bin/bash", attributes=names
    )
    assert people(other, answers)[0] == [
        Person("a", "A", 10001, 20001, "A", "/home/A", "/bin/bash", ["k"])
    ]


def test_groups_are_read_with_both_kinds_of_members(answers: Path) -> None:
    (answers / "out").write_text(
        "dn: g\ncn: g\ngidNumber: 20001\nmemberUid: a\nmember: UID=b, dc=x\n\ndn: h\ncn: "
        "h\n\ndn: i\n"
    )
    found, wrong = asyncio.run(search.teams(SETTINGS, answers / "password", None))
    assert found == [
        Team("g", "g", 20001, frozenset({"a"}), frozenset({"uid=b,dc=x"})),
        Team("h", "h", None),
    ]
    assert wrong == ["i: it has no attribute `cn`; add it, or narrow the filter"]
    assert "ou=g,dc=x" in (answers / "call").read_text()


def test_a_group_of_which_the_server_gives_only_some_members_is_left_out(answers: Path) -> None:
    part = (
        "dn: g\ncn: g\ngidNumber: 20001\nmember;range=0-1: UID=a,dc=x\nmember;range=0-1: "
        "UID=b,dc=x\n"
    )
    (answers / "out").write_text(f"{part}\ndn: h\ncn: h\ngidNumber: 20002\nmember: UID=b,dc=x\n")
    found, wrong = asyncio.run(search.teams(SETTINGS, answers / "password", None))
    assert [it.name for it in found] == ["h"]
    assert wrong == [
        "g: the server gives only a part of `member`; split the group, or have the server give all"
    ]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (4, "raise its size limit"),
        (32, "ldap.base"),
        (49, "ldap.bindDn"),
        (255, "ldap.uri"),
        (80, ""),
    ],
)
def test_a_partial_or_no_answer_is_an_error_with_its_remedy(
    answers: Path, code: int, remedy: str
) -> None:
    (answers / "out").write_text("dn: a\nuid: a\nuidNumber: 10001\ngidNumber: 20001\n")
    (answers / "code").write_text(str(code))
    with pytest.raises(search.SearchError, match=f"ldaps://a, dc=x: what went wrong.*{remedy}"):
        people(SETTINGS, answers)


def test_an_answer_that_is_no_ldif_is_an_error(answers: Path) -> None:
    (answers / "out").write_text("dn: a\nnothing\n")
    with pytest.raises(search.SearchError, match="line 2"):
        people(SETTINGS, answers)


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_missing_or_empty_password_is_named(answers: Path, content: str | None) -> None:
    """With an empty one, servers take a client for an anonymous one."""
    (answers / "password").unlink()
    if content is not None:
        (answers / "password").write_text(content)
    with pytest.raises(search.SearchError, match=r"Check ldap\.passwordSecretRef"):
        people(SETTINGS, answers)


def test_a_silent_server_ends_the_search(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.2)
    (answers / "ldapsearch").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(search.SearchError, match="had no answer"):
        people(SETTINGS, answers)
