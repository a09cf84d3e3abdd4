"""Runs recipes: `make recipes`, or `make recipes RECIPES="lightning jax-orbax"`. KEEP=1 keeps what it started.

CLUSTER=existing uses the cluster in KUBECONFIG, with images below IMAGE_PREFIX, and cuts no node's power.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from demo.stage import cluster
from demo.story import Story
from recipes.play import NAMESPACE, play, prepare
from recipes.table import FRAMEWORKS, RECIPES
from testbed.bed import ROOT
from testbed.harm import FAULTS

OPTIONAL = ROOT / "build" / "images" / "optional.json"
REPORT = ROOT / "build" / "recipes" / "report.json"


def main() -> int:
    """0 only where each recipe has survived every fault, and ends with the weights of an undisturbed run."""
    parser = argparse.ArgumentParser(prog="recipes", description="Run examples with faults.")
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=list(RECIPES), metavar="NAME")
    names: list[str] = parser.parse_args().recipes
    REPORT.unlink(missing_ok=True)  # a run that fails must not leave the report of one that did not
    story = Story()
    more = built() if any(RECIPES[name] == FRAMEWORKS for name in names) else {}
    with cluster(story, NAMESPACE, [Path(image["archive"]) for image in more.values()]) as bed:
        faults = FAULTS if bed.local else {kind: fault for kind, fault in FAULTS.items() if kind != "NodePowerCut"}
        images = {**bed.images, **{name: image["image"] for name, image in more.items()}}
        prepare(bed)
        outcomes = []
        for name in names:
            story.tell(f"kubectl apply -f examples/{name}/trainingjob.yaml")
            outcomes.append(play(bed, name, images, faults, story.detail))
            story.tell(f"{name}: {outcomes[-1].problem or 'right, weights equal'}")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps([outcome.to_json() for outcome in outcomes], indent=2) + "\n")
    wrong = [outcome.name for outcome in outcomes if outcome.problem]
    story.tell(f"{len(outcomes)} recipes, {len(wrong)} wrong: {REPORT.relative_to(ROOT)}")
    return 1 if wrong else 0


def built() -> dict[str, dict[str, str]]:
    """The image of the frameworks, which no other cluster needs, as `make images` tells of the others."""
    if os.environ.get("CLUSTER") == "existing":
        return {}
    return {FRAMEWORKS: json.loads(OPTIONAL.read_text())[FRAMEWORKS]}


if __name__ == "__main__":
    sys.exit(main())
