"""What frameworks would make of the files that name their newest checkpoint."""

from __future__ import annotations

import pytest

from muster.checkpoint.pointers import POINTERS, pointer_problem
from muster.checkpoint.scan import Checkpoint

MEGATRON, DEEPSPEED, COMPOSER = POINTERS


def of(kind: str, *names: tuple[int, str]) -> list[Checkpoint]:
    return [Checkpoint(step, f"/ckpt/{name}", format=kind) for step, name in names]


ITERATIONS = of("Megatron", (500, "iter_0000500"), (400, "iter_0000400"))
TAGS = of("DeepSpeed", (500, "global_step500"), (400, "global_step400"))
FILES = of("Composer", (500, "ep1-ba500-rank0.pt"), (400, "ep1-ba400-rank0.pt"))


@pytest.mark.parametrize(
    ("pointer", "said", "complete"),
    [
        (MEGATRON, "500", ITERATIONS),
        (MEGATRON, "500\n", ITERATIONS),
        (DEEPSPEED, "global_step500", TAGS),
        (COMPOSER, "ep1-ba500-rank0.pt", FILES),
        (COMPOSER, "/ckpt/ep1-ba500-rank0.pt", FILES),
        (MEGATRON, None, TAGS),
        (DEEPSPEED, "what another program calls so", ITERATIONS),
        (MEGATRON, None, []),
        (COMPOSER, None, FILES),
    ],
)
def test_nothing_is_said_of_what_names_the_newest_or_is_none_of_theirs(pointer, said, complete):
    assert pointer_problem(pointer, said, complete) == ""


@pytest.mark.parametrize(
    ("pointer", "said", "complete", "words"),
    [
        (
            MEGATRON,
            "",
            ITERATIONS,
            "names no checkpoint: Megatron-LM would end with code 0 as if it had finished. Write 500",
        ),
        (MEGATRON, "5e2", ITERATIONS, "names no checkpoint"),
        (MEGATRON, None, ITERATIONS, "by itself would begin from scratch. Write 500 into it"),
        (MEGATRON, "600", ITERATIONS, "names iter_0000600, which is none of the newest complete ones"),
        (MEGATRON, "400", ITERATIONS, "would go on from there and not from iter_0000500. Write 500 into it"),
        (DEEPSPEED, None, TAGS, "DeepSpeed by itself would begin from scratch. Write global_step500 into it"),
        (DEEPSPEED, "global_step600", TAGS, "names global_step600, which is none of the newest complete ones"),
        (DEEPSPEED, " \n", TAGS, "names no checkpoint: DeepSpeed would fail to load. Write global_step500 into it"),
        (COMPOSER, "ep1-ba600-rank0.pt", FILES, "Let it lead to ep1-ba500-rank0.pt"),
    ],
)
def test_what_would_be_gone_on_from_instead_is_said_with_a_remedy(pointer, said, complete, words):
    assert words in pointer_problem(pointer, said, complete)
