"""What an image is made of, and when its digest changes."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from imagebuild.plan import IMAGES, RUN_PYZ, SCRIPTS, Image, context_digest, stage_sources
from recipes.table import RECIPES

REPOSITORY = Path(__file__).parents[3]
IMAGE = Image("example", "muster/example", "images/example/Dockerfile", ("operator/muster",), ("python3",))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name in (*SCRIPTS, IMAGE.dockerfile, "operator/muster/__init__.py", "operator/muster/api/base.py", "README.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def digest(repository: Path, context: Path, base: str = "base", image: Image = IMAGE) -> str:
    stage_sources(image, repository, context)
    return context_digest(image, context, base)


@pytest.mark.parametrize("changed", [*SCRIPTS, IMAGE.dockerfile, "operator/muster/api/base.py"])
def test_each_source_decides_the_digest(repository: Path, tmp_path: Path, changed: str) -> None:
    before = digest(repository, tmp_path / "before")
    (repository / changed).write_text("something else")
    assert digest(repository, tmp_path / "after") != before


def test_a_new_file_and_a_renamed_file_change_the_digest(repository: Path, tmp_path: Path) -> None:
    digests = {digest(repository, tmp_path / "0")}
    (repository / "operator/muster/new.py").write_text("")
    digests.add(digest(repository, tmp_path / "1"))
    (repository / "operator/muster/new.py").rename(repository / "operator/muster/newer.py")
    digests.add(digest(repository, tmp_path / "2"))
    assert len(digests) == 3


def test_base_and_packages_decide_the_digest(repository: Path, tmp_path: Path) -> None:
    other = Image(IMAGE.name, IMAGE.repository, IMAGE.dockerfile, IMAGE.sources, ("python3-torch",))
    digests = {
        digest(repository, tmp_path / "0"),
        digest(repository, tmp_path / "1", base="newer base"),
        digest(repository, tmp_path / "2", image=other),
    }
    assert len(digests) == 3


def test_times_modes_bytecode_and_other_files_do_not(repository: Path, tmp_path: Path) -> None:
    before = digest(repository, tmp_path / "before")
    (repository / "README.md").write_text("news")
    os.utime(repository / "operator/muster/__init__.py", (1, 1))
    (repository / "operator/muster/__init__.py").chmod(0o600)
    (repository / "operator/muster/__pycache__").mkdir()
    (repository / "operator/muster/__pycache__/base.pyc").write_text("stale")
    assert digest(repository, tmp_path / "after") == before


def test_a_missing_source_is_named(repository: Path, tmp_path: Path) -> None:
    (repository / IMAGE.dockerfile).unlink()
    with pytest.raises(FileNotFoundError, match="images/example/Dockerfile"):
        digest(repository, tmp_path / "context")


def copied_sources(dockerfile: str) -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_plan_and_dockerfile_name_the_same(image: Image) -> None:
    dockerfile = (REPOSITORY / image.dockerfile).read_text()
    packages = re.findall(r"install-packages\.sh (\S+)", dockerfile)
    if "install-wheels.sh" in dockerfile:
        packages += re.findall(
            r"^sh \S+install-packages\.sh (\S+)$", (REPOSITORY / SCRIPTS[1]).read_text(), re.MULTILINE
        )
        packages += ["python3-setuptools"] * bool(image.built)
    assert set(copied_sources(dockerfile)) == set(image.sources)
    assert all((REPOSITORY / source).exists() for source in image.sources if source != RUN_PYZ)
    assert sorted(packages) == sorted(image.packages)
    assert re.findall(r"^COPY (\S+).*\n.*install-wheels\.sh", dockerfile, re.MULTILINE) == [image.lock] * bool(
        image.lock
    )
    assert re.findall(r"dist-packages (\S+)$", dockerfile, re.MULTILINE) == list(image.built)


def test_every_recipe_has_an_image_that_holds_its_program() -> None:
    made = {image.repository.rpartition("/")[2]: image for image in IMAGES}
    for name, its in RECIPES.items():
        assert f"examples/{name}/train.py" in made[its].sources


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_images_run_as_a_numeric_user_that_is_not_root(image: Image) -> None:
    users = re.findall(r"^USER (.+)$", (REPOSITORY / image.dockerfile).read_text(), re.MULTILINE)
    assert users == ["65532:65532"]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_build_context_holds_what_the_dockerfile_reads(image: Image) -> None:
    allowed = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in (*SCRIPTS, image.dockerfile, *image.sources):
        assert any(source == entry or source.startswith(f"{entry}/") for entry in allowed), source


def image_named(name: str) -> Image:
    return next(image for image in IMAGES if image.name == name)


def imported_names(context: Path) -> set[str]:
    """What the staged files import, also within functions; of `from a import b` both a and a.b."""
    names: set[str] = set()
    for path in (context / "operator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def is_module(name: str, context: Path) -> bool:
    path = context / "operator" / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_both_images_of_the_burn_in_hold_the_same_rooms() -> None:
    folder = REPOSITORY / "images" / "burn-in"
    own = [re.findall(r"^(?:COPY|USER|CMD) .+$", path.read_text(), re.MULTILINE) for path in folder.iterdir()]
    assert len(own) == 2
    assert own[0] == own[1]


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("agent", "muster.node.agent.__main__, muster.node.agent.nvml_child"),
        ("burn-in", "muster.node.checker.__main__, muster.node.checker.probes.zygote"),
    ],
)
def test_what_runs_on_nodes_starts_from_what_its_image_holds(tmp_path: Path, name: str, modules: str) -> None:
    stage_sources(image_named(name), REPOSITORY, tmp_path)
    without_packages = [sys.executable, "-S", "-c", f"import {modules}"]
    subprocess.run(without_packages, check=True, cwd="/", env={"PYTHONPATH": str(tmp_path / "operator"), "PATH": ""})
    ours = [name for name in imported_names(tmp_path) if is_module(name, REPOSITORY)]
    assert ours
    assert [name for name in ours if not is_module(name, tmp_path)] == []


def test_the_agents_image_holds_each_wheel_that_the_agent_imports_and_no_other(tmp_path: Path) -> None:
    image = image_named("agent")
    stage_sources(image, REPOSITORY, tmp_path)
    modules = {name.partition(".")[0] for name in imported_names(tmp_path)} - sys.stdlib_module_names - {"muster"}
    distributions = packages_distributions()
    imported = {name for module in modules for name in distributions.get(module, [module])}
    locked = set(re.findall(r"^([\w.-]+)==", (REPOSITORY / image.lock).read_text(), re.MULTILINE))
    assert imported == locked
