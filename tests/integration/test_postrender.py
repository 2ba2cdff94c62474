"""The post-renderer as Helm and kustomize start it, from its folder alone; and a parser in Go
beside our YAML.
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postrender import configuration, reading, steps, writing
from postrender.errors import PostrenderError
from postrender.report import Run
from postrender.stream import Stream
from release import postrender
from tests.charts import examples
from tests.cluster.commands import run
from tests.cluster.tools import tool
from tests.support.recorded_streams import FOLDER, HELMS, recorded, template

ROOT = Path(__file__).parents[2]
ACCOUNTING = ROOT / "charts" / "slurm" / "ci" / "accounting-values.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the packages of this Python."""
    target = tmp_path_factory.mktemp("postrender")
    packages = postrender.installed(target / "packages")
    return postrender.folder(ROOT, target / "plugins", packages)


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """python3 is the one that the packages are of."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_POSTRENDER_REPORT", str(tmp_path / "report.txt"))


def renderer(helm: str, folder: Path) -> str | Path:
    return folder / postrender.NAME if helm == "helm3" else postrender.NAME


@pytest.mark.parametrize("helm", sorted(HELMS))
def test_the_recorded_streams_are_fresh(helm: str) -> None:
    why = "run `python -m tests.support.recorded_streams`"
    assert recorded(helm, FOLDER / "shapes") == (FOLDER / f"{helm}.yaml").read_text(
        encoding="utf-8"
    ), why


@pytest.mark.parametrize("helm", sorted(HELMS))
@pytest.mark.parametrize(
    "chart", ["slurm", "slurm-operator", "slurm-operator-crds", "slurm-exporter", "slurm-bridge"]
)
def test_the_streams_of_our_charts_pass_the_check_and_stay_as_they_are(
    helm: str, chart: str, folder: Path
) -> None:
    values = [f"--values={ACCOUNTING}"] if chart == "slurm" else []
    values += ["--set=cluster=slurm"] if chart == "slurm-exporter" else []
    text = recorded(helm, ROOT / "charts" / chart, *values)
    config = folder.parent / "check.yaml"
    config.write_text(
        "steps:\n- check: {}\n- labels: {set: {a: 'b'}, select: [{name: nothing-has-this-name}]}\n"
    )
    assert run([folder / postrender.NAME, config, "--namespace=slurm"], stdin=text) == text


@pytest.mark.parametrize("helm", sorted(HELMS))
def test_helm_starts_it_and_takes_its_result(helm: str, folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "postrender.yaml"
    config.write_text(
        "steps:\n- labels: {set: {team: 'on'}, select: [{kind: NodeSet}], required: true}\n- "
        "check: {}\n"
    )
    given = [
        f"--post-renderer-args={config}",
        "--post-renderer-args=--namespace=slurm",
        f"--values={ACCOUNTING}",
    ]
    result = template(helm, ROOT / "charts" / "slurm", renderer(helm, folder), folder.parent, given)
    labels = [
        it.metadata["labels"].get("team")
        for it in Stream.read(result.encode()).objects()
        if it.kind == "NodeSet"
    ]
    assert labels
    assert set(labels) == {"on"}


def test_the_values_of_a_cluster_of_soperator_are_rendered_and_have_no_error(
    folder: Path, tmp_path: Path
) -> None:
    cluster = ROOT / "tests" / "fixtures" / "soperator" / "cluster.yaml"
    values = tmp_path / "values.yaml"
    values.write_text(run([folder / postrender.NAME, "from-soperator", cluster]))
    stream = run(
        [tool("helm"), "template", "slurm", ROOT / "charts" / "slurm", f"--values={values}"]
    )
    run([folder / postrender.NAME, "check", "--namespace=slurm"], stdin=stream)


def of_chart(name: str) -> list[Path]:
    """The values files of a chart that show how it is used, and the one with all keys."""
    every = ROOT / "tests" / "configurations" / "all-values" / f"{name}.yaml"
    return [*sorted((ROOT / "charts" / name).glob("examples/*.yaml")), every]


PAGE = [
    it
    for it in examples.of_folder(ROOT)
    if it.place.startswith(("docs/postrender.md", "docs/without-operator.md"))
]
EXAMPLES = [
    it for it in of_chart("slurm") if "nodesets" in yaml.safe_load(it.read_text(encoding="utf-8"))
][:-1]
"""Values of whole clusters."""

STREAMS = [
    (chart.parent.name, values)
    for chart in ROOT.glob("charts/*/Chart.yaml")
    for values in of_chart(chart.parent.name)
]
RECIPES = [
    it for it in PAGE if it.title == "postrender.yaml" and "preview" not in str(it.documents)
]
"""Those that need no live cluster."""

REFUSED = re.compile(
    "no object of the stream is selected, and `required` is true|(needs|install) the operator"
    "|'slurm-ldap-users' doesn't exist"
)
"""What a recipe is for, and a chart may not have; and what needs the operator."""


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_the_check_finds_nothing_in_an_example(values: Path) -> None:
    run = Run(namespace="slurm")
    text = recorded("helm4", ROOT / "charts" / "slurm", f"--values={values}").encode()
    steps.apply(Stream.read(text), configuration.steps({"steps": [{"check": None}]}, "check"), run)
    assert run.findings == []


@pytest.mark.parametrize(("chart", "values"), STREAMS, ids=lambda it: getattr(it, "stem", it))
def test_the_recipes_of_the_documentation_accept_what_the_charts_render(
    chart: str, values: Path, tmp_path: Path
) -> None:
    text = recorded("helm4", ROOT / "charts" / chart, f"--values={values}").encode()
    [lock] = [it for block in PAGE if block.title == "images.lock.yaml" for it in block.documents]
    (tmp_path / "images.lock.yaml").write_text(yaml.safe_dump(lock))
    for recipe in RECIPES:
        run = Run(folder=tmp_path, namespace="slurm")
        [document] = recipe.documents
        try:
            steps.apply(
                Stream.read(text),
                configuration.steps(document.get("spec", document), recipe.place),
                run,
            )
        except PostrenderError as error:
            if not REFUSED.search(error.message):
                pytest.fail("\n".join([*map(str, run.findings), error.message]))


def kustomize(
    folder: Path, site: Path, stream: str, *, required: str
) -> "subprocess.CompletedProcess[str]":
    """`kustomize build` of a stream with the function of the documentation, for NodeSets and
    objects of a kind.
    """
    function = copy.deepcopy(
        example("docs/postrender.md", lambda it: it.get("kind") == "Postrender")
    )
    [labels] = function["spec"]["steps"]
    labels["labels"] |= {"select": [{"kind": "NodeSet"}, {"kind": required}], "required": True}
    (site / "slurm-postrender").symlink_to(folder)
    (site / "rendered.yaml").write_text(stream)
    (site / "postrender.yaml").write_text(yaml.safe_dump(function))
    (site / "kustomization.yaml").write_text(
        "resources: [rendered.yaml]\ntransformers: [postrender.yaml]\n"
    )
    words = [str(tool("kustomize")), "build", "--enable-alpha-plugins", "--enable-exec", str(site)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_kustomize_runs_it_as_a_function(folder: Path, tmp_path: Path) -> None:
    stream = recorded("helm3", ROOT / "charts" / "slurm", f"--values={ACCOUNTING}")
    done = kustomize(folder, tmp_path, stream, required="Controller")
    assert done.returncode == 0, done.stderr
    before, after = (
        {(it.kind, it.name): it for it in Stream.read(text.encode()).objects()}
        for text in (stream, done.stdout)
    )
    assert before.keys() == after.keys()
    labelled = {
        key[0] for key, it in after.items() if it.metadata.get("labels", {}).get("team") == "hpc"
    }
    assert labelled == {"NodeSet", "Controller"}


def test_a_failure_ends_kustomize_with_its_reason(folder: Path, tmp_path: Path) -> None:
    done = kustomize(folder, tmp_path, recorded("helm3", FOLDER / "shapes"), required="Nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no object" in done.stderr


def example(page: str, wanted: Callable[[Any], bool]) -> Any:
    """The document of a page's YAML that is wanted."""
    found = [
        it
        for block in examples.of_folder(ROOT)
        if block.place.startswith(page)
        for it in block.documents
    ]
    return next(it for it in found if wanted(it))


def stand_in(file: Path, script: str) -> None:
    """An executable in place of a program."""
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def argo_cd(
    helm: str, folder: Path, site: Path, config: str, values: str = ""
) -> "subprocess.CompletedProcess[str]":
    """The command of the documentation's plugin as Argo CD runs it: in the chart's folder, with its
    variables.
    """
    plugin = example("docs/postrender.md", lambda it: it.get("kind") == "ConfigManagementPlugin")[
        "spec"
    ]
    chart, programs = site / "chart", site / "programs"
    shutil.copytree(ROOT / "charts" / "slurm", chart)
    (chart / plugin["discover"]["fileName"]).write_text(config)
    with (chart / "values.yaml").open("a") as file:
        file.write(values)
    programs.mkdir()
    (programs / "helm").symlink_to(tool(HELMS[helm]))
    path = f"{programs}{os.pathsep}{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {
        "ARGOCD_APP_NAME": "site",
        "ARGOCD_APP_NAMESPACE": "hpc",
        "HOME": str(site),
        "TMPDIR": str(programs),
    }
    done = subprocess.run(
        [*plugin["generate"]["command"], *plugin["generate"]["args"]],
        cwd=chart,
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [it.name for it in programs.iterdir()] == ["helm"], "what it renders to is deleted"
    return done


@pytest.mark.parametrize("helm", sorted(HELMS))
def test_the_plugin_of_argo_cd_renders_the_chart_with_the_steps(
    helm: str, folder: Path, tmp_path: Path
) -> None:
    select = "select: [{kind: Controller}], required: true"
    done = argo_cd(
        helm,
        folder,
        tmp_path,
        f"steps:\n- labels: {{set: {{team: hpc}}, {select}}}\n- check: {{}}\n",
    )
    assert done.returncode == 0, done.stderr
    found = {(it.kind, it.name): it for it in Stream.read(done.stdout.encode()).objects()}
    assert found["Controller", "site-slurm"].namespace == "hpc"
    assert {key for key, it in found.items() if (it.metadata.get("labels") or {}).get("team")} == {
        ("Controller", "site-slurm")
    }


@pytest.mark.parametrize(
    ("values", "config", "reason"),
    [
        (
            "",
            "steps:\n- labels: {set: {a: b}, select: [{kind: X}], required: true}\n",
            "no object of the stream",
        ),
        ("nodestes: {}\n", "steps: []\n", "nodestes"),
    ],
    ids=["of a step", "of Helm"],
)
def test_a_failure_of_the_plugin_is_argo_cds_error(
    values: str, config: str, reason: str, folder: Path, tmp_path: Path
) -> None:
    done = argo_cd("helm3", folder, tmp_path, config, values)
    assert done.returncode != 0
    assert done.stdout == ""
    assert reason in done.stderr


def test_the_step_of_ci_comments_the_preview_on_the_pull_request(
    folder: Path, tmp_path: Path
) -> None:
    [job] = example("docs/preview.md", lambda it: isinstance(it, dict) and "jobs" in it)[
        "jobs"
    ].values()
    [step] = [it for it in job["steps"] if "run" in it]
    origin, clone, programs = tmp_path / "origin", tmp_path / "clone", tmp_path / "programs"
    programs.mkdir()
    for replicas, words in (
        (2, f"init -q -b main {origin}"),
        (3, f"-C {origin} switch -qc change"),
    ):
        run(["git", *words.split()])
        (origin / "values.yaml").write_text(
            yaml.safe_dump({"nodesets": {"cpu": {"replicas": replicas}}})
        )
        run(["git", "-C", origin, "add", "values.yaml"])
        author = ["-c", "user.name=ada", "-c", "user.email=ada@example.com"]
        run(["git", "-C", origin, *author, "commit", "-qm", f"{replicas} workers"])
    run(["git", "clone", "-q", "-b", "change", origin, clone])
    # In place of what is asked over the network: the release, the chart, and the comment.
    archive = postrender.archive(folder, tmp_path)
    stand_in(programs / "curl", f'case "$*" in *{archive.name}) cp {archive} .;; *) exit 22;; esac')
    chart = "oci://ghcr.io/OWNER/charts/slurm"
    local = (
        f'for word; do shift; [ "$word" = {chart} ] && word={ROOT}/charts/slurm; set -- "$@" '
        '"$word"; done'
    )
    stand_in(programs / "helm", f'{local}\nexec {tool("helm")} "$@"')
    comments = f'if [ "$1" = pr ]; then cat "$5" > {tmp_path}/comment; fi'
    stand_in(programs / "gh", f'echo "$GH_TOKEN $*" >> {tmp_path}/called; {comments}')
    assert step["env"] == {
        "GH_TOKEN": "${{ github.token }}",
        "NUMBER": "${{ github.event.number }}",
    }
    environment = {
        "GITHUB_BASE_REF": "main",
        "GH_TOKEN": "token",
        "NUMBER": "17",
        "HOME": str(tmp_path),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    (tmp_path / "step.sh").write_text(step["run"])
    run(["bash", "-e", tmp_path / "step.sh"], env=environment, cwd=clone, seconds=60)
    assert (tmp_path / "called").read_text().splitlines() == [
        f"token attestation verify {archive.name} --repo OWNER/REPOSITORY",
        "token pr comment 17 --body-file preview.md",
    ]
    comment = (tmp_path / "comment").read_text()
    assert comment.startswith("### Objects\n\n```text\n")
    assert "spec.replicas: 2 → 3" in comment
    assert "NodeSet slurm/slurm-worker-cpu: 1 worker is created" in comment


def test_the_step_of_ci_that_checks_writes_sarif(folder: Path, tmp_path: Path) -> None:
    steps = example(
        "docs/postrender.md",
        lambda it: isinstance(it, list) and "helm template" in it[0].get("run", ""),
    )
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "slurm-postrender").symlink_to(folder)
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "helm").symlink_to(tool("helm"))
    path = f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "values.yaml").write_text("nodesets: {cpu: {slurmd: {image: slurmd}}}\n")
    for step in steps:
        if "run" in step:
            run(
                ["bash", "-e", "-c", step["run"]],
                env={"PATH": path, "HOME": str(tmp_path)},
                cwd=tmp_path,
                seconds=60,
            )
    [report] = json.loads((tmp_path / steps[-1]["with"]["sarif_file"]).read_text())["runs"]
    assert "image-tag" in {it["ruleId"] for it in report["results"]}
    assert {
        it["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for it in report["results"]
    } == {"rendered.yaml"}


@pytest.mark.parametrize("helm", sorted(HELMS))
def test_a_failure_ends_helm_and_its_reason_is_in_the_report(
    helm: str, folder: Path, tmp_path: Path
) -> None:
    config, report = tmp_path / "postrender.yaml", tmp_path / "named.txt"
    config.write_text(
        "steps:\n- labels: {set: {a: b}, select: [{kind: Nothing}], required: true}\n"
    )
    arguments = [f"--post-renderer-args={it}" for it in (config, f"--report={report}")]
    words = [
        tool(HELMS[helm]),
        "template",
        "r",
        FOLDER / "shapes",
        f"--post-renderer={renderer(helm, folder)}",
        *arguments,
    ]
    plugins = {"HELM_PLUGINS": str(folder.parent) if helm == "helm4" else ""}
    done = subprocess.run(
        [str(it) for it in words],
        env=os.environ | plugins,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    reason = "no object of the stream is selected, and `required` is true"
    assert done.returncode != 0
    assert "kind:" not in done.stdout
    assert reason in report.read_text(encoding="utf-8")
    assert (reason in done.stderr) is (helm == "helm3")


def test_a_folder_that_cannot_be_written_serves_as_well(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(folder / postrender.NAME)
    (tmp_path / "c.yaml").write_text("steps: [{labels: {set: {a: c}}}]\n")
    assert "a: c" in run(
        [link, tmp_path / "c.yaml"], stdin="kind: A\nmetadata: {name: a}\n", cwd=tmp_path
    )


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\ufffe\uffff"), max_size=20
) | st.sampled_from(
    [
        "y",
        "n",
        "on",
        "1e3",
        "0o14",
        "0x1",
        "1_0",
        "~",
        "null",
        "1:30",
        ".5",
        "+1",
        "=",
        "<<",
        "2026-11-23",
        "a: b",
        "- a",
        "a\nb\n",
        "a\n\n",
    ]
)
PLAIN = st.sampled_from(
    [
        "y",
        "On",
        "1e3",
        "0o14",
        "014",
        "09",
        "0x1F",
        "0b11",
        "1_000",
        ".5",
        "5.",
        "~",
        "1:30",
        "2026-11-23",
        "+1",
        "-0o7",
        "1.5e-3",
        "0.1",
        "yes",
        "no",
        "N",
        "off",
        "=",
        "a",
    ]
)


def parsed_by_kubectl(texts: list[str]) -> list[Any]:
    """The values under `data` of each document, as kubectl reads them without a cluster."""
    head = "---\napiVersion: example.com/v1\nkind: Shape\nmetadata: {name: n%d}\nspec:\n  data:\n"
    stream = "".join(head % number + text for number, text in enumerate(texts))
    out = run(
        [tool("kubectl"), "label", "--local", "--filename=-", "--output=json", "read=true"],
        stdin=stream,
    )
    decoder = json.JSONDecoder()
    found: list[Any] = []
    while out.strip():
        value, end = decoder.raw_decode(out := out.lstrip())
        found += value["items"] if value["kind"] == "List" else [value]
        out = out[end:]
    return [
        it["spec"]["data"] for it in sorted(found, key=lambda it: int(it["metadata"]["name"][1:]))
    ]


VALUES = st.dictionaries(
    TEXTS, TEXTS | st.lists(TEXTS | st.booleans() | st.integers(-5, 5), max_size=3), max_size=4
)


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, min_size=20, max_size=60))
def test_kubernetes_parser_reads_what_we_write(values: list[dict[str, Any]]) -> None:
    texts = [_indented(writing.document({"v": it})) for it in values]
    assert parsed_by_kubectl(texts) == [{"v": it} for it in values]


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.split("\n")[:-1])


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(st.lists(PLAIN, min_size=30, max_size=60))
def test_we_read_plain_scalars_as_kubernetes_parser_does(words: list[str]) -> None:
    found = parsed_by_kubectl([f"    v: {word}\n" for word in words])
    assert [it["v"] for it in found] == [reading.scalar(word) for word in words]
