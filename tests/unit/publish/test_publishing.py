"""What a release writes beside images and charts, and how it is signed."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from release import publishing, signing
from release.signing import Artifact
from schemas import image_digests
from sidecars.contract.project import HOME
from tests.cluster import images
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).parents[3]

IMAGE = Artifact(
    "registry.invalid/slurm-charts/slurmd",
    ("26.05", "26.05-0.1.0"),
    f"sha256:{'a' * 64}",
    (("sha256:b", "files/slurmd-amd64.spdx.json"), ("sha256:c", "files/slurmd-arm64.spdx.json")),
)
CHART = Artifact("registry.invalid/slurm-charts/charts/slurm", ("0.1.0",), f"sha256:{'d' * 64}")


def chart_images(chart: str) -> Iterable[image_digests.Image]:
    """The images of a chart's default values."""
    return image_digests.chart_images(ROOT / "charts" / chart).values()


def test_everything_is_signed_by_its_digest_and_never_by_a_tag() -> None:
    signed = [
        words[-1]
        for words in signing.commands([IMAGE, CHART], "checksums.txt")
        if words[1] == "sign"
    ]
    assert signed == [f"{IMAGE.repository}@{IMAGE.digest}", f"{CHART.repository}@{CHART.digest}"]


def test_the_images_of_all_architectures_are_signed_with_the_image() -> None:
    first = signing.commands([IMAGE], "checksums.txt")[0]
    assert first == ["cosign", "sign", "--yes", "--recursive", f"{IMAGE.repository}@{IMAGE.digest}"]


def test_each_architecture_has_its_software_bill_of_materials_attested() -> None:
    attested = [
        (words[-1], words[-2])
        for words in signing.commands([IMAGE, CHART], "c")
        if words[1] == "attest"
    ]
    assert attested == [
        (f"{IMAGE.repository}@sha256:b", "--predicate=files/slurmd-amd64.spdx.json"),
        (f"{IMAGE.repository}@sha256:c", "--predicate=files/slurmd-arm64.spdx.json"),
    ]


def test_the_checksums_of_the_files_are_signed() -> None:
    last = signing.commands([], "files/checksums.txt")[-1]
    assert last == [
        "cosign",
        "sign-blob",
        "--yes",
        "--bundle=files/checksums.txt.sigstore.json",
        "files/checksums.txt",
    ]


def test_the_subjects_of_the_provenance_are_all_artifacts_as_sha256sum_lists_them() -> None:
    assert signing.subjects([IMAGE, CHART]) == (
        f"{'d' * 64}  registry.invalid/slurm-charts/charts/slurm\n{'a' * 64}  "
        "registry.invalid/slurm-charts/slurmd\n"
    )


def test_the_list_of_images_has_a_line_per_image_with_tag_and_digest() -> None:
    assert (
        publishing.image_list([IMAGE, CHART])
        == f"registry.invalid/slurm-charts/slurmd:26.05@sha256:{'a' * 64}\n"
    )


def test_a_values_file_of_the_release_pins_all_images_of_each_chart() -> None:
    def sbom(name: str) -> tuple[tuple[str, str], ...]:
        return (("sha256:e", f"files/{name}-amd64.spdx.json"),)

    digests = {
        name: f"sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name in images.IMAGES
    }
    artifacts = [
        Artifact(f"127.0.0.1:5000/a/{name}", ("1",), digest, sbom(name))
        for name, digest in digests.items()
    ]
    found = publishing.pinned_values(ROOT, [*artifacts, CHART])
    assert set(found) == {"slurm", "slurm-operator", "slurm-exporter", "slurm-bridge"}
    for chart, text in found.items():
        expected = {
            str(image): digests[image.name.rpartition("/")[2]] for image in chart_images(chart)
        }
        assert dict(re.findall(r"repository: (\S+)\n +tag: \S+?@(\S+)", text)) == {
            image.rpartition(":")[0]: digest for image, digest in expected.items()
        }


def test_a_default_image_that_the_release_does_not_have_is_named() -> None:
    with pytest.raises(
        ClusterError, match=r"values.yaml: registry.invalid/\S+: this release has no such image"
    ):
        publishing.pinned_values(ROOT, [IMAGE, CHART])


def test_the_release_page_shows_how_to_verify_an_image_of_this_repository_and_version() -> None:
    found = publishing.verification("ghcr.io/acme", "0.2.0")
    assert "cosign verify ghcr.io/acme/sidecars:0.2.0 \\\n" in found
    (expression,) = re.findall(r"--certificate-identity-regexp '(.*)'", found)
    identity = f"{HOME}/.github/workflows/release.yaml@refs/tags/v0.2.0"
    assert re.fullmatch(expression, identity)
    assert not re.fullmatch(expression, identity.replace("github.", "githubx", 1))
    assert not re.fullmatch(expression, f"{identity}-rc")


def test_the_checksums_cover_every_file_but_themselves(tmp_path: Path) -> None:
    (tmp_path / "b.tgz").write_bytes(b"b")
    (tmp_path / "a.tgz").write_bytes(b"a")
    (tmp_path / publishing.CHECKSUMS).write_text("old")
    assert publishing.checksums(tmp_path).splitlines() == [
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}.tgz" for name in ("a", "b")
    ]


def test_an_image_has_the_tag_of_the_charts_and_one_that_no_other_release_has() -> None:
    assert publishing.image_tags("slurmd", "1.2.3") == (
        images.IMAGES["slurmd"],
        f"{images.IMAGES['slurmd']}-1.2.3",
    )
    own = images.IMAGES["sidecars"]
    assert publishing.image_tags("sidecars", own) == (own,)


def test_a_prerelease_leaves_the_tag_of_the_charts_where_it_is() -> None:
    assert publishing.image_tags("slurmd", "1.2.3-rc.1") == (
        f"{images.IMAGES['slurmd']}-1.2.3-rc.1",
    )


def test_what_was_published_is_read_back_for_the_signatures(tmp_path: Path) -> None:
    (tmp_path / publishing.ARTIFACTS).write_bytes(msgspec.json.encode([IMAGE, CHART]))
    assert publishing.published(tmp_path) == [IMAGE, CHART]


@pytest.mark.parametrize(
    ("registry", "options"), [("127.0.0.1:5000/a", ["--plain-http"]), ("ghcr.io/a", [])]
)
def test_only_a_registry_on_this_host_is_reached_without_tls(
    registry: str, options: list[str]
) -> None:
    assert publishing.plain_http(registry) == options
