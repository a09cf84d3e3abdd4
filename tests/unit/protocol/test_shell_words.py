"""Commands of a shell's line, read and never run."""

from __future__ import annotations

import pytest
from tests.unit.protocol.shell_lines import (
    UNITS,
    a_line_takes_as_much_work_as_it_is_long,
    quotation_is_read_as_bash_reads_it,
)

from muster.protocol.shell_words import commands, placed_clauses, resolved
from muster.protocol.starters import commands_of


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a b; c&&d\ne", [("a", "b"), ("c",), ("d",), ("e",)]),
        ("a \\\n b # c d\n#e\nf#g", [("a", "b"), ("f#g",)]),
        ("a 'b # ;' \"c\\\"d\n\" e\\ f ''", [("a", "b # ;", 'c"d\n', "e f", "")]),
        ("a $'it\\'s' 2>&1 | b", [("a", "it\\'s", "2>&1"), ("b",)]),
        ('a $(b "c") "$(d "e; f") g" $((1 << (2+3)))', [("a", "$_", "$_ g", "$_")]),
        ('a `b | c` --n=`d "e"` \'f`\' "`g`"; h`', [("a", "$_", "--n=$_", "f`", "$_"), ("h`",)]),
        ("cat >f <<EOF\nit's\n  EOF\nb\nEOF\nc", [("cat", ">f"), ("c",)]),
        ("cat <<-'END' <<E2; a\nit's\n\tEND\nx\nE2\nb", [("cat",), ("a",), ("b",)]),
        ("bash -e <<EOF\na b\nEOF\nc", [("bash", "-e"), ("a", "b"), ("EOF",), ("c",)]),
        ("cat <<<x; a", [("cat", "<<<x"), ("a",)]),
        ("cat <<NOWHERE\na", [("cat",), ("a",)]),
        ("a 'b\nc", [("a", "'b"), ("c",)]),
        ('a "b\nc $(d', [("a", '"b'), ("c", "$"), ("d",)]),
        ("", []),
    ],
)
def test_commands_are_read_as_a_shell_reads_them_and_on_where_it_would_not(line: str, found: list[str]) -> None:
    assert list(commands(line)) == found


@pytest.mark.parametrize(
    ("line", "last"),
    [
        ("A='--nnodes 1'\nrun $A b", ("run", "--nnodes", "1", "b")),
        ("N=1; export A=\"--nnodes $N -x\"; run ${A} '' c", ("run", "--nnodes", "1", "-x", "", "c")),
        ('A=(\n --nnodes 1 # of them\n "-t 3"\n); run ${A[@]} b', ("run", "--nnodes", "1", "-t", "3", "b")),
        ("declare -a A=(-x -y); export -n B=1; run ${A[@]} $B", ("run", "-x", "-y", "1")),
        ("A=-x; A+=' -y'; run $A --n=$A", ("run", "-x", "-y", "--n=-x", "-y")),
        ("A=h; B=1; run --at=$A:${B} $A$B", ("run", "--at=h:1", "h1")),
        ("if a; then A=1; else A=2; fi; run $A", ("run", "$A")),  # either
        ("A=${B:-1}; run $A $B", ("run", "${B:-1}", "$B")),
        ("A=$(b); run $A", ("run", "$_")),
        ("A=1 run $A", ("A=1", "run", "$A")),  # not yet
        ("A=$A$A; run $A", ("run", "$A$A")),
        ("A=; (b; c); run $A d", ("run", "$A", "d")),
    ],
)
def test_variables_that_the_line_itself_sets_are_resolved(line: str, last: tuple[str, ...]) -> None:
    assert list(resolved(commands(line)))[-1] == last


def test_each_word_has_its_place_in_the_line() -> None:
    line = 'A=1 srun \\\n -l "b c" | tee x\nN=( $(d) )\n'
    found = [[line[begin:end] for begin, end in clause.spans] for clause in placed_clauses(line)]
    assert found == [["A=1", "srun", "-l", '"b c"'], ["tee", "x"], ["N=( $(d) "], [], []]
    assert [line[clause.end :][: len(clause.operators)] for clause in placed_clauses(line)] == [
        "|",
        "\n",
        ")",
        "\n",
        "",
    ]


def test_values_that_grow_are_left_as_they_are() -> None:
    value = "x" * 1000
    line = f"A={value}\n" + "run $A$A$A$A$A$A$A$A;" * 1000
    found = list(resolved(commands(line)))
    assert sum(len(word) for words in found for word in words) < 150_000
    assert found[-1] == ("run", "$A$A$A$A$A$A$A$A")


@pytest.mark.parametrize(
    "before",
    [
        "cat > /tmp/p.yaml <<EOF\nprompt: What's it\nEOF\n",
        "cat > /tmp/p.yaml <<'EOF'\n- don't\nEOF\n",
        "echo '# on 2 nodes'; ",
        "[ -n \"${A#x}\" ] || A='#1'\n",
        "echo it's; ",
    ],
)
def test_what_starts_processes_is_found_whatever_text_stands_before_it(before: str) -> None:
    assert commands_of(["bash", "-c", before + "composer -n 8 train.py"]) == [("composer", "-n", "8", "train.py")]


def test_what_a_document_holds_is_not_run() -> None:
    assert commands_of(["bash", "-c", "cat > run.sh <<EOF\ntorchrun train.py\nEOF\npython3 train.py"]) == []


def test_quotation_is_read_as_bash_reads_it() -> None:
    quotation_is_read_as_bash_reads_it(40)


@pytest.mark.parametrize("unit", UNITS)
def test_a_line_takes_as_much_work_as_it_is_long(unit: str) -> None:
    a_line_takes_as_much_work_as_it_is_long(unit, 500)
