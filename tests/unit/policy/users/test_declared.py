"""Declared users and groups: reading, faults, and the files of libnss-extrausers."""

import json

import pytest

from sidecars.policy.users import declared as module
from sidecars.policy.users.declared import DeclaredError, faults, files, parse

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKq5 alice@example.com"
TEXT = f"""
groups:
  physics: {{gid: 20001}}
  lasers: {{gid: 20002}}
users:
  bob: {{uid: 10002, group: physics, shell: /bin/zsh, home: /scratch/bob}}
  alice:
    uid: 10001
    groups: [lasers, physics, lasers]
    fullName: Alice Ä
    sshKeys: ["{KEY}"]
"""


def found(text: str) -> list[str]:
    """The faults of a declaration in YAML."""
    return list(faults(parse(text.encode())))


def test_the_files_are_those_of_extrausers_in_an_order_of_their_own() -> None:
    declared = parse(TEXT.encode())
    assert list(faults(declared)) == []
    assert files(declared) == {
        "passwd": "alice:*:10001:10001:Alice "
        "Ä:/home/alice:/bin/bash\nbob:*:10002:20001::/scratch/bob:/bin/zsh\n",
        "group": "alice:*:10001:\nlasers:*:20002:alice\nphysics:*:20001:alice\n",
        "keys-alice": f"{KEY}\n",
        "sshd.conf": "Match User alice,bob\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n",
    }


def test_json_is_read_like_yaml_and_nothing_declares_nobody() -> None:
    assert files(parse(b"users: {a: {uid: 4294967293}}"))["passwd"].startswith(
        "a:*:4294967293:4294967293:"
    )
    assert files(parse(json.dumps({"users": {"a": {"uid": 1000}}}).encode()))["passwd"].startswith(
        "a:*:1000:1000:"
    )
    for empty in (b"", b"{}", b"# nobody\n"):
        assert files(parse(empty)) == {"passwd": "", "group": "", "sshd.conf": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("users: [", "not YAML"),
        (
            "users:\n  a: {uid: 1000}\n  a: {uid: 1001}\n",
            "line 3: `a` is declared twice; remove one",
        ),
        ("users:\n  1: {uid: 1000}\n", "line 2: a key must be a text"),
        ("users:\n  ok: {uid: 1001}\n  a: {uid: x}\n", "users.a: Expected `int`, got `str`"),
        ("users:\n  a: {}\n", "users.a: Object missing required field `uid`"),
        (
            "users:\n  a: {uid: 1000, password: secret}\n",
            "users.a: Object contains unknown field `password`",
        ),
        ("groups:\n  g: null\n", "groups.g: Expected `object`"),
        ("userz: {}\n", "Object contains unknown field `userz`"),
        ("- a\n", "Expected `object`"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_place(text: str, message: str) -> None:
    with pytest.raises(DeclaredError) as caught:
        parse(text.encode())
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_text_that_is_not_utf8_is_no_declaration() -> None:
    with pytest.raises(DeclaredError):
        parse(b"users: {a\xff: {uid: 1000}}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("users: {a: {uid: 1000}, b: {uid: 1000}}", "users.b.uid: users.a.uid is 1000 too"),
        ("groups: {a: {gid: 1000}, b: {gid: 1000}}", "groups.b.gid: groups.a.gid is 1000 too"),
        ("users: {a: {uid: 999}}", "users.a.uid: 999 is not a number from 1000"),
        ("users: {a: {uid: 0}}", "users.a.uid: 0 is not a number from 1000"),
        ("users: {a: {uid: 4294967294}}", "users.a.uid: 4294967294 is not a number"),
        ("users: {a: {uid: 65534}}", "users.a.uid: 65534 belongs to nobody"),
        ("users: {a: {uid: 65532}}", "users.a.uid: 65532 belongs to the operator's containers"),
        ("groups: {a: {gid: 100}}", "groups.a.gid: 100 is not a number"),
        ("users: {root: {uid: 1000}}", "users.root: the images have a user or group of this name"),
        ("users: {slurm: {uid: 1000}}", "users.slurm: the images have"),
        ("groups: {sudo: {gid: 1000}}", "groups.sudo: the images have"),
        ("users: {Alice: {uid: 1000}}", "users.Alice: a name has up to 32 of a-z"),
        ("users: {a@b: {uid: 1000}}", "users.a@b: a name has"),
        ("users: {'a:b': {uid: 1000}}", "users.a:b: a name has"),
        ("users: {a: {uid: 1000, group: g}}", "users.a.group: no group `g` is declared"),
        ("users: {a: {uid: 1000, groups: [g]}}", "users.a.groups: no group `g` is declared"),
        (
            "users: {a: {uid: 1000}}\ngroups: {a: {gid: 2000}}",
            "users.a.group: a group `a` is declared too",
        ),
        (
            "users: {a: {uid: 1000}}\ngroups: {g: {gid: 1000}}",
            "users.a.group: groups.g has the gid 1000",
        ),
        ("users: {a: {uid: 1000, shell: 'bash'}}", "users.a.shell: must be an absolute path"),
        ("users: {a: {uid: 1000, home: '/h:0:0'}}", "users.a.home: must be an absolute path"),
        (
            'users: {a: {uid: 1000, fullName: "x\\nroot2:*:0:0"}}',
            "users.a.fullName: may contain no `:`",
        ),
        (
            "users: {a: {uid: 1000, sshKeys: ['hello']}}",
            "users.a.sshKeys[0]: not a public key in one line",
        ),
        (
            'users: {a: {uid: 1000, sshKeys: ["ssh-rsa AAAAAAAAAAAAAAAAAAAAAA\\nx"]}}',
            "users.a.sshKeys[0]: not a public key",
        ),
    ],
)
def test_a_fault_names_place_and_remedy(text: str, fault: str) -> None:
    [message] = found(text)
    assert message.startswith(fault)


def test_users_that_do_not_fit_into_the_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    assert [it.split(":")[0] for it in found(TEXT)] == ["users"]


def test_a_private_group_may_have_the_number_of_another_user() -> None:
    assert (
        found("users: {a: {uid: 1000, group: g}, b: {uid: 1001}}\ngroups: {g: {gid: 1002}}") == []
    )
