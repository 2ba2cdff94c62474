"""Requests for unfinished uploads. tests/integration sends them to a real store."""

import socket
from concurrent.futures import ThreadPoolExecutor
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


def test_uploads_are_read_with_their_ages_and_what_is_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [
        *(entry("a&amp;b/c", "1"), entry("elsewhere/c", "2"), entry("a&amp;b/d", "")),
        *(entry("a&amp;b/e", "3", "yesterday"), entry("a&amp;b/f", "4", "2013-05-24T00:01:00Z")),
    ]
    answer = (
        "<ListMultipartUploadsResult><Prefix>a</Prefix>"
        f"{''.join(entries)}</ListMultipartUploadsResult>"
    )
    monkeypatch.setattr(Uploads, "_send", lambda *_: (NOW, answer))
    day = timedelta(days=1).total_seconds()
    assert uploads().list("a&b/") == [Upload("a&b/c", "1", day), Upload("a&b/f", "4", -60)]


@pytest.mark.parametrize(
    "body", ["5\r\n<Err", "28\r\n<Error><Code>AccessDenied</Code></Error>\r\n0\r\n\r\n"]
)
def test_a_refusal_is_an_os_error_also_if_the_store_closes_the_connection_within_it(
    body: str,
) -> None:
    answer = f"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
    with ThreadPoolExecutor(1) as threads, socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with listener.accept()[0] as client:
                client.recv(1 << 16)
                client.sendall(answer.encode())

        refusal = threads.submit(refuse)
        found = Uploads("b", f"http://127.0.0.1:{listener.getsockname()[1]}", "us-east-1", KEYS)
        with pytest.raises(OSError, match=r"/b: (403|AccessDenied)$"):
            found.list("")
        refusal.result()
