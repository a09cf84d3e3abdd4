"""docs/tutorial.md: the job that its commands make, the process that they kill, its commands, and what they print."""

import ast
import re
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from localcluster.__main__ import _parser
from localcluster.patience import PATIENCE_SECONDS
from muster.answers.reasons import REASONS
from muster.api.trainingjob import parsed
from muster.cli.main import app
from muster.status.template import problem
from muster.world.fleet import Fleet

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", TEXT, re.MULTILINE)]


def block(has: str) -> str:
    (found,) = [each for each in BLOCKS if has in each]
    return found


def test_its_commands_make_a_job_of_its_own(tmp_path: Path) -> None:
    command = block("sed -e").partition("\n\n")[0]
    script = re.sub(r"^IMAGE=.*$", "IMAGE=built/torch-ddp:1", command, flags=re.MULTILINE)
    script = script.replace("> first.yaml", f"> {tmp_path}/first.yaml")
    subprocess.run(["bash", "-ec", script], cwd=ROOT, check=True)
    *others, document = yaml.safe_load_all((tmp_path / "first.yaml").read_text())
    job = parsed(document)
    (container,) = job.spec.pod["containers"]
    assert [each["kind"] for each in others] == ["Namespace", "PersistentVolumeClaim"]
    assert (job.metadata.name, job.metadata.namespace) == ("first", "muster-demo")
    assert job.spec.checkpoint.directory == "/shared/first/checkpoints"
    assert container["image"] == "built/torch-ddp:1"
    assert container["command"] == ["python3", "/opt/torch-ddp/train.py"]
    assert {
        "--checkpoint-dir=/shared/first/checkpoints",
        "--run-dir=/shared/first",
        "--steps=1500",
        "--pause-seconds=0.2",
    } <= set(container["args"])
    assert problem(job, Fleet()) is None


def test_its_program_kills_the_training_process_alone(tmp_path: Path) -> None:
    program = block("os.kill(").partition("<<'EOF'\n")[2].partition("EOF\n")[0]
    sleep = "import time; time.sleep(600)"
    # As the processes of a worker look: the launcher names the command, too.
    trainer, launcher = (
        subprocess.Popen([sys.executable, "-c", sleep, *words])
        for words in (["/opt/train.py"], ["/muster/run.pyz", "--", "python3", "/opt/train.py"])
    )
    try:
        listed = f"filter(str.isdigit, ['{trainer.pid}', '{launcher.pid}'])"
        assert 'filter(str.isdigit, os.listdir("/proc"))' in program
        program = program.replace('filter(str.isdigit, os.listdir("/proc"))', listed)
        subprocess.run([sys.executable, "-"], input=program, text=True, check=True)
        assert trainer.wait(PATIENCE_SECONDS) == -9
        assert launcher.poll() is None
    finally:
        for process in (trainer, launcher):
            process.kill()
            process.wait()


def test_its_commands_exist() -> None:
    for words in re.findall(r"kubectl muster ([a-z-]+)", TEXT):
        assert words in get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(r"python -m localcluster (.*)", TEXT):
        _parser().parse_args(line.split())
    makefile = (ROOT / "Makefile").read_text()
    for goal in re.findall(r"\bmake (?:-s )?([a-z-]+)", TEXT):
        assert f"\n{goal}:" in makefile, goal


# What differs from run to run, and the values of fields: the text between them is Muster's own.
VARIES = re.compile(
    r"\.\.\.|/shared/\S+|muster-demo/first|\bfirst-\S+|\bnode-\d|\(\d[^)]*\)|\bSIG[A-Z]+|[\d.,:-]*\d\S*(?: steps)?|UTC"
    r"|\b[RK]\d\w*:?|\b(?:Infrastructure|Unknown)\b|spec\.recovery\.\w+|[;:(]"
)


@cache
def constants() -> str:
    """The texts in the product's code, with the parts of f-strings each by itself."""
    trees = (ast.parse(path.read_text()) for path in sorted((ROOT / "operator" / "muster").rglob("*.py")))
    values = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(" ".join(value.split()) for value in values if isinstance(value, str))


def outputs(command: str) -> list[list[str]]:
    """The lines that the tutorial prints below each command that begins with these words."""
    found = []
    for each in BLOCKS:
        for shown in re.split(r"^\$ ", each, flags=re.MULTILINE)[1:]:
            first, *lines = shown.splitlines()
            if first.startswith(command):
                found.append([line for line in lines if line.strip()])
    return found


def test_its_tables_have_the_columns_that_kubectl_prints() -> None:
    (crd,) = yaml.safe_load_all((ROOT / "crds" / "muster.dev_trainingjobs.yaml").read_text())
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    named = ["NAME", *(each["name"].upper() for each in columns if not each.get("priority"))]
    tables = outputs("kubectl get tj")
    assert len(tables) >= 3
    for table in tables:
        assert table[0].split() == named


def test_its_tables_and_headings_are_of_the_command_line() -> None:
    pages = outputs("kubectl muster")
    assert len(pages) >= 5
    shouted = {line for page in pages for line in page if re.search("[A-Z]{2}", line) and line == line.upper()}
    heads = {head.strip(" .") for line in shouted for head in re.split(r"  +|\(\d+ OF \d+\)", line) if head.strip(" .")}
    assert {"WHAT WAS SEEN", "WHAT COMES", "WORKER", "DOMAIN"} <= heads
    known = constants().splitlines()
    assert (
        sorted(head for head in heads if re.fullmatch("[A-Z -]+", head) and head != "GPU" and head not in known) == []
    )


def test_its_reasons_exist() -> None:
    known = {name for reason in REASONS for name in reason.each}
    shown = {line.split()[2] for table in outputs("kubectl get tj") for line in table[1:]}
    shown |= set(re.findall(r"(?:is \w+|incident \d): ([A-Z]\w+)", TEXT))
    shown |= set(re.findall(r"\b(?:Normal|Warning) +(\w+)", TEXT))
    shown |= set(re.findall(r"muster\.dev/operator +(\w+):", TEXT))
    assert {"Completed", "Training", "RankFailed", "PodDeleted", "NodeUnreachable", "Started", "Placed"} <= shown
    assert sorted(shown - known) == []


def test_its_sentences_are_those_of_the_product() -> None:
    lines = [line for page in outputs("kubectl muster") for line in page]
    sentences = [line[3:] for line in lines if line.startswith("-  ")]
    sentences += [line.split("  ")[-1] for line in lines if re.search(r"  (attempt \d|it happened|\w+: attempt)", line)]
    sentences += [line.split("  ")[-1] for page in outputs("kubectl events") for line in page[1:]]
    sentences += [line.strip() for line in lines if line.startswith("  ") and "  " not in line.strip()]
    parts = [part.strip(" ,;:()") for each in sentences for part in VARIES.split(each)]
    asked = {part for part in parts if len(part.split()) > 1}
    assert len(asked) >= 20
    known = constants()
    assert sorted(part for part in asked if part not in known) == []


@pytest.mark.parametrize(
    "label", ["Step", "ETTR", "Checkpoint", "Attempt", "Workers", "Happened", "Training after", "Lost"]
)
def test_its_figures_have_the_names_of_the_product(label: str) -> None:
    assert re.search(rf"^    {label} +\S", TEXT, re.MULTILINE)
    assert label in constants().splitlines()
