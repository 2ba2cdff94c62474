"""The software bill of materials of an image, as SPDX 2.3 JSON: its packages, their versions and
licences.

Pure. Debian names licences in words of its own, which are no SPDX expressions, so that they are
comments.

Format: https://spdx.github.io/spdx-spec/v2.3/
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, order=True)
class Package:
    """A package of an image. `kind` is that of a package URL: `deb` or `pypi`."""

    kind: str
    name: str
    version: str
    licences: str
    """As the package names them; "" if it names none in a form that programs can read."""

    @property
    def url(self) -> str:
        """Its package URL: https://github.com/package-url/purl-spec."""
        place = "deb/debian" if self.kind == "deb" else self.kind
        name = re.sub(r"[-_.]+", "-", self.name).lower() if self.kind == "pypi" else self.name
        return f"pkg:{place}/{quote(name, safe='')}@{quote(self.version, safe='')}"


def debian_packages(licences: str) -> list[Package]:
    """The packages of an image's /usr/share/doc/IMAGE-LICENSES, which images/install.sh writes."""
    found = re.findall(r"^(\S+) (\S+): (.*)$", licences, re.MULTILINE)
    return [
        Package("deb", name, version, "" if names == "see file" else names)
        for name, version, names in found
    ]


def python_package(metadata: str) -> Package:
    """The package of a METADATA file of Python: https://packaging.python.org/en/latest/specifications/core-metadata/."""
    fields = HeaderParser().parsestr(metadata)
    licence = fields["License-Expression"] or fields["License"] or ""
    return Package("pypi", fields["Name"], fields["Version"], licence.strip().partition("\n")[0])


def document(
    reference: str, identity: str, packages: Iterable[Package], created: str
) -> dict[str, Any]:
    """The document of the image `reference`. `identity` changes with its content; `created` is in
    ISO 8601, UTC.
    """
    image = {
        "SPDXID": "SPDXRef-image",
        "name": reference,
        "versionInfo": identity,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER",
    }
    inside = [
        {
            "SPDXID": f"SPDXRef-{number}",
            "name": package.name,
            "versionInfo": package.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "NOASSERTION",
            **({"licenseComments": package.licences} if package.licences else {}),
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": package.url,
                }
            ],
        }
        for number, package in enumerate(sorted(set(packages)))
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": reference,
        "documentNamespace": f"https://{reference}/{identity}",
        "creationInfo": {"created": created, "creators": ["Tool: slurm-charts"]},
        "packages": [image, *inside],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"),
            *(_relation("SPDXRef-image", "CONTAINS", each["SPDXID"]) for each in inside),
        ],
    }


def _relation(subject: str, kind: str, other: object) -> dict[str, Any]:
    return {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": other}
