"""Layers of images that try to write and to delete outside of the folder into which they are
unpacked.
"""

import io
import tarfile

_UP = "../" * 20


def layer(name: str, shell: bytes, victim: str) -> bytes:
    """The tar file of a layer with the program `shell` as /bin/busybox.

    `name`: `contained` has what an unpacker can redirect into the image, in files named `escaped`.
    `refused` has a hard link to a file of the node. `parent` deletes the folder above the image.
    `victim`: a folder of the node with a file `file`.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        _add(archive, "bin/busybox", shell)
        if name == "contained":
            _add(archive, "../bin/escaped")
            for path in (f"{_UP}{victim}/escaped", f"{victim}/escaped"):
                _add(archive, path)
            for place, target in (
                ("absolute", victim),
                ("relative", _UP + victim),
                ("outside", "/inside"),
            ):
                _link(archive, tarfile.SYMTYPE, place, target)
                _add(archive, f"{place}/escaped")
            _link(archive, tarfile.SYMTYPE, "file", f"{victim}/file")
            _add(archive, "file")
            for path in (
                "absolute/.wh.file",
                "absolute/.wh..wh..opq",
                f"{_UP}{victim}/.wh.file",
                f"{victim}/.wh.file",
            ):
                _add(archive, path, b"")
            _device(archive, "null")
        elif name == "refused":
            _link(archive, tarfile.LNKTYPE, "file", f"{victim}/file")
            _add(archive, "file")
        elif name == "parent":
            _add(archive, "bin/.wh...", b"")
            _add(archive, ".wh...", b"")
    return content.getvalue()


def _add(archive: tarfile.TarFile, path: str, content: bytes = b"hostile\n") -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))


def _link(archive: tarfile.TarFile, kind: bytes, path: str, target: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.linkname = kind, target
    archive.addfile(entry)


def _device(archive: tarfile.TarFile, path: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.devmajor, entry.devminor, entry.mode = tarfile.CHRTYPE, 1, 3, 0o666
    archive.addfile(entry)
