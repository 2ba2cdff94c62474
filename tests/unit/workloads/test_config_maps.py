"""The ConfigMaps that carry the files of /etc/slurm: `sidecars.workloads.config_maps`."""

import base64
import json

import pytest

from sidecars.workloads.config import CGROUP_CONF, CONSTRAINTS, ConfigSet, compose
from sidecars.workloads.config_maps import accepted, config_maps, files, published_digest
from sidecars.workloads.facts import digest
from sidecars.workloads.resources import Manifest, ResourceError
from tests.support import builders
from tests.support.builders import controller


def files_of(contents: dict[str, dict[str, str | bytes]]) -> ConfigSet:
    """What is composed of ConfigMaps with these contents, all of configFileRefs."""
    of = controller(configFileRefs=[{"name": name} for name in contents])
    return compose(of, (), builders.facts(config_maps=contents))


def test_the_manifest_names_every_file_with_its_hash() -> None:
    found = files_of({"own": {"gres.conf": "Name=gpu\n", "blob": b"\xff"}})
    [config_map] = config_maps(controller(), found)
    assert published_digest(config_map) == found.sha256
    listed = json.loads(config_map["data"].pop("manifest.json"))
    assert published_digest(config_map) is None
    assert listed == {
        "files": {
            "blob": digest(b"\xff"),
            "cgroup.conf": digest(CGROUP_CONF + CONSTRAINTS),
            "gres.conf": digest("Name=gpu\n"),
            "slurm.conf": digest(found.files["slurm.conf"]),
        },
        "sha256": found.sha256,
    }
    assert config_map["binaryData"] == {"blob": "/w=="}
    assert config_map["data"] == found.files


def size(config_map: Manifest) -> int:
    """Bytes that count for the limit of a ConfigMap."""
    return sum(len(text.encode()) for text in config_map["data"].values()) + sum(
        len(base64.b64decode(text)) for text in config_map.get("binaryData", {}).values()
    )


MEGABYTE = 1024 * 1024


def test_what_has_no_room_in_one_config_map_goes_into_the_next() -> None:
    contents: dict[str, dict[str, str | bytes]] = {
        f"m{index}": {f"f{index}": ("ä" if index % 2 else "x") * (300_000 + index)}
        for index in range(5)
    }
    contents["full"] = {"full": b"\xff" * MEGABYTE}
    found = files_of(contents)
    carriers = config_maps(controller(), found)
    assert [item["metadata"]["name"] for item in carriers] == [
        f"slurm-config{end}" for end in ("", "-1", "-2", "-3")
    ]
    assert all(size(item) <= MEGABYTE for item in carriers)
    carried = [
        name
        for item in carriers
        for field in ("data", "binaryData")
        for name in item.get(field, ())
    ]
    assert sorted(carried) == sorted([*found.files, *found.binary_files, "manifest.json"])
    assert "slurm.conf" in carriers[0]["data"]


def test_config_maps_that_are_needed_no_more_are_emptied() -> None:
    found = compose(controller(), (), builders.facts())
    first, second = config_maps(controller(), found, {"slurm-config", "slurm-config-2"})
    assert first["metadata"]["name"] == "slurm-config"
    assert (second["metadata"]["name"], second["data"]) == ("slurm-config-2", {})


def test_the_accepted_configuration_is_a_copy_whose_leftovers_are_emptied() -> None:
    found = files_of({"own": {"blob": b"\xff" * MEGABYTE}})
    published = {item["metadata"]["name"]: item for item in config_maps(controller(), found)}
    copies = accepted(controller(), published, {"slurm-config-accepted-5"})
    assert [item["metadata"]["name"] for item in copies] == [
        f"slurm-config-accepted{end}" for end in ("", "-1", "-5")
    ]
    assert files(copies) == files(published.values()) == {**found.files, **found.binary_files}
    assert copies[-1]["data"] == {}


def test_a_part_of_a_configuration_carries_no_files() -> None:
    first, second = config_maps(controller(), files_of({"own": {"blob": b"\xff" * MEGABYTE}}))
    other, _ = config_maps(controller(), files_of({"own": {"blob": b"\xfe" * MEGABYTE}}))
    assert files([first]) == files([other, second]) == files([]) == {}
    assert files([first, second]) != {}


def test_files_that_do_not_fit_are_refused_with_their_sizes() -> None:
    found = files_of({f"m{index}": {f"f{index}": "x" * MEGABYTE} for index in range(8)})
    with pytest.raises(
        ResourceError,
        match=r"f7 \(1048576 bytes, ConfigMap m7 key f7\) has no room in 8 ConfigMaps",
    ):
        config_maps(controller(), found)
    long = compose(controller(extraConf="#" * MEGABYTE), (), builders.facts())
    with pytest.raises(ResourceError, match=r"^spec\.extraConf: slurm\.conf is \d+ bytes long"):
        config_maps(controller(), long)
