"""Copies of the backups in an S3-compatible store, and the way back to the volume.

    BUCKET/PREFIX/2026-11-24T023000Z/state.tar.gz    the files as on the volume
    BUCKET/PREFIX/2026-11-24T023000Z/backup.json     written last and deleted first: with it, the
    copy is complete

Functions raise BackupError, with the store's own code and message, and OSError of the volume.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, S3Store

from sidecars.backup import volume
from sidecars.backup.uploads import Upload, Uploads
from sidecars.backup.volume import BackupError

log = logging.getLogger(__name__)

ABANDONED_SECONDS: Final = 86_400.0
"""Age of an upload that no pod can still send: a day, as that of an unfinished backup on the
volume.
"""
_CHUNK: Final = 8 << 20
_TIMEOUT: Final = timedelta(minutes=5)
"""For a request. The largest one is a part of a file with `_CHUNK` bytes."""
_RETRIES: Final = timedelta(seconds=30)
_CAUSE = re.compile(
    r'(?:message: |error: |General\(\s*)"([^"]{1,200})"|(InvalidCertificate)\(\s*(\w+)'
)
_WORDS = re.compile(r"<(Code|Message)>([^<]{1,200})</\1>")


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of a bucket. `name` is for messages."""

    client: ObjectStore
    name: str
    prefix: str = ""
    """Of the objects, without a slash at its end."""
    uploads: Uploads | None = None
    """None: not known."""


def opened(bucket: str, prefix: str, endpoint: str | None, region: str) -> Store:
    """Return the store. Its credentials are those of the environment, as AWS' own programs read
    them. Sends nothing.
    """
    name = "/".join(part for part in (f"s3://{bucket}", prefix) if part)
    with _reported(name, "use"):
        client = S3Store(
            bucket,
            prefix=prefix or None,
            endpoint=endpoint,
            region=region,
            client_options={
                "allow_http": bool(endpoint and endpoint.startswith("http://")),
                "timeout": _TIMEOUT,
            },
            retry_config={"max_retries": 5, "retry_timeout": _RETRIES},
        )
    found = Uploads(bucket, endpoint, region, os.environ)
    return Store(client, name, prefix.strip("/"), found if found.usable else None)


def copy(folder: Path, store: Store, keep: int) -> tuple[list[str], list[str]]:
    """Bring the newest `keep` of the volume's backups into the store, and delete its older ones.

    Returns the names of those that were copied, and of those that were deleted there. What a former
    copy left undone is done too. The files are checked before they are sent. Parts of interrupted
    uploads are deleted.
    """
    abort_abandoned(store)
    here = [backup.name for backup in volume.backups(folder)]
    there = complete(store)
    gone = set(volume.expired(sorted({*here, *there}), keep))
    # The newest first: an older one that was damaged on the volume keeps none from being copied.
    copied = [name for name in reversed(here) if name not in gone and name not in there]
    for name in copied:
        backup = volume.choose(folder, name)
        for file in (*backup.files, volume.MANIFEST):
            _send(folder / name / file, store, f"{name}/{file}")
    deleted = [name for name in there if name in gone]
    for name in deleted:
        with _reported(store.name, f"delete {name} of"):
            obstore.delete(store.client, f"{name}/{volume.MANIFEST}")
            obstore.delete(
                store.client, [f"{name}/{file}" for file in (volume.STATE, volume.DATABASE)]
            )
    return copied, deleted


def complete(store: Store) -> list[str]:
    """Return the names of the complete backups in the store, oldest first."""
    with _reported(store.name, "list"):
        found = obstore.list(store.client, chunk_size=1000)
        paths = [meta["path"].split("/") for page in found for meta in page]
    return sorted(
        path[0]
        for path in paths
        if len(path) == 2 and path[1] == volume.MANIFEST and volume.named(path[0])
    )


def fetch(folder: Path, store: Store, name: str, pod: str) -> str | None:
    """Bring the backup with this name to the volume unless it has it; the name of what was copied,
    or None.

    "latest" is the newest of the volume, and the newest of the store only if the volume has none. A
    backup that was damaged on the way is refused.
    """
    if volume.described(folder, name) is not None:
        return None
    here = [backup.name for backup in volume.backups(folder)]
    if name == volume.LATEST and here:
        return None
    there = complete(store)
    chosen = there[-1] if name == volume.LATEST and there else name
    if chosen not in there:
        newest = ", ".join(sorted({*here, *there})[-3:]) or "none"
        raise BackupError(
            f"neither {folder} nor {store.name} has a backup `{name}`. The newest there: {newest}."
        )
    unfinished = volume.begin_copy(folder, pod)
    for file in (volume.STATE, volume.DATABASE, volume.MANIFEST):
        _receive(store, f"{chosen}/{file}", unfinished / file, required=file == volume.MANIFEST)
    volume.finish_copy(folder, unfinished, chosen)
    return chosen


def abort_abandoned(store: Store) -> None:
    """Delete the parts of uploads that pods which were killed have left for more than a day."""
    for upload in _unfinished(store, ""):
        if upload.age > ABANDONED_SECONDS:
            _abort(store, upload)


def _send(path: Path, store: Store, target: str) -> None:
    # Those of another pod that sends the same backup are not to be ended. A small file is sent at
    # once.
    in_parts = path.stat().st_size > _CHUNK
    others = {upload.id for upload in _unfinished(store, target)} if in_parts else set()
    try:
        with _reported(store.name, f"write {target} to"):
            obstore.put(store.client, target, path, chunk_size=_CHUNK, max_concurrency=2)
    except BaseException:
        for upload in _unfinished(store, target) if in_parts else ():
            if upload.id not in others:
                _abort(store, upload)
        raise


def _unfinished(store: Store, target: str) -> list[Upload]:
    """Return the unfinished uploads of backups, or of this object alone. While the store refuses to
    list them, return none.
    """
    if store.uploads is None:
        return []
    folder = f"{store.prefix}/" if store.prefix else ""
    try:
        found = store.uploads.list(folder + target)
    except (OSError, ValueError) as error:
        log.warning(
            "unfinished uploads in %s can't be listed, and keep their space: %s", store.name, error
        )
        return []
    return [it for it in found if _is_own(it.key.removeprefix(folder))]


def _is_own(path: str) -> bool:
    name, _, file = path.partition("/")
    return volume.named(name) and file in (volume.STATE, volume.DATABASE, volume.MANIFEST)


def _abort(store: Store, upload: Upload) -> None:
    if store.uploads is None:
        return
    try:
        store.uploads.abort(upload)
    except (OSError, ValueError) as error:
        log.warning(
            "the unfinished upload of %s in %s can't be deleted: %s", upload.key, store.name, error
        )
    else:
        log.info("deleted the unfinished upload of %s in %s", upload.key, store.name)


def _receive(store: Store, source: str, path: Path, *, required: bool) -> None:
    with _reported(store.name, f"read {source} of"):
        try:
            answer = obstore.get(store.client, source)
        except FileNotFoundError:
            if required:
                raise
            return
        with path.open("wb") as out:
            for chunk in answer.stream(min_chunk_size=_CHUNK):
                out.write(chunk)


@contextlib.contextmanager
def _reported(name: str, doing: str) -> Iterator[None]:
    """Errors of the store as a BackupError that names the failed step, the cause and the remedy."""
    try:
        yield
    except (BaseError, FileNotFoundError, PermissionError, ValueError) as error:
        raise BackupError(
            f"can't {doing} {name}: {_reason(str(error))}. Check backup.s3 in the values, the "
            "Secret of its credentials, and what the store allows them. The backups on the "
            "volume are complete."
        ) from None


def _reason(text: str) -> str:
    """Return why the store refused, in one line: its code and message, or the cause of a failed
    request. obstore appends the error of the connection as Rust prints it.
    """
    if found := dict(_WORDS.findall(text)):
        return ": ".join(found[key].rstrip(".") for key in ("Code", "Message") if key in found)
    words, _, detail = text.partition("Debug source:")
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    cause = _CAUSE.search(detail)
    causes = [part for part in cause.groups() if part] if cause else []
    return ": ".join([(lines[0] if lines else "no reason is known")[:300].rstrip("."), *causes])
