"""That readers find an answer: each of their questions has a page and a heading that the README
reaches in two links, and pages that name values and lines of slurm.conf name existing ones.
"""

import re
from pathlib import Path

import pytest
import yaml

from sidecars.slurm import keys
from tests.unit.test_docs import ROOT, anchors

DOCS = ROOT / "docs"
ENGINEER, ADMINISTRATOR, MOVER, USER = "engineer", "administrator", "mover", "user"
"""A platform engineer without Slurm; an administrator of Slurm; a site on Slinky or Soperator; who
submits jobs.
"""
QUESTIONS = [
    (ENGINEER, "install on EKS", "docs/eks.md", "before-you-install"),
    (ENGINEER, "install on GKE", "docs/gke.md", "before-you-install"),
    (ENGINEER, "install on AKS or OpenShift", "docs/aks-openshift.md", "openshift"),
    (ENGINEER, "install on my hosts", "docs/on-prem.md", "gpus"),
    (ENGINEER, "get images", "docs/local.md", "on-your-own-cluster-with-your-registry"),
    (ENGINEER, "autoscale workers", "docs/autoscaling.md", "settings"),
    (ENGINEER, "autoscale Kubernetes nodes", "docs/choose-scaling.md", "kubernetes-nodes"),
    (ENGINEER, "which way to scale", "docs/choose-scaling.md", "compare"),
    (ENGINEER, "spot instances", "docs/choose-scaling.md", "spot-instances"),
    (ENGINEER, "monitor", "docs/monitoring.md", "prometheus"),
    (ENGINEER, "size", "docs/sizing.md", "what-each-part-needs"),
    (ENGINEER, "cost", "docs/sizing.md", "cost-of-a-cluster-without-jobs"),
    (ENGINEER, "who may do what", "docs/roles.md", "helper"),
    (ENGINEER, "pods in Slurm's queue", "docs/bridge.md", "for-the-administrator"),
    (ENGINEER, "beside Kueue", "docs/bridge-comparison.md", "features"),
    (ENGINEER, "words of Slurm", "docs/glossary.md", "words-of-slurm"),
    (ADMINISTRATOR, "I have a slurm.conf", "docs/slurm-conf.md", "lines-of-slurmconf"),
    (ADMINISTRATOR, "which Slurm and which OS", "docs/support-matrix.md", "slurm"),
    (ADMINISTRATOR, "what the images lack", "docs/limits.md", "what-the-default-images-lack"),
    (ADMINISTRATOR, "words of Kubernetes", "docs/glossary.md", "words-of-kubernetes"),
    (ADMINISTRATOR, "add users", "docs/users.md", "declare-users"),
    (ADMINISTRATOR, "submit a job", "docs/use-jobs.md", "submit"),
    (ADMINISTRATOR, "scale", "docs/nodesets.md", "scale-a-nodeset"),
    (ADMINISTRATOR, "power saving", "docs/power-saving.md", "configuration"),
    (ADMINISTRATOR, "upgrade Slurm", "docs/upgrades.md", "upgrade-slurm"),
    (ADMINISTRATOR, "why a job is pending", "docs/explain.md", "commands"),
    (
        ADMINISTRATOR,
        "a node is drained",
        "docs/troubleshooting.md",
        "a-slurm-node-is-down-or-drained",
    ),
    (ADMINISTRATOR, "back up and restore", "docs/backup.md", "restore-a-cluster"),
    (ADMINISTRATOR, "notebooks", "docs/jupyterhub.md", "install"),
    (ADMINISTRATOR, "which tags exist", "docs/images.md", "use-these-images-or-schedmds"),
    (ADMINISTRATOR, "give users a page", "docs/use-jobs.md", "log-in"),
    (MOVER, "what to expect from each", "docs/comparison.md", "features"),
    (MOVER, "migrate from Slinky", "docs/migrating.md", "replace-the-operator"),
    (MOVER, "go back to Slinky", "docs/migrating.md", "go-back"),
    (MOVER, "move from Soperator", "docs/soperator.md", "move"),
    (
        MOVER,
        "convert values",
        "docs/soperator.md",
        "convert-a-slurmcluster-and-its-nodesets",
    ),
    (MOVER, "what the project lacks", "docs/limits.md", "what-the-project-doesnt-have"),
    (MOVER, "what changes", "docs/compatibility.md", "what-behaves-differently"),
    (USER, "submit and watch", "docs/use-jobs.md", "watch"),
    (USER, "my job is pending", "docs/use-jobs.md", "why-is-my-job-pending"),
    (USER, "GPUs", "docs/use-gpus-containers.md", "gpus"),
    (USER, "containers", "docs/use-gpus-containers.md", "containers"),
    (USER, "several nodes", "docs/use-gpus-containers.md", "programs-on-several-nodes"),
    (USER, "torchrun on two nodes", "docs/use-gpus-containers.md", "pytorch-on-several-nodes"),
    (USER, "where files are", "docs/use-files-limits.md", "files"),
    (USER, "where output is", "docs/use-files-limits.md", "output"),
    (USER, "limits", "docs/use-files-limits.md", "limits"),
    (USER, "queue a Kubernetes Job", "docs/bridge.md", "for-the-user"),
    (USER, "gangs of pods", "docs/bridge-pods.md", "groups"),
    (USER, "submit from a program", "docs/rest.md", "submit"),
]
"""Who asks what, and the page and heading with the answer."""


def linked(page: Path) -> set[Path]:
    """The files to which a page links."""
    links = re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
    return {(page.parent / it).resolve() for it in links if not it.startswith("https://")}


def within_two_links(page: Path) -> set[Path]:
    """The files that two links reach from a page."""
    first = linked(page)
    pages = (it for it in first if it.suffix == ".md" and it.is_file())
    return first | {it for one in pages for it in linked(one)}


@pytest.mark.parametrize(
    ("page", "heading"),
    [it[2:] for it in QUESTIONS],
    ids=[f"{reader}: {question}" for reader, question, *_ in QUESTIONS],
)
def test_the_readme_reaches_the_answer_in_two_links(page: str, heading: str) -> None:
    file = ROOT / page
    assert file in within_two_links(ROOT / "README.md")
    assert heading in anchors(file)


def test_two_links_are_not_three(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "c"), ("c", "d")):
        (tmp_path / f"{one}.md").write_text(f"[{other}]({other}.md#x)\n")
    (tmp_path / "d.md").touch()
    assert within_two_links(tmp_path / "a.md") == {tmp_path / "b.md", tmp_path / "c.md"}


def contents() -> list[str]:
    """The pages that the index lists, in its order."""
    text = (DOCS / "index.md").read_text(encoding="utf-8").split("\n## All pages\n")[1]
    return re.findall(r"^\| \[[^\]]+\]\(([\w/-]+)\.md\) \|", text, re.MULTILINE)


def test_the_index_lists_all_pages_in_the_order_of_the_site() -> None:
    parts = yaml.safe_load((DOCS / "_toc.yml").read_text(encoding="utf-8"))["subtrees"]
    entries = [it["file"] for part in parts for it in part["entries"] if "file" in it]
    assert contents() == entries
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == [it["caption"] for it in parts]


@pytest.mark.parametrize("page", contents())
def test_the_index_calls_a_page_by_its_title(page: str) -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    [title] = re.findall(rf"^\| \[([^\]]+)\]\({page}\.md\) \|", text, re.MULTILINE)
    heading = re.search(
        r"^# (.*)$", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert heading is not None
    assert title == heading[1]


def test_the_readme_fits_one_screen_and_a_half() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150


def test_a_fresh_host_needs_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## Try it on one machine\n")[1].split("\n## ")[0]
    assert re.findall(r"```console\n(.*?)```", section, re.DOTALL) == ["# make up\n# make test\n"]


# --- a page about slurm.conf


def rows(section: str) -> list[list[str]]:
    """The cells of the table in a section of the page about slurm.conf."""
    text = (DOCS / "slurm-conf.md").read_text(encoding="utf-8")
    table = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [it for it in table.splitlines() if it.startswith("|")][2:]
    return [[cell.strip() for cell in it.strip("|").split("|")] for it in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


LINES = [key for row in rows("Lines of slurm.conf") for key in quoted(row[0])]
VALUES = sorted(
    {it for part in ("Lines of slurm.conf", "Files beside slurm.conf") for row in rows(part)
     for it in quoted(row[1])}
)  # fmt: skip


@pytest.mark.parametrize("key", [it for it in LINES if it.isalpha()])
def test_each_line_of_the_page_about_slurm_conf_is_one_that_slurm_has(key: str) -> None:
    known = {"include", *(keys.of("slurm.conf", keys.KNOWN[-1]) or {})}
    assert key.lower() in known


@pytest.mark.parametrize("value", VALUES)
def test_each_value_of_the_page_about_slurm_conf_is_in_the_reference(value: str) -> None:
    reference = (DOCS / "reference" / "values-slurm.md").read_text(encoding="utf-8")
    assert f"\n| `{value}` |" in reference
