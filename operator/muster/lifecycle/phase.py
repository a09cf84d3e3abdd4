"""The phase of a job's life: chosen once for each step, from the facts alone.

Tests: tests/unit/lifecycle/test_burnin.py.
"""

from enum import StrEnum

from muster.lifecycle.facts import Facts


class Phase(StrEnum):
    """The phase of a job's life, in the order in which phases are looked for.

    Going: the job is being deleted. Finished: its end is recorded. Pending: it has no nodes. Ending: it has just ended.
    Recovering: something failed. Evacuating: members leave their nodes as planned. Assembling: the ranks have not
    started. Training: the ranks run.
    """

    GOING = "Going"
    FINISHED = "Finished"
    PENDING = "Pending"
    ENDING = "Ending"
    RECOVERING = "Recovering"
    EVACUATING = "Evacuating"
    ASSEMBLING = "Assembling"
    TRAINING = "Training"


def phase_of(facts: Facts) -> Phase:
    """Return the phase of a job.

    The end comes before failures, failures before planned evacuations, and these before assembling and training.
    """
    if facts.deleted:
        return Phase.GOING
    if facts.completion is not None:
        return Phase.FINISHED
    if facts.gang is None or not (facts.gang.spec.members or facts.failures):
        return Phase.PENDING
    if facts.end is not None:
        return Phase.ENDING
    if facts.failures or facts.settles:
        return Phase.RECOVERING
    if facts.evacuation is not None:
        return Phase.EVACUATING
    return Phase.ASSEMBLING if facts.gang.spec.start is None else Phase.TRAINING
