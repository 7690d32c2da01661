"""Print a bill of materials (CycloneDX 1.6, JSON) of the wheel and what it installs: `make sbom`.

It runs in an environment where the wheel is installed: versions and licences are those of the packages there.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;(.*))?")
CLASSIFIER = "License :: OSI Approved :: "


def name_of(found: Distribution) -> str:
    """Return a distribution's name as package URLs have it."""
    return re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()


def url_of(found: Distribution) -> str:
    return f"pkg:pypi/{name_of(found)}@{found.version}"


def required_by(found: Distribution) -> Iterator[str]:
    """List the names of what a distribution always needs: neither extras nor other platforms."""
    for line in found.requires or ():
        match = REQUIREMENT.match(line)
        if match is not None and not match[2]:
            yield match[1]


def licences_of(found: Distribution) -> list[dict[str, Any]]:
    """Return the licence expression, or the licences that classifiers or the licence field name."""
    metadata = found.metadata
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    classified = [
        line.removeprefix(CLASSIFIER)
        for line in metadata.get_all("Classifier") or ()
        if line.startswith(CLASSIFIER)
    ]
    short = [line for line in metadata.get_all("License") or () if line and "\n" not in line]
    return [{"license": {"name": name}} for name in short or classified]


def component(found: Distribution, kind: str = "library") -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": url_of(found),
        "name": name_of(found),
        "version": found.version,
        "licenses": licences_of(found),
        "purl": url_of(found),
    }


def closure(root: Distribution) -> dict[str, Distribution]:
    """Find what a distribution needs, directly or not, by package URL; itself first."""
    found = {url_of(root): root}
    waiting = [root]
    while waiting:
        for name in required_by(waiting.pop()):
            needed = distribution(name)
            if url_of(needed) not in found:
                found[url_of(needed)] = needed
                waiting.append(needed)
    return found


def bill(wheel: Path) -> dict[str, Any]:
    """Describe an installed wheel; the same wheel and packages give the same bytes."""
    root = distribution("tundish")
    content = hashlib.sha256(wheel.read_bytes()).hexdigest()
    parts = closure(root)
    main = {**component(root), "hashes": [{"alg": "SHA-256", "content": content}]}
    body = {
        "metadata": {"lifecycles": [{"phase": "build"}], "component": main},
        "components": [component(parts[url]) for url in sorted({*parts} - {url_of(root)})],
        "dependencies": [
            {
                "ref": url,
                "dependsOn": sorted(url_of(distribution(each)) for each in required_by(parts[url])),
            }
            for url in sorted(parts)
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        **body,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(Path(sys.argv[1])), indent=1) + "\n")
