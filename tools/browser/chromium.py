"""Chromium without a window, out of Debian's packages: neither it nor what it needs is installed.

apt names and fetches the packages that this machine lacks; they are unpacked into the user's cache, with a font of
their own so that screenshots are the same everywhere.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from localcluster.cache import cache_root, digest_of, make_once

PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
_PROGRAM = "usr/lib/chromium/chromium-headless-shell"
_FONTS_FILE = "fonts.conf"
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/usr/share/fonts</dir><cachedir>{folder}/fonts</cachedir></fontconfig>
"""


def unpacked() -> Path:
    """Folder with the browser, its libraries and its fonts; fetched from the host's package mirror on first use.

    Raises:
        RuntimeError: it cannot be fetched; the message has apt's words.
    """
    target = cache_root() / "chromium" / digest_of(["debian", *PACKAGES, _FONTS])

    def make(folder: Path) -> None:
        _fetch(folder)
        (folder / _FONTS_FILE).write_text(_FONTS.format(folder=target))

    return make_once(target, make)


def command(folder: Path) -> tuple[list[str], dict[str, str]]:
    """How to start it, and with which environment."""
    libraries = sorted(str(path) for at in ("", "/pulseaudio") for path in folder.glob(f"usr/lib/*-linux-gnu{at}"))
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "FONTCONFIG_FILE": str(folder / _FONTS_FILE)}
    return [str(folder / _PROGRAM)], environment


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise RuntimeError("Chromium is taken out of Debian's packages: there is no apt-get here")
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "partial").mkdir()
        apt = ["apt-get", "-q", "-y", "-oAPT::Sandbox::User=root", "-oDPkg::Lock::Timeout=300"]
        archives = [f"-oDir::Cache::archives={scratch}", "-oDebug::NoLocking=1"]
        # Of what the machine has apt fetches nothing; a font that it has is wanted all the same.
        fetch = [*apt, *archives, "install", "--download-only", "--no-install-recommends", "--reinstall", *PACKAGES]
        fetched = subprocess.run(fetch, capture_output=True, text=True, check=False)
        if fetched.returncode != 0:  # the package lists may be old or absent
            subprocess.run([*apt, "update"], capture_output=True, text=True, check=False)
            fetched = subprocess.run(fetch, capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            raise RuntimeError(f"apt-get could not download {' '.join(PACKAGES)}: {fetched.stderr.strip()}")
        for package in sorted(Path(scratch).glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
