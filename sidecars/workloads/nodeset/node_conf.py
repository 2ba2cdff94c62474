"""slurmd's --conf: the attributes of Slurm nodes that a NodeSet's name and extraConf decide."""

import difflib

from sidecars.slurm import keys, nodeconf, versions
from sidecars.slurm.nodeconf import Item
from sidecars.workloads import assembly
from sidecars.workloads.resources import NodeSet, ResourceError


def node_conf(nodeset: NodeSet) -> str:
    """Return the items of slurmd's --conf that the NodeSet decides, sorted by key: `Features`, and
    those of extraConf.

    Raises ResourceError for an extraConf that is no list of items, has an item without a value, or
    a key that slurmd of the image's release does not know: slurmd would end. Of an unknown release
    every key is accepted.
    """
    extra = nodeconf.parse(
        assembly.text(nodeset.spec.extra_conf.replace("\n", " "), "spec.extraConf")
    )
    if extra.problems:
        raise ResourceError("spec.extraConf", extra.problems[0])
    items: dict[str, str] = {}
    features = {nodeset.slurm_name}
    for item in extra.items:
        check_key(nodeset, item, "spec.extraConf")
        if item.key.lower() in {"feature", "features"}:
            features |= {feature for feature in item.value.split(",") if feature}
        else:
            items[item.key[0].upper() + item.key[1:]] = item.value
    items["Features"] = ",".join(sorted(features))
    return nodeconf.render(Item(key, items[key]) for key in sorted(items))


def check_key(nodeset: NodeSet, item: Item, place: str) -> None:
    """Raise ResourceError for an item without a value, or with a key that no node has in the
    image's release.

    Of an unknown release every key is accepted. `place`: the field of the NodeSet that has the
    item.
    """
    if not item.value:
        raise ResourceError(place, f"{item.key} has no value: remove it")
    release = versions.of_image(str(nodeset.spec.slurmd.get("image") or ""))
    known = (
        keys.of("NodeName", release) if release is not None and release <= keys.KNOWN[-1] else None
    )
    if known is not None and item.key.lower() not in known:
        near = difflib.get_close_matches(item.key.lower(), known, 1)
        meant = next(
            (f"; is it {word}?" for word in keys.spelled("NodeName") if [word.lower()] == near), ""
        )
        raise ResourceError(place, f"{item.key} isn't a key of a node in slurm.conf{meant}")
