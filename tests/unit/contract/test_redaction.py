"""Texts without secrets."""

import time
from typing import Any

import pytest

from sidecars.contract import redaction

SECRET = "hunter2-XyZZy"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJzbHVybSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=abc other", "password=REDACTED other"),
        ("ldap_default_authtok = abc", "ldap_default_authtok = REDACTED"),
        ("bindpw abc", "bindpw REDACTED"),
        ("MYSQL_PWD=abc", "MYSQL_PWD=REDACTED"),
        ('"token": "abc def"', '"token": REDACTED'),
        ("DbdPass = 'x y' next", "DbdPass = REDACTED next"),
        (f"got {JWT}", "got REDACTED"),
        ("mysql://slurm:pw@db/slurm", "mysql://REDACTED@db/slurm"),
        ("mysql://slurm:p@ss@db/slurm", "mysql://REDACTED@db/slurm"),
        ("the password is: a b c", "the password is: REDACTED"),
        ("passphrase was correct horse\nnext", "passphrase was REDACTED\nnext"),
        ("password issued, and more", "password REDACTED, and more"),
        ("pwd=abc --pwd def", "pwd=REDACTED --pwd REDACTED"),
        ("AKIAIOSFODNN7EXAMPLE", "REDACTED"),
        (
            "https://b/o?X-Amz-Signature=0f1e&x=1&sig=a%2Fb",
            "https://b/o?X-Amz-Signature=REDACTED&x=1&sig=REDACTED",
        ),
        ("ghp_0123456789abcdefABCDEF", "REDACTED"),
        ("AccountName=a;AccountKey=Zm9v/+==;", "AccountName=a;AccountKey=REDACTED;"),
        ("Set-Cookie: a=1; b=2\nnext", "Set-Cookie: REDACTED\nnext"),
        ("https://hooks.slack.com/services/T0/B0/x", "https://hooks.slack.com/REDACTED"),
        (f"key: {'Zm9v' * 16}", "key: REDACTED"),
        ('{"k": "Zm9v", "kid": "key-id"}', '{"k": REDACTED, "kid": "key-id"}'),
        (
            '{"auths": {"r.example": {"auth": "YWRhOmh1bnRlcjI="}}}',
            '{"auths": {"r.example": {"auth": REDACTED}}}',
        ),
        ("pulled with hf_0123456789abcdefABCDEF01", "pulled with REDACTED"),
        ("npm_0123456789abcdefABCDEF01", "REDACTED"),
        (f"x_{JWT}", "x_REDACTED"),
        ("key: slurm, monkey=1", "key: slurm, monkey=1"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_a_log_line_is_redacted(text: str, expected: str) -> None:
    assert redaction.text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a" * 20_000,
        "token" * 4_000,
        "eyJ" * 7_000,
        "eyJabcdef." * 2_000,
        "://a:" * 4_000,
        "://" + "a:@" * 7_000,
        "password" + " " * 20_000,
        'password "' * 2_000 + "'",
        "-----BEGIN " * 2_000,
        "key:" + " " * 20_000,
        "cookie " * 3_000,
        '"auth":' * 3_000,
        "hf_" * 7_000,
    ],
    ids=lambda it: str(it)[:12],
)
def test_a_long_line_that_a_user_has_chosen_costs_milliseconds(text: str) -> None:
    began = time.process_time()
    redaction.text(text)
    assert time.process_time() - began < 0.3


def test_a_value_is_replaced_wherever_it_occurs() -> None:
    assert redaction.text(f"trying {SECRET} again", {SECRET}) == "trying REDACTED again"


@pytest.mark.parametrize(
    "field", ["apiKey", "api_key", "privateKey", "private-key", "accountKey", "pwd"]
)
def test_a_field_that_contains_a_key_is_redacted(field: str) -> None:
    assert redaction.scrubbed({field: "abc"}) == {field: "REDACTED"}


def test_numbers_and_names_of_secrets_stay() -> None:
    kept: dict[str, Any] = {
        "secretRef": {"name": "a"},
        "secretName": "b",
        "tokenExpirationSeconds": 5,
        "tokens": 3,
    }
    assert redaction.scrubbed(kept) == kept
