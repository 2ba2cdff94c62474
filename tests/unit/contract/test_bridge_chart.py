"""The templates of charts/slurm-bridge agree with `sidecars.contract.bridge`."""

import re
from pathlib import Path

import yaml

from sidecars.bridge.core import claims
from sidecars.bridge.core.groups import SourceKind
from sidecars.contract import bridge, paths

TEMPLATES = Path(__file__).parents[3] / "charts" / "slurm-bridge" / "templates"


def keys(name: str) -> set[str]:
    """The keys of pods that a template names."""
    return set(
        re.findall(
            r"[a-z.]*slinky\.slurm\.net/[a-z-]+", (TEMPLATES / name).read_text(encoding="utf-8")
        )
    )


def test_the_policies_protect_what_only_the_bridge_writes() -> None:
    written = {bridge.JOB_LABEL, bridge.NODE_ANNOTATION, bridge.GROUP_ANNOTATION}
    assert keys("validating-policy.yaml") == {bridge.GATE, bridge.TAINT, *written}
    assert keys("mutating-policy.yaml") == {bridge.GATE, bridge.TAINT}


def test_the_policy_of_devices_protects_the_finalizer_that_the_bridge_adds() -> None:
    text = (TEMPLATES / "devices-policy.yaml").read_text(encoding="utf-8")
    assert text.count(f'it == "{claims.FINALIZER}"') == 2


def test_the_notes_name_the_label_of_external_nodes_and_the_gate() -> None:
    assert keys("NOTES.txt") == {bridge.EXTERNAL_NODE, bridge.GATE}


def test_the_key_is_mounted_where_the_bridge_reads_it() -> None:
    text = (TEMPLATES / "deployment.yaml").read_text(encoding="utf-8")
    folder, _, file = paths.JWT_KEY.rpartition("/")
    assert f"mountPath: {folder}\n" in text
    assert f"path: {file}\n" in text


def test_the_bridge_may_read_each_kind_that_has_the_size_of_a_group() -> None:
    text = re.sub(
        r"^ *\{\{-.*\n",
        "",
        (TEMPLATES / "clusterrole.yaml").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    text = re.sub(r"\{\{.*?\}\}", "name", text)
    readable = {
        f"{plural}.{group}"
        for rule in yaml.safe_load(text.partition("rules:\n")[2])
        for group in rule["apiGroups"]
        for plural in rule["resources"]
        if "get" in rule["verbs"]
    }
    assert {kind.resource for kind in SourceKind} <= readable
