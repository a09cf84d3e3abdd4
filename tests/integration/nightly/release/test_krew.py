"""krew's own validator reads the manifest of the plugin."""

import subprocess
from pathlib import Path

from localcluster.build import KREW, extra
from release.packages import KREW_NAME, PLATFORMS, krew_manifest


def test_krew_takes_the_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / KREW_NAME
    manifest.write_text(krew_manifest("1.0.0-rc1", dict.fromkeys(PLATFORMS, "0" * 64)))
    command = [str(extra(KREW) / "validate-krew-manifest"), "-manifest", str(manifest), "-skip-install"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifest.write_text(manifest.read_text().replace("sha256: ", "sha512: "))
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
