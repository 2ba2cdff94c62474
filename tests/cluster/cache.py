"""The cache folder: where everything that is downloaded or built lies.

An entry is written beside its final place and renamed, so that an interrupted run has no half
entry under a final name. Knows nothing of what the entries are.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def root() -> Path:
    """The cache folder: SLURM_CHARTS_CACHE, else `slurm-charts` in the user's cache folder. Not
    created by this call.
    """
    chosen = os.environ.get("SLURM_CHARTS_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "slurm-charts"
    )


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock the file `path`; waits for whoever has locked it, after a call of `waiting`.

    The kernel releases the lock when the holder dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(final: Path, make: Callable[[Path], None]) -> Path:
    """The folder `final`; if missing, `make` fills an empty folder that then becomes it. One maker
    at a time.
    """
    if final.is_dir():
        return final
    with locked(final.with_name(f".{final.name}.lock")):
        if final.is_dir():
            return final
        for stale in final.parent.glob(f".{final.name}.making-*"):
            shutil.rmtree(stale)
        making = Path(tempfile.mkdtemp(prefix=f".{final.name}.making-", dir=final.parent))
        making.chmod(0o755)
        try:
            make(making)
            making.rename(final)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    return final


def write(path: Path, content: str | bytes, mode: int = 0o644) -> bool:
    """Write a file in one step, with `mode` from its first byte on. False if it had the content
    already.
    """
    data = content.encode() if isinstance(content, str) else content
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(descriptor, "wb") as handle:
        os.fchmod(handle.fileno(), mode)
        handle.write(data)
    Path(name).replace(path)
    return True
