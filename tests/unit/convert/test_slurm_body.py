"""The commands of a script as each process of a gang runs them."""

import pytest

from muster.convert.fields import Notes
from muster.convert.slurm_body import BodyFitter, FittedBody

KNOWN = {"SLURM_NNODES": "2", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_PROCID": "$(RANK)"}


def fitted(text: str) -> tuple[FittedBody, list[str], Notes]:
    notes = Notes()
    fitter = BodyFitter(text, KNOWN, notes)
    return fitter.fit(), fitter.refusals, notes


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("srun torchrun a.py", "torchrun a.py"),
        ("time srun -N2 -n $SLURM_NTASKS \\\n  --label python a.py -l", "time python a.py -l"),
        ("OMP=1 srun a", "OMP=1 a"),
        ("srun --export=ALL,A=1,B='x y' a", "A=1 B='x y' a"),
        ("srun --export=ALL,A=$B/c,D=${E} a", 'A="$B/c" D="${E}" a'),
        ("srun a | tee log", "a | tee log"),
        ("srun a\necho done", "a || exit\necho done"),
        ("srun a 2>&1 | tee log; echo", "a 2>&1 | tee log || exit; echo"),
        ("if srun a; then echo; fi", "if a; then echo; fi"),
        ("srun a && echo || exit 3", "a && echo || exit 3"),
        ("srun a\nsrun b", "a || exit\nb || exit"),
        ("srun a\nsrun b | tee log", "a || exit\nb | tee log || exit"),
        ("srun a && touch done\nrm x", "{ a || exit; } && touch done\nrm x"),
        ("if x; then A=1 srun a | tee log && b; fi", "if x; then { A=1 a | tee log || exit; } && b; fi"),
        ("for i in 1 2; do srun a && break; done", "for i in 1 2; do a && break; done"),
        ("f() { srun a; }\nf", "f() { a || exit; }\nf"),
        ("O='-l -u'; srun $O a", "O='-l -u'; a"),
        ("O=; [ $1 ] && O=-l; srun $O $P a", "O=; [ $1 ] && O=-l; $P a"),
        ('srun "$@"', '"$@"'),
        ("srun bash -c 'echo $(hostname) $SLURM_PROCID'", "bash -c 'echo $(hostname) $SLURM_PROCID'"),
        ('srun a --at "$(hostname -i):29500"', 'a --at "${MASTER_ADDR}:29500"'),
        ("A=`hostname`", "A=${MASTER_ADDR}"),
        ("A=$(hostname -I | awk '{print $1}')", "A=${MASTER_ADDR}"),
        ("A=$(scontrol show hostname $X | sed -n 1p)", "A=${MASTER_ADDR}"),
        ("N=$(scontrol show hostnames $X | wc -l)", "N=${SLURM_NNODES}"),
        ("L=$(scontrol show hostnames $X)\nA=$(echo $L | head -n 1)", "L=${MASTER_ADDR}\nA=${MASTER_ADDR}"),
        (
            "L=($(scontrol show hostnames)); A=${L[0]}; B=$(getent hosts $L | cut -f1)",
            "L=(${MASTER_ADDR}); A=${L[0]}; B=${MASTER_ADDR}",
        ),
        ("export MASTER_ADDR=${SLURM_NODELIST:0:9}", "export MASTER_ADDR=${MASTER_ADDR}"),
        (
            "MASTER_PORT=$(shuf -i 1-9 -n 1) MY_PORT=$(python3 free.py)",
            "MASTER_PORT=${MASTER_PORT} MY_PORT=${MASTER_PORT}",
        ),
        ("MASTER_PORT=29500", "MASTER_PORT=29500"),
        ("module load a && ml b", ": && :"),
        ("squeue -u me > q; scontrol show job 1", ":; :"),
        ("# srun a\ncat <<EOF\nsrun $(scontrol x)\nEOF\nsrun b", "# srun a\ncat <<EOF\nsrun $(scontrol x)\nEOF\nb"),
    ],
)
def test_what_slurm_would_do_becomes_what_muster_does(written: str, becomes: str) -> None:
    body, refusals, _ = fitted(written)
    assert (body.text, refusals) == (becomes, [])


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("\n\nsrun --multi-prog", "line 3: srun: it starts nothing"),
        ("srun --bogus a", "line 1: --bogus: it is not known what it means here"),
        ("srun a &\nwait", "line 1: srun ... &: steps that run beside each other are no gang"),
        ("srun apptainer exec x.sif a", "line 1: apptainer: the worker is the container"),
        ("docker run x", "line 1: docker: the worker is the container"),
        ("scontrol requeue $SLURM_JOB_ID", "line 1: scontrol: no node has a controller of Slurm's"),
        ("scontrol show hostnames > hosts", "line 1: scontrol show hostnames: no worker knows the names of all nodes"),
        (
            "H=$(scontrol show hostnames | tr '\\n' ,)",
            "line 1: $(scontrol show hostnames | tr '\\n' ,): scontrol asks Slurm",
        ),
        ("L=$(scontrol show hostnames)\nfor h in $L; do a; done", "line 2: $L: no worker knows the names of all nodes"),
        ("L=($(scontrol show hostnames))\na ${#L[@]}", "line 2: ${#L[@]}: no worker knows the names of all nodes"),
        ("sbatch next.sh", "line 1: sbatch: a job submits no other"),
        ("mpirun a", "line 1: mpirun: start the program with srun and torchrun"),
        ("ssh $h a", "line 1: ssh: no pod answers ssh"),
        ("C='srun a'; eval $C", "line 1: C='srun a': srun stands in a text: write it as a command by itself"),
        ("a --hosts=$SLURM_JOB_NODELIST", "line 1: $SLURM_JOB_NODELIST: nothing sets it here"),
        ("set -eu\necho $SLURM_JOB_NODELIST", "line 2: $SLURM_JOB_NODELIST: nothing sets it here"),
        ("a $SLURM_ARRAY_TASK_ID", "line 1: $SLURM_ARRAY_TASK_ID: nothing sets it here"),
    ],
)
def test_what_no_worker_can_do_is_refused_with_its_line(written: str, why: str) -> None:
    _, refusals, _ = fitted(written)
    assert [refusal for refusal in refusals if refusal.startswith(why)], refusals


@pytest.mark.parametrize(
    ("text", "continues"),
    [
        ("srun a", False),
        ("srun a\nsrun b", True),
        ("srun a && b\nc", True),
        ("srun a\nif srun b; then c; else false; fi", False),
        ("srun a || false", False),
        ("srun a\nsrun b || exit 3", False),
    ],
)
def test_a_code_that_the_script_looks_at_stays_its_own(text: str, continues: bool) -> None:
    assert fitted(text)[0].continues is continues


def test_a_printed_variable_that_nothing_sets_is_a_note() -> None:
    body, refusals, notes = fitted("echo on $SLURM_JOB_NODELIST of $SLURM_NNODES\na ${SLURM_X:-1}")
    assert (refusals, body.variables) == ([], {"SLURM_NNODES"})
    assert notes.left_out == ["line 1: $SLURM_JOB_NODELIST is empty: nothing sets it here"]


def test_a_variable_of_slurms_that_the_script_sets_is_its_own() -> None:
    body, refusals, _ = fitted("export SLURM_NTASKS_PER_NODE=4\na $SLURM_NTASKS_PER_NODE")
    assert (refusals, body.variables) == ([], set())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("(cd x; srun a)\necho", 1),
        ("(cd x; /usr/bin/srun a)\necho", 1),
        ("{ srun a; echo; } 2>&1 | tee log", 1),
        ("main() {\nsrun a\n}\nmain | tee log", 4),
        ("for i in 1 2; do srun a; done |& tee log", 1),
        ("set -eo pipefail\n(srun a)\necho", 0),
        ("case x in\na) srun a;;\nesac\nls | cat", 0),
        ("(ls)\nsrun a", 0),
        ("(cd x; srun a)", 0),
    ],
)
def test_an_exit_code_that_is_lost_on_its_way_is_to_be_checked(text: str, line: int) -> None:
    remedy = "a program that fails in ( ) or in a pipe fails no job: write `set -eo pipefail` below the lines #SBATCH"
    assert fitted(text)[2].check == ([f"line {line}: {remedy}"] if line else [])


def test_what_each_process_does_with_files_is_to_be_checked() -> None:
    _, _, notes = fitted("mkdir x\nrm -rf out\nsrun a --rm b")
    why = "each process runs it, at each start: files that others use, or that a restart needs, may be gone"
    assert notes.check == [f"line 2: rm -rf out: {why}"]


@pytest.mark.parametrize(
    ("text", "checked"),
    [
        ("srun a > log", True),
        ("srun a &>>log", True),
        ("srun a 1>log 2>&1", True),
        ("srun a 2>errors", False),
        ("srun a '>b' 2>&1 < x", False),
    ],
)
def test_a_file_in_place_of_the_output_is_to_be_checked(text: str, checked: bool) -> None:
    why = "all processes write this file, and Muster sees no step and shows no line of it: take it out"
    assert fitted(text)[2].check == ([f"line 1: {text.removeprefix('srun ')}: {why}"] if checked else [])


def test_what_each_node_would_answer_in_its_own_way_is_to_be_checked() -> None:
    _, _, notes = fitted("D=$(date +%s)\necho $(date)\nT=$(mktemp -d)")
    assert notes.check == [
        "line 1: $(date +%s): each node has its own answer",
        "line 3: $(mktemp -d): each node has its own answer",
    ]
