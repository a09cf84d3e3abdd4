"""The table of docs/metrics.md, from what the code registers.

python -m monitoring.page            writes the table
python -m monitoring.page --check    writes nothing; exit status 1 if it is not what the code says
"""

import importlib
import pkgutil
import re
import sys
from pathlib import Path

from prometheus_client import REGISTRY

import muster.controller
import muster.coordinator
import muster.kube
import muster.page

PAGE = Path("docs/metrics.md")
_ROOT = Path(__file__).resolve().parents[2]
_TABLE = re.compile(r"(?<=\n\| metric \| type \| labels \| help \|\n\|---\|---\|---\|---\|\n)(\|.*\n)+")


def registered() -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Name as scraped -> type, labels, help, of every metric of the operator's and of the page's, in the order in which
    they are defined."""
    for room in (muster.controller, muster.coordinator, muster.kube, muster.page):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not module.name.endswith(".__main__"):  # that would run it
                importlib.import_module(module.name)
    found = {}
    for collector in list(REGISTRY._collector_to_names):  # noqa: SLF001 - the library has no other list
        describe = getattr(collector, "describe", None)
        for family in describe() if describe else ():
            if family.name.startswith("muster_"):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                # A metric made by the library keeps its labels itself, one that is made when it is asked for in the
                # family.
                labels = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
                found[name] = (family.type, tuple(labels), family.documentation)
    return found


def rendered(page: str) -> str:
    """The page with the table as it has to be.

    Raises:
        ValueError: there is no table in it.
    """
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)}{' ' if labels else ''}| {text} |\n"
        for name, (kind, labels, text) in sorted(registered().items())
    ]
    page, places = _TABLE.subn(lambda _: "".join(rows), page)
    if places != 1:
        raise ValueError(f"{PAGE} has {places} tables of metrics")
    return page


def main() -> int:
    """Write the page, or with --check compare it."""
    path = _ROOT / PAGE
    before = path.read_text(encoding="utf-8")
    after = rendered(before)
    if "--check" in sys.argv[1:]:
        if before != after:
            print(f"{PAGE} is not what the code says: run `make generate`", file=sys.stderr)
        return int(before != after)
    if before != after:
        path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
