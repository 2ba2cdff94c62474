"""Images of other registries, and pinned ones."""

from pathlib import Path
from typing import Any

import pytest

from postrender.errors import PostrenderError
from postrender.report import Run
from tests.support.streams import applied, objects, stream

A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


def pod(*images: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"image": image} for image in images]},
    }


def images(*given: str, run: Run | None = None, **settings: Any) -> list[str]:
    (found,) = objects(applied(stream(pod(*given)), {"images": settings}, run=run))
    return [container["image"] for container in found["spec"]["containers"]]


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("registry.invalid/slurm-charts/slurmd:26.05", "registry.site:5000/slurm/slurmd:26.05"),
        ("ghcr.io/other/x:1", "mirror.site/ghcr/other/x:1"),
        ("ghcr.io.evil/x:1", "ghcr.io.evil/x:1"),
        ("nginx", "mirror.site/hub/library/nginx:latest"),
        ("bitnami/redis:7", "mirror.site/hub/bitnami/redis:7"),
        (f"docker.io/library/nginx@{A}", f"mirror.site/hub/library/nginx@{A}"),
        ("quay.io/x/y:1", "quay.io/x/y:1"),
    ],
)
def test_the_longest_prefix_is_replaced_and_a_second_run_changes_nothing(
    image: str, want: str
) -> None:
    rewrite = {
        "ghcr.io": "mirror.site/ghcr",
        "registry.invalid/slurm-charts": "registry.site:5000/slurm/",
        "docker.io": "mirror.site/hub",
    }
    assert images(image, rewrite=rewrite) == [want]
    assert images(want, rewrite=rewrite) == [want]


def test_a_mirror_below_the_same_registry_is_not_moved_again() -> None:
    rewrite = {"ghcr.io": "ghcr.io/mirror"}
    assert images("ghcr.io/x/y:1", rewrite=rewrite) == ["ghcr.io/mirror/x/y:1"]
    assert images("ghcr.io/mirror/x/y:1", rewrite=rewrite) == ["ghcr.io/mirror/x/y:1"]


def test_images_get_the_digest_of_the_lock_by_their_name_before_or_after_the_move(
    tmp_path: Path,
) -> None:
    (tmp_path / "lock.yaml").write_text(
        f"images:\n  ghcr.io/x/a:1: {A}\n  site/x/b:2: {B}\n  nginx: {A}\n"
    )
    run = Run(folder=tmp_path)
    rewrite = {"ghcr.io": "site"}
    found = images(
        "ghcr.io/x/a:1",
        "ghcr.io/x/b:2",
        "docker.io/library/nginx:latest",
        lock="lock.yaml",
        rewrite=rewrite,
        run=run,
    )
    assert found == [f"site/x/a:1@{A}", f"site/x/b:2@{B}", f"docker.io/library/nginx:latest@{A}"]
    assert images(*found, lock="lock.yaml", rewrite=rewrite, run=run) == found


def test_an_image_that_the_lock_lacks_is_an_error_or_what_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "lock.yaml").write_text(f"images: {{a:1: '{A}'}}\n")
    run = Run(folder=tmp_path)
    with pytest.raises(PostrenderError, match="images: 1 error"):
        images("b:1", lock="lock.yaml", run=run)
    assert "line 8, Pod p: the image b:1 isn't in lock.yaml: add" in str(run.findings[0])
    run = Run(folder=tmp_path)
    assert images("b:1", lock="lock.yaml", unlocked="warning", run=run) == ["b:1"]
    assert images("c:1", lock="lock.yaml", unlocked="ignore", run=run) == ["c:1"]
    assert [it.message.split(":")[0] for it in run.findings] == ["the image b"]


def test_environment_variables_that_are_an_image_are_moved_and_others_stay() -> None:
    env = [
        {"name": "IMAGE", "value": "ghcr.io/x/sidecars:0.1"},
        {"name": "REGISTRY", "value": "ghcr.io/x"},
        {"name": "N", "value": "1"},
    ]
    given = {
        "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": [{"image": "ghcr.io/x/a:1", "env": env}]}}},
    }
    (found,) = objects(applied(stream(given), {"images": {"rewrite": {"ghcr.io": "site"}}}))
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "site/x/a:1"
    assert [it["value"] for it in container["env"]] == ["site/x/sidecars:0.1", "ghcr.io/x", "1"]


def test_a_variable_that_is_no_image_is_not_taken_for_one_of_docker_io() -> None:
    values = ["db:3306", "user:hunter2", "docker.io/x/a:1"]
    env = [{"name": f"V{number}", "value": value} for number, value in enumerate(values)]
    given = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "env": env}]},
    }
    (found,) = objects(applied(stream(given), {"images": {"rewrite": {"docker.io": "site/hub"}}}))
    assert [it["value"] for it in found["spec"]["containers"][0]["env"]] == [
        *values[:2],
        "site/hub/x/a:1",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n", "needs a mapping `images`"),
        ("images: {a:1: sha256:0}\n", "'sha256:0' is no sha256"),
        ("images: [\n", "can't be read: line 1"),
        (None, "can't be read: No such file"),
    ],
)
def test_a_lock_that_is_none_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "lock.yaml").write_text(text)
    with pytest.raises(PostrenderError, match=message):
        images("a:1", lock="lock.yaml", run=Run(folder=tmp_path))
