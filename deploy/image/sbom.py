"""Write the bill of materials of the Python it runs in, and of the Debian packages around, as CycloneDX 1.5.

usage: python sbom.py > sbom.cdx.json
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

DPKG = Path("/var/lib/dpkg/status")
NAME = "amdgpu-exporter"


def main() -> int:
    found = {_key(d): d for d in metadata.distributions()}
    if NAME not in found:
        sys.stderr.write(f"sbom: {NAME} is not installed in {sys.prefix}\n")
        return 1
    parts = [_python(d) for name, d in sorted(found.items()) if name != NAME]
    debian = _debian(DPKG.read_text(encoding="utf-8")) if DPKG.exists() else []
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**_python(found[NAME]), "type": "application"}},
        "components": [*parts, *debian],
        "dependencies": [_needs(d, found) for _, d in sorted(found.items())],
    }
    json.dump(bill, sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")
    return 0


def _key(distribution: metadata.Distribution) -> str:
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()


def _purl(distribution: metadata.Distribution) -> str:
    return f"pkg:pypi/{_key(distribution)}@{quote(distribution.version, safe='')}"


def _python(distribution: metadata.Distribution) -> dict[str, Any]:
    told = distribution.metadata
    part: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(distribution),
        "name": _key(distribution),
        "version": distribution.version,
        "purl": _purl(distribution),
    }
    # A field that holds the whole text of a licence is no name of one.
    named = told.get("License-Expression") or told.get("License") or ""
    if named and "\n" not in named and len(named) < 100:
        part["licenses"] = [{"license": {"name": named}}]
    return part


def _needs(distribution: metadata.Distribution, found: dict[str, metadata.Distribution]) -> dict[str, Any]:
    """What of the things found it asks for; what an extra or another platform would want is not here."""
    wanted = {
        re.sub(r"[-_.]+", "-", m[0]).lower()
        for r in distribution.requires or ()
        if (m := re.match(r"[A-Za-z0-9._-]+", r))
    }
    return {"ref": _purl(distribution), "dependsOn": sorted(_purl(found[w]) for w in wanted if w in found)}


def _debian(status: str) -> list[dict[str, Any]]:
    parts = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status|Architecture): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") != "install ok installed":
            continue
        version = quote(fields["Version"], safe="")
        purl = f"pkg:deb/debian/{fields['Package']}@{version}?arch={fields['Architecture']}"
        parts.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": fields["Package"],
                "version": fields["Version"],
                "purl": purl,
            }
        )
    return parts


if __name__ == "__main__":
    sys.exit(main())
