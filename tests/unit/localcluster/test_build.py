"""Which API server a control plane runs, and of what version the other ones are."""

from pathlib import Path

import pytest

from localcluster import build
from localcluster.build import API_SERVERS, api_server, extra_version
from localcluster.errors import LocalClusterError

PROGRAMS = Path("programs")


def test_the_api_server_is_of_the_version_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "extra", lambda wanted, _: Path(wanted.program.module))
    monkeypatch.delenv("API_SERVER", raising=False)
    assert api_server(PROGRAMS) == PROGRAMS / "kube-apiserver"
    monkeypatch.setenv("API_SERVER", "1.34")
    assert api_server(PROGRAMS) == Path("kubernetes-1.34/kube-apiserver")
    monkeypatch.setenv("API_SERVER", "1.33")
    with pytest.raises(LocalClusterError, match=r"API_SERVER=1\.33: give one of 1\.34, 1\.37"):
        api_server(PROGRAMS)


@pytest.mark.parametrize("minor", API_SERVERS)
def test_an_api_server_has_the_version_of_its_module(minor: str) -> None:
    wanted = API_SERVERS[minor]
    version = extra_version(wanted)
    assert version.startswith(f"v{minor}.")
    assert wanted.program.linker_flags.count(f".gitVersion={version}") == 2
