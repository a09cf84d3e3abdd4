"""Build the fork of a job: a new job that begins from its checkpoint, and saves to a directory of its own. Pure.

The two never share a directory: wherever the worker container names the job's, the new one names its own. Where the
container does not name it, a person has to confirm that the program does not save to the old one.

Tests: tests/unit/cli/test_fork.py.
"""

import copy
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from muster.api.base import API_VERSION, LAST_APPLIED
from muster.api.trainingjob import NAME_RULES, LaunchMode, TrainingJob, is_job_name, parsed
from muster.cli.errors import CliError
from muster.pods.launching import command_of, is_shell_line
from muster.pods.worker_pod import worker_container
from muster.protocol import resuming
from muster.protocol.checkpoint_names import above, absolute, is_url
from muster.protocol.contract import IDENTITY
from muster.status.template import AGAIN, shape_problem

_OWN = "MUSTER_CHECKPOINT_DIRECTORY"  # a program that reads it saves to the directory of its own job
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STEP = re.compile(r"(?P<name>[A-Za-z0-9_-]+)(?P<places>(?:\[\d+\])*)\Z")
_INSTEAD = {
    "metadata.name": "--name",
    "spec.checkpoint.directory": "--directory",
    "spec.checkpoint.resumeFrom": "--from-step",
}
# By these a tool takes an object for its own, and deletes it where its source does not have it.
_TRACKING = frozenset(
    {
        "app.kubernetes.io/instance",
        "argocd.argoproj.io/installation-id",
        "argocd.argoproj.io/instance",
        "argocd.argoproj.io/tracking-id",
        "helm.sh/chart",
        "helm.toolkit.fluxcd.io/name",
        "helm.toolkit.fluxcd.io/namespace",
        "kustomize.toolkit.fluxcd.io/name",
        "kustomize.toolkit.fluxcd.io/namespace",
        "meta.helm.sh/release-name",
        "meta.helm.sh/release-namespace",
    }
)
_FORGETFUL = ("emptyDir", "ephemeral")


@dataclass(slots=True)
class Made:
    """A fork.

    Attributes:
        manifest: of the new job.
        start: what it begins from, as spec.checkpoint.resumeFrom.
        directory: where it saves.
        changed: differences from the job, for people.
        check: what people should check.
    """

    manifest: dict[str, Any]
    start: str
    directory: str
    changed: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)


def forked(
    job: TrainingJob,
    raw: Mapping[str, Any],
    *,
    name: str = "",
    from_step: int | None = None,
    directory: str = "",
    sets: Sequence[str] = (),
) -> Made:
    """Build the job that begins from this one's checkpoint.

    Args:
        job: to begin from.
        raw: the job from the API server, with fields that the model does not know.
        name: of the new job; "": made of the job's and the step.
        from_step: the step to begin from; None: the newest complete one.
        directory: where the new one saves; "": beside the job's.
        sets: KEY=VALUE each.

    Raises:
        CliError: it cannot be built; says which field or option, and what to do.
    """
    old = _may_be_forked(job, from_step)
    step, start = _start(job, from_step)
    name = name or f"{job.metadata.name}-{step}"
    if not is_job_name(name):
        raise CliError(f"--name: {name!r} becomes part of host names: choose {NAME_RULES}")
    if name == job.metadata.name:
        raise CliError(f"--name: {name} is the job itself: choose another one")
    mounts = _mounts(job, old)
    new = directory or _beside(old, name, mounts)
    is_place = new.startswith("/") or is_url(new)
    new = absolute(new) if is_place else new
    if not is_place or new == old:
        raise CliError(
            f"--directory: {new}: give an absolute path or a URL that is not {old}: two jobs must not share one"
        )
    manifest = bare_manifest(raw, job, name)
    spec = manifest["spec"]
    made = Made(manifest, start, new)
    made.changed += _untrack(manifest["metadata"])
    spec["checkpoint"] = {**(spec.get("checkpoint") or {}), "directory": new, "resumeFrom": start}
    made.changed.append(f"spec.checkpoint.directory: {old} -> {new}")
    container = _worker(manifest, job)
    made.changed += [*_moved(container, old, new), *_replace_in_resume_argument(spec["checkpoint"], old)]
    _name_preset(job, spec["checkpoint"], old, made)
    for assignment in sets:
        _set(manifest, container, assignment, made)
    text = _text(container)
    if not directory and _OWN not in text and not _naming(new).search(text):
        raise CliError(
            f"nothing in the command, args or env of container {container.get('name')} names {old}, so that the new "
            f"job may save into the directory of {job.metadata.name}. Let its program save elsewhere (--set, see "
            f"--help), and say where: --directory {new}"
        )
    _note(job, container, old, mounts, made)
    _check_manifest(manifest)
    return made


def _may_be_forked(job: TrainingJob, from_step: int | None) -> str:
    """Check that the job can be forked; returns the directory of its checkpoints."""
    name, checkpoint, seen = job.metadata.name, job.spec.checkpoint, job.status.checkpoint
    if job.spec.launch.mode is LaunchMode.PLAIN or checkpoint.directory is None:
        raise CliError(
            f"job {name} has no spec.checkpoint.directory, so its checkpoints are not known. Make the new job by "
            "hand, and set spec.checkpoint.resumeFrom to the path of one"
        )
    if seen is None:
        raise CliError(f"job {name} has no complete checkpoint yet: kubectl muster status {name} says why")
    if from_step is not None and from_step > seen.step:
        raise CliError(f"--from-step: {from_step} is beyond the newest complete checkpoint of {name}, {seen.step}")
    return absolute(checkpoint.directory)


def _start(job: TrainingJob, from_step: int | None) -> tuple[int, str]:
    """Return the step, and its value for spec.checkpoint.resumeFrom."""
    seen = job.status.checkpoint
    assert seen is not None
    step = seen.step if from_step is None else from_step
    if not resuming.is_own(seen.path, job.spec.checkpoint.directory or "") and step == seen.step:
        return step, seen.path  # it began elsewhere itself, and has saved nothing yet
    return step, f"job/{job.metadata.name}@{step}"


def _mounts(job: TrainingJob, directory: str) -> list[Mapping[str, Any]]:
    """Return the mounts of the worker container that hold a directory, the innermost first."""
    listed = (worker_container(job) or {}).get("volumeMounts")
    mounts = [mount for mount in listed if isinstance(mount, dict)] if isinstance(listed, list) else []
    holding = [mount for mount in mounts if _holds(str(mount.get("mountPath") or "/"), directory)]
    return sorted(holding, key=lambda mount: -len(str(mount["mountPath"])))


def _beside(old: str, name: str, mounts: Sequence[Mapping[str, Any]]) -> str:
    """Return a directory of the new job's own on the same volume or in the same bucket.

    It is within the job's directory only where that is the whole volume or bucket.
    """
    root = posixpath.normpath(str(mounts[0]["mountPath"])) if mounts else ""
    if old in (root, above(old)):
        return posixpath.join(old, "forks", name)
    return posixpath.join(above(old), name)


def _holds(directory: str, path: str) -> bool:
    """Whether a path lies somewhere below a directory, or is that itself."""
    return f"{absolute(path)}/".startswith(f"{absolute(directory).rstrip('/')}/")


def bare_manifest(raw: Mapping[str, Any], job: TrainingJob, name: str) -> dict[str, Any]:
    """Return the job as a user would have written it, under another name."""
    spec = copy.deepcopy(dict(raw["spec"]))
    for once in ("suspend", "eject"):
        spec.pop(once, None)
    (spec.get("checkpoint") or {}).pop("saveRequest", None)
    raw_metadata = raw.get("metadata") or {}
    metadata: dict[str, Any] = {"name": name, "namespace": job.metadata.namespace}
    for part in ("labels", "annotations"):
        kept = {key: value for key, value in (raw_metadata.get(part) or {}).items() if key != LAST_APPLIED}
        if kept:
            metadata[part] = kept
    return {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def _untrack(metadata: dict[str, Any]) -> Iterator[str]:
    """Remove the marks of tools that deploy the job: the fork is not in their source. Yields what was removed."""
    for part in ("labels", "annotations"):
        values = metadata.pop(part, {})
        if kept := {key: value for key, value in values.items() if key not in _TRACKING}:
            metadata[part] = kept
        yield from (f"metadata.{part}: {key} is left out" for key in values if key in _TRACKING)


def _worker(manifest: Mapping[str, Any], job: TrainingJob) -> dict[str, Any]:
    """Return the container that trains, within the manifest."""
    trains = worker_container(job)
    containers = manifest["spec"]["template"]["spec"]["containers"]
    container = next(
        (candidate for candidate in containers if trains and candidate.get("name") == trains.get("name")), None
    )
    if container is None:
        raise CliError(
            f"job {job.metadata.name} has no container {job.spec.launch.worker_container!r}: correct it first"
        )
    return container  # type: ignore[no-any-return]


def _moved(container: dict[str, Any], old: str, new: str) -> Iterator[str]:
    """Write the new directory wherever the container's command, arguments and variables name the old one; yields
    where."""
    old_path_pattern = _naming(old)
    for part in ("command", "args"):
        words = container.get(part) or []
        for place, word in enumerate(words):
            if isinstance(word, str) and old_path_pattern.search(word):
                words[place] = old_path_pattern.sub(lambda _: new, word)
                yield f"{part}[{place}]: {_shown(words[place])}"
    for variable in container.get("env") or []:
        value = variable.get("value")
        if isinstance(value, str) and old_path_pattern.search(value):
            variable["value"] = old_path_pattern.sub(lambda _: new, value)
            yield f"env {variable.get('name')}: {_shown(variable['value'])}"


def _naming(directory: str) -> re.Pattern[str]:
    """Return a pattern for a text that names this directory, and not one beside it or within it."""
    return re.compile(rf"(?<![\w./]){re.escape(directory)}(?!/?[\w.-])")


def _within(directory: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./]){re.escape(directory)}/[\w.-][^\s'\",;:]*")


def _replace_in_resume_argument(checkpoint: dict[str, Any], old: str) -> Iterator[str]:
    """Replace the job's directory in the words that resume by a reference to the checkpoint's; yields what changed."""
    words = checkpoint.get("resumeArgument") or []
    for place, word in enumerate(words):
        if _naming(old).search(word):
            words[place] = _naming(old).sub(lambda _: resuming.DIRECTORY, word)
            yield f"spec.checkpoint.resumeArgument[{place}]: {words[place]}"


def _name_preset(job: TrainingJob, checkpoint: dict[str, Any], old: str, made: Made) -> None:
    """Name the preset that the job's own starts find by themselves: the new directory would prevent that."""
    seen = job.status.checkpoint
    assert seen is not None
    named = checkpoint.get("resumePreset") or (resuming.OFF if checkpoint.get("resumeArgument") else resuming.AUTO)
    command = command_of(worker_container(job) or {})
    preset = "" if is_shell_line(command) and named == resuming.AUTO else named
    if preset == resuming.AUTO:
        preset = resuming.chosen(named, seen.format, command, seen.path, old) or resuming.chosen(
            named, seen.format, command, seen.path, made.directory
        )
    problem = resuming.problem(preset, seen.format, seen.path, made.directory)
    if problem:
        raise CliError(problem)
    if preset and preset != named:
        checkpoint["resumePreset"] = preset
        made.changed.append(f"spec.checkpoint.resumePreset: {preset}")
    if preset in ("", resuming.OFF):
        made.check.append(
            f"the program has to begin from {resuming.PATH}, which lies in {old}, and no preset passes it that path "
            "(spec.checkpoint.resumePreset)"
        )


def _set(manifest: dict[str, Any], container: dict[str, Any], text: str, made: Made) -> None:
    """Apply one KEY=VALUE."""
    option = text.startswith("-")
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise CliError(f"--set {text}: write KEY=VALUE")
    if option:
        _set_option(container, key, value, text)
    elif key.startswith(("spec.", "metadata.")):
        _set_field(manifest, key, value, text)
    elif _VARIABLE.match(key):
        _set_variable(container, key, value, text)
    else:
        raise CliError(
            f"--set {text}: {key} is no variable (NAME), no option of the command (--name) and no field (spec. or "
            "metadata.)"
        )
    made.changed.append(f"{text} (--set)")


def _set_variable(container: dict[str, Any], key: str, value: str, text: str) -> None:
    if key in IDENTITY or key.startswith("MUSTER_"):
        raise CliError(f"--set {text}: {key} is Muster's, and set at each start: leave it out")
    others = [variable for variable in container.get("env") or [] if variable.get("name") != key]
    container["env"] = [*others, {"name": key, "value": value}]


def _set_option(container: dict[str, Any], key: str, value: str, text: str) -> None:
    command = command_of(container)
    if is_shell_line(command):
        raise CliError(
            f"--set {text}: {command[0]} runs a line of its own, which is not looked into: set the whole line by its "
            "field, spec.template.spec.containers[N].command[M] or args[M]"
        )
    for part in ("args", "command"):
        words = container.get(part) or []
        for place in range(len(words) - 1, -1, -1):
            word = str(words[place])
            following = str(words[place + 1]) if place + 1 < len(words) else ""
            if word.partition("=")[0] != key:
                continue
            if word != key:
                words[place] = f"{key}={value}"
            elif following and not following.startswith("--"):
                words[place + 1] = value
            else:
                raise CliError(f"--set {text}: the command has {key} without a value: set it by its field")
            return
    container["args"] = [*(container.get("args") or []), f"{key}={value}"]


def _set_field(manifest: dict[str, Any], key: str, value: str, text: str) -> None:
    if key in _INSTEAD:
        raise CliError(f"--set {text}: give {_INSTEAD[key]} in its place")
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise CliError(f"--set {text}: the value is no YAML: put it in quotes") from error
    path: list[str | int] = []
    for part in key.split("."):
        match = _STEP.match(part)
        if match is None:
            raise CliError(
                f"--set {text}: {part!r} is no field: write fields as spec.template.spec.containers[0].image"
            )
        path += [match["name"], *map(int, re.findall(r"\d+", match["places"]))]
    parent: Any = manifest
    for place, step in enumerate(path[:-1]):
        parent = _inner(parent, step, path[place + 1], f"--set {text}")
    last = path[-1]
    if isinstance(last, int):
        if last > len(parent):
            raise CliError(f"--set {text}: the list has {len(parent)} entries: the next is [{len(parent)}]")
        parent[last : last + 1] = [read]
    elif read is None:
        parent.pop(last, None)
    else:
        parent[last] = read


def _inner(parent: Any, step: str | int, following: str | int, where: str) -> Any:
    """Return what is at this step of a path; created where there is none."""
    kind = list if isinstance(following, int) else dict
    if isinstance(step, int):
        if step >= len(parent):
            raise CliError(f"{where}: there is no entry [{step}]: the list has {len(parent)}")
        inner = parent[step]
    else:
        inner = parent.setdefault(step, kind())
        if inner is None:
            inner = parent[step] = kind()
    if not isinstance(inner, kind):
        kind_text = "a list" if kind is list else "an object"
        raise CliError(f"{where}: {step} is not {kind_text}: kubectl explain trainingjob.spec shows the fields")
    return inner


def _note(
    job: TrainingJob, container: Mapping[str, Any], old: str, mounts: Sequence[Mapping[str, Any]], made: Made
) -> None:
    """Note the limits of the fork that follow from the places of the two directories."""
    text = _text(container)
    for path in sorted(set(_within(old).findall(text))):
        if not _holds(made.directory, path):
            made.check.append(f"{path} lies in the directory of {job.metadata.name} and was left as it is")
    if is_url(made.directory) and above(made.directory) not in (above(old), old):
        made.check.append(
            f"the worker container has to be able to list, read and write below {made.directory}, by its fsspec and "
            "its credentials"
        )
    if not is_url(old):
        if not _note_volume(job, old, mounts, made):
            return
    elif not is_url(made.directory):
        made.check.append(f"{made.directory} is not in the store of {old}: it has to be shared by all workers")
    made.check.append(
        f"{job.metadata.name} has to keep that checkpoint, and has to be there, until the new job has begun; what it "
        "deletes of its own old ones is gone"
    )


def _note_volume(job: TrainingJob, old: str, mounts: Sequence[Mapping[str, Any]], made: Made) -> bool:
    """Note what the volume that holds the checkpoint requires; returns whether there is one."""
    volumes = {
        entry.get("name"): entry
        for entry in made.manifest["spec"]["template"]["spec"].get("volumes") or []
        if isinstance(entry, dict)
    }
    volume = volumes.get(mounts[0].get("name")) if mounts else None
    if volume is None:
        made.check.append(
            f"no volumeMount of the container holds {old}: the new job has to see the checkpoint at the same path"
        )
        return False
    kind = next((kind for kind in _FORGETFUL if kind in volume), "")
    if kind:
        raise CliError(
            f"the checkpoints of {job.metadata.name} lie in volume {volume['name']}, an {kind}, which is gone with "
            "each pod and is not seen by another job. Copy the checkpoint to a shared volume, and set "
            "spec.checkpoint.resumeFrom to its path in a new job"
        )
    if not is_url(made.directory) and not _holds(str(mounts[0]["mountPath"]), made.directory):
        made.check.append(f"{made.directory} is not on the volume of {old}: it has to be shared by all workers")
    claim = volume.get("persistentVolumeClaim")
    if isinstance(claim, dict) and not job.status.completion:
        made.check.append(
            f"claim {claim.get('claimName')} is mounted by both: while {job.metadata.name} runs it has to be "
            "ReadWriteMany"
        )
    return True


def _text(container: Mapping[str, Any]) -> str:
    """Return all that a container is given: command, arguments and variables."""
    values = (str(variable.get("value") or "") for variable in container.get("env") or [])
    return "\n".join([*command_of(container), *values])


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check the manifest as the API and the operator would."""
    try:
        made = parsed(manifest)
    except ValueError as error:
        raise CliError(str(error)) from error
    problem = shape_problem(made)
    if problem:
        raise CliError(problem[1].removesuffix(AGAIN).strip())


def _shown(text: str) -> str:
    """Shorten a word of the command, which may be a whole script."""
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."
