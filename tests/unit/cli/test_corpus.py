"""Pieces of a bundle in the form of tests/data/reports: what is in them, and what is no more."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.reports import corpus

from muster.cli.convert import as_document
from muster.cli.corpus import MAX_CASES, OF_ANSWERS, OF_THE_LOG, Pseudonyms, pieces
from muster.node.agent.kernel_lines import KERNEL_LINES
from muster.world.redact import GONE

XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
NODES = [
    {
        "metadata": {
            "name": "gpu-ams1-17",
            "labels": {
                "kubernetes.io/hostname": "gpu-ams1-17",
                "nvidia.com/gpu-driver-upgrade-state": "upgrade-required",
            },
            "annotations": {"example.org/token": GONE},
        },
        "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}], "providerID": "aws:///i-1"},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "t"},
                {
                    "type": "GpuProblem",
                    "status": "True",
                    "message": "gpu-ams1-17 at 192.0.2.7",
                    "lastHeartbeatTime": "t",
                },
            ],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
        },
    },
    {"metadata": {"name": "gpu-ams1-18", "labels": {"kubernetes.io/hostname": "gpu-ams1-18"}}},
]
FILES: dict[str, Any] = {
    "fleet/nodes.json": NODES,
    "fleet/nodehealths.json": [
        {
            "metadata": {"name": "gpu-ams1-17"},
            "status": {
                "evidence": [
                    {"kind": "Xid", "code": 79, "message": XID, "subject": "GPU-11111111-2222-3333-4444-555555555555"},
                    {"kind": "GpuTemperature", "message": "92 C"},
                ]
            },
        }
    ],
    "job/trainingjob.json": {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "llama-70b", "namespace": "team-blue", "uid": "u"},
        "spec": {
            "nodes": 2,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "t",
                            "image": "reg.blue.example.com:5000/llama:1",
                            "env": [{"name": "A", "value": GONE}],
                        }
                    ]
                }
            },
        },
        "status": {
            "step": 7,
            "conditions": [
                {
                    "type": "Running",
                    "status": "False",
                    "reason": "QuotaExceeded",
                    "message": 'pods "llama-70b-abcde-0-1" is forbidden: exceeded quota: a, in team-blue',
                },
                {"type": "Queued", "status": "True", "reason": "BehindInQueue", "message": "behind others"},
            ],
        },
    },
    "job/pods.json": [{"metadata": {"name": "llama-70b-abcde-0-1"}, "spec": {"nodeName": "gpu-ams1-17"}}],
    "job/gangs.json": [
        {
            "spec": {
                "incidents": [
                    {"message": "rank 3 was ended by SIGKILL", "signal": 9},
                    {
                        "message": (
                            "rank 1 exited with code 1; its last lines: Traceback: | ConnectionError: gpu-ams1-18 at "
                            "192.0.2.8"
                        ),
                        "exitCode": 1,
                    },
                ]
            }
        }
    ],
    "job/logs/llama-70b-abcde-0-1.log": "step 1 on gpu-ams1-17\nstep 2 by ann@blue.example.com in /home/ann\n",
    "operator/logs/op.log": "nothing of this",
}


def test_each_sort_has_its_cases_in_the_form_of_the_corpus() -> None:
    found = pieces(FILES, "kubectl muster bundle 1, 2026-11-20")
    assert {name: len(piece["cases"]) for name, piece in found.items()} == {
        "reports/kernel/findings.yaml": 1,
        "reports/marks/nodes.yaml": 1,
        "reports/manifests/job.yaml": 1,
        "reports/answers/job.yaml": 1,
        "reports/last_lines/ranks.yaml": 1,
        "reports/printed/logs.yaml": 1,
    }
    assert {(piece["source"], piece["meaning"]) for piece in found.values()} == {
        ("kubectl muster bundle 1, 2026-11-20", "")
    }
    case = {name.split("/")[1]: piece["cases"][0] for name, piece in found.items()}
    assert case["kernel"] == {"input": XID, "read": {"kind": "Xid", "code": 79}, "right": ""}
    assert case["marks"]["input"] == {
        "metadata": {
            "labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"},
            "annotations": {"example.org/token": ""},
        },
        "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "GpuProblem", "status": "True", "message": "node-0 at 10.0.0.1"}]},
    }
    assert case["answers"] == {
        "input": {"codes": [], "message": 'pods "pod-0" is forbidden: exceeded quota: a, in namespace-0'},
        "read": {"reason": "QuotaExceeded"},
        "right": "",
    }
    assert case["last_lines"] == {
        "input": "Traceback:\nConnectionError: node-1 at 10.0.0.2",
        "exitCode": 1,
        "right": "",
    }
    manifest = yaml.safe_load(case["manifests"]["input"])
    assert (manifest["metadata"], "status" in manifest) == ({"name": "job-0"}, False)
    assert manifest["spec"]["template"]["spec"]["containers"][0]["image"] == "registry1.example.org/llama:1"
    assert case["printed"]["input"] == "step 1 on node-0\nstep 2 by user1@example.org in /home/user1\n"


def test_lines_are_those_of_the_kinds_that_the_agent_reads_from_the_kernel_log() -> None:
    assert {row.kind for row in KERNEL_LINES} == OF_THE_LOG


def test_reasons_of_the_api_server_s_answers_are_those_that_the_corpus_has() -> None:
    assert {case.right["reason"] for case in corpus.cases("answers") if "reason" in case.right} <= OF_ANSWERS


def test_no_identifier_of_the_cluster_is_left() -> None:
    text = "".join(map(as_document, pieces(FILES, "s").values()))
    for word in ("ams1", "llama-70b", "team-blue", "192.0.2", "blue.example.com", "/home/ann", "11111111", GONE):
        assert word not in text


@pytest.mark.parametrize(
    "fact",
    [
        XID,
        "mlx5_core 0000:86:00.0: health compromised - reached miss count",
        "karpenter.sh/disrupted:NoSchedule",
        "[rank1]:[E1126 10:00:00.000 ProcessGroupNCCL.cpp:616] NCCL version 2.21.5",
        "iteration 310/ 500000 | lm loss: 2.300000E+00",
        "2026-11-20T09:41:07Z",
    ],
)
def test_facts_stay_as_they_are(fact: str) -> None:
    assert Pseudonyms({"node": ["gpu-ams1-17"]}).text(fact) == fact


def test_the_same_identifier_is_the_same_everywhere_and_another_one_another() -> None:
    other = Pseudonyms({"node": ["a-node", "a-node-2"]})
    assert other.text("a-node-2 a-node 192.0.2.1 192.0.2.2 192.0.2.1") == "node-1 node-0 10.0.0.1 10.0.0.2 10.0.0.1"


def test_what_many_nodes_bear_is_told_once_and_what_they_bear_is_bounded() -> None:
    taint = {"key": "example.org/broken", "effect": "NoSchedule"}
    same = [{"metadata": {"name": f"gpu-{number}"}, "spec": {"taints": [taint]}} for number in range(100)]
    each = [
        {"metadata": {"name": f"cpu-{number}"}, "spec": {"taints": [{**taint, "value": str(number)}]}}
        for number in range(100)
    ]
    (piece,) = pieces({"fleet/nodes.json": same}, "s").values()
    assert len(piece["cases"]) == 1
    (piece,) = pieces({"fleet/nodes.json": each}, "s").values()
    assert len(piece["cases"]) == MAX_CASES


@pytest.mark.parametrize(
    "files", [{}, {"fleet/nodes.json": [7]}, {"job/trainingjob.json": []}, {"job/gangs.json": [{}]}]
)
def test_what_was_not_read_makes_no_piece(files: dict[str, Any]) -> None:
    assert pieces(files, "s") == {}


def test_a_piece_is_a_report_once_its_meaning_and_right_value_are_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    file = tmp_path / "kernel/mine.yaml"
    file.parent.mkdir()
    piece = pieces(FILES, "s")["reports/kernel/findings.yaml"]
    for missing in ("needs source, meaning and cases", "case 1 needs input and right"):
        file.write_text(as_document(piece))
        with pytest.raises(ValueError, match=missing):
            corpus.cases("kernel")
        piece["meaning"] = "A GPU is lost."
    piece["cases"][0]["right"] = {"kind": "Xid"}
    file.write_text(as_document(piece))
    (case,) = corpus.cases("kernel")
    assert (case.given, case.right) == (XID, {"kind": "Xid"})
    assert yaml.safe_load(as_document(piece)) == piece
