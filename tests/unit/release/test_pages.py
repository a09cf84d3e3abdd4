"""Who has the folder of a release has the pages that messages name, and what these lead to."""

import re
from pathlib import Path

import pytest
from tests.unit.test_docs import links, target

from release.pages import write_pages

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"\bdocs/[\w./-]+\.md")
OF_OTHERS = {"docs/checkpoint.md"}  # TorchTitan's


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    it = tmp_path_factory.mktemp("release")
    write_pages(ROOT, it)
    for name in ("CHANGELOG.md", "LICENSE"):  # which a release has of its own
        (it / name).write_text("")
    return it


def test_every_page_that_the_code_names_is_there(folder: Path) -> None:
    code = "".join(path.read_text() for path in (ROOT / "operator").rglob("*.py"))
    named = set(NAMED.findall(code))
    assert "docs/install.md" in named
    assert {name for name in named if not (folder / name).is_file()} == OF_OTHERS


def test_links_of_the_pages_lead_somewhere(folder: Path) -> None:
    lost = [
        (path.name, link)
        for path in folder.rglob("*.md")
        for link in links(path)
        if not target(path, link).exists() and not target(path, link).is_relative_to(folder / "operator")
    ]
    assert lost == []


def test_pages_are_those_of_the_repository_and_nothing_else(folder: Path) -> None:
    assert (folder / "docs/install.md").read_text() == (ROOT / "docs/install.md").read_text()
    assert (folder / "docs/images/page-job.png").is_file()
    assert (folder / "examples/repair/hook.sh").stat().st_mode & 0o100
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "docs", "examples", "manifests"]
    )
