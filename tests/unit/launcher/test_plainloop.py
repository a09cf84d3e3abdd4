"""Steps in a user's own lines: what confirms them, what takes them back, and what is only proposed."""

from __future__ import annotations

import pytest

from apidocs.progress import PLAIN_SAMPLES
from muster.node.launcher.plainloop import PlainLoop, printed_loss
from muster.node.launcher.printed import Reader
from muster.node.launcher.progress import compile_pattern
from muster.protocol.messages import MAX_LIKELY_CHARS
from muster.protocol.presets import AUTO, BY_NAME, OFF, PLAIN_LOOP


def loop(*numbers: int, form: str = "step {} | loss 0.5") -> list[str]:
    return [form.format(number) for number in numbers]


def apart(first: int, mark: str, stride: int = 1, form: str = "step {} | loss 0.5") -> list[str]:
    """Three lines whose numbers have their thousands apart."""
    return [form.format(f"{first + at * stride:,}".replace(",", mark)) for at in range(3)]


def steps(lines: list[str], resumed: int = 0, name: str = AUTO) -> list[int]:
    reader = Reader(name)
    found = [one for line in lines if (one := reader.read(0, line.encode(), resumed))]
    return [one.step for one in found if one.step is not None]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(loop(1, 2), [], id="two lines confirm nothing"),
        pytest.param(loop(1, 2, 3, 4), [3, 4], id="three lines do"),
        pytest.param(loop(1, 1, 2, 2, 1, 2), [], id="the lines of other ranks are no more lines"),
        pytest.param(loop(0, 1, 2), [2], id="what counts from zero"),
        pytest.param(loop(998, 999, 1000, form="step {:,} | loss 0.5"), [1000], id="with its thousands apart"),
        pytest.param(loop(1000, 2000, 3000, form="step {:_}/9_000 | loss 5"), [3000], id="from the first line on"),
        pytest.param(apart(1_099_999, "'"), [1100001], id="with apostrophes"),
        pytest.param(apart(1_099_999, "\u2019"), [1100001], id="with those of print"),
        pytest.param(apart(1_099_999, "\u202f"), [1100001], id="with narrow blanks"),
        pytest.param(apart(999, "\u00a0"), [1001], id="with no-break spaces"),
        pytest.param(apart(999, " "), [1001], id="with blanks and a zero"),
        pytest.param(apart(1_099_999, " "), [1100001], id="with blanks and another zero"),
        pytest.param(loop(500, 900) + apart(1_300, " ", 400), [1300, 1700, 2100], id="with blanks behind 900"),
        pytest.param(apart(11_000, " ", 500), [12000], id="with blanks after one with a zero"),
        pytest.param(apart(12_300, " ", form="step {}/90 000 loss 5"), [12302], id="with blanks in the total, too"),
        pytest.param(apart(12_300, " "), [], id="with blanks alone it may be two"),
        pytest.param(loop(*range(1, 5), form="step {} 512 loss 5"), [], id="two numbers that may be one"),
        pytest.param(loop(1, 2, 3, form="step {} 512 ms loss 5"), [3], id="the second has a unit"),
        pytest.param(loop(1, 2, 3) + loop(4, form="step {} 512 | loss 5"), [3], id="one that may be two is left out"),
        pytest.param(loop(1, 2, 3, form="step {},0.5,7 loss 5"), [3], id="another number behind a comma"),
        pytest.param(loop(3, 4, 5, form="loss 0.5 step {} ms"), [], id="what a step takes"),
        pytest.param(loop(3, 4, 5, form="loss 0.5 steps {}/s"), [], id="steps in a second"),
        pytest.param(loop(3, 4, 5, form="loss 0.5 steps {} left"), [], id="steps that are left"),
        pytest.param(loop(0, 100, 200, form="steps {}-900 loss 0.5"), [], id="a range"),
        pytest.param(loop(1, 2, 3, form="next checkpoint at step {}, loss 0.5"), [], id="a step to come"),
        pytest.param(loop(1, 2, 3, form="sanity check step {} loss 0.5"), [], id="a try before the training"),
        pytest.param(loop(1, 2, 3, form="lr finder step {} loss 0.5"), [], id="a search before the training"),
        pytest.param(loop(1, 2, 3, form="held-out step {} loss 0.5"), [], id="an evaluation by another name"),
        pytest.param(loop(1, 2, 3, form="pgd attack iter {} loss 0.5"), [], id="a loop within a step"),
        pytest.param(loop(1, 2, 3, form="step {}"), [], id="without a loss"),
        pytest.param(loop(1, 2, 3, form="block {} loss 0.5"), [], id="without the word"),
        pytest.param(loop(1, 2, 3, form="step {} | eval loss 0.5"), [], id="an evaluation"),
        pytest.param(loop(1, 2, 3, form="step {} iter 7 loss 0.5"), [], id="two counts in one line"),
        pytest.param(loop(1, 2, 3, form="epoch 1 step {} loss 0.5"), [], id="within an epoch"),
        pytest.param(
            ["epoch 1 step 1 loss 5", "epoch 1 step 2 loss 5", "epoch 2 step 3 loss 5", "epoch 2 step 4 loss 5"],
            [3, 4],
            id="on over epochs",
        ),
        pytest.param(["step 1 loss 5", "step 2: loss 5", "step 3, loss 5"], [3], id="one beginning is one shape"),
        pytest.param(["step 1 loss 5", "train step 2 loss 5", "a step 3 loss 5"], [], id="three shapes"),
        pytest.param(
            loop(1, 2, 3, form="step {}/9 loss 5") + loop(4, form="step {}/5 loss 5"), [3], id="another total"
        ),
        pytest.param([BY_NAME["Megatron"].lines[0].sample, *loop(1, 2, 3)], [300], id="beside a framework"),
        pytest.param(
            [BY_NAME["Lightning"].lines[0].sample, *loop(1, 2, 3)], [], id="beside a framework that is only noticed"
        ),
    ],
)
def test_what_makes_a_line_a_step(lines: list[str], expected: list[int]) -> None:
    assert steps(lines) == expected


@pytest.mark.parametrize(
    ("first", "expected"), [(51, [53]), (50, [52]), (49, []), (1, [])], ids=["on", "again", "behind", "from the start"]
)
def test_numbers_below_the_checkpoint_that_was_resumed_from_do_not_count(first: int, expected: list[int]) -> None:
    lines = loop(first, first + 1, first + 2)
    assert steps(lines, resumed=50) == expected
    plain = PlainLoop(counts=True)
    for line in lines:
        plain.read(line, 50)
    assert plain.proposal() is None


@pytest.mark.parametrize("sample", PLAIN_SAMPLES)
def test_the_lines_that_the_docs_show_count(sample: str) -> None:
    assert steps([sample.replace("12", str(number), 1) for number in (12, 13, 14)]) == [14]


def test_only_where_no_preset_is_named_do_such_lines_count() -> None:
    assert steps(loop(1, 2, 3), name="Megatron") == []


def test_a_number_that_begins_again_ends_the_count_and_says_so() -> None:
    reader = Reader(AUTO)
    lines = loop(10, 20, 30, 40, 10, 20, 30, 40, 50, 60)
    found = [one.step for line in lines if (one := reader.read(0, line.encode()))]
    assert found == [30, 40]
    assert "began again, at 10 after 40" in reader.problem(0)
    assert reader.proposal() is None
    reader.begin(0)  # another attempt, which begins from scratch, too
    assert reader.problem(0) == ""
    again = [one.step for line in loop(1, 2, 3) if (one := reader.read(0, line.encode()))]
    assert again == [3]


def test_two_kinds_of_lines_that_differ_end_the_count() -> None:
    plain = PlainLoop(counts=True)
    lines = loop(1, 2, 3) + loop(100, 200, 300, form="iteration {}: loss 3")
    found = [one.step for line in lines if (one := plain.read(line)) and one.step]
    assert found == [3]
    assert "two kinds of printed lines" in plain.problem
    assert plain.read("step 4 | loss 0.5").step is None


def test_a_framework_goes_before_what_was_taken_for_a_loop() -> None:
    reader = Reader(AUTO)
    lines = [*loop(1, 2, 3), BY_NAME["Megatron"].lines[0].sample, *loop(4, 1, 2)]
    found = [one for line in lines if (one := reader.read(0, line.encode()))]
    assert [(one.preset, one.step) for one in found] == [(PLAIN_LOOP, 3), ("Megatron", 300)]
    assert reader.problem(0) == ""


@pytest.mark.parametrize(
    ("lines", "pattern"),
    [
        (loop(1, 2, 3, form="step {}"), r"^\s*step\s+([0-9]+)"),
        (loop(1, 2, 3, form="10:00:0{0} my-run step={0}"), r"\bmy\-run\s+step=([0-9]+)"),
    ],
)
def test_the_proposal_is_the_constant_text_before_the_number(lines: list[str], pattern: str) -> None:
    plain = PlainLoop(counts=True)
    for line in lines:
        plain.read(line)
    proposal = plain.proposal()
    assert proposal is not None
    assert proposal == (pattern, lines[-1])
    compile_pattern(proposal.pattern)


def test_a_proposal_that_would_match_other_numbers_is_withdrawn() -> None:
    plain = PlainLoop(counts=True)
    for line in loop(10, 20, 30, form="[{0}] step {0}"):
        plain.read(line)
    assert plain.proposal() is not None
    plain.read("the last step 5")
    assert plain.proposal() is None


def test_a_pattern_that_finds_nothing_is_answered_with_one_that_would() -> None:
    reader = Reader(OFF, compile_pattern("Step: ([0-9]+)"))
    for line in loop(1, 2, 3):
        assert reader.read(0, line.encode()) is None
    proposal = reader.proposal()
    assert proposal is not None
    assert proposal.pattern == r"^\s*step\s+([0-9]+)"
    assert reader.read(0, b"Step: 4") is not None
    assert reader.proposal() is None


def test_a_proposal_that_would_read_one_of_a_thousand_is_withdrawn() -> None:
    reader = Reader(AUTO)
    for line in loop(997, 998, 999, form="step {:,}"):
        reader.read(0, line.encode())
    assert reader.proposal() is not None
    reader.read(0, b"step 1,000")
    assert reader.proposal() is None


def test_what_a_program_prints_to_mislead_stays_short_and_readable() -> None:
    plain = PlainLoop(counts=True)
    for number in (1, 2, 3):
        plain.read("\x1b]0;\u202e" + "a" * 300 + f"\t step {number} " + "b" * 4000)
    for word in range(200):
        plain.read(f"w{'x' * word} step 4 loss 1")
    proposal = plain.proposal()
    assert proposal is not None
    assert max(map(len, proposal)) <= MAX_LIKELY_CHARS
    assert "".join(proposal).isprintable()


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step 1 loss 0.53", "0.53"),
        ("step=1 train_loss=2.5e-3", "2.5e-3"),
        ("Step 1, Loss: nan", "nan"),
        ("step 1 | loss: tensor(-inf, device='cuda:0')", "-inf"),
        ("{'loss/train': 1.5}", "1.5"),
        ("Loss at step 300: 0.25", "0.25"),
        ("step 1 loss_scale 1024", ""),
        ("step 1 val loss 0.5", ""),
        ("the losses are many", ""),
    ],
)
def test_the_loss_of_the_training_is_read_as_it_is_printed(line: str, loss: str) -> None:
    assert printed_loss(line) == loss


@pytest.mark.parametrize(
    ("losses", "since"),
    [
        (["0.5", "nan"], None),  # a single step that is skipped
        (["0.5", "nan", "nan"], 2),
        (["-inf", "nan", "inf"], 1),
        (["nan", "nan", "0.5"], None),
        (["nan", "nan", "0.5", "nan", "nan"], 4),
    ],
)
def test_a_loss_that_is_no_number_is_known_with_the_step_since_which_it_is(
    losses: list[str], since: int | None
) -> None:
    plain, framework, own = Reader(AUTO), Reader(AUTO), Reader(OFF, compile_pattern("at ([0-9]+)"))
    for step, loss in enumerate(losses, 1):
        plain.read(0, b"step %d loss %s" % (step, loss.encode()))
        framework.read(0, b"completed step: %d, seconds: 5.6, loss: %s" % (step, loss.encode()))
        own.read(0, b"at %d loss %s" % (step, loss.encode()))
    assert [reader.not_finite_since(0) for reader in (plain, framework, own)] == [since] * 3
    assert plain.not_finite_since(1) is None
