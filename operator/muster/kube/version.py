"""Refuses API servers that are too old, before anything is written to them.

Tests: tests/unit/kube/test_paths_and_errors.py.
"""

import msgspec

from muster.kube.client import Client
from muster.kube.errors import ApiError

MINIMUM = (1, 33)  # since then projected tokens name the node they run on


class _Version(msgspec.Struct, rename="camel"):
    """version.Info of the API server."""

    git_version: str = ""
    major: str = ""
    minor: str = ""


class UnsupportedServerError(Exception):
    """The API server is too old for Muster; the message says which version is needed."""


async def check_server_version(client: Client) -> str:
    """Return the API server's version, e.g. v1.36.3.

    Raises:
        UnsupportedServerError: the server is older than MINIMUM.
        ApiError: the server's version cannot be read.
    """
    answer = await client.get("/version")
    try:
        version = msgspec.json.decode(answer, type=_Version)
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"the answer to /version is no version: {error}") from error
    return require(version.git_version, version.major, version.minor)


def require(git_version: str, major: str, minor: str) -> str:
    """Return git_version if the version is new enough; providers append a "+" and more to minor."""
    digits = "".join(character for character in minor if character.isdigit())
    version = (int(major or 0), int(digits or 0))
    if version < MINIMUM:
        raise UnsupportedServerError(
            f"Muster needs Kubernetes {MINIMUM[0]}.{MINIMUM[1]} or later, this API server is "
            f"{git_version or 'unknown'}: upgrade the cluster, then start Muster again"
        )
    return git_version
