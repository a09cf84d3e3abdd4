"""Describe how frameworks get the checkpoint to resume from: one table of presets, for launchers and for messages.

A preset is words that end the command of a start that resumes, or a file that the framework reads by itself. Words come
last, where the last of several counts: argparse, tyro, OmegaConf. `$(NAME)` in them is resolved as in the command.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from muster.protocol.checkpoint_names import above, absolute, is_url

AUTO = "Auto"  # the preset of the checkpoint's format, where the command, too, is certainly that framework's
OFF = "Off"
MANIFEST = "Manifest"  # a format that any framework's checkpoint may have besides its own
PATH = "$(MUSTER_RESUME_PATH)"
DIRECTORY = "$(MUSTER_RESUME_DIRECTORY)"
STEP = "$(MUSTER_RESUME_STEP)"
ANY = "*"  # whatever fsspec opens

# Megatron-LM's names of a checkpoint, and what it takes in its tracker.
_ITERATION = re.compile(r"iter_([0-9]{7,15})\Z")
_TRACKED = re.compile(r"(?:[0-9]{1,15}|release)\Z")

Words = Tuple[str, ...]


class Preset(NamedTuple):
    """How one framework gets the checkpoint to resume from.

    Attributes:
        name: in spec.checkpoint.resumePreset.
        formats: of the checkpoints that it loads (muster.node.checkpoint.formats).
        own: options, each with its value, for a checkpoint in spec.checkpoint.directory.
        elsewhere: the same for one that lies elsewhere; None: it cannot resume from such a one.
        programs: last parts of a command's words, as patterns, by which Auto knows the framework; () = only by name.
        shows: for Auto, some word of the command also has to begin so.
        pointer: the file in spec.checkpoint.directory that names the checkpoint's directory, and is written; "" = none.
        link: the link in spec.checkpoint.directory that the framework may follow in place of the words: an existing one
            is set to the checkpoint; "" = none.
        tracker: the file in spec.checkpoint.directory that the framework also reads, and fails on where it has no
            number: it is repaired then; "" = none.
        urls: schemes of the URLs that it loads from, or ANY; () = from file systems only.
        files_only: formats that it loads from file systems only, whatever it does with others.
        alone: the ending of a file that the program takes for all its options, if it is the only argument; "" = none.
        needs: requirements that people have to know, "" = none.
        source: project, file.
        recipe: the folder of examples/ that names it and that `make recipes` runs, "" = it was not run with Muster.
    """

    name: str
    formats: Words
    own: Tuple[Words, ...]
    elsewhere: Optional[Tuple[Words, ...]]
    source: str
    programs: Words = ()
    shows: str = ""
    pointer: str = ""
    link: str = ""
    tracker: str = ""
    urls: Words = ()
    files_only: Words = ()
    alone: str = ""
    needs: str = ""
    recipe: str = ""


_HUGGING_FACE_EXAMPLES = (
    "run_clm.py",
    "run_mlm.py",
    "run_fim.py",
    "run_plm.py",
    "run_glue.py",
    "run_xnli.py",
    "run_classification.py",
    "run_qa.py",
    "run_seq2seq_qa.py",
    "run_summarization.py",
    "run_translation.py",
    "run_ner.py",
    "run_swag.py",
    "run_image_classification.py",
    "run_mae.py",
    "run_mim.py",
    "run_semantic_segmentation.py",
    "run_audio_classification.py",
    "run_speech_recognition_ctc.py",
    "run_speech_recognition_seq2seq.py",
)
_BY_PATH = (("--resume_from_checkpoint", PATH),)

PRESETS: Tuple[Preset, ...] = (
    Preset(
        "HuggingFaceTrainer",
        ("HuggingFaceTrainer",),
        _BY_PATH,
        _BY_PATH,
        "transformers, training_args.py; examples/pytorch",
        programs=_HUGGING_FACE_EXAMPLES,
        alone=".json",  # hf_argparser.py: `len(sys.argv) == 2 and sys.argv[1].endswith(".json")`
        needs="the script has to read `TrainingArguments`, and to pass `training_args.resume_from_checkpoint` on to "
        "`train`: the Trainer does not do it by itself. The examples do",
        recipe="hf-trainer",
    ),
    Preset(
        "Accelerate",
        ("Accelerate",),
        _BY_PATH,
        _BY_PATH,
        "accelerate, examples/by_feature/checkpointing.py; transformers, run_*_no_trainer.py",
        programs=("run_*_no_trainer.py",),
        needs="the script has to give the option to `load_state`, as Accelerate's examples do. Those of diffusers "
        "take the last part of the path alone, below `--output_dir`",
        recipe="accelerate",
    ),
    Preset(
        "Lightning",
        ("Lightning", "LightningSharded", "LightningDeepSpeed"),
        (("--ckpt_path", PATH),),
        (("--ckpt_path", PATH),),
        "lightning, pytorch/cli.py (LightningCLI, `fit`)",
        urls=(ANY,),
        files_only=("LightningSharded",),
        needs="programs with a `LightningCLI`; another one passes `MUSTER_RESUME_PATH` to `fit(ckpt_path=...)`",
    ),
    Preset(
        "Megatron",
        ("Megatron", "MegatronLegacy"),
        (("--load", DIRECTORY), ("--ckpt-step", STEP)),
        (("--load", DIRECTORY), ("--ckpt-step", STEP)),
        "Megatron-LM, megatron/training/checkpointing.py (_load_base_checkpoint)",
        programs=("pretrain_*.py",),
        tracker="latest_checkpointed_iteration.txt",
        urls=("msc",),
        needs="where its tracker file holds no number (a save over it was cut short) Megatron-LM would end with code "
        "0. The launcher then writes the step into it. `--ckpt-step 0` counts as none",
    ),
    Preset(
        "TorchTitan",
        ("TorchDCP",),
        (("--checkpoint.load_step=" + STEP,),),
        (("--checkpoint.initial_load_path=" + PATH,), ("--checkpoint.no_initial_load_model_only",)),
        "torchtitan, components/checkpointer/base.py (load); docs/checkpoint.md",
        programs=("torchtitan.train", "torchtitan.train.py"),
        shows="--checkpoint.",
        needs=(
            "for Auto the command has to have an option `--checkpoint.…`, because versions differ in what they call "
            "them"
        ),
    ),
    Preset(
        "Torchtune",
        ("torchtune", "TorchDCP"),
        (("resume_from_checkpoint=True",),),
        None,
        "torchtune, training/checkpointing/_utils.py",
        needs=(
            "it takes the newest epoch in its `output_dir` by itself, and the files that "
            "`checkpointer.checkpoint_files` names"
        ),
    ),
    Preset(
        "Composer",
        ("Composer", "TorchDCP"),
        (("load_path=" + PATH,),),
        (("load_path=" + PATH,),),
        "llm-foundry, command_utils/train.py; composer, trainer/trainer.py",
        link="latest-rank0.pt",
        urls=("s3", "gs", "oci"),
        needs="programs that read OmegaConf's `key=value`, as llm-foundry does; another one passes "
        "`MUSTER_RESUME_PATH` to `Trainer(load_path=...)`. With `autoresume` Composer goes on from what the link "
        "`latest-rank0.pt` leads to instead: where there is one, the launcher lets it lead to the checkpoint",
    ),
    Preset(
        "MaxText",
        ("Orbax",),
        (),
        (("load_full_state_path=" + PATH + "/items",),),
        "MaxText, src/maxtext/configs/base.yml",
        programs=("MaxText.train", "maxtext.train", "maxtext.trainers.pre_train.train"),
        urls=("gs", "s3"),
        needs="below its own `base_output_directory` and `run_name` it takes the newest by itself, and nothing else",
    ),
    Preset(
        "NeMo",
        ("NeMo",),
        (),
        (("resume.resume_from_path=" + PATH,),),
        "NeMo 2, nemo/lightning/resume.py (AutoResume)",
        urls=("msc",),
        needs="programs of NeMo-Run (`nemo llm pretrain`). With `resume.resume_if_exists=True` it takes its own "
        "newest by itself, and the path only where there is none",
    ),
    Preset(
        "DeepSpeed",
        ("DeepSpeed",),
        (),
        None,
        "deepspeed, runtime/engine.py (load_checkpoint)",
        pointer="latest",
        needs="the program has to call `load_checkpoint` with `checkpoint.directory`, and without a tag",
        recipe="deepspeed",
    ),
    Preset(
        "DLRover",
        ("DLRover",),
        (),
        None,
        "dlrover, trainer/torch/flash_checkpoint/full_ckpt_engine.py",
        pointer="dlrover_latest.txt",
        needs="the program has to call `load_checkpoint` without a path. What lies in the memory of a node is newer "
        "to it: it is lost with the ranks here",
    ),
)
BY_NAME = {preset.name: preset for preset in PRESETS}


class Added(NamedTuple):
    """What a preset adds to a command.

    Attributes:
        words: that end it.
        kept: options that it has with the same meaning, so that they are not repeated.
        against: options that it has with another value.
    """

    words: Words
    kept: Words = ()
    against: Words = ()


def chosen(named: str, format: str, command: Sequence[str], path: str, directory: str) -> str:  # noqa: A002 - as everywhere
    """Return the name of the preset for a start that resumes, "" = none.

    Args:
        named: the job's setting: a name, AUTO or OFF.
        format: of the checkpoint, "" = not known.
        command: of the job, as it is written.
        path: of the checkpoint.
        directory: spec.checkpoint.directory.
    """
    if named != AUTO:
        return "" if named == OFF else named
    for preset in PRESETS:
        if format in preset.formats and _is_certain(preset, command) and not _unloadable(preset, format, path):
            if file_alone(preset.name, command):
                return ""
            addition = added(preset.name, command, path, directory)
            return preset.name if addition.words and not addition.against else ""
    return ""


def file_alone(name: str, command: Sequence[str]) -> str:
    """Return the file in a command that holds all options, so that no word may follow it; "" = there is none."""
    preset = BY_NAME.get(name)
    is_one = preset is not None and preset.alone and command[-1:] and command[-1].endswith(preset.alone)
    return command[-1] if is_one and "".join(command[-2:-1]).endswith(".py") else ""


def likely(format: str) -> str:  # noqa: A002
    """Return the one preset that loads checkpoints of this format, whatever the command is; "" = none, or more than
    one."""
    names = [preset.name for preset in PRESETS if format in preset.formats]
    return names[0] if len(names) == 1 else ""


def _is_certain(preset: Preset, command: Sequence[str]) -> bool:
    names = {word.rsplit("/", 1)[-1] for word in command}
    patterns = [pattern for pattern in preset.programs if "*" in pattern]
    runs_program = not names.isdisjoint(preset.programs) or any(fnmatch.filter(names, pattern) for pattern in patterns)
    return runs_program and (not preset.shows or any(word.startswith(preset.shows) for word in command))


def added(name: str, command: Sequence[str], path: str, directory: str) -> Added:
    """Return what the preset of this name adds to a command to resume from a path; an unknown name adds nothing."""
    preset = BY_NAME.get(name)
    if preset is None or not path:
        return Added(())
    options = preset.own if is_own(path, directory) else preset.elsewhere or ()
    words: List[str] = []
    kept: List[str] = []
    against: List[str] = []
    for option in options:
        key, _, value = option[0].partition("=")
        wanted = option[1] if len(option) > 1 else value
        given_values = _values(command, key)
        if given_values and (not wanted or _is_same(given_values[-1], wanted, path)):
            kept.append(key)
            continue
        if given_values:
            against.append("%s %s" % (key, given_values[-1]) if given_values[-1] else key)
        words += option
    return Added(tuple(words), tuple(kept), tuple(against))


def pointer(name: str, path: str, directory: str) -> Tuple[str, str]:
    """Return the framework's pointer file and its required content; "" and "" where it needs none."""
    preset = BY_NAME.get(name)
    if preset is None or not preset.pointer or not path or is_url(path) or not is_own(path, directory):
        return "", ""
    return posixpath.join(directory, preset.pointer), posixpath.basename(path)


def link(name: str, path: str, directory: str, leads_to: Optional[str]) -> str:
    """Return the link that the framework may follow and that must be changed; "" = it is right, or there is none.
    `leads_to` is its present target; None where there is no link.
    """
    preset = BY_NAME.get(name)
    if preset is None or not preset.link or leads_to is None or is_url(path) or above(path) != absolute(directory):
        return ""
    target = posixpath.normpath(posixpath.join(directory, leads_to))
    return "" if target == posixpath.normpath(path) else posixpath.join(directory, preset.link)


def tracker(name: str, path: str, directory: str, content: Optional[str]) -> Tuple[str, str]:
    """Return the file on which the framework would fail, and its required content; "" and "" without need of repair.
    `content` is its present content; None where there is no file.
    """
    preset = BY_NAME.get(name)
    if preset is None or not preset.tracker or content is None or is_url(path) or not is_own(path, directory):
        return "", ""
    step = _ITERATION.match(posixpath.basename(path))
    if step is None or _TRACKED.match(content.strip()):
        return "", ""
    return posixpath.join(directory, preset.tracker), str(int(step.group(1)))


def problem(name: str, format: str, path: str, directory: str) -> str:  # noqa: A002
    """Say why a framework cannot resume from a checkpoint, and the remedy; "" = it can."""
    preset = BY_NAME.get(name)
    if preset is None:
        return ""
    if format not in ("", MANIFEST, *preset.formats):
        instead = likely(format)
        return "spec.checkpoint.resumePreset is %s, which does not load %s: it is written as %s. Set it to %s" % (
            name,
            path,
            format,
            "%s, or to %s" % (instead, OFF) if instead else OFF,
        )
    if _unloadable(preset, format, path):
        return _unloadable(preset, format, path)
    if preset.elsewhere is not None or is_own(path, directory):
        return ""
    return (
        "spec.checkpoint.resumePreset: %s goes on only from what lies in its own directory, and %s is not in %s. "
        "Copy the checkpoint there, or set resumePreset to Off and let the program read MUSTER_RESUME_PATH"
        % (name, path, directory)
    )


def never(name: str, directory: str) -> str:
    """Say why a framework can resume from nothing in spec.checkpoint.directory, and the remedy; "" = it can."""
    preset = BY_NAME.get(name)
    return _unloadable(preset, "", directory) if preset is not None else ""


def _unloadable(preset: Preset, format: str, place: str) -> str:  # noqa: A002
    """Say why a framework cannot load what lies behind a URL, and the remedy; "" = it can."""
    scheme = place.partition("://")[0]
    if not is_url(place) or (format not in preset.files_only and not {ANY, scheme}.isdisjoint(preset.urls)):
        return ""
    if preset.pointer:
        why = "goes by the file `%s`, which no launcher writes into a store" % preset.pointer
    elif format in preset.files_only:
        why = "loads what is written as %s only from a file system" % format
    else:
        why = "loads only from %s" % " or ".join(
            ["a file system", *("%s://" % url_scheme for url_scheme in preset.urls)]
        )
    return (
        "spec.checkpoint.resumePreset: %s %s, and this is %s. Set it to Off, and let the program fetch "
        "what MUSTER_RESUME_PATH names" % (preset.name, why, place)
    )


def is_own(path: str, directory: str) -> bool:
    """Whether a checkpoint is one that launchers find: directly in spec.checkpoint.directory, or that directory
    itself."""
    path = absolute(path)
    return bool(directory) and absolute(directory) in (path, above(path))


def _values(command: Sequence[str], key: str) -> List[str]:
    """Return the values that the command gives to an option, in order; "" for one that has none."""
    values, plain = [], _plain(key)
    for place, word in enumerate(command):
        name, sign, value = word.partition("=")
        if len(name) < len(plain) or _plain(name) != plain:
            continue
        following = "".join(command[place + 1 : place + 2])
        values.append(value if sign else "" if following.startswith("--") else following)
    return values


def _plain(name: str) -> str:
    return name.lstrip("+").replace("-", "_")


def _is_same(value: str, wanted: str, path: str) -> bool:
    """Whether the command's value equals, at this start, the one that would be added."""
    if "$(MUSTER_RESUME_" in value or value == wanted:
        return True
    return wanted == DIRECTORY and (value.startswith("/") or is_url(value)) and absolute(value) == above(path)
