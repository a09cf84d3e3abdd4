"""What frameworks would make of the files that name their newest checkpoint."""

from __future__ import annotations

import pytest

from muster.node.checkpoint.pointers import POINTERS, pointer_problem
from muster.protocol.checkpoints import FoundCheckpoint

MEGATRON, DEEPSPEED, UNIVERSAL, COMPOSER, DLROVER, VERL, SKYRL, EASY_R1 = POINTERS


def of(kind: str, *names: tuple[int, str]) -> list[FoundCheckpoint]:
    return [FoundCheckpoint(step, f"/ckpt/{name}", format=kind) for step, name in names]


ITERATIONS = of("Megatron", (500, "iter_0000500"), (400, "iter_0000400"))
TAGS = of("DeepSpeed", (500, "global_step500"), (400, "global_step400"))
UNIVERSALS = of("DeepSpeedUniversal", (500, "global_step500_universal"), (400, "global_step400_universal"))
STEPS = of("DLRover", (500, "500"), (400, "400"))
GLOBAL_STEPS = of("verl", (500, "global_step_500"), (400, "global_step_400"))
SHARDED = of("TorchDCP", (500, "ep1-ba500"), (400, "ep1-ba400"))
FILES = of("Composer", (500, "ep1-ba500-rank0.pt"), (400, "ep1-ba400-rank0.pt"))


@pytest.mark.parametrize(
    ("pointer", "said", "complete"),
    [
        (MEGATRON, "500", ITERATIONS),
        (MEGATRON, "500\n", ITERATIONS),
        (DEEPSPEED, "global_step500", TAGS),
        (COMPOSER, "ep1-ba500-rank0.pt", FILES),
        (COMPOSER, "/ckpt/ep1-ba500-rank0.pt", FILES),
        (DLROVER, "500", STEPS),
        (VERL, "500", GLOBAL_STEPS),
        (SKYRL, None, GLOBAL_STEPS),
        (EASY_R1, '{"best_global_step": 400, "last_global_step": 500}', of("EasyR1", (500, "global_step_500"))),
        (MEGATRON, None, TAGS),
        (DEEPSPEED, "what another program calls so", ITERATIONS),
        (MEGATRON, None, []),
        (COMPOSER, None, FILES),
        (COMPOSER, None, SHARDED),
        (COMPOSER, "ep1-ba500", SHARDED),
        (UNIVERSAL, None, UNIVERSALS),
    ],
)
def test_nothing_is_said_of_what_names_the_newest_or_is_none_of_theirs(pointer, said, complete):
    assert pointer_problem(pointer, said, complete, is_whole=lambda _: True) is None


@pytest.mark.parametrize(
    ("pointer", "said", "complete", "words", "is_trap"),
    [
        (
            MEGATRON,
            "",
            ITERATIONS,
            "names no checkpoint: Megatron-LM would end with code 0 as if it had finished. Write 500",
            True,
        ),
        (MEGATRON, "5e2", ITERATIONS, "names no checkpoint", True),
        (
            EASY_R1,
            '{"best_global_step": 500, "last_glo',
            of("EasyR1", (500, "global_step_500")),
            'names no checkpoint: EasyR1 would fail to load. Write {"last_global_step": 500}',
            True,
        ),
        (
            MEGATRON,
            "release\n",
            ITERATIONS,
            "names release: Megatron-LM would begin at step 0 with those weights",
            True,
        ),
        (UNIVERSAL, "global_step400_universal", UNIVERSALS, "Write global_step500_universal into it", False),
        (MEGATRON, None, ITERATIONS, "by itself would begin from scratch. Write 500 into it", True),
        (MEGATRON, "600", ITERATIONS, "names iter_0000600, which is none of the newest complete ones", True),
        (MEGATRON, "300", ITERATIONS, "names iter_0000300, which is none of the newest complete ones", False),
        (MEGATRON, "400", ITERATIONS, "would go on from there and not from iter_0000500. Write 500 into it", False),
        (DEEPSPEED, None, TAGS, "DeepSpeed by itself would begin from scratch. Write global_step500 into it", True),
        (DEEPSPEED, "global_step600", TAGS, "names global_step600, which is none of the newest complete ones", True),
        (
            DEEPSPEED,
            " \n",
            TAGS,
            "names no checkpoint: DeepSpeed would fail to load. Write global_step500 into it",
            True,
        ),
        (COMPOSER, "ep1-ba600-rank0.pt", FILES, "Let it lead to ep1-ba500-rank0.pt", True),
        (COMPOSER, "ep1-ba600", SHARDED, "Let it lead to ep1-ba500", True),
        (DLROVER, "six", STEPS, "DLRover would begin from scratch. Write 500 into it", True),
        (VERL, "600", GLOBAL_STEPS, "names global_step_600, which is none of the newest complete ones", True),
        (VERL, "", GLOBAL_STEPS, "verl would fail to load. Write 500 into it", True),
    ],
)
def test_what_would_be_gone_on_from_instead_is_said_with_a_remedy(pointer, said, complete, words, is_trap):
    found = pointer_problem(pointer, said, complete, is_whole=lambda name: "300" in name)
    assert words in found.words
    assert found.is_trap == is_trap
