"""The step `images`: moves images to other registries, and pins them by the digests of a lock file.

Also in custom resources, in volumes, and in environment variables whose whole value is an image.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from postrender import pods, reading
from postrender.configuration import StepSettings
from postrender.errors import PostrenderError, YamlError
from postrender.report import Run, Severity, finding
from postrender.selectors import Selection, Selector
from postrender.stream import Stream

_REFERENCE = re.compile(
    r"(?P<name>(?:(?:[A-Za-z0-9.-]+[.:][A-Za-z0-9.:-]*|localhost)/)?[a-z0-9][a-z0-9._/-]*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HUB = "docker.io"


class Settings(TypedDict, total=False):
    """Of the step."""

    rewrite: dict[str, str]
    lock: str
    unlocked: Literal["error", "warning", "ignore"]
    select: list[Selector]
    required: bool


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step. An image that the lock lacks is a finding of the rule `image-unlocked`."""
    settings = step.settings
    rewrite, lock = settings.get("rewrite", {}), _lock(step, run)
    severity: Severity = settings.get("unlocked", "error")
    for it in Selection(step, settings.get("select"), settings.get("required", False)).objects(
        stream
    ):
        value = it.value
        for path, image in pods.images(it.value):
            found = _REFERENCE.fullmatch(image)
            variable = path[-1] == "value"
            if found is None or (variable and not (found["tag"] or found["digest"])):
                continue
            # `db:3306` could be an image of docker.io, but hardly is: a variable must have the
            # whole name.
            new = _moved(image, rewrite, image if variable else _full(image))
            digest = lock.get(_full(image)) or lock.get(_full(new))
            known = digest is not None or new != image
            if variable and not known:
                continue
            if digest is not None and found["digest"] is None:
                new = f"{new}@{digest}"
            elif lock and found["digest"] is None:
                message = (
                    f"the image {image} isn't in {settings.get('lock')}: add it with its digest"
                )
                run.add(finding("image-unlocked", severity, it, path, message))
            if new != image:
                value = pods.put(value, path, new)
        it.replace(value)


def _lock(step: StepSettings[Settings], run: Run) -> Mapping[str, str]:
    """Digests by full name of the image."""
    if "lock" not in step.settings:
        return {}
    file = run.file(step.settings["lock"], step.at("lock"))
    try:
        value: Any = reading.load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YamlError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise PostrenderError(f"{step.place}.lock: {file} can't be read: {reason}") from None
    images = value.get("images") if isinstance(value, dict) else None
    if not isinstance(images, dict):
        raise PostrenderError(
            f"{step.place}.lock: {file} needs a mapping `images`, of images to their digests"
        )
    for image, digest in images.items():
        if (
            not _REFERENCE.fullmatch(image)
            or not isinstance(digest, str)
            or not _DIGEST.fullmatch(digest)
        ):
            raise PostrenderError(
                f"{step.place}.lock: {file}: {image!r}: {digest!r} is no sha256:… of an image"
            )
    return {_full(image): digest for image, digest in images.items()}


def _moved(image: str, rewrite: Mapping[str, str], full: str) -> str:
    """Replace the longest prefix of an image, also that of its full name. Return the image as it is
    if it begins with what replaces it.
    """
    for image_name in (image, full):
        for prefix in sorted(rewrite, key=len, reverse=True):
            if _begins(image, rewrite[prefix]):
                return image
            if _begins(image_name, prefix):
                return rewrite[prefix].rstrip("/") + image_name[len(prefix.rstrip("/")) :]
    return image


def _begins(image: str, prefix: str) -> bool:
    prefix = prefix.rstrip("/")
    return image.startswith(prefix) and image[len(prefix) : len(prefix) + 1] in ("", "/", ":", "@")


def _full(image: str) -> str:
    """Add the registry, `library/` and the tag that Kubernetes adds to an image."""
    found = _REFERENCE.fullmatch(image)
    if found is None:
        return image
    name = found["name"]
    first, _, rest = name.partition("/")
    if not rest:
        name = f"{_HUB}/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"{_HUB}/{name}"
    tag = found["tag"] or ("" if found["digest"] else "latest")
    return name + (f":{tag}" if tag else "") + (f"@{found['digest']}" if found["digest"] else "")
