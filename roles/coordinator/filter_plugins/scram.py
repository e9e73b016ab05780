"""SCRAM-SHA-256 verifiers, so that no password travels to a server, or into its log.

The format is PostgreSQL's pg_authid.rolpassword:
SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>, as RFC 5802 and RFC 7677 define them.
Passwords are taken as they are; those with other characters than ASCII would need SASLprep.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

ITERATIONS = 4096


def make_verifier(password: str, salt: bytes, iterations: int) -> str:
    if not password.isascii():
        raise ValueError("a password must consist of ASCII characters")
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    keys = (hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))
    encoded = [base64.b64encode(value).decode() for value in (salt, *keys)]
    return f"SCRAM-SHA-256${iterations}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def scram_verifier(password: str) -> str:
    """A new verifier, with a salt of its own."""
    return make_verifier(password, secrets.token_bytes(16), ITERATIONS)


def scram_matches(verifier: str, password: str) -> bool:
    """Was the verifier made from this password?"""
    try:
        _, parameters, _ = verifier.split("$")
        iterations, salt = parameters.split(":")
    except ValueError:
        return False
    made = make_verifier(password, base64.b64decode(salt), int(iterations))
    return hmac.compare_digest(made, verifier)


class FilterModule:
    def filters(self) -> dict:
        return {"scram_verifier": scram_verifier, "scram_matches": scram_matches}
