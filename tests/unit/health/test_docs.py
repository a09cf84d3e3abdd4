"""docs/node-health.md explains each value and names each source; `make generate` writes its tables."""

import re
from pathlib import Path

import pytest

from apidocs.node_health import node_health
from muster.api.fleetpolicy import SourceName
from muster.api.nodehealth import RecommendedAction, Severity, VerdictState
from muster.health.rulings import Act
from muster.health.sources import CORDONING_SOURCES

PAGE = Path(__file__).parents[3] / "docs/node-health.md"


def rows_of(heading: str) -> list[str]:
    """The rows of the first table below a heading."""
    section = re.split(r"^#+ ", PAGE.read_text().partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines, f"there is no table below {heading!r}"
    return lines[2:]


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert node_health(page) == page, "run `make generate`"


def test_a_table_gets_the_rows_of_the_code_and_the_text_around_it_stays() -> None:
    page = PAGE.read_text()
    row = next(line for line in page.splitlines(keepends=True) if line.startswith("| eks/xid |"))
    assert node_health(
        page.replace(row, "| gone/row | a | b | c |  |  |\n" + row.replace("Degraded", "Fatal"))
    ) == node_health(page)


def test_a_table_that_is_missing_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="no table below 'SXids'"):
        node_health(PAGE.read_text().replace("\n## SXids\n", "\n## Others\n"))


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("States", [state.value for state in VerdictState]),
        ("Severities", [severity.value for severity in Severity]),
        ("What to do", [action.value for action in RecommendedAction]),
        ("Rulings", [act.value for act in Act]),
    ],
)
def test_each_value_is_explained_and_no_other(heading: str, words: list[str]) -> None:
    assert [row.split("|")[1].strip() for row in rows_of(heading)] == words


def test_every_source_is_named() -> None:
    text = PAGE.read_text()
    assert [name for name in SourceName if f"`{name.value}`" not in text] == [], "name it in the text under Sources"


def test_the_sources_that_cordon_are_named() -> None:
    _, _, text = PAGE.read_text().partition("its source is one that cordons (")
    assert set(re.findall(r"`([^`]+)`", text.partition(")")[0])) == {str(name) for name in CORDONING_SOURCES}
