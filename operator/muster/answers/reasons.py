"""Every reason that the operator writes into a condition or an Event, with what a reader needs to know of it.

One table for all: `docs/reference/messages.md` is rendered from it, and `kubectl muster status` takes its next steps
from it. `tests/unit/answers/test_reasons.py` proves that it names each reason that the code can write, and no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from muster.api.installation import name_component


class Topic(StrEnum):
    """The chapters of the table: where a reader meets the reason."""

    WAITING = "Why a job waits"
    MANIFEST = "Warnings about the manifest of a job"
    TRAINING = "Warnings about a job that trains"
    REFUSED = "What a job cannot start with"
    ENDED = "The end of a job"
    WELL = "Nothing is wrong"
    BURN_IN = "The burn-in"
    FAILURES = "What was seen to fail"
    PLANNED = "Nodes that a job leaves on purpose"
    NODES = "Events of nodes"
    REPAIRS = "Repairs of nodes"
    POLICY = "Events of the FleetPolicy"


WAITS = "TrainingJob: REASON, conditions, Event"
TRAINS = "TrainingJob: REASON, condition Running, Event"
WARNS = "TrainingJob: WARNING, status.warnings, Event"
TRAINS_WARNS = "TrainingJob: REASON, WARNING, status.warnings, condition Running, Event"
STALLS = "TrainingJob: REASON, conditions Stalled and Running, Event"
ENDS = "TrainingJob: REASON, condition Succeeded, Event"
JOB_EVENT = "TrainingJob: Event"
INCIDENT = "TrainingJob: Event, status.incidents"
NODE_EVENT = "Node: Event"
VERDICT = "Node, NodeHealth: Event"
REPAIR = "Node: Event; NodeHealth: finding"
POLICY_EVENT = "FleetPolicy: Event"


@dataclass(frozen=True, slots=True)
class Reason:
    """What one reason means, or several that mean the same.

    Attributes:
        names: as they stand in `reason`; several are separated by a comma and a space.
        topic: where a reader meets it.
        shown: the objects and fields in which it stands.
        happened: what happened, to which object.
        muster: what Muster does now.
        reader: what the reader can do.
        example: a message as the code writes it; "" where another program writes the message.
        next: commands that `status` prints for a job with this reason. {inside} is kubectl in the job's namespace,
            {job} its name; {logs} and {pods} print and describe its workers.
    """

    names: str
    topic: Topic
    shown: str
    happened: str
    muster: str
    reader: str
    example: str = ""
    next: Sequence[str] = ()

    @property
    def each(self) -> list[str]:
        """Return the names one by one."""
        return self.names.split(", ")


OPERATOR_LOGS = "kubectl -n muster-system logs -l app.kubernetes.io/name=muster --tail=50"
_SEE_IMAGE = ("see the image, its pull secret and the registry's answer: {pods}",)
_NOTHING = "Nothing needs to be done."
_GONE = (
    "Nothing needs to be done in mode Managed. In mode Plain the status asks for `kubectl muster lost NODE`, where "
    "nothing else proves that the ranks have ended."
)
_ACCEPT = (
    "Correct the manifest, delete the job and create it again. If it is right as it is, add the reason to "
    "`spec.acceptedWarnings`."
)
_NEXT_ACCEPT = (
    "or start it all the same: {inside} patch tj {job} --type=json -p "
    """'[{{"op":"add","path":"/spec/acceptedWarnings/-","value":"%s"}}]'"""
)
_AGAIN = "Delete the job, correct it, and create it again."
_RESTARTS = "It restarts the gang from the newest complete checkpoint."
_MOVES = (
    "It restarts the gang from the newest complete checkpoint, with this worker on another node. In mode Plain all "
    "pods are new."
)

REASONS: tuple[Reason, ...] = (
    # Why a job waits.
    Reason(
        "InsufficientNodes",
        Topic.WAITING,
        WAITS,
        "Fewer nodes are free and suitable than the job needs. The message counts them, and says why the rest is not.",
        "The job keeps its place in the queue and starts by itself.",
        "Free nodes, uncordon nodes, create the job with fewer `nodes`, or wait.",
        "needs 1 more node: 0 of the fleet's 4 are free and suitable (3 already used by this job, 1 avoided after a "
        "failure there); would help: wait until 1 node that failed lately is taken again, ten minutes after the "
        "failure",
    ),
    Reason(
        "FormerPodsEnding",
        Topic.WAITING,
        "TrainingJob: REASON, conditions",
        "The job was deleted and created again under its name, and pods of the job before still hold nodes.",
        "The job keeps its place in the queue and starts once they have ended, as a rule within seconds.",
        "Wait. If a pod stays, its node may be lost: `kubectl get pods -l muster.dev/job=NAME -o wide` names it.",
    ),
    Reason(
        "TopologyUnsatisfied",
        Topic.WAITING,
        WAITS,
        "Enough nodes are free, but not within one domain of `placement.required`.",
        "The job keeps its place in the queue and starts by itself.",
        "Wait, or create the job without `placement.required`.",
    ),
    Reason(
        "NeverFits",
        Topic.WAITING,
        WAITS,
        "The job would not fit even if the whole fleet were free. The message has the numbers.",
        "The job reserves no nodes. It starts by itself if nodes come back, or are uncordoned.",
        "Create the job with fewer nodes, another topology level, or other selectors.",
    ),
    Reason(
        "BehindInQueue",
        Topic.WAITING,
        WAITS,
        "Nodes are free, but the queue keeps them for earlier jobs, which the message names.",
        "The job keeps its place in the queue and starts by itself.",
        "Read how the [queue](docs/queueing.md) orders jobs.",
    ),
    Reason(
        "WaitingForPreemption",
        Topic.WAITING,
        WAITS,
        "Other jobs, which the message names, [give their nodes to it](docs/queueing.md#jobs-that-give-way).",
        "They are asked to save, and leave within their `spec.checkpoint.saveTimeoutSeconds`. Then the job starts.",
        _NOTHING,
        "needs 3 nodes: team-a/sweep gives way to it after a save",
    ),
    Reason(
        "NotEnabled",
        Topic.WAITING,
        WAITS,
        "No job of the namespace starts. The FleetPolicy does not select the namespace, there is no FleetPolicy, or "
        "Muster has not read yet what decides it. The message says which.",
        "The job waits and reserves nothing. A gang that has nodes keeps them and is repaired.",
        "Have an administrator run the command that the message names.",
        "namespace team-a is not enabled for training; would help: an administrator enables it: kubectl label "
        "namespace team-a muster.dev/training=enabled",
    ),
    Reason(
        "NamespaceLimit",
        Topic.WAITING,
        WAITS,
        "The jobs of the namespace hold as many nodes as the FleetPolicy allows.",
        "The job waits. As an Event: the job's record named more nodes than that limit allows, so Muster made no "
        "pods and queued the job again.",
        "End other jobs of the namespace, or have the limit raised.",
        "the job's record names 3 nodes, more than the limit of namespace default has room for: it may hold 2, and "
        "its other jobs have 0. Muster makes no pods on them and puts the job back into the queue. End other jobs "
        "of the namespace, or ask the fleet's administrators for a higher limit (spec.queueing of FleetPolicy "
        "default).",
    ),
    Reason(
        "QuotaExceeded",
        Topic.WAITING,
        WAITS,
        "A [ResourceQuota](docs/queueing.md#resourcequotas) has too little room for all pods of the job. The "
        "message names quota, resource and amounts.",
        "The job starts by itself when there is room.",
        "Raise the quota, or wait until pods of the namespace end.",
        next=("see the quota: {inside} describe resourcequota",),
    ),
    Reason(
        "NodeNotUsable",
        Topic.WAITING,
        WAITS,
        "Before its pod was bound, the node of a worker was cordoned, tainted, filled, found faulty or left out by "
        "`spec.scope` of the FleetPolicy.",
        "The worker goes to another node.",
        _NOTHING,
        "The node of a worker can no longer run its pod: worker 2 on n2 (cordoned). Muster moves it: attempt 2 on "
        "n0, n1, n3 (1 block, 2 racks)",
    ),
    Reason(
        "AssemblyTimedOut",
        Topic.WAITING,
        WAITS,
        "The pods of the job were not all on their nodes within the time limit. The Event says why.",
        "The nodes are free again. The next try is at the time named. The job [stands behind the "
        "others](docs/queueing.md#when-a-gang-cannot-be-assembled) for an hour or longer; after several such jobs "
        "all jobs of the namespace do.",
        "Repair what the Event names.",
        "The gang was not assembled within 300 s: worker 2 on n2: its pod is not bound: busy. Muster has given its "
        "nodes back and tries again in 60 s. Until then, repair what is named or free other nodes. For an hour or "
        "longer the job stands behind all other jobs in the queue. After 3 such jobs of namespace default in a day, "
        "all of its jobs stand behind those of other namespaces",
    ),
    Reason(
        "NodesYielded",
        Topic.WAITING,
        WAITS,
        "The gang lost a node and found no other within `assemblyTimeoutSeconds`, while other jobs waited.",
        "The job gave all its nodes back and keeps its place in the queue.",
        "Free or repair a node, or wait.",
        "The gang found no nodes for all of its workers within 300 s: needs 1 more node: 0 of the fleet's 3 are free "
        "and suitable (2 already used by this job, 1 cordoned); and other jobs wait for nodes. Muster has given its "
        "nodes back and tries again in 60 s. Until then, repair what is named or free other nodes",
    ),
    Reason(
        "Assembling",
        Topic.WAITING,
        "TrainingJob: conditions Running and Reconciling",
        "The job has nodes, and its pods and launchers are on their way.",
        "The ranks start when every launcher has reported.",
        _NOTHING,
        "creating pods",
    ),
    Reason(
        "SchedulingGated",
        Topic.WAITING,
        WAITS,
        "A webhook holds a pod of the job back by a scheduling gate.",
        "Muster binds the gang when the gate is removed.",
        "Ask the owner of the gate that the message names.",
        "Pod job-5b6d5-1-1 has the scheduling gate example.org/quota. Muster binds the pods of the gang once the "
        "gate's owner has removed it.",
    ),
    Reason(
        "WaitingForOldPods",
        Topic.WAITING,
        WAITS,
        "The Gang of the job was deleted by hand, and pods of it still run.",
        "The job starts again once its old pods have ended.",
        "If the node of such a pod is gone for good: `kubectl muster lost NODE`.",
        "The job's Gang was deleted, and pod job-5b6d5-0-1 on node n0 has not ended. The job starts again once all "
        "of its old pods have ended. If that node is gone for good, run: kubectl muster lost n0",
    ),
    Reason(
        "ErrImagePull, ImagePullBackOff, ImageInspectError, ErrImageNeverPull",
        Topic.WAITING,
        WAITS,
        "The node cannot pull the image that the message names.",
        "The kubelet tries again; the gang starts when all pods run.",
        "Check name, tag, pull secret and registry. With `imagePullPolicy: Never` the node must have the image "
        "already.",
        next=_SEE_IMAGE,
    ),
    Reason(
        "InvalidImageName",
        Topic.WAITING,
        WAITS,
        "The name of an image in `spec.template` is not valid.",
        "The pods wait, and never start.",
        _AGAIN,
        next=("correct the image in spec.template: delete the job and create it again",),
    ),
    Reason(
        "Unschedulable",
        Topic.WAITING,
        WAITS,
        "The scheduler refuses a pod on the node that Muster chose; the message has the scheduler's text.",
        "Muster waits for the scheduler, then frees the nodes and tries again.",
        "Correct what the scheduler names: volumes, affinity, requests.",
        next=("see why the scheduler refuses: {pods}",),
    ),
    Reason(
        "PodNotRunning",
        Topic.WAITING,
        WAITS,
        "A pod of the job does not run yet. Why not stands in Events of its kubelet (FailedMount, "
        "FailedCreatePodSandBox), which Muster has no right to read.",
        "After 15 min the worker moves to another node, if other pods run.",
        "Run the `kubectl describe pod` of the message. Create what is missing of the objects that the message names: "
        "the kubelet tries again by itself.",
        "waiting for the pod of worker 3 on n3 to run. Its kubelet has created no container of it yet: it pulls "
        "images, or mounts ConfigMap settings, claim data. What fails stands at the end of: kubectl describe pod -n "
        "team job-5b6d5-3-1",
        next=("see what the pod waits for: {pods}",),
    ),
    Reason(
        "LauncherSilent",
        Topic.WAITING,
        WAITS,
        "The launcher of a worker does not reach the operator.",
        "The job is Stalled after 10 min without a report of any of its launchers. It starts by itself once all "
        "report.",
        "Check the pod's log, DNS, and network policies to `muster-coordinator.muster-system:8443`.",
        "waiting for the launcher of worker 3 on n3 to report: if that lasts, check its log and the network "
        "policies between it and the Service muster-coordinator",
        next=("see whether the launcher reaches the operator: {logs}",),
    ),
    Reason(
        "OldRanksAlive",
        Topic.WAITING,
        WAITS,
        "The old processes of a worker do not end, for example because storage or a driver keeps them in D state.",
        "After 30 s Muster replaces the pod.",
        "If it repeats, look at storage and driver of that node.",
        "waiting for worker 3 on n3 to end its old ranks",
    ),
    Reason(
        "OldRanksNotFenced",
        Topic.WAITING,
        WAITS,
        "A lost worker may still be running, cut off from Muster. The message names its pod and its node.",
        "The next attempt starts when one of these [proves its end](docs/decisions/0012-proof-of-death.md). The pod "
        "has ended, or its kubelet has sent heartbeats for 90 s since the pod is gone. The launcher's fence (15 s, "
        "longer for long steps) or the fence file in the checkpoint directory has run out. The node was rebooted, or a "
        "time limit of the job has passed.",
        "Set `spec.recovery.unfencedTimeoutSeconds`, or run `kubectl muster lost NODE` if the machine is off. If "
        "the message names another checkpoint directory, the volume is missing in a pod, or is not shared.",
        "Pod job-5b6d5-0-1 on node n0 may still be training: the whole gang lost contact at once. The fence file in "
        "the checkpoint directory stops it by 10:32:15 UTC at the latest.",
    ),
    Reason(
        "CheckpointsNotListed",
        Topic.WAITING,
        WAITS,
        "A worker cannot list the checkpoint directory: the file system hangs or is not mounted.",
        "Nothing starts from scratch because of it. The job is Stalled after 10 min and starts once the storage "
        "answers.",
        'Repair the mount. What "unverified" means of an object store: '
        "[here](docs/checkpoints.md#when-the-store-cannot-be-seen).",
        "waiting for worker 0 on n3 to list the checkpoints",
    ),
    Reason(
        "CheckpointsNotVerified",
        Topic.WAITING,
        WAITS,
        "The newest checkpoint is still being verified, which takes long for a large one on slow storage.",
        "The job is Stalled after 10 min. It starts by itself once the verification ends.",
        "Wait, or name another step in `spec.checkpoint.resumeFrom`.",
    ),
    Reason(
        "LocalCheckpointsNotListed",
        Topic.WAITING,
        WAITS,
        "A launcher has not yet listed [its node's own disk](docs/checkpoints.md#on-the-nodes-own-disks).",
        "The start waits 30 s at most, then uses the shared directory and says so.",
        "If it repeats, check that disk.",
    ),
    Reason(
        "IncompleteNotMoved",
        Topic.WAITING,
        WAITS,
        "With `spec.checkpoint.moveIncomplete`: an incomplete checkpoint was not moved.",
        "As an Event: the move failed and the start went on without it. As a REASON: the file system does not "
        "answer, so the start waits; the job is Stalled after 10 min.",
        "Check whether the mount is read-only, rights are missing, or `.muster-incomplete` is a link.",
        "The start waits for worker 0 on n0 to move what is beyond checkpoint 100 and incomplete",
    ),
    Reason(
        "CheckpointPointerMisleads",
        Topic.WAITING,
        WAITS,
        "The file by which the framework finds its newest checkpoint (`latest`, "
        "`latest_checkpointed_iteration.txt`, `latest-rank0.pt`, `dlrover_latest.txt`) is wrong. It is missing, "
        "empty, or names what is incomplete or gone.",
        "The start waits: the program would begin from scratch, or fail. It starts by itself once the file is right.",
        "Write into the file what the message says; remove it where the first save was cut short. Or set "
        "`spec.checkpoint.resumePreset` to the framework, or to `Off` where the program reads `MUSTER_RESUME_PATH`.",
        "latest names global_step40, which is not complete: DeepSpeed would fail to load it. Remove latest. Or set "
        "spec.checkpoint.resumePreset: Off, if the program does not go by it",
    ),
    Reason(
        "CheckpointNotVisible",
        Topic.WAITING,
        WAITS,
        "A worker does not see the newest complete checkpoint.",
        "60 s after the last listing the job is Stalled.",
        "Repair the mount on the node named, or set `spec.checkpoint.resumeFrom` to what the message offers.",
        "worker 2 on n2 does not see checkpoint 1000 (/checkpoints/1000), worker 0 on n0 does. Repair the mount of "
        "spec.checkpoint.directory there (it has to be one shared directory; what is on each node's own disk "
        "belongs into spec.checkpoint.localDirectory), or set spec.checkpoint.resumeFrom to Scratch.",
    ),
    Reason(
        "CheckpointSuspect",
        Topic.WAITING,
        f"{WAITS}; {WARNS}",
        "Two attempts in a row [resumed from the same checkpoint and failed before their first "
        "step](docs/checkpoints.md#a-checkpoint-that-cannot-be-loaded).",
        "The start waits some seconds until it is known whether a node was at fault. If none was, it resumes from the "
        "next older complete checkpoint, and the job has this as a warning.",
        "Find out why the newest cannot be loaded. For a program that finds its newest checkpoint itself set "
        "`spec.checkpoint.moveIncomplete` when the job is created. `spec.recovery.fallBackFromUnloadable: false` keeps "
        "the job at its newest checkpoint.",
        "waiting to know why the last start from checkpoint 1000 (/checkpoints/1000) failed",
    ),
    Reason(
        "EveryCheckpointSuspect",
        Topic.WAITING,
        WAITS,
        "The trainer [found its results wrong](docs/trainer-contract.md#when-results-are-wrong), and no complete "
        "checkpoint is left from before.",
        "The job is Stalled until its user decides.",
        "Check the checkpoints that the message names, then set `spec.checkpoint.resumeFrom` to a step or to "
        "`Scratch`. To ask for the same value again, clear the field first.",
    ),
    Reason(
        "ResumeFromNotFound",
        Topic.WAITING,
        WAITS,
        "`spec.checkpoint.resumeFrom` names no complete checkpoint that every worker sees. For `job/NAME`: the job "
        "does not exist, or a worker does not see its directory.",
        "The start waits; the message lists the checkpoints there are.",
        "Correct the field. For `job/NAME` mount the same volume at the same path, or give the image and "
        'credentials for its URL. "unverified" is said of a '
        "[store](docs/checkpoints.md#when-the-store-cannot-be-seen).",
    ),
    Reason(
        "CheckpointsBehindResumeFrom",
        Topic.WAITING,
        WAITS,
        "The job began from another checkpoint, and its own newest one has no higher step. Its steps may have begun "
        "again.",
        "The start waits, since the highest step may not be the newest training.",
        "Set `spec.checkpoint.resumeFrom` to the checkpoint that counts; the message has both.",
    ),
    Reason(
        "ResumePresetMismatch",
        Topic.WAITING,
        WAITS,
        "The framework that `spec.checkpoint.resumePreset` names cannot load this checkpoint. Its format, its place "
        "or its [store](docs/checkpoints.md#in-object-stores) does not fit, or a shell would not pass the options "
        "on.",
        "The start waits.",
        "Set the field to what the message says; it may be changed now.",
        "spec.checkpoint.resumePreset is Lightning, which does not load /c/iter_0000040: it is written as Megatron. "
        "Set it to Megatron, or to Off",
    ),
    Reason(
        "TooManyCheckpoints",
        Topic.WAITING,
        WAITS,
        "More than 256 checkpoints have a higher step than the one that `spec.checkpoint.resumeFrom` names.",
        "The start waits.",
        "Move the checkpoints that shall not count out of the directory.",
    ),
    Reason(
        "CrashLoopBackOff",
        Topic.WAITING,
        WAITS,
        "The job failed three times or more without a new checkpoint in between. Where the message names a "
        "container, that sidecar (`restartPolicy: Always`) ends again and again.",
        "The next start waits, longer each time: 10 s first, 5 min at most.",
        "Read the log of the failed rank, or of the sidecar.",
        "failed 3 times or more without a new checkpoint; next start at 00:01:26 UTC",
        next=("what the ranks printed before they failed: {logs}",),
    ),
    Reason(
        "AwaitingEvidence",
        Topic.WAITING,
        "TrainingJob: REASON, conditions Running and Reconciling",
        "The restart budget is used up.",
        "Muster waits a few seconds for evidence that the job did not cause the failure.",
        _NOTHING,
        "the restart budget is used up: Muster waits a few seconds for evidence that the job did not cause its "
        "failures, and otherwise ends the job",
    ),
    Reason(
        "WebhookFailed",
        Topic.WAITING,
        WAITS,
        "An admission webhook does not answer, and the API server creates no pod without it.",
        "Muster tries again after 30 s, then less and less often, at last every five minutes.",
        "Check Service and pods of the webhook that the message names.",
        'failed calling webhook "w.example.com": connection refused. Creation is tried again. See that the '
        "webhook's Service has a pod that is Ready, or ask for its failurePolicy.",
    ),
    Reason(
        "DryRunUnsupported",
        Topic.WAITING,
        WAITS,
        "An admission webhook declares side effects, so the API server refuses the dry run that checks the template.",
        "Muster repeats the check, at last every five minutes.",
        "Set `sideEffects` of the webhook to `None` or `NoneOnDryRun`, or exclude the namespace from it.",
    ),
    Reason(
        "NamespaceTerminating",
        Topic.WAITING,
        WAITS,
        "The namespace of the job is being deleted.",
        "The API server refuses new pods.",
        "Create the job in another namespace.",
    ),
    Reason(
        "PriorityClassMissing",
        Topic.WAITING,
        WAITS,
        "The PriorityClass that the job's template names does not exist, so the API server refuses the job's pods.",
        "A job without nodes waits for the class, for a minute at its place in the [queue](docs/queueing.md). One that "
        "has nodes goes on, and no other preempts it.",
        "Have the class created, or create the job again with another one.",
        'pods "llama-0-trial-" is forbidden: no PriorityClass with name gold was found. It is tried again. To change '
        "that, create it (kubectl create priorityclass gold --value=VALUE), or delete the job and create it again with "
        "another class.",
        next=("see which classes there are: kubectl get priorityclasses",),
    ),
    Reason(
        "StepPatternNotTested",
        Topic.WAITING,
        WAITS,
        "The operator's child process that compiles `spec.progress.stepPattern` was killed twice.",
        "Muster tries again after 30 s, then less and less often.",
        "If it lasts, check whether `muster-system` lacks memory.",
    ),
    Reason(
        "RecordUnreadable",
        Topic.WAITING,
        STALLS,
        "The Gang of the job does not fit its schema: it was edited by hand, or a newer Muster wrote it.",
        "Muster changes nothing for this job, and training goes on.",
        "Restore the Gang, or install the version of Muster that wrote it.",
        "The Gang llama-5b6d5 of the job does not fit its schema (spec.attempt: not a number). Muster does nothing to "
        "the job, and its workers go on as they are. Run the version of Muster that wrote the Gang, or delete the "
        "Gang: the job then starts again once its pods have ended.",
        next=("see the record: {inside} get gangs -o yaml",),
    ),
    # Warnings about a job's manifest.
    Reason(
        "NodesTrainAlone",
        Topic.MANIFEST,
        f"{STALLS}; {WARNS}",
        "The command starts the program so that each node trains for itself, e.g. `torchrun --standalone` on several "
        "nodes. All of them would save over each other.",
        "Where that is certain, the job does not start (Stalled), unless it has had nodes before.",
        _ACCEPT,
        "torchrun --standalone counts in place of what Muster sets, so that the 2 nodes would each train alone: take "
        "it out, the PET_ variables say where they are. This job does not start. To start it all the same, add "
        "NodesTrainAlone to spec.acceptedWarnings",
        next=("correct the command: {inside} delete tj {job}, and apply it again", _NEXT_ACCEPT % "NodesTrainAlone"),
    ),
    Reason(
        "DirectoryInUse",
        Topic.MANIFEST,
        f"{WAITS}; {WARNS}",
        "Another job of the namespace has the same `checkpoint.directory`. It holds nodes, is older and waits for "
        "some, or was deleted or ejected and has pods that have not ended. The two would go on from each other's "
        "checkpoints, or write over them.",
        "The job waits (Pending) until the others have ended, been suspended or deleted.",
        "Give the job a directory of its own: delete it, correct it, and create it again. If the node of pods that "
        "have not ended is dead, run `kubectl muster lost NODE`. If both jobs have to use the directory, add the "
        "reason to `spec.acceptedWarnings`.",
        "spec.checkpoint.directory is that of llama, too: each may go on from the checkpoints of the other, or write "
        "over them. Give each job a directory of its own. This job waits until they have ended. To start it all the "
        "same, add DirectoryInUse to spec.acceptedWarnings",
        next=(
            "give it another directory: {inside} delete tj {job}, and apply it again",
            _NEXT_ACCEPT % "DirectoryInUse",
        ),
    ),
    Reason(
        "DirectoryShared",
        Topic.MANIFEST,
        WARNS,
        "Another job that has not ended has the same `checkpoint.directory`. Jobs of other namespaces are not named.",
        "The job runs.",
        _ACCEPT,
    ),
    Reason(
        "NodesCannotMeet",
        Topic.MANIFEST,
        WARNS,
        "Options of the command give each node the same rank or address, or another number of nodes than the job has. "
        "The ranks would wait for each other, and fail after their time-out.",
        "The job runs.",
        _ACCEPT,
    ),
    Reason(
        "LauncherUnfit",
        Topic.MANIFEST,
        WARNS,
        "The command starts ranks by Slurm or by ssh (`srun`, `mpirun`), which reach no other node here.",
        "The job runs, and most likely fails.",
        "Start the program with torchrun, or set `launch.processesPerNode`.",
    ),
    Reason(
        "StarterRestartsRanks",
        Topic.MANIFEST,
        WARNS,
        "torchrun or a program built on it restarts ranks by itself (`--max-restarts`). It hands them the checkpoint "
        "with which the attempt began, so that what was saved since is trained again.",
        "The job runs.",
        "Leave the option out: Muster restarts ranks.",
    ),
    Reason(
        "ExitCodeHidden",
        Topic.MANIFEST,
        WARNS,
        "The shell's line of the command (`bash -c`) loses the exit code of the program that trains, e.g. by `| tee` "
        "without `pipefail`, `|| true`, `; exit 0`, or `&` and `wait`. Each failure of the program looks like a "
        "success.",
        "The job runs. When the program fails, the job is Succeeded, and nothing is restarted.",
        "Correct the line as the warning says, delete the job and create it again. If the exit code does not matter, "
        "add the reason to `spec.acceptedWarnings`.",
        "the shell's line pipes train.py into tee, and goes on with the exit code of tee: each failure of train.py "
        "counts as success, so that the job would be Succeeded and nothing would be restarted. Put `set -o pipefail;` "
        "in front of the line",
    ),
    Reason(
        "CannotStartAgain",
        Topic.MANIFEST,
        WARNS,
        "A command in the shell's line (`git clone`, `mkdir` without `-p`) fails where its directory is there, and the "
        "line ends with it. Ranks are started again in pods that stay, so that it is there at each restart.",
        "The job runs. After its first failure no rank starts.",
        "Correct the line as the warning says, delete the job and create it again.",
        "`git clone https://example.org/code.git /workspace/code` in the shell's line fails where its directory is "
        "there, and the line ends with it: ranks are started again in pods that stay. Put `[ -d DIRECTORY ] ||` in "
        "front of it",
    ),
    Reason(
        "ProcessesUnclear",
        Topic.MANIFEST,
        WARNS,
        "The number of processes on each node does not seem to fit its GPUs. One Python process has all of them, a "
        "starter is itself started several times, or the command of a job with GPUs names the CPU.",
        "The job runs.",
        _ACCEPT,
    ),
    Reason(
        "AcceleratorsNotCounted",
        Topic.MANIFEST,
        WARNS,
        "The template asks for accelerators that the fleet does not count (`google.com/tpu`, a MIG slice), and "
        "`spec.gpusPerNode` is 0. With another `gpusPerNode` such a job is refused (`AcceleratorMismatch`): no node "
        "has both.",
        "The job runs. The burn-in does not test these accelerators, and no account has their hours.",
        "Where the whole fleet has these accelerators, name them in `spec.acceleratorResource` of the FleetPolicy, and "
        "write `spec.gpusPerNode` in the place of the limit. Else add the reason to `spec.acceptedWarnings`.",
    ),
    Reason(
        "DirectoryOnNoVolume",
        Topic.MANIFEST,
        WARNS,
        "No volume of the trainer's container is mounted at `checkpoint.directory` or above it. What is saved there is "
        "lost with its pod, and other workers do not see it.",
        "The job runs.",
        "Mount a volume that all workers share, or correct `checkpoint.directory`: delete the job, correct it, and "
        "create it again. It goes once two workers see one checkpoint. Where the directory is a link to a mount, "
        "or something else adds the volume to pods, add the reason to `spec.acceptedWarnings`.",
        "spec.checkpoint.directory /ckpt lies on no volume: the trainer (container main) mounts /data. What it saves "
        "there is lost with its pod, and no other worker sees it. Mount a volume there that all workers share (a claim "
        "with ReadWriteMany, NFS), or name a directory below /data",
    ),
    Reason(
        "DirectoryOnPodVolume",
        Topic.MANIFEST,
        WARNS,
        "`checkpoint.directory` lies on a volume that ends with its pod (`emptyDir`, `ephemeral`), or to which no "
        "program can write (`image`, `configMap` and the like).",
        "The job runs.",
        "As for `DirectoryOnNoVolume`. What each node may lose belongs into `checkpoint.localDirectory`.",
    ),
    Reason(
        "SavesElsewhere",
        Topic.MANIFEST,
        WARNS,
        "An option of the command (`--output_dir`, `--save`, `--save-dir` and the like) names another directory than "
        "`checkpoint.directory`, and no checkpoint was seen in that one.",
        "The job runs. Where it saves elsewhere, its restarts get no checkpoint from Muster.",
        "Name one directory in both: delete the job, correct it, and create it again. Where the two lead to the same "
        "storage, or the option means something else, add the reason to `spec.acceptedWarnings`.",
        "the command says --output_dir /scratch/x, and spec.checkpoint.directory is /shared/run-7: Muster sees no "
        "checkpoint that is saved elsewhere, and restarts would begin without one. Write /shared/run-7 into the "
        "command, or correct spec.checkpoint.directory",
    ),
    # Warnings about a job that trains.
    Reason(
        "CheckpointNotShared",
        Topic.TRAINING,
        WARNS,
        "A worker has seen no checkpoint of this attempt that another worker has seen for three minutes. The "
        "directory is not one for both.",
        "Training goes on. After a lost pod the job would be Stalled (`CheckpointNotVisible`).",
        "Correct the mount before a fault needs it: suspend the job, copy the checkpoints to a shared volume, and "
        "create the job again with that.",
        "worker 1 on n1 does not see the checkpoints in /checkpoints that worker 0 on n0 does: the directory is not "
        "shared, and what it holds may be lost with a pod or node. Mount one volume there in all workers (a claim with "
        "ReadWriteMany, NFS), or correct spec.checkpoint.directory. What is on each node's own disk belongs into "
        "spec.checkpoint.localDirectory",
    ),
    Reason(
        "WorkersSilent",
        Topic.TRAINING,
        TRAINS_WARNS,
        "Workers are silent, but nothing proves yet that they are lost.",
        "Muster waits for a second sign that they are lost (such as a node that is not Ready) or for a step.",
        "Check the nodes, the logs of the workers, and network policies to `muster-coordinator`.",
        "silent for 20 s or more: 2 of 16 workers, the first is worker 4; waiting for a second sign or for a step",
        next=("see the nodes: kubectl muster nodes", f"what the operator says: {OPERATOR_LOGS}"),
    ),
    Reason(
        "NodeSilent",
        Topic.TRAINING,
        TRAINS_WARNS,
        "A node of a job in mode Plain sends no heartbeat and is not ready. Its ranks may have ended or train on.",
        "It restarts the gang once the node is back and shows that the ranks have ended. It also does so once the "
        "machine is declared lost, or after `spec.recovery.unfencedTimeoutSeconds`, if that is set.",
        "Bring the machine back. If it is dead, declare it lost.",
        "no heartbeat of n1, not ready. In launch.mode Plain nothing shows whether the ranks there have ended, so "
        "Muster does not restart the job by itself. Bring the machines back. If they are dead, run: kubectl muster "
        "lost n1, or set spec.recovery.unfencedTimeoutSeconds",
        next=("see the nodes: kubectl muster nodes",),
    ),
    Reason(
        "NoNodeToMoveTo",
        Topic.TRAINING,
        TRAINS_WARNS,
        "Workers should leave nodes (cordoned, degraded, near their maintenance, being removed, or in "
        "`spec.placement.avoidNodes`), and for none of them another suitable node is free.",
        "Training goes on. Of several workers those move at a checkpoint that can, the others later. In mode Plain all "
        "move at once.",
        "Free a node, uncordon those, or take them out of `spec.placement.avoidNodes`.",
        "The job should leave n1 (NodeDegraded), n2 (NodeCordoned), but no other suitable node is free. Training goes "
        "on; a worker moves at a checkpoint once a node is free. Free one to let it move.",
        next=("see what could be freed: kubectl muster nodes",),
    ),
    Reason(
        "SaveRequestUnanswered",
        Topic.TRAINING,
        TRAINS_WARNS,
        "A [request to save](docs/trainer-contract.md#to-save-and-go-on) brought no new "
        "complete checkpoint within `spec.checkpoint.saveTimeoutSeconds`.",
        "Training goes on, and nothing is held against the job. The warning ends with the next complete checkpoint, "
        "the next request, or without the field.",
        "Have the program look for requests, or wait for its next save.",
        "no new checkpoint was complete within 300 s of the request to save (2026-05-01T12:00:00Z): the program does "
        "not look for requests at the end of its steps, or its save takes longer. Training goes on",
    ),
    Reason(
        "FailureHeld",
        Topic.TRAINING,
        TRAINS,
        "A rank failed or hangs, and `spec.recovery.onFailure` of the job is `Hold`.",
        "It leaves pods and remaining ranks as they are until the time in the message. A failure of a node or pod, a "
        "node to leave and a suspension end the hold earlier. Then Muster recovers the job, or fails it if no restart "
        "is left.",
        "Look into the pods, then end the hold: it keeps the job's nodes.",
        "Attempt 1 is held until 2026-05-01 13:00:00 UTC, so that you can look into it: kubectl muster shell "
        "team/llama --worker 0. Pods and ranks stay as they are. Set spec.recovery.onFailure to Recover to go on now, "
        "or end the job with kubectl muster cancel. What happened: rank 0 exited with code 1",
        next=(
            "look into the worker: kubectl muster shell {called}",
            "end the hold, and go on: {inside} patch tj {job} --type=merge -p "
            '\'{{"spec":{{"recovery":{{"onFailure":"Recover"}}}}}}\'',
            "end the job: kubectl muster cancel {called}",
        ),
    ),
    Reason(
        "SaveRequested, SavedOnRequest",
        Topic.TRAINING,
        JOB_EVENT,
        "`spec.checkpoint.saveRequest` has a new value, as "
        "[`kubectl muster save`](docs/cli.md#kubectl-muster-save-job) writes it; or what it asked for is saved.",
        "The program is asked to save and go on.",
        _NOTHING,
        "Checkpoint 1200 is complete. It was asked for by 2026-05-01T12:00:00Z.",
    ),
    Reason(
        "EjectionWaits",
        Topic.TRAINING,
        TRAINS_WARNS,
        "`spec.eject` is true, and a worker could not be told now that it may go on without Muster. The message names "
        "it. Or the job is preemptible or backfills.",
        "It looks after the job as ever, a failure restarts it, and it ejects the gang once all its ranks run and "
        "every launcher reports.",
        "Wait, or set `spec.eject` to false. Launchers of an earlier release cannot be ejected: suspend the job and "
        "let it go on, and they are new. A job that is preemptible, or backfills, has to "
        "[give way](docs/queueing.md#jobs-that-give-way) to others: create it again without `queueing.preemptible`.",
        "spec.eject is set, and the job is not ejected yet: worker 1 on n1 does not report. Until then Muster looks "
        "after it as usual",
    ),
    Reason(
        "Ejecting, Ejected",
        Topic.TRAINING,
        "TrainingJob: REASON, conditions Ejected, Running and Stalled, Event",
        "The gang has left Muster on a user's request. Ejected: every worker that may live knows that it may go on "
        "without; with the condition Stalled, all of its pods have ended. Ejecting: the message names those that were "
        "not heard to know of it.",
        "It decides nothing about the gang any more. While the TrainingJob is there, its pods count as the job's.",
        "Ejected: run `kubectl muster eject JOB` to its end, which deletes the TrainingJob and leaves the pods alone. "
        "Ejecting, for longer than a minute: the node of the worker may be dead. Delete the job and create it again: "
        "it goes on from its newest checkpoint.",
        "every worker trains on without Muster until its ranks end. The TrainingJob is what is left of it; to delete "
        "it and leave the pods alone: kubectl muster eject -n team-a llama",
        next=("delete the TrainingJob and leave its pods alone: kubectl muster eject {called}",),
    ),
    Reason(
        "FailsAtSameStep",
        Topic.TRAINING,
        WARNS,
        "The last two or more failures of the program (class Application), or hangs, came at the same step. A node "
        "that breaks programs does so at any step: the program, or its data, is the likely cause.",
        "It restarts the ranks as after every failure, until the budget is used up. The warning goes away once the job "
        "has got beyond that step.",
        "Read the last lines of the failed rank, or where hung ranks stood, and what the program does at that step.",
        "failed three times at step 49: the program, not a node, is the likely cause. Muster restarts it 3 times "
        "within 24 hours at most; to see what it printed last: kubectl muster report team-a/llama --incident",
    ),
    Reason(
        "NoCheckpointSeen",
        Topic.TRAINING,
        TRAINS_WARNS,
        "After ten minutes of steps there is no complete checkpoint below `checkpoint.directory`.",
        "Training goes on, and a fault now loses everything.",
        "The directory may be wrong or not on a shared volume. The trainer may save weights without an optimizer "
        "(`save_only_model`), or in [no known format](docs/checkpoints.md#what-is-of-no-known-format).",
        "no complete checkpoint below /checkpoints after 12 min and 340 steps: a fault now loses everything. Is it "
        "the directory that the trainer writes to, on a volume that the worker container mounts?",
        next=("compare spec.checkpoint.directory with where the trainer saves: {inside} get tj {job} -o yaml",),
    ),
    Reason(
        "CheckpointsIncomplete",
        Topic.TRAINING,
        TRAINS_WARNS,
        "For a minute no checkpoint, or none of the newest two, has become complete; the message says what is "
        "missing. Or a pointer file (`latest`, `latest_checkpointed_iteration.txt`, `latest-rank0.pt`) names "
        "another one. Or all checkpoints lie one directory deeper. Or the newest is [of no known "
        "format](docs/checkpoints.md#what-is-of-no-known-format), or [its name](docs/reference/checkpoints.md#names) "
        "says that it is not finished or was put away.",
        "Training goes on. A restart gives the trainer the newest complete checkpoint; one that follows the pointer "
        "file instead resumes elsewhere.",
        "Write the right checkpoint into the pointer file, let the trainer write the missing files, rename the "
        "checkpoint, or correct `spec.checkpoint.directory`. The message of the condition says which.",
    ),
    Reason(
        "CheckpointStoreUnreachable",
        Topic.TRAINING,
        TRAINS_WARNS,
        "No verifier can see the object store. The message has the store's error and the newest known checkpoint.",
        "Ranks train on. After a fault the restart waits until the store is seen again.",
        "Correct what the store's error in the message names ([all "
        "errors](docs/checkpoints.md#when-the-store-cannot-be-seen)).",
        "unverified: s3://b/run: the store refuses the worker container's credentials. Give it some. The newest "
        "that is known is 20 (s3://b/run/20); a fault now waits until the store is seen again",
    ),
    Reason(
        "CheckpointOrderUnclear",
        Topic.TRAINING,
        TRAINS_WARNS,
        "A checkpoint with a lower step was written later than the one with the highest step. Causes are a copied "
        "directory, a trainer that loaded something else, or a number in the names that is no step.",
        "A restart uses the highest step ([why](docs/decisions/0014-which-checkpoint-is-the-newest.md)).",
        "If that is the wrong one, suspend the job and set `spec.checkpoint.resumeFrom`.",
        "checkpoint 200 (/checkpoints/200) was written 10 min after checkpoint 1000 (/checkpoints/1000), which a "
        "restart goes on from because its step is higher. If that is wrong, suspend the job and set "
        "spec.checkpoint.resumeFrom to /checkpoints/200",
    ),
    Reason(
        "NoNewCheckpoint, CheckpointSpaceLow, SavesTakeLonger",
        Topic.TRAINING,
        "TrainingJob: Event, status.checkpoint.concerns",
        "No new checkpoint has come for three of the usual intervals. Or their file system is almost full, or saves "
        "take 1.5 times as long as the first ones.",
        "Training goes on.",
        "Read [what each is measured by, and what to do](docs/checkpoints.md#how-saving-goes).",
        "424 GB can still be written below /checkpoints, and a checkpoint has 96 GB; each save leaves 96 GB less, "
        "and it is full after 4 more saves, in about 4 h. Delete what is not needed, let the trainer keep fewer, or "
        "make the volume larger: a save on a full disk is lost",
    ),
    Reason(
        "StepsNotSeen",
        Topic.TRAINING,
        TRAINS_WARNS,
        "No finished step has been seen, so a hang would not be noticed either. It comes after a minute where printed "
        "lines look like steps and do not count: the message has such a line, and the preset or `stepPattern` that "
        "would read it. Else it comes after ten minutes, with what was looked for.",
        "Training goes on.",
        "Is the line in the message that of a step? Then suspend the job, set the field that the message names, and "
        "let it go on. Else print lines that a [preset](docs/reference/progress.md) reads, or write steps to the file "
        "in `MUSTER_PROGRESS`. `progress.preset: Off` stops the message.",
        "Muster has seen no finished step since the ranks started at 2026-03-01 12:00:00 UTC. Training goes on, and "
        "Muster does not notice a hang: a number rises in printed lines such as `step 12 done in 0.5 s`. If it is that "
        "of the step, over the whole training and as the checkpoints are numbered, set progress.stepPattern: "
        r"'^\s*step\s+([0-9]+)' (suspend the job for that)",
        next=("compare what the ranks print with docs/reference/progress.md: {logs}",),
    ),
    Reason(
        "LossNotFinite",
        Topic.TRAINING,
        TRAINS_WARNS,
        "The newest printed losses are NaN or infinite, in lines from which Muster reads a step. It goes away with the "
        "first finite one, after a minute at the earliest.",
        "Nothing is stopped, and a restart goes on from the newest checkpoint. Those saved since that step are "
        "suspect.",
        "If the loss does not recover, repair the cause, suspend the job, and fork it from a checkpoint before that "
        "step, as the message says.",
        "the loss is printed as NaN or infinite since step 50. Checkpoints that were saved from there on are suspect. "
        "Muster stops nothing, and a restart would go on from the newest one. To go on from before, repair the cause, "
        "suspend this job, and run: kubectl muster fork team-a/llama --from-step 40",
    ),
    Reason(
        "StepsStopped",
        Topic.TRAINING,
        TRAINS_WARNS,
        "No step was finished for ten minutes, and for five times the longest wait between two steps of this attempt. "
        "No checkpoint became complete either. It needs 20 steps before, and no `progress.stepTimeoutSeconds`. The job "
        "hangs, or evaluates or saves for longer than ever before.",
        "Muster does nothing, and the warning goes with the next step.",
        "Inspect a rank, for example with `py-spy dump` in its pod. If it hangs, delete the pod of a worker: the "
        "gang restarts. With `progress.stepTimeoutSeconds` that happens by itself.",
        "no step was finished for more than 10 min after step 4000. A step takes 0.52 s, and the longest wait for one "
        "in this attempt was 31.2 s. It hangs, or evaluates or saves for long. Muster does nothing about it. See what "
        "a rank does, e.g. with py-spy dump in its pod. If it hangs, delete the pod of a worker, and the gang "
        "restarts; with progress.stepTimeoutSeconds that happens by itself, and each rank prints its stack before",
        next=("what the ranks printed last: {logs}",),
    ),
    Reason(
        "RanksQuiet",
        Topic.TRAINING,
        TRAINS_WARNS,
        "For ten minutes no rank has printed anything, written progress or completed a checkpoint. It hangs, or "
        "compiles, evaluates or saves for long.",
        "Muster does nothing, unless `progress.stepTimeoutSeconds` is set.",
        "Inspect a rank, for example with `py-spy dump` in its pod. If it hangs, delete the pod of a worker: the "
        "gang restarts.",
        "no rank has printed or written anything for more than 10 min, after step 4000: it hangs, or compiles, "
        "evaluates or saves for long. See what a rank does, e.g. with py-spy dump in its pod. If it hangs, delete "
        "the pod of a worker, and the gang restarts; with progress.stepTimeoutSeconds that happens by itself",
        next=("what the ranks printed last: {logs}",),
    ),
    Reason(
        "StepsNotCounted",
        Topic.TRAINING,
        TRAINS_WARNS,
        "`progress.stepPattern` takes more than a second of processor time for a line, again and again, as `(a+)+$` "
        "may. Or the number in the lines of a user's own loop began again, or two kinds of lines count differently.",
        "Muster stops counting these steps. Training goes on, and a hang is not noticed.",
        "Write steps to the file in `MUSTER_PROGRESS`, or suspend the job and set a (simpler) `progress.stepPattern`.",
        next=(
            "write the steps to the file in MUSTER_PROGRESS, or suspend the job and set a (simpler) "
            "spec.progress.stepPattern",
        ),
    ),
    Reason(
        "ResumedBehind",
        Topic.TRAINING,
        TRAINS_WARNS,
        "The trainer did not load the checkpoint that it was given, twice.",
        "Muster restarted it once for that, and now leaves it alone.",
        "Let the trainer load what `MUSTER_RESUME_PATH` names.",
        "worker 0 on n0 began with step 1, but was given the checkpoint of step 1000 (/checkpoints/1000). It "
        "repeats work, or its step numbers mean something else. Muster restarted it once for that, and does not "
        "again. Let the trainer load what MUSTER_RESUME_PATH names",
    ),
    Reason(
        "ResumeFromIgnored",
        Topic.TRAINING,
        JOB_EVENT,
        "`spec.checkpoint.resumeFrom` was set while the ranks of the job ran.",
        "The running attempt goes on as it is.",
        "Suspend the job, then clear the field and set it again.",
        "spec.checkpoint.resumeFrom was set to 100 while the job trains, and has no effect now. Suspend the job, "
        "clear the field, then set it again.",
    ),
    Reason(
        "VerifiersChanged",
        Topic.TRAINING,
        JOB_EVENT,
        "The workers that verify checkpoints reached no verdict in 3 min.",
        "Muster asks other workers.",
        "If that repeats, check the storage.",
    ),
    Reason(
        "InternalError",
        Topic.TRAINING,
        JOB_EVENT,
        "Muster has a defect that this job met.",
        "Muster tries again, and what runs goes on. Other jobs are not affected.",
        "Report it with the traceback in the operator's log; see [what the operator "
        "saw](docs/troubleshooting.md#what-did-the-operator-see).",
        "an unexpected error keeps Muster from looking after this job (KeyError: 'n0'). It goes on trying, and what "
        "runs goes on. This is a defect: report it with the operator's log.",
    ),
    # What a job cannot start with.
    Reason(
        "TooManyNodes",
        Topic.REFUSED,
        STALLS,
        "`spec.nodes` is more than the FleetPolicy lets one job have (`spec.jobLimits.nodes`).",
        "The job does not start.",
        "Create the job again with fewer nodes, or have the limit raised.",
        "spec.nodes is 3, and FleetPolicy default lets a job have 2 at most (spec.jobLimits.nodes). Delete the job "
        "and create it again with fewer, or ask the fleet's administrators to raise the limit.",
    ),
    Reason(
        "TemplateInvalid, CommandMissing, UnknownContainer, WorkerContainerUnclear, ClusterDnsMissing, "
        "InvalidStepPattern, ResumeArgumentUnused, AcceleratorMismatch, UnknownTopologyLevel",
        Topic.REFUSED,
        STALLS,
        "The job can never start as it is written; the message names the field.",
        "The job does not start.",
        _AGAIN,
        "spec.placement.required: 'pod' is no level of this fleet; known levels: block, rack (FleetPolicy default). "
        "Fix it, delete the job and create it again.",
    ),
    Reason(
        "PodSecurityViolation, CreationForbidden",
        Topic.REFUSED,
        STALLS,
        "The API server refuses the pods. Its text names the cause: Pod Security, an admission webhook, a "
        "ValidatingAdmissionPolicy, or missing rights.",
        "The job does not start.",
        "Correct `spec.template` or the policy, then delete the job and create it again.",
    ),
    Reason(
        "PodNameTaken",
        Topic.REFUSED,
        STALLS,
        "A pod with the name of a worker's pod exists and does not belong to this job.",
        "The job does not start.",
        "Delete that pod, or create the job under another name.",
        "pod llama-0 exists and is not this job's: delete it, or rename the job",
    ),
    Reason(
        "TemplateTooLarge",
        Topic.REFUSED,
        JOB_EVENT,
        "`spec.template` is larger than 128 KiB, or the templates of the namespace take more than 192 MiB of the "
        "operator's memory.",
        "Muster keeps only the job's name. Where the namespace has no room, it reads the job within 15 s after "
        "others were deleted.",
        "Move scripts and data into the image, a ConfigMap or a volume, and create the job again. Or delete jobs of "
        "the namespace that have ended.",
    ),
    Reason(
        "InvalidSpec",
        Topic.REFUSED,
        JOB_EVENT,
        "The job does not fit its schema: it was written while an older schema was installed, or it or its status has "
        "a value that only a later version of Muster knows. The message names the field.",
        "Muster does nothing to this job, and its workers go on as they are.",
        "Run the version of Muster that knows the value, or delete the job and create it again.",
    ),
    # The end of a job.
    Reason(
        "Completed",
        Topic.ENDED,
        ENDS,
        "Every rank exited with code 0.",
        "Muster ends the pods and releases the nodes.",
        _NOTHING,
        "every rank exited with code 0 in attempt 3 after step 4000",
    ),
    Reason(
        "SucceededAfterTraceback",
        Topic.ENDED,
        WARNS,
        "The job has Succeeded, since every rank ended with code 0, but the last lines of a rank are a traceback. Most "
        "often the shell's line of the command hides the exit code, as `| tee` does.",
        "The job stays Succeeded: exit codes alone decide.",
        "See the log of the rank. If it has failed, correct the command, delete the job and create it again. With "
        "the same `checkpoint.directory` it continues from its newest complete checkpoint.",
        "rank 1 (worker 1) ended with exit code 0, but its last lines are a traceback: RuntimeError: shape mismatch. "
        "Does the command hide the exit code, as `| tee` does without `set -o pipefail`? Muster goes by exit codes "
        "alone, so the job is Succeeded. If it has failed, correct the command, delete the job and create it again: "
        "it continues from its newest complete checkpoint",
    ),
    Reason(
        "SucceededWithoutStep",
        Topic.ENDED,
        WARNS,
        "The job has Succeeded, but Muster saw no finished step and no complete checkpoint. The job's spec says that "
        "it trains: it has a checkpoint directory, or a field of `spec.progress`, or its command hides the exit code.",
        "The job stays Succeeded: exit codes alone decide.",
        "See the log. If the program has trained, let it [report its steps](progress.md). A job that does not train "
        "needs neither `checkpoint.directory` nor `progress`; `progress.preset: Off` says that no steps are read.",
        "the job has Succeeded, but Muster saw no finished step in attempt 1, and no complete checkpoint. Did the "
        "program train? See its log; where it did, let it report its steps (docs/reference/progress.md)",
    ),
    Reason(
        "ApplicationRestartsExhausted, HardwareRestartsExhausted",
        Topic.ENDED,
        ENDS,
        "The job Failed: its budget of restarts is used up. The message has the last failure and the budget's field.",
        "Muster releases the nodes. The job stays Failed.",
        "Repair the cause, then delete the job and create it again. Where the message names a checkpoint on which "
        "starts failed, add the `resumeFrom` that it offers. The FleetPolicy's `spec.jobLimits` may allow "
        "fewer restarts than the job asks for.",
        "4 failures within 24 hours and no checkpoint beyond them. Fix the program, then delete the job and create it "
        "again; spec.recovery.applicationRestartsPerDay is the budget. Last: attempt 4, worker 0 on n0: rank 0 exited "
        "with code 1.",
    ),
    # Nothing is wrong.
    Reason(
        "Placed, Started",
        Topic.WELL,
        "TrainingJob: condition Placed, Events",
        "The gang has its nodes; its ranks are started.",
        "Muster watches the ranks.",
        _NOTHING,
        "attempt 2 starts from checkpoint 100 (/checkpoints/step-100), found in spec.checkpoint.directory",
    ),
    Reason(
        "RanksStarted",
        Topic.WELL,
        TRAINS,
        "Ranks run and have not reported a step yet: they import and load.",
        "Muster waits for the first step.",
        _NOTHING,
    ),
    Reason(
        "Training",
        Topic.WELL,
        TRAINS,
        "Ranks finish steps.",
        "Muster watches steps, checkpoints, launchers and nodes.",
        _NOTHING,
    ),
    Reason(
        "Suspended",
        Topic.WELL,
        "TrainingJob: REASON, conditions Suspended and Running, Event",
        "`spec.suspend` is true.",
        "The job has saved as far as it could, and holds no nodes.",
        "Set `spec.suspend` to false to let the job continue.",
        "set spec.suspend to false to continue from the newest complete checkpoint",
    ),
    Reason(
        "Accepted, Settled, Resumed, NotFinished, NotStalled, NotSuspended",
        Topic.WELL,
        "TrainingJob: conditions",
        "The condition is that of a job without trouble. `Resumed` stays after a suspension.",
        "Muster runs the job as usual.",
        _NOTHING,
    ),
    Reason(
        "JobLimitApplied",
        Topic.WELL,
        "TrainingJob: condition TemplateAccepted, Event",
        "The job asks for more than the FleetPolicy's `spec.jobLimits` allows (`saveTimeoutSeconds`, restarts a day).",
        "Muster applies the limit. The message has field, value asked for, and value applied.",
        "Nothing, or have the limit raised.",
    ),
    Reason(
        "PriorityIgnored",
        Topic.WELL,
        JOB_EVENT,
        "The PriorityClass of the waiting job does not count in the [queue](docs/queueing.md).",
        "The job waits like one without a PriorityClass.",
        "Have the class added to `spec.queueing.priorityClasses` of the FleetPolicy, or create the job again with "
        "another one.",
        "PriorityClass gold does not count in the queue: the job waits as one that names none. To change that, add "
        "the class to spec.queueing.priorityClasses of FleetPolicy default, or delete the job and create it again "
        "with another class.",
    ),
    Reason(
        "PreemptionNotAllowed",
        Topic.WELL,
        JOB_EVENT,
        "The FleetPolicy lets other namespaces preempt by the job's PriorityClass, but not this one.",
        "The class orders the [queue](docs/queueing.md#preemption-by-priority), and takes no node of a running job.",
        "Have the namespace added to this class in `spec.queueing.preemption.priorityClasses` of the FleetPolicy, or "
        "create the job again with another class.",
        "PriorityClass urgent preempts no job for namespace team-b: it only orders the queue. To change that, add the "
        "namespace to this class in spec.queueing.preemption.priorityClasses of FleetPolicy default, or delete the job "
        "and create it again with another class.",
    ),
    Reason(
        "IncompleteMoved",
        Topic.WELL,
        JOB_EVENT,
        "Before the start an incomplete, excluded or suspect checkpoint was moved into `.muster-incomplete` "
        "([moveIncomplete](docs/checkpoints.md#incomplete-checkpoints)).",
        "The start went on.",
        "Delete what you do not need there.",
    ),
    # The burn-in.
    Reason(
        "BurningIn",
        Topic.BURN_IN,
        WAITS,
        "The nodes of the job are being tested ([burn-in](docs/burn-in.md)); the message says in which round.",
        "The ranks start when all nodes have passed.",
        "`kubectl muster status JOB --burn-in` shows each node.",
        "burn-in Quick: nodes in pairs, round 1",
    ),
    Reason(
        "BurnInFailed",
        Topic.BURN_IN,
        WAITS,
        "Nodes failed the burn-in. The message names node, probe, figure and proven partners.",
        "Muster replaces the nodes; after too many failures in a row it gives all nodes back. The same job avoids a "
        "failed node for 24 hours, or until it boots.",
        "Repair the nodes, then run `kubectl muster check NODE` and `kubectl muster release NODE --reason ...`.",
        "failed the burn-in: n2: reached 0.1 GB/s at best in 6 tests with 3 proven partners; 0.5 is the least; "
        "attempt 2: on n0, n1, n4, n3 (1 block, 3 racks)",
    ),
    Reason(
        "BurnInInconclusive",
        Topic.BURN_IN,
        WAITS,
        "The tests of some nodes have no result, and no node is blamed. GPUs are in use, a checker cannot test or "
        "answer, or too many nodes fail alike.",
        "With `onInconclusive: Start` the gang starts. With `Wait` the tests repeat every two minutes, for half an "
        "hour and twice the profile's time. Then the job takes other nodes, or gives all back.",
        "Repair what the message names: a process on a GPU, or an image without torch or CUDA.",
        "The burn-in Quick has no result for 1 node: a probe could not run on 1 node, n1 first; n1: GPU 0 is in use: "
        "process 7. Muster repeats the tests every 120 s, for 31 min at most. Then the job takes other nodes, or gives "
        "all back. Repair what is named",
    ),
    Reason(
        "CheckersMissing",
        Topic.BURN_IN,
        WAITS,
        "The checker on a node does not report, or still imports torch.",
        "Muster waits: a minute of silence, five minutes of importing.",
        "Run `kubectl -n muster-check get pods -o wide`, then read the log of the pod on that node.",
        "no checker on n1 reports: check that a pod of DaemonSet muster-check runs there",
    ),
    Reason(
        "BurnInWarning",
        Topic.BURN_IN,
        JOB_EVENT,
        "A link, an uplink, a leaf or the spine is slow. Or [all nodes together](docs/burn-in.md#the-whole-gang) reach "
        "far less than in pairs, or give no result.",
        "It blames no node, and the gang starts.",
        "Tell the owner of the network.",
        "all-reduce over 4 nodes: 0.8 GB/s (TCP), where IB is expected",
    ),
    Reason(
        "CorruptionExamined",
        Topic.BURN_IN,
        JOB_EVENT,
        "The nodes were tested because the trainer found its results wrong; the message says what the tests show.",
        "A node that is proved to give wrong results is avoided.",
        "`kubectl muster status JOB --burn-in` has the details. Without a culprit, and at the same step again: "
        "check data, learning rate and program.",
        "Muster has examined the nodes because of wrong results: worker 1 on n1: rank 1 has found NonFiniteLoss at "
        "step 24. The tests show: all nodes have passed the burn-in, and no culprit was found. Muster lets the gang go "
        "on with them. If wrong results come again at the same step, look at the data, the learning rate and the "
        "program",
    ),
    # What was seen to fail.
    Reason(
        "RankFailed",
        Topic.FAILURES,
        INCIDENT,
        "A rank exited with a code or by a signal; the message has its last lines. Where torchrun, or another program "
        "that starts the ranks, names the one that failed first, these are its number, its end and its lines.",
        "It restarts the ranks. A signal from outside (SIGKILL, SIGTERM, SIGINT, SIGHUP), or last lines that name a "
        "lost peer, make the class Unknown.",
        "Read the last lines; `kubectl muster logs JOB --failed` has more.",
        "attempt 1: rank 0 exited with code 1; its last lines: ValueError: no; attempt 2 follows (R0: ranks restart "
        "in place)",
    ),
    Reason(
        "CorruptionFound",
        Topic.FAILURES,
        INCIDENT,
        "A rank reports that its results are wrong (`ReplayMismatch`, `NonFiniteLoss`, exit code 86).",
        "Later checkpoints are suspect, the nodes are tested, and training goes on from before. The class is "
        "Hardware once a node is proved to give wrong results.",
        "Wait for CorruptionExamined.",
        "attempt 1: worker 1 on n1: rank 1 has found NonFiniteLoss at step 24; attempt 2 follows (R0: ranks restart "
        "in place); checkpoints beyond step 23 are suspect; its nodes are tested before it goes on, where checkers "
        "are installed",
    ),
    Reason(
        "StepTimeout",
        Topic.FAILURES,
        INCIDENT,
        "No step was finished for `progress.stepTimeoutSeconds`. Time for which the node or container was frozen "
        "does not count.",
        _RESTARTS,
        "See where the ranks stood: `kubectl muster report JOB --incident N`. A few that stand elsewhere than the rest "
        "are where to look first, and no proof.",
        "attempt 1: no step finished for 20 s (limit 20 s); which rank hangs is not known: only worker 0 reports "
        "steps, the last was step 7; attempt 2 follows (R0: ranks restart in place); to see where its ranks stood: "
        "kubectl muster report team-a/llama --incident 1",
    ),
    Reason(
        "StartTimeout",
        Topic.FAILURES,
        INCIDENT,
        "No first step was finished for `progress.startTimeoutSeconds`.",
        _RESTARTS,
        "Raise the limit if loading takes longer.",
    ),
    Reason(
        "Fenced",
        Topic.FAILURES,
        INCIDENT,
        "A worker got no answer from Muster, or could not read the fence file, and ended its ranks so that no two "
        "save.",
        _RESTARTS,
        "Check the network between that node and `muster-system`; the message says what was missing.",
        "attempt 1: worker 0 lost contact with Muster and ended its ranks, so that no two save: the gang stood "
        "still, or went on without it; attempt 2 follows (R0: ranks restart in place)",
    ),
    Reason(
        "ReclaimSlow",
        Topic.FAILURES,
        INCIDENT,
        "Old ranks did not end within 30 s.",
        "It replaces the pod.",
        "If it repeats, check storage and driver of the node.",
        "attempt 2: worker 1 has not ended its old ranks within 30 s; attempt 3 follows (R0b: a new pod on the same "
        "node)",
    ),
    Reason(
        "LauncherSilent",
        Topic.FAILURES,
        INCIDENT,
        "A launcher was silent for a minute while the gang waited for it. For the only launcher of a job it is 5 "
        "min, while launchers of other jobs report.",
        "It gives the worker a new pod first, then another node; four times at most for an only launcher.",
        "Check the node's network.",
        "attempt 1: the launcher of worker 1 has not reported for 60 s, and the gang waits for it; attempt 2 "
        "follows (R0b: a new pod on the same node)",
    ),
    Reason(
        "LauncherStuck",
        Topic.FAILURES,
        INCIDENT,
        "A launcher reports, but its work has stood still for 45 s, mostly in a call to storage that hangs.",
        "It gives the worker a new pod first, then another node.",
        "Check the storage on that node.",
    ),
    Reason(
        "CheckpointsUnreadable",
        Topic.FAILURES,
        INCIDENT,
        "A worker cannot list the checkpoints and others can. Its listing fails for 2 min, or takes ten times as "
        "long as the slowest of the others (2 min at least, 10 at most).",
        "It gives the worker a new pod first, then another node. It does so for the only worker of a job after 5 min, "
        "four times at most.",
        "Check the mount on that node.",
    ),
    Reason(
        "ResumedBehind",
        Topic.FAILURES,
        INCIDENT,
        "The first step after a resume lies behind the checkpoint that the ranks were given.",
        "It restarts the ranks once.",
        "Let the trainer load what `MUSTER_RESUME_PATH` names.",
        "attempt 1: its first step was 1, but the ranks were given the checkpoint of step 1000 (/checkpoints/1000): "
        "let the trainer load what MUSTER_RESUME_PATH names; attempt 2 follows (R0: ranks restart in place)",
    ),
    Reason(
        "PodDeleted, PodGone",
        Topic.FAILURES,
        INCIDENT,
        "A user or a controller deleted the pod of a worker.",
        _RESTARTS,
        "The API server's audit log says which client deleted it.",
        "attempt 1: pod job-5b6d5-1-1 is being deleted; attempt 2 follows (R0b: a new pod on the same node)",
    ),
    Reason(
        "PodEnded",
        Topic.FAILURES,
        INCIDENT,
        "The pod of a worker ended by itself; the message has code and reason.",
        _RESTARTS,
        "Read the pod's log.",
        "attempt 1: container main of pod job-5b6d5-0-1 ended with code 1 (Error); attempt 2 follows (R4: the gang "
        "is rebuilt)",
    ),
    Reason(
        "ContainerLost",
        Topic.FAILURES,
        INCIDENT,
        "A worker's container is gone, and its kubelet does not know how it ended, as after a reboot of the node.",
        _RESTARTS,
        "Check why the node rebooted.",
        "attempt 1: container main of pod job-5b6d5-1-1 was lost: node n1 has rebooted (code 255, Unknown); attempt "
        "2 follows (R4: the gang is rebuilt)",
    ),
    Reason(
        "OutOfMemory",
        Topic.FAILURES,
        INCIDENT,
        "The kernel killed a container for its memory, or one process of it: a rank, or a DataLoader worker.",
        _RESTARTS,
        "Raise `resources.limits.memory`, or let the program use less, as with fewer DataLoader workers. Files in "
        "`/dev/shm` count, too.",
        "attempt 1: rank 3 was ended by SIGKILL: its container reached its memory limit of 64.0 GiB. Give the "
        "container more memory (resources.limits.memory), or let the program use less, as with fewer DataLoader "
        "workers. Files in /dev/shm count, too; attempt 2 follows (R0: ranks restart in place)",
    ),
    Reason(
        "Evicted",
        Topic.FAILURES,
        INCIDENT,
        "The kubelet or the scheduler evicted the pod of a worker.",
        _RESTARTS,
        "Check disk and memory pressure of the node, and preemption.",
    ),
    Reason(
        "ContainerCannotStart",
        Topic.FAILURES,
        INCIDENT,
        "The command, or python3, is not in the image, or its Python is too old. The message names container and file.",
        "The job Fails at once.",
        "Correct the command or the image, then create the job again.",
        'container main of pod job-5b6d5-0-1 cannot start: exec: "python3": executable file not found in $PATH. Put '
        "python3 (3.8 or later, with its standard library) on the PATH of the image, or set spec.launch.mode to "
        "Plain; then delete the job and create it again",
    ),
    Reason(
        "RejectedByKubelet",
        Topic.FAILURES,
        INCIDENT,
        "The kubelet refused the pod, although the node looked free.",
        "The worker moves, and the node is avoided for ten minutes.",
        _NOTHING,
        "attempt 1: the kubelet of n1 rejected pod job-5b6d5-1-1: UnexpectedAdmissionError: device lost; attempt 2 "
        "follows (R2: another node takes the worker)",
    ),
    Reason(
        "NodeConflict",
        Topic.FAILURES,
        INCIDENT,
        "The kubelet refused a pod that Muster had bound, because another pod took the room first.",
        "The worker moves, and the node is avoided for a while. No budget pays for it.",
        _NOTHING,
    ),
    Reason(
        "PodStuckTerminating",
        Topic.FAILURES,
        INCIDENT,
        "An old pod of the worker does not end.",
        _MOVES,
        "Check the kubelet and the storage of the node.",
        "attempt 2: pod job-5b6d5-1-1 on n1 should have ended 30 s ago; attempt 3 follows (R2: a new node takes the "
        "lost one's place)",
    ),
    Reason(
        "PodStartTimeout",
        Topic.FAILURES,
        INCIDENT,
        "A pod did not start within 15 min, while others did.",
        _MOVES,
        "Run `kubectl describe pod` for that worker.",
    ),
    Reason("NodeGone", Topic.FAILURES, INCIDENT, "The Node object of a worker was deleted.", _MOVES, _GONE),
    Reason(
        "NodeLost",
        Topic.FAILURES,
        INCIDENT,
        "A user declared the worker's node lost (`kubectl muster lost NODE`).",
        _MOVES,
        "If the machine lives: `kubectl muster lost NODE --undo`.",
    ),
    Reason(
        "NodeUnreachable",
        Topic.FAILURES,
        INCIDENT,
        "Two witnesses agree that the worker's node is lost.",
        _MOVES,
        "Check the node: power, network, kubelet.",
        "attempt 1: worker 1 has been silent for 20 s, and its kubelet sends no heartbeat and 2 of its neighbours "
        "get no answer; attempt 2 follows (R2: another node takes the worker)",
    ),
    Reason(
        "NodeUnhealthy",
        Topic.FAILURES,
        INCIDENT,
        "The worker's node was judged unhealthy ([node health](docs/node-health.md)).",
        _MOVES,
        "`kubectl describe nodehealth NODE` has the findings.",
        "attempt 1: node n1 is unhealthy (Xid79): fell off the bus; attempt 2 follows (R2: a new node takes the "
        "lost one's place)",
    ),
    # Nodes that a job leaves on purpose.
    Reason(
        "NodeDegraded, NodeCordoned",
        Topic.PLANNED,
        INCIDENT,
        "A node of the job should not be used much longer, or is cordoned.",
        "The worker moves at the next checkpoint.",
        _NOTHING,
        "The job leaves n1 after its next complete checkpoint, at 00:05:11 UTC at the latest.",
    ),
    Reason(
        "NodeAvoided",
        Topic.PLANNED,
        INCIDENT,
        "A node of the job is in its `spec.placement.avoidNodes`, as "
        "[`kubectl muster move`](docs/cli.md#kubectl-muster-move-job) writes it.",
        "The worker moves at the next checkpoint.",
        _NOTHING,
    ),
    Reason(
        "NodeMaintenance, NodeRemoval",
        Topic.PLANNED,
        INCIDENT,
        "The [maintenance window](docs/node-health.md#maintenance-windows) of a node of the job is near, or another "
        "system [takes the node away](docs/node-health.md#nodes-that-are-taken-away).",
        "The worker moves at the next checkpoint.",
        _NOTHING,
    ),
    Reason(
        "MaintenanceStarts, NodeRemoved",
        Topic.PLANNED,
        INCIDENT,
        "A maintenance window of a node of the job was near, or another system took the node away. No other node was "
        "free.",
        "The job stopped in time, saved, and waits in the queue.",
        "Free nodes, or wait until the maintenance ends.",
    ),
    Reason(
        "Preempted",
        Topic.PLANNED,
        TRAINS,
        "The job gives its nodes to another one, or, as the Event says, has given them. It is "
        "[preemptible](docs/queueing.md#jobs-that-give-way), [backfills](docs/queueing.md#backfill), or has a [lower "
        "priority](docs/queueing.md#preemption-by-priority).",
        "It is asked to save, stops after its next checkpoint, and waits in the queue again. There it stands at its "
        "old place, or behind all others if it is preemptible. It costs no restart.",
        _NOTHING,
        "stopped after checkpoint 90, which it saved when asked: the job is preemptible and gives way to team-a/llama; "
        "it waits for nodes in the queue",
    ),
    Reason(
        "LeaveWithdrawn",
        Topic.PLANNED,
        TRAINS,
        "The program was asked to save and leave, and followed that. Meanwhile the reason has gone away.",
        "The ranks cannot be called back. Once they have saved, or ended, they start again on the same nodes.",
        _NOTHING,
        "The ranks follow a request to leave that was withdrawn. They start again after their next complete "
        "checkpoint, at 00:05:11 UTC at the latest.",
    ),
    Reason(
        "EvacuationPlanned, NodeEvacuated, EvacuationCancelled",
        Topic.PLANNED,
        JOB_EVENT,
        "The job will leave a node at its next checkpoint, has left it, or need not leave it any more.",
        "Muster asks the program to save, and waits for a complete checkpoint until the deadline in the message. If "
        "the program does not answer and saves too seldom, it stops without one. Without "
        "`spec.checkpoint.directory`, as in mode Plain, it sees none and waits for none.",
        _NOTHING,
        "n0 is cordoned. The job stops after its next complete checkpoint, at the latest in 300 s.",
    ),
    Reason(
        "StoppedForMaintenance, StoppedForRemoval",
        Topic.PLANNED,
        JOB_EVENT,
        "A maintenance window begins on nodes of the job, or another system [takes them "
        "away](docs/node-health.md#nodes-that-are-taken-away), and no other node is free.",
        "The job has stopped after the checkpoint that the message names. It continues when nodes are free.",
        _NOTHING,
        "stopped after checkpoint 90: n1 is kept free for maintenance (w), and no other node is free; the job waits "
        "for nodes in the queue",
    ),
    # Events of nodes.
    Reason(
        "NodeHealthy, NodeSuspect, NodeDegraded, NodeUnhealthy, NodeQuarantined, NodeValidating",
        Topic.NODES,
        VERDICT,
        "The verdict on the node has changed; the message has finding, time and evidence.",
        "What follows of each verdict is in [node health](docs/node-health.md#what-muster-does); the message says it.",
        "`kubectl describe nodehealth NODE` has all findings, and what to do with the machine.",
    ),
    Reason(
        "NodeMaintenance, NodeRemoval",
        Topic.NODES,
        VERDICT,
        "A [maintenance window](docs/node-health.md#maintenance-windows) of the node is near, or another system "
        "removes the node.",
        "Workers are evacuated from the node at a checkpoint, and no new worker is placed there.",
        _NOTHING,
    ),
    Reason(
        "Healthy",
        Topic.NODES,
        "Node: condition MusterHealthy",
        "No finding counts against the node. Any other reason of this condition is that of the "
        "[finding](docs/node-health.md).",
        "The node is used.",
        _NOTHING,
        "Muster itself sees no fault of this node.",
    ),
    Reason(
        "MarkedByOthers",
        Topic.NODES,
        "Node: condition MusterHealthy",
        "Muster itself sees no fault of the node, but another system marks it. The condition is True, because that "
        "mark may be an [answer to the condition](docs/node-health.md#the-condition-musterhealthy).",
        "NodeHealth has the whole verdict. By it, Muster's jobs avoid the node.",
        "See what the mark means to its writer. Where it was left behind, remove it: its finding in NodeHealth names "
        "it.",
        "Muster itself sees no fault of this node. nvsentinel marks it (NVSentinelRepairs), which does not count here: "
        "kubectl describe nodehealth n1 shows both.",
    ),
    Reason(
        "NothingKnown",
        Topic.NODES,
        "Node: condition MusterHealthy",
        "Muster itself knows nothing about the node: no agent has reported anything.",
        "The node is used, unless another system marks it.",
        "Check whether a pod of DaemonSet muster-agent runs there.",
        "Muster itself knows nothing about this node.",
    ),
    Reason(
        "NodeObserved",
        Topic.NODES,
        NODE_EVENT,
        "The FleetPolicy only observes a finding of this node ([rules](docs/node-health.md#what-muster-does)). The "
        "message says what would follow if the finding counted.",
        "The node keeps its jobs.",
        "If the finding is right, remove its `observeOnly` or its entry in `observedReasons` from the FleetPolicy. "
        "Then the finding counts.",
    ),
    Reason(
        "NotLost",
        Topic.NODES,
        NODE_EVENT,
        "A user declared the machine lost, but it gives signs of life.",
        "Muster does not assume that its processes have ended.",
        "`kubectl muster lost NODE --undo` withdraws the declaration.",
        "A user declared this machine lost, but its agent was heard 2 s ago. Muster does not assume that its "
        "processes have ended. To withdraw the declaration: kubectl muster lost n0 --undo",
    ),
    Reason(
        "RecordUnreadable",
        Topic.NODES,
        NODE_EVENT,
        "The NodeHealth of the node does not fit its schema; the message names the field.",
        "New workers are placed on the node only where no other node is left, and no worker leaves it.",
        "Correct that field, run the version of Muster that wrote it, or delete the NodeHealth.",
        "NodeHealth n0 does not fit its schema (status.state: not one of the values). Until it does, new workers are "
        "placed on the node only where no other node is left, and no worker leaves it. Correct that field, run the "
        "version of Muster that wrote it, or delete the NodeHealth; that also deletes the node's incidents and offence "
        "score.",
    ),
    Reason(
        "InternalError",
        Topic.NODES,
        NODE_EVENT,
        "A defect of Muster keeps it from evaluating this node.",
        "The last verdict stays in effect. Other nodes are not affected.",
        "Report it with the traceback in the operator's log.",
    ),
    Reason(
        "NodeTaintLeft",
        Topic.NODES,
        "Node, FleetPolicy: Event",
        "The node has the taint `muster.dev/unhealthy`, and Muster may not remove it, because "
        "`manifests/components/node-taint` was left out later.",
        "The taint keeps new pods away. Muster tries again every five minutes.",
        "Run `kubectl taint node NODE muster.dev/unhealthy-`, or add the component again.",
        "Node n0 no longer needs Muster's taint muster.dev/unhealthy, but Muster may not remove it (403). The taint "
        "keeps new pods away. Run `kubectl taint node n0 muster.dev/unhealthy-`, or add "
        f"{name_component('node-taint')}.",
    ),
    # Repairs of nodes.
    Reason(
        "RepairRequested",
        Topic.REPAIRS,
        REPAIR,
        "A RepairRequest for the node exists, and no repair system has begun it.",
        "Muster keeps workers off the node.",
        "`kubectl describe repairrequest NODE`. If it stays so, check the controller that acts on RepairRequests, "
        "or repair the node and write the status yourself.",
    ),
    Reason(
        "RepairInProgress",
        Topic.REPAIRS,
        REPAIR,
        "A repair system has begun the repair.",
        "Muster places nothing on the node until the request says that the repair has ended.",
        "If that controller is gone for good: `kubectl delete repairrequest NODE`. If the message says that the "
        "request cannot be read, CRDs and operator are of different versions.",
    ),
    Reason(
        "RepairDone",
        Topic.REPAIRS,
        NODE_EVENT,
        "The RepairRequest says that the repair has ended.",
        "Muster uses the node again once its agent has checked it.",
        _NOTHING,
    ),
    Reason(
        "RepairFailed",
        Topic.REPAIRS,
        REPAIR,
        "The RepairRequest says that the repair failed.",
        "Muster places nothing on the node.",
        "Read the request's message. Repair the node, then run `kubectl muster release NODE --reason ...`. Or delete "
        "the request, and Muster requests the repair again.",
    ),
    Reason(
        "RepairNotVerified",
        Topic.REPAIRS,
        "NodeHealth: finding",
        "The repair has ended, and the node's agent has not checked the whole node since.",
        "Muster waits 90 s from when the agent's pod is Ready.",
        "If it stays so: `kubectl -n muster-agent get pods --field-selector spec.nodeName=NODE`.",
    ),
    # Events of the FleetPolicy.
    Reason(
        "PolicyUnreadable",
        Topic.POLICY,
        POLICY_EVENT,
        "The FleetPolicy does not fit its schema; the message names the field.",
        "Muster uses the policy's last readable version. Where the operator has read none since it started, it leaves "
        "[all nodes as they are](docs/node-health.md#what-muster-does), and creates no pod.",
        "Correct that field, or run the version of Muster that it was written for.",
        "The FleetPolicy does not fit its schema (spec.health: not an object): its last readable version applies. "
        "Correct that field, or run the version of Muster that it was written for.",
    ),
    Reason(
        "BudgetExhausted",
        Topic.POLICY,
        POLICY_EVENT,
        "More nodes are unhealthy, or claimed by other systems, than [the budgets](docs/node-health.md#the-breaker) "
        "allow. The message names the pool and the causes, and each budget with the number of nodes that it holds.",
        "Muster keeps further nodes in use.",
        "Look for what these nodes share. If each has a fault of its own, raise the budget that the message names.",
        "The budgets keep 3 unhealthy nodes of pool 'nvidia.com/gpu NVIDIA-H200' in use (agent/IbPortDown: 3). 3 wait "
        "because at most 2 of the pool's 10 nodes in block/rack-0 may be out for uncertain faults. Now 2 of at most 30 "
        "nodes are out; 2 of at most 10 were taken out in this window.",
    ),
    Reason(
        "BudgetAvailable",
        Topic.POLICY,
        POLICY_EVENT,
        "The budgets of unhealthy nodes suffice again.",
        "The budgets keep no unhealthy node in use any more.",
        _NOTHING,
        "The budgets suffice again: they keep no unhealthy node in use.",
    ),
    Reason(
        "AgentsSilent",
        Topic.POLICY,
        POLICY_EVENT,
        "[The agents](docs/node-health.md#a-node-whose-agent-is-silent) of many nodes are not Ready at once.",
        "Muster excludes no further node for that, and sees no faults there.",
        "Check the DaemonSet muster-agent.",
        "The agents of many nodes are silent at once (12 of 16 h100), which is no fault of the nodes. Muster "
        "excludes no further node for that, and sees no faults there until the agents are Ready. Check the DaemonSet "
        "muster-agent.",
    ),
    Reason(
        "AgentsRecovered",
        Topic.POLICY,
        POLICY_EVENT,
        "Enough agents are Ready again.",
        "Muster sees faults on these nodes again.",
        _NOTHING,
        "Enough agents are Ready again: Muster sees faults on their nodes.",
    ),
    Reason(
        "ScopeEmpty",
        Topic.POLICY,
        POLICY_EVENT,
        "`spec.scope.nodeSelector` selects [no node of the cluster](docs/install.md#on-some-of-the-nodes).",
        "No job starts, and Muster does nothing about any node. Gangs that run go on.",
        "Correct the selector, or label nodes: `kubectl get nodes --show-labels`.",
        "FleetPolicy default: spec.scope.nodeSelector selects none of the cluster's nodes (12), so no job starts. "
        "Correct the selector.",
    ),
    Reason(
        "PoolEmpty",
        Topic.POLICY,
        POLICY_EVENT,
        "A pool of `spec.pools` with [`health`](docs/node-health.md#by-pool) has no node. The labels of its "
        "`nodeSelector` are on no node, or only on nodes that belong to an earlier pool or are outside `spec.scope`.",
        "The `health` of that pool applies to no node. Those that were meant are treated by `spec.health`, or as the "
        "earlier pool says; outside the scope Muster does nothing about them.",
        "Correct the selector or the scope, or move the pool up in the list. Where the pool is empty on purpose, "
        "nothing.",
        "FleetPolicy default: spec.pools[canary] has no node, so its health applies to none: no node has the labels of "
        "its nodeSelector, an earlier pool has those that do, or they are outside spec.scope. Correct the selector or "
        "the scope, or move the pool up in the list.",
    ),
    Reason(
        "JobsOutsideScope",
        Topic.POLICY,
        POLICY_EVENT,
        "A change of `spec.scope.nodeSelector`, or of a Node's labels, leaves out [nodes on which jobs have workers]"
        "(docs/install.md#on-some-of-the-nodes). The message counts the jobs that were not outside before, and names "
        "their nodes outside. The jobs are in the operator's log (`jobs outside the scope`), because any user that may "
        "read Events in namespace `default` reads the message.",
        "The workers go on there. One that dies is replaced on a selected node.",
        "Nothing. To have a job leave at once, suspend it and resume it.",
        "FleetPolicy default: spec.scope.nodeSelector leaves out nodes of 1 job (gpu-001, gpu-002). Workers go on "
        "there, and new ones come to other nodes. The operator's log names the jobs.",
    ),
    Reason(
        "NodeTaintRefused",
        Topic.POLICY,
        POLICY_EVENT,
        "`enforcement` of `spec.health`, or of a pool's `health`, asks for the taint, and the API server does not let "
        "Muster patch Nodes.",
        "Muster tries again every five minutes. Its own jobs avoid unhealthy nodes without the taint.",
        f"Add {name_component('node-taint')}, or set `enforcement: Jobs`.",
        "Muster may not write the taint muster.dev/unhealthy on Nodes (403). Its own jobs avoid unhealthy nodes "
        f"without the taint. Add {name_component('node-taint')}, or set spec.health.enforcement to Jobs.",
    ),
    Reason(
        "NodeConditionRefused",
        Topic.POLICY,
        POLICY_EVENT,
        "`spec.health.nodeCondition` is on, and the API server does not let Muster write the status of Nodes.",
        "Muster tries again every five minutes. The exclusion of nodes never waits for it.",
        f"Add {name_component('node-condition')}, or switch the field off.",
        "Muster may not write the condition MusterHealthy on Nodes (403). Everything else works without it. Add "
        f"{name_component('node-condition')}, or set spec.health.nodeCondition to false.",
    ),
    Reason(
        "NodeConditionLeft",
        Topic.POLICY,
        POLICY_EVENT,
        "`spec.health.nodeCondition` is off, or the installation's profile leaves it out. Nodes have the condition "
        "from before, and the API server does not let Muster remove it.",
        "The condition stays as it was. Muster tries again every five minutes.",
        f"Add {name_component('node-condition')} until the condition is gone.",
        "Nodes still have the condition MusterHealthy, which Muster does not update any more and may not remove (403). "
        f"Add {name_component('node-condition')} until it is gone.",
    ),
    Reason(
        "PartNotInstalled",
        Topic.POLICY,
        POLICY_EVENT,
        "The FleetPolicy asks for a part that the installation's [profile](docs/profiles.md) leaves out. The message "
        "names the fields and the profile that has it.",
        "Muster does the rest of what the FleetPolicy asks for.",
        "Install the profile that the message names, or take the fields out of the FleetPolicy.",
        "Muster is installed with profile observe (MUSTER_PROFILE), which leaves out what the FleetPolicy asks for by "
        "spec.health.enforcement. Install profile health, or take that out of the FleetPolicy.",
    ),
    Reason(
        "PreemptionWithoutEffect",
        Topic.POLICY,
        POLICY_EVENT,
        "`spec.queueing.preemption.priorityClasses` lists a PriorityClass that does not exist, or one that has "
        "`preemptionPolicy: Never`.",
        "No job [preempts](docs/queueing.md#preemption-by-priority) by this class until it exists without that policy.",
        "Create the class, or delete it and create it again without `preemptionPolicy`, or take it out of the list.",
        "spec.queueing.preemption.priorityClasses of FleetPolicy default lists PriorityClass urgent, which does not "
        "exist: no job preempts by it. To change that, create it (kubectl create priorityclass urgent --value=VALUE), "
        "or take it out of the list (kubectl edit fleetpolicy default).",
    ),
    Reason(
        "PreflightLimitUnused",
        Topic.POLICY,
        POLICY_EVENT,
        "One of the `preflight.limits` asks for more than any node of that model has reached.",
        "Muster does not apply this limit.",
        "Lower `minimum`; the message has both figures.",
    ),
    Reason(
        "MaintenanceWindow",
        Topic.POLICY,
        POLICY_EVENT,
        "A maintenance window of the FleetPolicy may be a mistake. It names no node, is long over, overlaps, ends "
        "before it begins, or takes much of a pool. The message names the window and its time.",
        "Muster obeys it all the same. One that ends before it begins is ignored.",
        "Change what the message names.",
        "spec.maintenance.windows[rack-7] has been over since 2026-03-01 12:00 UTC. Muster takes no node out for it. "
        "Remove it, or write its next time",
    ),
    Reason(
        "HistoryNotWritten",
        Topic.POLICY,
        POLICY_EVENT,
        "The account of an ended job cannot be written to `muster-system`. The message has the API server's answer.",
        "Muster tries again, and holds no job for more than ten minutes.",
        "Check for a quota, a webhook, a missing right or a missing CRD; apply the manifests of this version.",
        "the account of the ended job team-a/llama cannot be written to namespace muster-system: 403 exceeded quota. "
        "It is tried again; without it `kubectl muster report --fleet` says less than happened.",
    ),
    Reason(
        "HistoryUnreadable",
        Topic.POLICY,
        POLICY_EVENT,
        "ConfigMap `muster-fleet-hours` or `muster-open-jobs` in `muster-system` cannot be read: it was edited, or a "
        "later version wrote it. The message names the ConfigMap and the cause.",
        "Muster does not write over it, and reports that again every ten minutes. Jobs go on, and accounts of jobs "
        "that end are kept.",
        "Run the version of Muster that wrote it, or delete the ConfigMap.",
        "ConfigMap muster-system/muster-fleet-hours cannot be read ('hours'). Muster does not write over it, and "
        "counts no hours of the fleet meanwhile. Run the version of Muster that wrote it, or delete the ConfigMap: the "
        "hours are then counted from zero.",
    ),
    Reason(
        "HistoryLost",
        Topic.POLICY,
        POLICY_EVENT,
        "The account of an ended job is not in the [history](docs/goodput.md#the-history-of-ended-jobs). For an "
        "hour it could not be written and its job is gone, or the API server does not take it.",
        "Reports of the fleet lack this job.",
        "Repair the cause, so that no other account is lost.",
    ),
)

NEXT_BY_REASON: Mapping[str, Sequence[str]] = {
    name: reason.next for reason in REASONS for name in reason.each if reason.next
}
"""By reason, the commands of `Reason.next`."""
