"""Certificates for tests, made by the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tundish.loader.service.connections.credentials import TlsFiles

EXTENSIONS = """[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[member]
basicConstraints = critical,CA:FALSE
"""


class Authority:
    """An authority that signs certificates, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("certificates are made by the openssl program")
        folder.mkdir(parents=True)
        self.folder = folder
        (folder / "extensions").write_text(EXTENSIONS, encoding="ascii")
        self._request("authority")
        own = ["-signkey", "authority.key", "-extensions", "authority"]
        self._openssl("x509", "-req", "-in", "authority.csr", *own, "-out", "authority.pem")

    def member(self, name: str, *, days: int = 365) -> TlsFiles:
        """Sign a certificate."""
        self._request(name)
        signed = ["-CA", "authority.pem", "-CAkey", "authority.key", "-extensions", "member"]
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem", days=days
        )
        paths = [self.folder / each for each in (f"{name}.pem", f"{name}.key", "authority.pem")]
        return TlsFiles(*map(str, paths))

    def _request(self, name: str) -> None:
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        self._run("req", "-new", *kind, *files, "-subj", f"/CN={name}")

    def _openssl(self, *arguments: str, days: int = 365) -> None:
        self._run(*arguments, "-extfile", "extensions", "-days", str(days))

    def _run(self, *arguments: str) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
