"""What crosses versions: every object and message that one version of Muster writes and another one may read.

docs/versions.md shows these rows, without their tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contract:
    """One object or message, or the part of an object that has a writer of its own.

    Attributes:
        unknown_field: what becomes of a field that the reader does not know.
        unknown_value: what becomes of a value, or a form, that the reader does not know.
        tests: functions that show it, as FILE::FUNCTION below tests/unit.
    """

    name: str
    writer: str
    reader: str
    unknown_field: str
    unknown_value: str
    tests: Sequence[str]


HEADER = (
    "What",
    "Written by",
    "Read by",
    "A field that the reader does not know",
    "A value or form that it does not know",
)
STAYS = "has no effect, and stays"
IGNORED = "is ignored"

CONTRACTS: Sequence[Contract] = (
    Contract(
        "Gang",
        "operator (PUT)",
        "operator, command",
        "is written back, for as long as the entry that has it",
        "unreadable: the job is Stalled (`RecordUnreadable`), and its workers go on",
        (
            "skew/test_gang.py::test_unknown_fields_are_committed_again",
            "skew/test_gang.py::test_a_rollback_while_a_gang_trains_restarts_nothing_and_loses_nothing",
            "skew/test_gang.py::test_a_record_of_another_form_is_unreadable_and_not_empty",
            "skew/test_gang.py::test_a_record_of_an_older_form_has_defaults",
            "controller/test_reconciler.py::test_nothing_is_done_to_a_job_whose_record_cannot_be_read",
        ),
    ),
    Contract(
        "TrainingJob spec",
        "users",
        "operator, command",
        STAYS,
        "unreadable: Event `InvalidSpec`, and its workers go on",
        (
            "skew/test_objects.py::test_an_unknown_field_changes_nothing_else",
            "skew/test_objects.py::test_an_unknown_value_is_unreadable_and_named",
            "controller/test_reconciler.py::test_a_job_that_cannot_be_read_is_told",
        ),
    ),
    Contract(
        "TrainingJob status",
        "operator (merge patch)",
        "operator, command, page",
        "stays, except in entries of lists, which are derived from the Gang",
        "states, reasons and types of conditions are shown as they are; other values: unreadable, as in the spec",
        (
            "skew/test_objects.py::test_unknown_fields_of_a_jobs_status_are_no_part_of_its_patch",
            "skew/test_objects.py::test_an_unknown_value_is_unreadable_and_named",
        ),
    ),
    Contract(
        "NodeHealth spec",
        "users, by the command",
        "operator, agent, command",
        STAYS,
        "unreadable: Event `RecordUnreadable`; the node is a last choice, and no worker leaves it",
        (
            "skew/test_node_health.py::test_a_decision_of_another_form_is_unreadable",
            "controller/test_nodefitness.py::test_a_record_that_cannot_be_read_makes_its_node_the_last_choice",
        ),
    ),
    Contract(
        "NodeHealth status, the operator's part",
        "operator (apply)",
        "operator, agent, command",
        "is written back, at the top and in incidents, offences and the check; findings and what follows from them are "
        "written anew",
        "unreadable, as in the spec",
        (
            "skew/test_node_health.py::test_unknown_fields_of_a_record_are_written_back",
            "skew/test_node_health.py::test_a_record_of_another_form_is_unreadable_and_takes_no_worker_first",
        ),
    ),
    Contract(
        "NodeHealth status, `evidence` and `agent`",
        "agent (apply)",
        "operator, agent, command",
        "is ignored; an older agent observes anew, without it",
        "evidence of an unknown kind makes the node Suspect; an older agent keeps it until the next boot",
        (
            "agent/test_boots.py::test_an_agent_writes_no_other_field_of_the_status",
            "agent/test_ledger.py::test_evidence_that_only_a_later_agent_knows_stays_until_the_next_boot",
            "health/test_assess.py::test_follow_the_gravest_sign",
        ),
    ),
    Contract(
        "FleetPolicy",
        "administrators",
        "operator, command",
        STAYS,
        "unreadable: Event `PolicyUnreadable`, and the last readable policy holds",
        (
            "skew/test_objects.py::test_an_unknown_field_changes_nothing_else",
            "skew/test_objects.py::test_an_unknown_value_is_unreadable_and_named",
            "controller/test_nodereconciler.py::test_a_policy_that_becomes_unreadable_goes_on_to_hold",
        ),
    ),
    Contract(
        "EndedJob",
        "operator (once)",
        "command",
        "is ignored, and stays",
        "unreadable: reports leave it out, and say how many they leave out",
        (
            "skew/test_objects.py::test_an_unknown_field_changes_nothing_else",
            "skew/test_objects.py::test_an_unknown_value_is_unreadable_and_named",
            "cli/test_fleetreport.py::test_objects_that_make_no_sense_hide_no_others",
        ),
    ),
    Contract(
        "RepairRequest",
        "operator (spec, once), repair system (status)",
        "operator, repair system, command",
        STAYS,
        "unreadable: in an unknown phase it is left alone, else it is made again",
        (
            "skew/test_objects.py::test_an_unknown_field_changes_nothing_else",
            "skew/test_objects.py::test_an_unknown_value_is_unreadable_and_named",
            "health/test_repairs.py::test_one_that_cannot_be_read_is_let_be_only_while_somebody_is_at_it",
        ),
    ),
    Contract(
        "ConfigMap `muster-fleet-hours`",
        "operator (apply)",
        "operator, command",
        "is written back",
        "time in unknown states counts as `excluded`, and is written back; another form: Event `HistoryUnreadable`, "
        "and nothing is written over it",
        (
            "controller/test_fleethours.py::test_states_of_a_later_version_count_as_excluded_and_are_written_back",
            "controller/test_fleethours.py::test_hours_of_another_form_are_reported_and_not_written_over",
        ),
    ),
    Contract(
        "ConfigMap `muster-open-jobs`",
        "operator (apply)",
        "operator",
        "goes into the EndedJob of a job that ended unseen",
        "such entries are written back; another form: Event `HistoryUnreadable`, and nothing is written over it",
        (
            "controller/test_history.py::test_entries_of_the_note_that_only_a_later_version_reads_stay_in_it",
            "controller/test_history.py::test_a_note_of_another_form_is_reported_and_not_written_over",
            "controller/test_history.py::test_a_job_that_becomes_unreadable_stays_noted",
        ),
    ),
    Contract(
        "Lease `muster-leader`",
        "operator",
        "operator, command",
        STAYS,
        "the holder's name has one form",
        ("skew/test_objects.py::test_what_a_later_leader_has_written_into_the_lease_stays",),
    ),
    Contract(
        "Fence file",
        "launcher",
        "launcher",
        "is written back",
        "unreadable: the file stays, and each launcher reports why it could not be read",
        (
            "launcher/test_fence_file.py::test_fields_of_a_later_version_are_kept_in_the_fence_file",
            "launcher/test_fence_file.py::test_a_fence_file_of_another_form_is_an_error_and_stays_as_it_is",
        ),
    ),
    Contract(
        "Report of a launcher",
        "launcher",
        "operator",
        IGNORED,
        "an unknown state is none of those that a decision waits for; another form: 400, and the report before counts",
        (
            "skew/test_messages.py::test_a_report_of_a_later_launcher_is_read",
            "skew/test_messages.py::test_a_message_of_an_older_version_has_defaults",
        ),
    ),
    Contract(
        "Directive to a launcher",
        "operator",
        "launcher",
        IGNORED,
        "an unknown kind: the launcher goes on as it is",
        (
            "skew/test_messages.py::test_a_directive_of_a_later_operator_is_read",
            "launcher/test_running.py::test_an_unknown_directive_keeps_the_state",
        ),
    ),
    Contract(
        "Ping and answer",
        "launcher",
        "launcher",
        IGNORED,
        "words that are no numbers, and all after them, are ignored",
        ("skew/test_messages.py::test_of_a_later_answer_to_a_ping_the_known_numbers_are_read",),
    ),
    Contract(
        "Report of a checker",
        "checker",
        "operator",
        IGNORED,
        "an unknown outcome counts as a test that could not run, and never as a pass",
        (
            "skew/test_messages.py::test_an_outcome_that_only_a_later_checker_knows_is_no_pass",
            "skew/test_messages.py::test_a_message_of_an_older_version_has_defaults",
        ),
    ),
    Contract(
        "Directive to a checker",
        "operator",
        "checker",
        IGNORED,
        "an order of an unknown kind is answered: it could not run",
        (
            "skew/test_messages.py::test_a_directive_of_a_later_operator_to_a_checker_is_read",
            "checker/test_core.py::test_what_it_does_not_know_it_answers",
        ),
    ),
    Contract(
        "Files of a checker on its node",
        "checker",
        "checker",
        "is left out when the file is written next",
        "the file is begun anew, and the node is tested again",
        ("checker/test_keeping.py::test_what_cannot_be_read_is_begun_anew_with_one_line",),
    ),
    Contract(
        "Recorded decisions (`muster.replay`)",
        "operator",
        "command",
        IGNORED,
        "unreadable: exit status 2, with the cause",
        ("test_replay.py::test_what_cannot_be_read_is_refused",),
    ),
)


def table() -> str:
    """The rows as docs/versions.md has them."""
    rows = [HEADER, ("---",) * len(HEADER)]
    rows += [(it.name, it.writer, it.reader, it.unknown_field, it.unknown_value) for it in CONTRACTS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
