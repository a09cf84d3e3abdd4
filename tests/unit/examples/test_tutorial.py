"""docs/tutorial.md: the job that its commands make, the process that they kill, and the commands themselves."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import yaml
from typer.main import get_command

from localcluster.__main__ import _parser
from muster.api.trainingjob import parsed
from muster.cli.main import app
from muster.lifecycle.template import problem
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
    assert {"--checkpoint-dir=/shared/first/checkpoints", "--run-dir=/shared/first", "--steps=2000"} <= set(
        container["args"]
    )
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
        assert trainer.wait(60) == -9
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
