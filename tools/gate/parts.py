"""The parts of `make test-all`: everything there is, in pieces of at most half an hour.

The gate's own stages come first; the rest is what the folders named `nightly` hold (docs/testing.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from localcluster.build import API_SERVERS


@dataclass(frozen=True)
class Part:
    """One piece.

    Attributes:
        name: as PART= and the results name it.
        target: of the Makefile, for a stage of the gate; else `tests` are run by pytest.
        tests: files and folders.
        workers: processes of pytest side by side; 1 runs it alone.
        nodes: of the local cluster that it needs; 0 for none. The cluster is brought up for it and taken down after it.
        pytest: further arguments.
        draws: it draws its inputs anew: a seed is chosen and kept with the result.
        api_server: the Kubernetes version of its API servers; "": that of everything else.
    """

    name: str
    target: str = ""
    tests: tuple[str, ...] = ()
    workers: int = 1
    nodes: int = 0
    pytest: tuple[str, ...] = ()
    draws: bool = False
    api_server: str = ""

    @property
    def has_tests(self) -> bool:
        return bool(self.tests) or self.target.startswith("test-")

    @property
    def is_unit(self) -> bool:
        return all(test.startswith("tests/unit") for test in self.tests)

    def make(self) -> list[str]:
        """The command of a stage of the gate."""
        return ["make", "--no-print-directory", self.target]


def _nightly(level: str, *tests: str) -> tuple[str, ...]:
    return tuple(f"tests/{level}/nightly/{test}" for test in tests)


_SPREAD = ("--dist", "worksteal")
_BY_FILE = ("--dist", "loadfile")

# What the definitions, the admission policies and the operator ask of an API server.
_KUBERNETES = (
    *(f"tests/integration/api/test_{name}.py" for name in ("accepted", "refused", "training_admission")),
    *(f"tests/integration/install/test_{name}.py" for name in ("admission", "agent_rights", "older_definitions")),
    *(f"tests/integration/controller/test_{name}.py" for name in ("core", "scenarios")),
    "tests/integration/kube",
)

PARTS = (
    Part("lint", target="lint"),
    Part("verify", target="verify"),
    Part("unit", target="test-unit"),
    Part("integration", target="test-integration"),
    Part("e2e", target="test-e2e"),
    Part("unit-defects", tests=_nightly("unit", "simulate/test_lives.py"), workers=2, pytest=_SPREAD),
    Part(
        "unit-lives",
        tests=_nightly(
            "unit",
            *(
                f"simulate/test_{name}.py"
                for name in ("accounts", "fleets", "new_lives", "observe", "shown_by", "starts")
            ),
        ),
        workers=2,
        pytest=_SPREAD,
        draws=True,
    ),
    Part("unit-fuzz", tests=_nightly("unit", "fuzz"), workers=2, pytest=_SPREAD, draws=True),
    Part("unit-what-if", tests=_nightly("unit", "whatif"), workers=2, pytest=_SPREAD),
    Part(
        "unit-streams",
        tests=_nightly("unit", "burnin", "decision", "lifecycle", "queueing", "skew", "status"),
        workers=2,
        pytest=_SPREAD,
        draws=True,
    ),
    Part(
        "unit-large",
        tests=_nightly("unit", *("bench", "cli", "controller", "goodput", "health", "page", "placement", "world")),
        workers=2,
        pytest=_SPREAD,
        draws=True,
    ),
    Part(
        "unit-swept",
        tests=_nightly(
            "unit",
            *("agent", "checkpoint", "convert", "coordinator", "kube", "launcher", "preflight", "protocol"),
        ),
        workers=2,
        pytest=_SPREAD,
        draws=True,
    ),
    Part(
        "unit-drawn",
        tests=("tests/unit",),
        workers=2,
        pytest=("-m", "hypothesis", "--ignore=tests/unit/nightly", *_SPREAD),
        draws=True,
    ),
    Part(
        "integration-crash-points",
        tests=_nightly("integration", "controller/test_crash_points.py", "controller/test_health_crash_points.py"),
        workers=4,
        pytest=_BY_FILE,
    ),
    Part(
        "integration-controller",
        tests=_nightly(
            "integration",
            *(f"controller/test_{name}.py" for name in ("coexistence", "cost", "dashboards", "health", "history")),
            *(f"controller/test_{name}.py" for name in ("maintenance", "node_condition", "observe", "queueing")),
            *(f"controller/test_{name}.py" for name in ("repairs", "scenarios")),
            "test_bench_launchers.py",
        ),
        workers=2,
        pytest=_BY_FILE,
    ),
    Part("integration-install", tests=_nightly("integration", "cli", "install", "release"), workers=2, pytest=_BY_FILE),
    Part(
        "integration-parts",
        tests=_nightly("integration", "agent", "checkpoint", "preflight_probes", "test_jobset.py", "test_kwok.py"),
        workers=2,
        pytest=_BY_FILE,
    ),
    *(
        Part(f"integration-kubernetes-{minor}", tests=_KUBERNETES, workers=2, pytest=_BY_FILE, api_server=minor)
        for minor in API_SERVERS
    ),
    Part("integration-supply", tests=_nightly("integration", "supply")),
    Part("e2e-localcluster", tests=_nightly("e2e", "test_localcluster.py")),
    Part("e2e-faults", tests=_nightly("e2e", "test_faults.py"), nodes=4),
    Part(
        "e2e-jobs",
        tests=_nightly(
            "e2e",
            *("test_account.py", "test_apart.py", "test_backfill.py", "test_ejecting.py", "test_holding.py"),
            *("test_jobs.py", "test_leaving.py", "test_outranked.py", "test_placement.py", "test_pods_as_they_come.py"),
            *("test_preempted.py", "test_trainer_hash.py"),
        ),
        nodes=4,
    ),
    Part("e2e-health", tests=_nightly("e2e", "test_health.py"), nodes=4),
    Part("e2e-burn-in", tests=_nightly("e2e", "test_burn_in.py", "test_corruption.py"), nodes=4),
    Part("e2e-random", tests=_nightly("e2e", "test_attack.py"), nodes=4, draws=True),
    Part("e2e-soak", tests=_nightly("e2e", "test_soak.py"), nodes=4, draws=True),
    Part("e2e-eight", tests=_nightly("e2e", "test_cut_off.py", "test_existing.py", "test_upgrade.py"), nodes=8),
    Part("e2e-release", tests=_nightly("e2e", "release"), nodes=4),
    Part("e2e-recipes", tests=_nightly("e2e", "test_recipes.py"), nodes=8),
)
