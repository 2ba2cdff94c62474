"""The ConfigMaps that carry the files of /etc/slurm to the pods.

Those of `names.config` contain the newest configuration. Only `reconfigure` reads them. When
slurmctld runs with it, the operator copies it to those of `names.accepted_config` for all other
readers.
"""

import base64
from collections.abc import Callable, Collection, Iterable, Mapping

from sidecars.contract import manifest
from sidecars.workloads import assembly, names
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.facts import config_map_contents
from sidecars.workloads.resources import Controller, Manifest, ResourceError

CONFIG_MAPS = 8
"""Over how many ConfigMaps at most the files are spread; a pod mounts that many, as optional ones.
"""

CONFIG_MAP_BYTES = 1024 * 1024
"""Maximum content of one ConfigMap (https://kubernetes.io/docs/concepts/configuration/configmap/)."""


def more_sources(name: Callable[[int], str]) -> list[dict[str, object]]:
    """Return the ConfigMaps of a Controller's files beside the first, as sources of a projected
    volume. `name`: by index.
    """
    return [
        {"configMap": {"name": name(index), "optional": True}} for index in range(1, CONFIG_MAPS)
    ]


def config_maps(
    controller: Controller, config_set: ConfigSet, present: Collection[str] = ()
) -> list[Manifest]:
    """Return the ConfigMaps that carry the files and, in the first, their manifest, which an
    external Controller doesn't need.

    slurm.conf is always in the first. `present` names existing ConfigMaps: those of ours that the
    files need no more are emptied. Raises ResourceError when the files don't fit.
    """
    shares = spread(config_set)
    if controller.spec.external:
        del shares[0][manifest.FILE]
    found = []
    for index in range(CONFIG_MAPS):
        name = names.config(controller.name, index)
        if index >= len(shares) and name not in present:
            continue
        share = shares[index] if index < len(shares) else {}
        data = {
            file: content for file, content in sorted(share.items()) if isinstance(content, str)
        }
        binary = {
            file: base64.b64encode(content).decode()
            for file, content in sorted(share.items())
            if isinstance(content, bytes)
        }
        found.append(_config_map(controller, name, data, binary))
    return found


def accepted(
    controller: Controller, published: Mapping[str, Manifest], present: Collection[str] = ()
) -> list[Manifest]:
    """Return the ConfigMaps with the accepted configuration: copies of the `published` ones, which
    are given by their names. `present` names existing ConfigMaps. Those of the copies that the
    files need no more are emptied.
    """
    found = []
    for index in range(CONFIG_MAPS):
        name, source = (
            names.accepted_config(controller.name, index),
            published.get(names.config(controller.name, index)),
        )
        if source is not None or name in present:
            data, binary = (source or {}).get("data"), (source or {}).get("binaryData")
            found.append(_config_map(controller, name, data or {}, binary or {}))
    return found


def created_accounts(controller: Controller, data: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap with what was created in slurmdbd from the Controller's declaration."""
    return _config_map(controller, names.created_accounts(controller.name), data, {})


def users(controller: Controller, files: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap with the files of declared users, which pods mount whole."""
    return _config_map(controller, names.users(controller.name), files, {})


def _config_map(
    controller: Controller, name: str, data: Mapping[str, str], binary_data: Mapping[str, str]
) -> Manifest:
    config_map: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "labels": {
                names.APP_NAME: "slurmctld",
                names.APP_INSTANCE: controller.name,
                names.APP_COMPONENT: "controller",
            },
        },
        "data": dict(data),
    }
    return assembly.owned(
        config_map | ({"binaryData": dict(binary_data)} if binary_data else {}), controller
    )


def files(carriers: Iterable[Manifest]) -> dict[str, str | bytes]:
    """Return the files that ConfigMaps carry, by name, without their manifest.

    Empty while they are not those that the manifest lists. An external Controller's have no
    manifest.
    """
    found: dict[str, str | bytes] = {}
    for carrier in carriers:
        found |= config_map_contents(carrier.get("data"), carrier.get("binaryData"))
    listed = found.pop(manifest.FILE, None)
    if listed is None:
        return found
    contents = {
        name: content.encode() if isinstance(content, str) else content
        for name, content in found.items()
    }
    digests = {name: manifest.digest(content) for name, content in contents.items()}
    try:
        return found if manifest.decode(listed).files == digests else {}
    except manifest.ManifestError:
        return {}


def published_digest(first: Manifest) -> str | None:
    """Return the digest of the configuration whose first ConfigMap this is, or None for one without
    a manifest.
    """
    try:
        return manifest.decode((first.get("data") or {})[manifest.FILE]).sha256
    except (KeyError, manifest.ManifestError):
        return None


def spread(config_set: ConfigSet) -> list[dict[str, str | bytes]]:
    """Distribute the files over ConfigMaps: slurm.conf and the manifest first. The others follow,
    the largest first. Raises ResourceError when they don't fit.
    """
    first: dict[str, str | bytes] = {"slurm.conf": config_set.files["slurm.conf"]}
    first[manifest.FILE] = manifest.encode(manifest.Manifest(config_set.sha256, config_set.digests))
    others: dict[str, str | bytes] = {**config_set.files, **config_set.binary_files}
    del others["slurm.conf"]
    shares = [first]
    room = [CONFIG_MAP_BYTES - sum(map(_size, first.values()))]
    if room[0] < 0:
        size = _size(config_set.files["slurm.conf"])
        raise ResourceError(
            "spec.extraConf",
            f"slurm.conf is {size} bytes long and must be shorter than {CONFIG_MAP_BYTES}",
        )
    for name in sorted(others, key=lambda name: (-_size(others[name]), name)):
        size = _size(others[name])
        index = next((i for i, free in enumerate(room) if size <= free), len(room))
        if index == CONFIG_MAPS or size > CONFIG_MAP_BYTES:
            total = sum(map(_size, others.values()))
            raise ResourceError(
                "spec.configFileRefs",
                f"the {len(others)} files beside slurm.conf have {total} bytes, and {name} "
                f"({size} bytes, {config_set.origin(name)}) has no room in {CONFIG_MAPS} "
                f"ConfigMaps of {CONFIG_MAP_BYTES} bytes: shorten them, or bring large files by a "
                "volume of spec.template",
            )
        if index == len(room):
            shares.append({})
            room.append(CONFIG_MAP_BYTES)
        shares[index][name] = others[name]
        room[index] -= size
    return shares


def _size(content: str | bytes) -> int:
    return len(content.encode() if isinstance(content, str) else content)
