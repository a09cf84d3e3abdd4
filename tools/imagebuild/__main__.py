"""`python3 -m imagebuild`: build the images that changed and write `build/images/images.json` (optional ones:
optional.json).

It maps an image's name to {"image": reference, "archive": tar, "digest": of the manifest}. The reference carries a
digest of everything the image is made of, so that a pod never runs a stale one; `:dev` (see --tag) names the same image
for people. With "digest" it has a third name, REPOSITORY@DIGEST.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from imagebuild import fetch, plan, runpyz
from imagebuild.archive import FORM, pack, read_digest
from imagebuild.buildah import Buildah
from imagebuild.report import BuildError, Step, run_quietly, say
from localcluster.cache import digest_of, keep_newest, lock_of, locked, make_once

REPOSITORY = Path(__file__).parents[2]
TOOLS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "unshare": "util-linux"}
KEPT_BUILDS = 4
KEPT_STORAGES = 2


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="imagebuild", description="Build the container images.")
    names = [image.name for image in plan.IMAGES]
    parser.add_argument("--only", choices=names, action="append", default=[], help="this image alone; may be repeated")
    parser.add_argument("--also", choices=names, action="append", default=[], help="an optional one, too")
    parser.add_argument("--prefix", default=os.environ.get("IMAGE_PREFIX", "localhost/"), help="in front of every name")
    parser.add_argument("--tag", default="dev", help="tag beside the content digest")
    return parser.parse_args()


def require_tools() -> None:
    """Install what is missing where apt can do it; say what to do where it cannot."""
    if os.geteuid() != 0:
        raise BuildError(
            "building images without a container engine needs root. Run as root, or build with your engine, e.g. "
            "`docker build -f images/operator/Dockerfile .` after `python3 -m imagebuild.runpyz`"
        )
    missing = sorted(package for tool, package in TOOLS.items() if shutil.which(tool) is None)
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise BuildError(f"{', '.join(missing)} missing: install with this system's package manager")
    with Step(f"installing the Debian packages {', '.join(missing)}"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        apt = ["apt-get", "-q", "-y", "-oDPkg::Lock::Timeout=300"]
        run_quietly([*apt, "update"], env=environment)
        run_quietly([*apt, "install", "--no-install-recommends", *missing], env=environment)


def build_image(image: plan.Image, prefix: str, tag: str) -> dict[str, str]:
    """Return reference, archive and digest of an image, building it unless the cache has it."""
    with tempfile.TemporaryDirectory(prefix="muster-image-") as folder:
        context = Path(folder)
        plan.stage_sources(image, REPOSITORY, context)
        digest = plan.context_digest(image, context, fetch.base_digest(), FORM, prefix, tag)
        name = f"{prefix}{image.repository}"
        names = [f"{name}:{digest}", f"{name}:{tag}"]
        builds = fetch.images_cache() / image.name

        def make(target: Path) -> None:
            with Step(f"image: {image.name}"):
                add_downloads(image, context)
                build_archive(image, context, names, target / f"{image.name}.tar")

        build = make_once(builds / digest, make)
    os.utime(build)
    # Each change of the sources leaves an archive of a few hundred megabytes behind.
    keep_newest(builds, KEPT_BUILDS, build)
    archive = build / f"{image.name}.tar"
    say(f"{names[0]} ({archive.stat().st_size / 1e6:.0f} MB)")
    return {"image": names[0], "archive": str(archive), "digest": read_digest(archive)}


def add_downloads(image: plan.Image, context: Path) -> None:
    """Put packages and wheels into the context, and beside it in build/images for builds with another builder."""
    downloads = {f"debs/{package}": fetch.debian_packages(package) for package in image.packages}
    if image.lock:
        lock = context / image.lock
        downloads[f"wheels/{lock.stem}"] = fetch.python_wheels(lock, REPOSITORY, image.built)
    for place, source in downloads.items():
        for root in (context, REPOSITORY):
            link_folder(source, root / "build/images" / place)


def link_folder(source: Path, target: Path) -> None:
    """Replace `target` by a copy of the flat folder `source`, made of hard links where the file system allows it."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in source.iterdir():
        try:
            os.link(path, target / path.name)
        except OSError:
            shutil.copyfile(path, target / path.name)


def build_archive(image: plan.Image, context: Path, names: list[str], output: Path) -> None:
    """Build the image and write its archive."""
    base = fetch.base_root() / "base.tar"
    # buildah reuses a RUN layer when the command is the same, whatever the command reads from the mounted context.
    # All it reads besides the files copied before it comes from these two, so they choose the storage.
    scripts = [(context / script).read_bytes() for script in plan.SCRIPTS]
    storage = fetch.images_cache() / "storage" / digest_of([fetch.base_digest(), *scripts])
    kept = {path.name for path in output.parents[1].iterdir()} | {names[0].rpartition(":")[2]}
    with locked(lock_of(storage)), Buildah(storage) as buildah:
        buildah.import_base(base, fetch.BASE_IMAGE)
        buildah.build(context / image.dockerfile, context, names[0])
        with tempfile.TemporaryDirectory(dir=output.parent) as folder:
            exported = Path(folder)
            buildah.export(names[0], exported)
            pack(exported, names, output)
        buildah.remove_others(image.repository, kept)
        os.utime(storage)
    keep_newest(storage.parent, KEPT_STORAGES, storage)


def write_index(name: str, found: dict[str, dict[str, str]]) -> None:
    """Merge into a file below build/images, so that --only keeps the others."""
    path = REPOSITORY / "build/images" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else {}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps({**before, **found}, indent=2, sort_keys=True) + "\n")
    temporary.replace(path)


def main() -> int:
    options = parse_arguments()
    others = [image.name for image in plan.IMAGES if not image.optional] + options.also
    images = [image for image in plan.IMAGES if image.name in (options.only or others)]
    try:
        require_tools()
        runpyz.write_archive(REPOSITORY / "operator" / "muster", REPOSITORY / plan.RUN_PYZ)
        # Clusters load all of the first file when they start; an optional image only where it is used.
        for name, part in (("images.json", False), ("optional.json", True)):
            made = {im.name: build_image(im, options.prefix, options.tag) for im in images if im.optional == part}
            if made:
                write_index(name, made)
    except (BuildError, OSError) as error:
        print(f"imagebuild: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
