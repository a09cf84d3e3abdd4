"""The pages in docs/: links lead somewhere, the README leads to every page, architecture.md names every room.

Figures on one page are those of the page or file that they come from.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from localcluster.build import API_SERVERS, extra_version

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@cache
def text_of(page: Path) -> str:
    """A page without its code, whose brackets are no links."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them; a heading that comes again has a number."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return frozenset(found)


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(text_of(page)) if "://" not in link and not link.startswith("mailto:")]


def target(page: Path, link: str) -> Path:
    name = link.partition("#")[0]
    return (page.parent / name).resolve() if name else page


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        there, anchor = target(page, link), link.partition("#")[2]
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            lost.append(link)
    assert lost == []


def test_the_readme_leads_to_every_page_of_docs() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in reached and page.is_file() and page.suffix == ".md":
            reached.add(page)
            todo += [target(page, link) for link in links(page)]
    assert sorted(str(page) for page in pages() if page.is_relative_to(ROOT / "docs") and page not in reached) == []


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "operator" / "muster").glob("*/__init__.py")} - {"node"}
    rooms |= {f"node/{path.parent.name}" for path in (ROOT / "operator" / "muster" / "node").glob("*/__init__.py")}
    table = text.partition("| room |")[2].partition("\n\n")[0]
    assert len(rooms) > 20
    assert sorted(room for room in rooms if f"`{room}`" not in table) == []


def test_the_readme_says_how_long_recoveries_took_as_the_benchmarks_do() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text().partition("## Frameworks as they are")[2].partition("\n## ")[0]
    rows = re.findall(r"\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 7
    spans = [f"{min(column, key=float)} to {max(column, key=float)} s" for column in zip(*rows, strict=True)]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert [span for span in spans if span not in text] == []


def test_the_versions_of_kubernetes_are_those_that_tests_run_on() -> None:
    others = [extra_version(server).removeprefix("v") for server in API_SERVERS.values()]
    built = (ROOT / "tools" / "localcluster" / "go" / "cluster" / "go.mod").read_text()
    (version,) = re.findall(r"^\s+k8s\.io/kubernetes v([\d.]+)$", built, re.MULTILINE)
    page = (ROOT / "docs" / "versions.md").read_text()
    assert f"| {version} | everything" in page
    assert f"| {', '.join(others)} | the API server alone of each" in page
    limits = (ROOT / "docs" / "known-limits.md").read_text()
    assert f"are tested, {version}. Of {' and '.join(others)} the API server is." in limits


def test_each_known_limit_leads_to_its_page() -> None:
    page = ROOT / "docs" / "known-limits.md"
    rows = [row.strip("|").split(" | ") for row in page.read_text().splitlines() if re.match(r"\| [^|-]", row)]
    limits = [row for row in rows if row[0].strip() != "limit"]
    assert len(limits) > 20
    assert [row[0] for row in limits if len(row) != 3 or not all(map(str.strip, row)) or not LINK.search(row[2])] == []
