"""`python -m release --version 1.2.3`: make build/release anew, from which Muster is installed.

It is written beside that folder and takes its place at the end: a failure or a crash leaves the old one. Equal commits
give equal bytes where the downloads are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from chart.charts import write_charts
from chart.variants import ChartError
from gate.kept import clean_commit
from imagebuild.report import BuildError, Step, say
from localcluster.errors import LocalClusterError
from release.checks import (
    ReleaseError,
    changelog_section,
    git,
    require_commit,
    require_free_tag,
    require_registry,
    require_version,
)
from release.images import NO_REGISTRY, SHIPPED, ReleasedImage, mirror_list, write_archive
from release.output import replacing
from release.packages import write_packages
from release.pages import write_pages
from release.rendering import write_manifests
from supply import SupplyError, debian, sbom, sources
from supply.contents import read_image
from supply.sign import require_usable, sign_folder

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "release"
_FAILURES = (ReleaseError, BuildError, ChartError, LocalClusterError, SupplyError)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        require_version(options.version)
        require_registry(options.registry)
        notes = changelog_section((ROOT / "CHANGELOG.md").read_text(), options.version)
        commit = require_commit(clean_commit())
        require_free_tag(ROOT, options.version, commit)
        if options.key is not None:
            require_usable(options.key)
        with replacing(OUTPUT) as folder:
            fill(folder, options.version, options.registry, notes, commit, with_sources=bool(options.sources))
            with Step("signatures"):
                sign_folder(folder, options.key)
    except (*_FAILURES, OSError, subprocess.CalledProcessError) as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    say(f"{OUTPUT} is Muster {options.version} of commit {commit[:12]}. To tag it:")
    print(f'git tag --annotate v{options.version} --message "Muster {options.version}" {commit}')
    return 0


def fill(folder: Path, version: str, registry: str, notes: str, commit: str, *, with_sources: bool) -> None:
    """Write everything but the signatures into the empty folder."""
    commit_seconds = int(git(ROOT, "show", "--no-patch", "--format=%ct", commit))
    with Step("the lock of Debian packages"):
        debian.check(SHIPPED)
    images = write_images(folder, version, registry)
    with Step("manifests"):
        write_manifests(folder, version, images)
        write_charts(folder, version, {name: f"{it.repository}@{it.digest}" for name, it in images.items()})
    write_packages(ROOT, folder, version, commit_seconds)
    write_contents(folder, version, commit_seconds, with_sources=with_sources)
    write_pages(ROOT, folder)
    (folder / "CHANGELOG.md").write_text(notes)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    (folder / "SHA256SUMS").write_text(checksums(folder))


def write_images(folder: Path, version: str, registry: str) -> dict[str, ReleasedImage]:
    """Build the images, and write their archives and the list of them."""
    command = [sys.executable, "-m", "imagebuild", *(f"--only={name}" for name in SHIPPED)]
    subprocess.run(command, cwd=ROOT, check=True)
    built = json.loads((ROOT / "build/images/images.json").read_text())
    (folder / "images").mkdir()
    images = {}
    for name in SHIPPED:
        archive = folder / "images" / f"muster-{name}.tar"
        images[name] = write_archive(Path(built[name]["archive"]), archive, f"{registry}/{name}", version)
    (folder / "images.txt").write_text(mirror_list(images))
    return images


def write_contents(folder: Path, version: str, commit_seconds: int, *, with_sources: bool) -> None:
    """Write what the images hold: an SBOM of each, and the sources that their licences ask to offer."""
    (folder / "sbom").mkdir()
    with Step("SBOMs and sources"):
        images = {name: read_image(folder / "images" / f"muster-{name}.tar") for name in SHIPPED}
        for name, contents in images.items():
            path = folder / "sbom" / f"muster-{name}.spdx.json"
            sbom.write(contents, f"muster-{name}", version, commit_seconds, path)
        sources.write(images, folder / "sources", with_files=with_sources)


def checksums(folder: Path) -> str:
    """Return SHA256SUMS: every file of the folder, as sha256sum --check reads it."""
    lines = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines.append(f"{digest}  {path.relative_to(folder).as_posix()}\n")
    return "".join(lines)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="release", description="Make build/release.")
    parser.add_argument("--version", required=True, help="a semantic version, that of operator/muster/__init__.py")
    parser.add_argument(
        "--registry", default=NO_REGISTRY, help="in front of the images' names, e.g. registry.example.org/muster"
    )
    parser.add_argument("--key", type=Path, help="cosign's private key; without one a throw-away key signs")
    parser.add_argument(
        "--sources", type=int, choices=(0, 1), default=0, help="1: fetch the sources of copyleft packages, too"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
