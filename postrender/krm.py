"""A KRM function of kustomize: one `ResourceList` in, one out
(https://github.com/kubernetes-sigs/kustomize/blob/master/cmd/config/docs/api-conventions/functions-spec.md).

The steps stand in the function's own object: `spec.steps`, or `steps` as YAML in the `data` of a
ConfigMap.
"""

from typing import Any

from postrender import configuration, reading, steps, writing
from postrender.errors import PostrenderError, YamlError
from postrender.report import Run
from postrender.stream import Document, Manifest, Stream, same

API_VERSION = "config.kubernetes.io/v1"
KIND = "ResourceList"
_NO_CONFIGURATION = (
    "no configuration: use --post-renderer-args=--config=FILE, or set SLURM_POSTRENDER_CONFIG"
)


def result(data: bytes, run: Run) -> bytes:
    """Return the list after the steps of its function. Raises PostrenderError, also for a stream
    that is no such list.
    """
    stream = Stream.read(data)
    documents = [it for it in stream.documents if it.head.kind]
    if len(documents) != 1 or documents[0].head.kind != KIND:
        raise PostrenderError(_NO_CONFIGURATION)
    whole = documents[0].value or {}
    function = whole.get("functionConfig")
    if not isinstance(function, dict):
        raise PostrenderError(f"the {KIND} has no functionConfig, which contains the steps")
    items = [it for it in whole.get("items") or () if isinstance(it, dict)]
    inner = Stream(
        [
            Document(writing.document(it), number, 0, _source(it))
            for number, it in enumerate(items, start=1)
        ]
    )
    run.of_stream = True
    steps.apply(inner, configuration.steps(_configuration(function), "functionConfig"), run)
    after = [value for document in inner.documents if (value := document.value) is not None]
    if not after and items:
        raise PostrenderError("nothing would be left of the list")
    return data if same(after, items) else writing.document({**whole, "items": after}).encode()


def _source(value: Manifest) -> str:
    """Return the file that an object comes from, by kustomize's annotation."""
    metadata = value.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    path = annotations.get("config.kubernetes.io/path") if isinstance(annotations, dict) else None
    return str(path or "")


def _configuration(function: Manifest) -> Any:
    """Return the function's configuration as a configuration file would contain it."""
    if function.get("kind") != "ConfigMap":
        return function.get("spec")
    text = (function.get("data") or {}).get("steps")
    try:
        return {"steps": reading.load(str(text or ""))}
    except YamlError as error:
        raise PostrenderError(
            f"functionConfig: data.steps line {error.line}: {error.problem}"
        ) from None
