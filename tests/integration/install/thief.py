"""A thief: a real token, and no kubectl to hold it back."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MERGE, APPLY, JSON_PATCH = (
    "application/merge-patch+json",
    "application/apply-patch+yaml",
    "application/json-patch+json",
)


@dataclass(frozen=True)
class Thief:
    """What a stolen token is good for, request by request."""

    server: str
    ca_file: Path
    token: str

    @classmethod
    def of(cls, installation: Any, account: str, namespace: str) -> "Thief":
        """With a token of a service account, as TokenRequest gives it."""
        token = installation.token(account, namespace)
        return cls(installation.control_plane.server, installation.control_plane.pki.ca, token)

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, str]:
        """Status and message of the answer."""
        request = urllib.request.Request(
            f"{self.server}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, str(json.load(error)["message"])
