"""Software bills of materials of the images: `tests.cluster.sbom`."""

from tests.cluster.sbom import Package, debian_packages, document, python_package

LICENCES = """\
Debian packages of this image and the licences that their copyright files
(/usr/share/doc/PACKAGE/copyright) name. 'see file' means that the file is prose.

libstdc++6 15.2.0-8: see file
util-linux 1:2.42.4-1: GPL-2+;MIT
"""
LIBSTDCXX = Package("deb", "libstdc++6", "15.2.0-8", "")
UTIL_LINUX = Package("deb", "util-linux", "1:2.42.4-1", "GPL-2+;MIT")


def test_debian_packages_are_read_with_versions_and_licences() -> None:
    assert debian_packages(LICENCES) == [LIBSTDCXX, UTIL_LINUX]


def test_a_python_package_is_read_from_its_metadata() -> None:
    headers = "Metadata-Version: 2.4\nName: prometheus_client\nVersion: 0.26.0\n"
    found = python_package(f"{headers}License-Expression: Apache-2.0 AND MIT\n\nName: text\n")
    assert found == Package("pypi", "prometheus_client", "0.26.0", "Apache-2.0 AND MIT")
    assert (
        python_package(f"{headers}License: MIT License\n        Copyright\n").licences
        == "MIT License"
    )
    assert python_package(headers).licences == ""


def test_package_urls_are_escaped_and_normalized() -> None:
    assert LIBSTDCXX.url == "pkg:deb/debian/libstdc%2B%2B6@15.2.0-8"
    assert UTIL_LINUX.url == "pkg:deb/debian/util-linux@1%3A2.42.4-1"
    assert Package("pypi", "Prometheus_Client", "1", "").url == "pkg:pypi/prometheus-client@1"


def test_the_document_describes_the_image_which_contains_each_package_once() -> None:
    found = document(
        "ghcr.io/x/y:1", "abc", [UTIL_LINUX, LIBSTDCXX, UTIL_LINUX], "2026-01-01T00:00:00Z"
    )
    assert (found["spdxVersion"], found["documentNamespace"]) == (
        "SPDX-2.3",
        "https://ghcr.io/x/y:1/abc",
    )
    assert [each["name"] for each in found["packages"]] == [
        "ghcr.io/x/y:1",
        "libstdc++6",
        "util-linux",
    ]
    identifiers = [each["SPDXID"] for each in found["packages"]]
    assert len(set(identifiers)) == 3
    relations = [tuple(each.values()) for each in found["relationships"]]
    assert relations == [
        ("SPDXRef-DOCUMENT", "DESCRIBES", identifiers[0]),
        (identifiers[0], "CONTAINS", identifiers[1]),
        (identifiers[0], "CONTAINS", identifiers[2]),
    ]
    assert "licenseComments" not in found["packages"][1]
    assert found["packages"][2]["licenseComments"] == "GPL-2+;MIT"
