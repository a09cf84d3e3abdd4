"""In which phase of its life a job is: chosen once for each step, from the facts alone."""

from enum import StrEnum

from muster.lifecycle.facts import Facts


class Phase(StrEnum):
    """The phases, in the order in which they are looked for."""

    GOING = "Going"
    FINISHED = "Finished"
    PENDING = "Pending"
    ENDING = "Ending"
    RECOVERING = "Recovering"
    EVACUATING = "Evacuating"
    ASSEMBLING = "Assembling"
    TRAINING = "Training"


def phase_of(facts: Facts) -> Phase:
    """The phase: the end before failures, failures before planned evacuations, and those before what goes on by
    itself."""
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
