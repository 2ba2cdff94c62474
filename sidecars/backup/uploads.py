"""Parts of interrupted uploads in an S3-compatible store: they cost space, and no list of objects
has them.

obstore sends large files in parts, and can neither list nor abort such an upload afterwards. So
these two requests are signed here, with AWS' Signature Version 4 and the keys of the environment.
Where a cloud's role gives the credentials, nothing is known of uploads: a rule of the bucket has to
expire them (docs/backup.md).
"""

import contextlib
import hashlib
import hmac
import html
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Final
from urllib.parse import quote, urlsplit

_SECONDS: Final = 30.0
_MOST_BYTES: Final = 4 << 20
_EMPTY: Final = hashlib.sha256(b"").hexdigest()
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_UPLOAD = re.compile(r"<Upload>(.*?)</Upload>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that has not ended."""

    key: str
    id: str
    age: float
    """Seconds since it began, by the store's clock."""


class Uploads:
    """The unfinished uploads of a bucket. Methods raise OSError, also for what the store
    refuses.
    """

    def __init__(
        self, bucket: str, endpoint: str | None, region: str, environment: Mapping[str, str]
    ) -> None:
        self._base = (
            f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/"
            f"{quote(bucket, safe='')}"
        )
        self._region = region
        self._key = environment.get("AWS_ACCESS_KEY_ID", "")
        self._secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
        self._token = environment.get("AWS_SESSION_TOKEN", "")

    @property
    def usable(self) -> bool:
        """Whether the environment has keys."""
        return bool(self._key and self._secret)

    def list(self, prefix: str) -> list[Upload]:
        """Return the uploads whose keys begin with this, at most 1000."""
        date, text = self._send("GET", "", {"prefix": prefix, "uploads": ""})
        found = []
        for entry in _UPLOAD.findall(text):
            fields = {name: _field(entry, name) for name in ("Key", "UploadId", "Initiated")}
            try:
                began = datetime.fromisoformat(fields["Initiated"])
            except ValueError:
                continue
            if fields["Key"].startswith(prefix) and fields["UploadId"]:
                age = (
                    date - (began if began.tzinfo else began.replace(tzinfo=UTC))
                ).total_seconds()
                found.append(Upload(fields["Key"], fields["UploadId"], age))
        return found

    def abort(self, upload: Upload) -> None:
        """Delete its parts. One that has ended meanwhile is no error."""
        try:
            self._send("DELETE", upload.key, {"uploadId": upload.id})
        except FileNotFoundError:
            return

    def _send(self, method: str, key: str, query: Mapping[str, str]) -> tuple[datetime, str]:
        """Return the store's time, and its answer."""
        words = "&".join(
            f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query)
        )
        url = self._base + (f"/{quote(key, safe='/')}" if key else "")
        request = urllib.request.Request(f"{url}?{words}", method=method)  # noqa: S310 - http or https by the values
        for name, value in self._signed(method, url, words, datetime.now(UTC)).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                date = answer.headers.get("Date")
                text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            code = ""
            # The connection may end within the text.
            with error, contextlib.suppress(HTTPException, OSError):
                code = _field(error.read(_MOST_BYTES).decode("utf-8", "replace"), "Code")
            kind = FileNotFoundError if error.code == 404 else OSError
            raise kind(f"{method} {url}: {code or error.code}") from None
        except HTTPException as error:
            raise OSError(f"{method} {url}: {error!r}") from None
        try:
            return parsedate_to_datetime(date).astimezone(UTC), text
        except (TypeError, ValueError):
            return datetime.now(UTC), text

    def _signed(self, method: str, url: str, query: str, now: datetime) -> dict[str, str]:
        """Return the headers with the signature."""
        parts = urlsplit(url)
        moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": moment}
        if self._token:
            headers["x-amz-security-token"] = self._token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"{method}\n{parts.path}\n{query}\n{lines}\n{names}\n{_EMPTY}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self._secret}".encode()
        for word in scope.split("/"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        authorization = (
            f"{_ALGORITHM} Credential={self._key}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}"
        )
        return {**headers, "Authorization": authorization}


def _field(text: str, name: str) -> str:
    found = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return html.unescape(found[1]) if found else ""
