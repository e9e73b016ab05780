"""Certificates of a test cluster, made with the openssl program.

Two authorities, because they answer two questions.  "servers": is this the server that I wanted
to reach?  "coordinators": may this client use the workers?  The second signs nothing but client
certificates of coordinators, and so the workers need no passwords at all.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

DAYS = 3650
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*arguments: str | Path) -> None:
    command = ["openssl", *(str(argument) for argument in arguments)]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr}")


class Authority:
    """A certificate authority whose files are in a directory of its own."""

    def __init__(self, directory: Path, name: str):
        self.directory = directory
        self.name = name
        self.certificate = directory / f"{name}.crt"
        self._key = directory / f"{name}-authority.key"

    def create(self) -> None:
        openssl(
            "req", "-x509", *CURVE, "-keyout", self._key, "-out", self.certificate,
            "-days", str(DAYS), "-subj", f"/CN={self.name}",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        self._key.chmod(0o600)

    def issue_server(self, name: str, hosts: list[str], days: int = DAYS) -> tuple[Path, Path]:
        """Certificate and key of a server that is reached as one of these hosts."""
        return self._issue(name, "serverAuth", f"subjectAltName={','.join(hosts)}", days)

    def issue_client(self, name: str, days: int = DAYS) -> tuple[Path, Path]:
        return self._issue(name, "clientAuth", "", days)

    def _issue(self, name: str, usage: str, extension: str, days: int) -> tuple[Path, Path]:
        certificate, key = (self.directory / f"{name}.{kind}" for kind in ("crt", "key"))
        request = self.directory / f"{name}.csr"
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"extendedKeyUsage={usage}\n{extension}\n")
        openssl("req", *CURVE, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
            "-set_serial", str(secrets.randbits(64) + 1), "-days", str(days), "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        key.chmod(0o600)
        request.unlink()
        extensions.unlink()
        return certificate, key
