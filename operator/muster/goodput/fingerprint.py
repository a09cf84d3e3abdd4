"""Note what the ranks of an attempt ran with, to reproduce results and to trace failures to a change. Pure.

It is noted at the start of an attempt, where it differs from the one before. The digest of the environment leaves out
the values of variables whose name suggests a secret: a short value could otherwise be guessed from the digest.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from muster.api.endedjob import LABEL_LENGTH
from muster.api.goodput import MAX_FINGERPRINTS, Account, Fingerprint
from muster.api.trainingjob import TrainingJob
from muster.goodput.history import cleaned_text, model_of
from muster.world.job import JobWorld

REVISION = "muster.dev/git-revision"
"""Annotation of the job, or of its template, that says which revision of the code it runs."""
REVISION_VARIABLES = ("GIT_REVISION", "GIT_COMMIT", "GIT_SHA", "COMMIT_SHA")
SEVERAL = "several"
"""Stands for a value in which the workers differ."""
_FULL_DRIVER = "nvidia.com/cuda.driver-version.full"
_DRIVER_PARTS = ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev")
_SECRET = re.compile(r"(?i)token|secret|passw|passphrase|key|credential|auth|cookie|session|dsn|private|signature")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DIGEST_LETTERS = 16


def with_fingerprint(world: JobWorld, account: Account, attempt: int) -> Account:
    """Return the account with what this attempt starts with, if that differs from the last one."""
    made = fingerprint(world, attempt)
    last = account.fingerprints[-1] if account.fingerprints else None
    if last is not None and last.model_copy(update={"attempt": attempt, "collectives": ""}) == made:
        return account
    return account.model_copy(update={"fingerprints": [*account.fingerprints, made][-MAX_FINGERPRINTS:]})


def with_library(world: JobWorld, account: Account, attempt: int) -> Account:
    """Return the account with the collectives' library of this attempt, which is known once its ranks train."""
    collectives = _alike(
        cleaned_text(view.collectives, LABEL_LENGTH)
        for view in world.views.values()
        if view.attempt == attempt and view.collectives
    )
    last = account.fingerprints[-1] if account.fingerprints else None
    if not collectives or last is None or last.collectives == collectives or last.attempt > attempt:
        return account
    updated = last.model_copy(update={"collectives": collectives})
    if last.attempt == attempt or not last.collectives:
        return account.model_copy(update={"fingerprints": [*account.fingerprints[:-1], updated]})
    changed = updated.model_copy(update={"attempt": attempt})
    return account.model_copy(update={"fingerprints": [*account.fingerprints, changed][-MAX_FINGERPRINTS:]})


def fingerprint(world: JobWorld, attempt: int) -> Fingerprint:
    """Collect what the workers run with, as far as it is seen now."""
    nodes = [worker_view.node.labels if worker_view.node is not None else {} for worker_view in world.worker_views]
    return Fingerprint(
        attempt=attempt,
        image=_alike(
            _image(worker_view.container.image_id if worker_view.container else "")
            for worker_view in world.worker_views
        ),
        gpu_model=_alike(map(model_of, nodes)),
        driver=_alike(map(_driver, nodes)),
        environment=environment(world.job),
        revision=revision(world.job),
    )


def at_attempt(listed: Iterable[Fingerprint], attempt: int) -> Fingerprint | None:
    """Return what an attempt ran with; None where that is not known, or no longer."""
    return next((candidate for candidate in reversed(list(listed)) if candidate.attempt <= attempt), None)


def environment(job: TrainingJob) -> str:
    """Compute the digest of the trainer container's variables without values of secrets; "" where it has none."""
    container = _worker(job)
    env = [_variable(variable) for variable in _listed(container.get("env")) if isinstance(variable, Mapping)]
    sources = [source for source in _listed(container.get("envFrom")) if isinstance(source, Mapping)]
    if not env and not sources:
        return ""
    text = json.dumps([sorted(env), sources], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGEST_LETTERS]


def revision(job: TrainingJob) -> str:
    """Return the revision of the code from an annotation or a variable; "" without one."""
    metadata = job.spec.template.get("metadata")
    template = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    variables = {
        variable.get("name"): variable.get("value")
        for variable in _listed(_worker(job).get("env"))
        if isinstance(variable, Mapping)
    }
    values = [
        job.metadata.annotations.get(REVISION),
        template.get(REVISION) if isinstance(template, Mapping) else None,
        *(variables.get(name) for name in REVISION_VARIABLES),
    ]
    return next((cleaned_text(value, LABEL_LENGTH) for value in values if isinstance(value, str) and value.strip()), "")


def _worker(job: TrainingJob) -> Mapping[str, Any]:
    named = job.spec.launch.worker_container
    listed = job.spec.containers
    return next((container for container in listed if named is None or container.get("name") == named), {})


def _variable(variable: Mapping[str, Any]) -> tuple[str, str]:
    name, value = str(variable.get("name")), variable.get("value")
    if _SECRET.search(name):
        return name, ""
    return name, json.dumps(value if value is not None else variable.get("valueFrom"), sort_keys=True, default=str)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _image(image_id: str) -> str:
    """Return the digest of an image as the kubelet reports it; an image without a digest is returned unchanged."""
    match = _DIGEST.search(image_id)
    return match[0] if match else cleaned_text(image_id, LABEL_LENGTH)


def _driver(labels: Mapping[str, str]) -> str:
    parts = [labels[name] for name in _DRIVER_PARTS if labels.get(name)]
    return cleaned_text(labels.get(_FULL_DRIVER) or ".".join(parts), 32)


def _alike(values: Iterable[str]) -> str:
    distinct = set(values)
    return SEVERAL if len(distinct) > 1 else distinct.pop() if distinct else ""
