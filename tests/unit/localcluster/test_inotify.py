"""Room for what every kubelet opens, and the machine as it was when the last cluster is down."""

import ctypes
import os
from pathlib import Path

import pytest

from localcluster import inotify


@pytest.fixture
def setting(tmp_path: Path) -> Path:
    path = tmp_path / "max_user_instances"
    path.write_text("128\n")
    return path


def test_the_limit_is_raised_once_and_set_back(setting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify, "in_use", lambda: 40)
    said: list[str] = []
    for nodes in (4, 8):
        inotify.make_room(nodes, said.append, setting, tmp_path / "note")
    assert setting.read_text().strip() == "1024"
    assert said == ["fs.inotify.max_user_instances raised from 128 to 1024 until the last cluster is down"]
    inotify.give_back(setting, tmp_path / "note")
    inotify.give_back(setting, tmp_path / "note")
    assert setting.read_text().strip() == "128"


def test_where_there_is_room_nothing_is_changed(setting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify, "in_use", lambda: 10)
    inotify.make_room(4, pytest.fail, setting, tmp_path / "note")
    inotify.give_back(setting, tmp_path / "note")
    assert setting.read_text() == "128\n"


def test_what_somebody_has_set_since_stays(setting: Path, tmp_path: Path) -> None:
    inotify.make_room(64, lambda _: None, setting, tmp_path / "note")
    setting.write_text("4096\n")
    inotify.give_back(setting, tmp_path / "note")
    assert setting.read_text() == "4096\n"


def test_one_that_cannot_be_raised_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed(type(tmp_path)):  # type: ignore[misc]
        def write_text(self, *_: object) -> int:
            raise PermissionError(13, "Permission denied")

    path = Fixed(tmp_path / "limit")
    Path(path).write_text("128\n")
    monkeypatch.setattr(inotify, "in_use", lambda: 100)
    said: list[str] = []
    inotify.make_room(8, said.append, path, tmp_path / "note")
    assert "sysctl -w fs.inotify.max_user_instances=1024" in said[0]
    assert not (tmp_path / "note").exists()


def test_instances_are_counted() -> None:
    mine = Path("/proc/self")
    before = inotify.instances_of(mine)
    descriptor = ctypes.CDLL(None).inotify_init()
    try:
        assert inotify.instances_of(mine) == before + 1
        assert inotify.in_use() > before
    finally:
        os.close(descriptor)
