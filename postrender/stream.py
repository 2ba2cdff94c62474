"""The stream of a Helm post-renderer: documents in their order, each byte for byte as it came
unless it is changed.

Helm 3 writes a line `# Source: PATH` into each document; Helm 4 an annotation, and it regroups the
result by that annotation. A document can be a Kubernetes object, a `List` of several, or comments
only.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from postrender import reading, writing
from postrender.errors import PostrenderError, YamlError
from postrender.scan import Head, head_of

FILE_ANNOTATION = "postrenderer.helm.sh/postrender-filename"
"""Helm 4's. New objects must have the one of the document that they come from."""

LARGEST = 64 << 20
"""Bytes of a stream at most. Helm stores a release in a Secret of 1 MiB."""

_MARKER = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_LEADING = re.compile(r"(?:---[ \t]*(?:#[^\n]*)?(?:\n|\Z))?(?:[ \t]*(?:#[^\n]*)?\n)*")
_SOURCE = re.compile(r"^# Source: (\S.*?)\s*$", re.MULTILINE)
_ANNOTATED = re.compile(
    rf"^(?: |metadata: ).*?{re.escape(FILE_ANNOTATION)}: *['\"]?([^'\"\n,}}]+)", re.MULTILINE
)

Manifest = dict[str, Any]
"""A Kubernetes object."""


class Document:
    """One document of the stream. `number` counts from 1; `line` is that of its first line in the
    stream.
    """

    __slots__ = (
        "_changed",
        "_head",
        "_node",
        "_original",
        "_read",
        "line",
        "number",
        "source",
        "text",
    )

    def __init__(self, text: str, number: int, line: int, source: str | None = None) -> None:
        self.text = text
        self.number = number
        self.line = line
        self.source = _source(text) if source is None else source
        """The path of its template in the chart, "" if unknown."""
        self._head: Head | None = None
        self._read = False
        self._node: Any = None
        self._original: Manifest | None = None
        self._changed: Manifest | None = None

    @property
    def head(self) -> Head:
        """Kind and name, read without parsing the document where its spelling allows."""
        if self._head is None:
            self._head = head_of(self.text) or Head.of(self.value)
        return self._head

    @property
    def value(self) -> Manifest | None:
        """The object, not to be changed in place; None without content. Raises PostrenderError."""
        if not self._read:
            try:
                value = reading.load(self.text)
            except YamlError as error:
                raise PostrenderError(f"{self.place(error.line)}: {error.problem}") from None
            if value is not None and not isinstance(value, dict):
                raise PostrenderError(
                    f"{self.place()}: a Kubernetes object is a mapping, not {_type(value)}"
                )
            self._original, self._read = value, True
        return self._original if self._changed is None else self._changed

    def replace(self, value: Manifest) -> None:
        """Set the object. Its text stays as it is if it is equal."""
        if not same(value, self.value):
            self._changed = value

    @property
    def objects(self) -> "list[Object]":
        """Its object, or the items of its `List`; empty for a document without content."""
        value = self.value
        if value is None:
            return []
        if is_list(str(value.get("kind", "")), value):
            found = [
                Object(self, index)
                for index, item in enumerate(value["items"])
                if isinstance(item, dict)
            ]
        else:
            found = [Object(self)]
        for it in found:
            _check_mappings(it)
        return found

    def place(self, line: int | None = None) -> str:
        """Describe the place of a document for messages. `line` is one of the document's text, from
        1.
        """
        source = f" ({self.source})" if self.source else ""
        return (
            f"document {self.number}{source}, line {self.line + (line or self._first_line()) - 1}"
        )

    def place_of(self, path: Sequence[str | int]) -> tuple[str, int]:
        """Return the place of a value of the original object, and its line in the stream. See
        `reading.line_of`.
        """
        line = self._first_line()
        if self._read and self.text:
            self._node = self._node or reading.compose(self.text)
            line = reading.line_of(self._node, tuple(path))
        return self.place(line), self.line + line - 1

    def written(self) -> str:
        """Return the text of the document in the result."""
        if self._changed is None or same(self._changed, self._original):
            return self.text
        found = _LEADING.match(self.text)
        return (found.group() if found is not None else "") + self.yaml(self._changed)

    def yaml(self, value: Manifest) -> str:
        """Return the text of an object, with the place of this document in errors."""
        try:
            return writing.document(value)
        except PostrenderError as error:
            raise PostrenderError(f"{self.place()}: {error}") from None

    def _first_line(self) -> int:
        found = _LEADING.match(self.text)
        return 1 + (
            found.group().count("\n") if found is not None and found.end() < len(self.text) else 0
        )


@dataclass(frozen=True, slots=True)
class Object:
    """A Kubernetes object of the stream: a document's, or an item of its `List`."""

    document: Document
    index: int | None = None
    """Its position in the `List`."""

    @property
    def value(self) -> Manifest:
        """As it is now; not to be changed in place."""
        whole = self.document.value or {}
        found: Manifest = whole if self.index is None else whole["items"][self.index]
        return found

    @property
    def kind(self) -> str:
        return str(self.value.get("kind") or "")

    @property
    def metadata(self) -> Manifest:
        found = self.value.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace") or "")

    def replace(self, value: Manifest) -> None:
        """Set the object in its document."""
        if self.index is None:
            self.document.replace(value)
            return
        whole = self.document.value or {}
        items = list(whole["items"])
        items[self.index] = value
        self.document.replace({**whole, "items": items})

    def place(self, *path: str | int) -> str:
        """Describe the place of the object, or of its value at `path`, for messages."""
        return self.located(*path)[0]

    def located(self, *path: str | int) -> tuple[str, int]:
        """`place`, and the line of the stream."""
        whole = path if self.index is None else ("items", self.index, *path)
        place, line = self.document.place_of(whole)
        return f"{place}, {self.kind} {self.name}", line


class Stream:
    """All documents, in order."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = list(documents)

    @classmethod
    def read(cls, data: bytes) -> "Stream":
        """Divide a stream into documents. Raises PostrenderError if it is too large or no text."""
        if len(data) > LARGEST:
            raise PostrenderError(
                f"{_place_in(data, LARGEST)}: the stream is larger than {LARGEST >> 20} MiB, "
                "which no release can be"
            )
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            place = _place_in(data, error.start)
            raise PostrenderError(
                f"{place}: no UTF-8 text (byte 0x{data[error.start]:02x})"
            ) from None
        if "\0" in text:
            place = _place_in(data, data.index(b"\0"))
            raise PostrenderError(f"{place}: binary data (a NUL byte), not YAML")
        starts = [found.start() for found in _MARKER.finditer(text)]
        if not starts or starts[0] > 0:
            starts.insert(0, 0)
        documents, line = [], 1
        for number, (start, end) in enumerate(
            zip(starts, [*starts[1:], len(text)], strict=True), start=1
        ):
            part = text[start:end]
            documents.append(Document(part, number, line))
            line += part.count("\n")
        return cls(documents)

    def objects(self, wanted: Callable[[Head], bool] | None = None) -> Iterator[Object]:
        """Yield the objects in order. `wanted`: documents that it refuses by their kind and name
        are not parsed.
        """
        for document in list(self.documents):
            head = document.head
            if head.kind and (wanted is None or head.has_items or wanted(head)):
                yield from document.objects

    def insert_after(self, document: Document, values: Sequence[Manifest]) -> list[Document]:
        """Add documents for new objects that come from `document`: they have its source and Helm
        4's annotation.
        """
        annotations = ((document.value or {}).get("metadata") or {}).get("annotations") or {}
        file = annotations.get(FILE_ANNOTATION)
        source = f"# Source: {document.source}\n" if file is None and document.source else ""
        made = []
        for value in values:
            metadata = value.get("metadata") or {}
            noted = {**(metadata.get("annotations") or {}), FILE_ANNOTATION: file}
            whole = (
                value if file is None else {**value, "metadata": {**metadata, "annotations": noted}}
            )
            text = f"---\n{source}{document.yaml(whole)}"
            made.append(Document(text, document.number, document.line, document.source))
        position = self.documents.index(document) + 1
        self.documents[position:position] = made
        return made

    def remove(self, document: Document) -> None:
        """Leave a document out of the result."""
        self.documents.remove(document)

    def written(self) -> bytes:
        """Return the result. Raises PostrenderError rather than to return nothing."""
        out: list[str] = []
        for document in self.documents:
            text = document.written()
            if out and text and not out[-1].endswith("\n"):
                out.append("\n")
            if out and text and not _MARKER.match(text):
                out.append("---\n")
            out.append(text)
        result = "".join(out)
        if not result.strip():
            raise PostrenderError(
                "nothing would be left of the stream, which Helm takes for an empty release"
            )
        return result.encode("utf-8")


def is_list(kind: str, value: Manifest) -> bool:
    """Return whether an object is a `List`, whose items are objects."""
    return kind.endswith("List") and isinstance(value.get("items"), list)


def same(one: Any, other: Any) -> bool:
    """Equality in which `1`, `1.0` and `true` differ, and the order of keys doesn't matter."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            same(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _check_mappings(it: Object) -> None:
    """Raise PostrenderError for an object in which no step could look for a name, a label or a
    key.
    """
    data = {"ConfigMap": ("data", "binaryData"), "Secret": ("data", "stringData")}.get(it.kind, ())
    for path in (
        ("metadata",),
        ("metadata", "labels"),
        ("metadata", "annotations"),
        *((name,) for name in data),
    ):
        value: Any = it.value
        for part in path:
            value = (value or {}).get(part)
        if value is not None and not isinstance(value, dict):
            raise PostrenderError(
                f"{it.place(*path)}: {'.'.join(path)} is {_type(value)}: make it a mapping"
            )


def _source(text: str) -> str:
    """Return the source of a document, from Helm 3's comment before the content, or Helm 4's
    annotation.
    """
    leading = _LEADING.match(text)
    found = _SOURCE.search(leading.group()) if leading is not None else None
    found = found or _ANNOTATED.search(text)
    return found.group(1).strip() if found is not None else ""


def _place_in(data: bytes, position: int) -> str:
    before = data[:position].decode("utf-8", "replace")
    markers = list(_MARKER.finditer(before))
    source = _source(before[markers[-1].start() if markers else 0 :])
    number = len(markers) + (1 if not markers or before[: markers[0].start()] else 0)
    named = f" ({source})" if source else ""
    return f"document {number}{named}, line {before.count(chr(10)) + 1}"


def _type(value: Any) -> str:
    return {list: "a list", str: "text", bool: "a boolean"}.get(type(value), "a number")
