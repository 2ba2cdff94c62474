"""Requests for unfinished uploads. tests/integration sends them to a real store."""

from datetime import UTC, datetime, timedelta

import pytest

from sidecars.backup.uploads import Upload, Uploads

NOW = datetime(2013, 5, 24, tzinfo=UTC)
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


def uploads(**more: str) -> Uploads:
    return Uploads("examplebucket", None, "us-east-1", {**KEYS, **more})


def test_a_request_has_the_signature_of_the_example_in_aws_documentation() -> None:
    headers = uploads()._signed("GET", "https://examplebucket.s3.amazonaws.com/", "lifecycle=", NOW)
    want = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    assert headers["Authorization"].endswith(f"Signature={want}")


def test_a_token_of_a_session_is_signed_too() -> None:
    headers = uploads(AWS_SESSION_TOKEN="token")._signed("GET", "https://s3/b", "uploads=", NOW)
    assert headers["x-amz-security-token"] == "token"
    assert "x-amz-date;x-amz-security-token" in headers["Authorization"]


def test_without_keys_uploads_are_unknown() -> None:
    assert uploads().usable
    assert not Uploads("b", None, "us-east-1", {"AWS_ACCESS_KEY_ID": "a"}).usable


def entry(key: str, upload: str = "1", began: str = "2013-05-23T00:00:00.000Z") -> str:
    fields = f"<Key>{key}</Key><UploadId>{upload}</UploadId><Initiated>{began}</Initiated>"
    return f"<Upload>{fields}<Owner><ID>x</ID></Owner></Upload>"


def test_uploads_are_read_with_their_ages_and_what_is_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        *(entry("a&amp;b/c", "1"), entry("elsewhere/c", "2"), entry("a&amp;b/d", "")),
        *(entry("a&amp;b/e", "3", "yesterday"), entry("a&amp;b/f", "4", "2013-05-24T00:01:00Z")),
    ]
    answer = f"<ListMultipartUploadsResult><Prefix>a</Prefix>{''.join(entries)}</ListMultipartUploadsResult>"
    monkeypatch.setattr(Uploads, "_send", lambda *_: (NOW, answer))
    day = timedelta(days=1).total_seconds()
    assert uploads().list("a&b/") == [Upload("a&b/c", "1", day), Upload("a&b/f", "4", -60)]
