"""What jobs' failures come to, one by one and of a whole fleet."""

import random
from collections.abc import Iterable
from datetime import timedelta

import pytest
from tests.unit.health.builders import NOW, after
from tests.unit.health.words import assert_that_work_goes_by_the_jobs_of_an_owner, word

from muster.health import job_failures  # its TestRequests by its module: pytest takes a class of that name for tests
from muster.health.job_failures import LASTS, MAX_NODES, JobFailureReports, JobRecord, following, weight
from muster.world.jobfailures import JobFailureReport

DAY = 86400


def crashed(owner: str = "a", job: str = "llama", at: float = 0) -> JobFailureReport:
    """The program was not seen to get any further."""
    return word(owner, job, at, went_on=False)


class TestFollowing:
    @pytest.mark.parametrize(
        ("words", "at", "want"),
        [
            pytest.param([], 0, None, id="none"),
            pytest.param([word()], 0, None, id="one failure"),
            pytest.param([word(), word(at=DAY)], DAY, False, id="two of one job a day apart"),
            pytest.param([word(), word(at=DAY + 60)], DAY + 60, None, id="further apart"),
            pytest.param([word(), word(at=DAY), word(at=2 * DAY)], 2 * DAY, False, id="each day"),
            pytest.param([word(), word(job="bert")], 0, False, id="two jobs of one owner"),
            pytest.param([crashed(job=str(i)) for i in range(2)], 0, None, id="two programs that never went on"),
            pytest.param([crashed(job=str(i)) for i in range(4)], 0, False, id="four of them"),
            pytest.param([word(), word("b")], 0, True, id="two owners"),
            pytest.param([crashed(), crashed("b")], DAY, True, id="of whom no program went on, for a day"),
            pytest.param([crashed(), crashed("b")], DAY + 60, None, id="and no longer"),
            pytest.param([word(), word("b", at=2 * DAY)], 2 * DAY, True, id="two owners, two days apart"),
            pytest.param([word(), word("b", at=3 * DAY)], 3 * DAY, None, id="three"),
            pytest.param([word(), word(at=60), word("b")], 2 * DAY + 61, None, id="the other one has faded"),
        ],
    )
    def test_one_owner_makes_it_followed_and_two_ask_for_a_check(
        self, words: list[JobFailureReport], at: float, want: bool | None
    ) -> None:
        found = following(words, after(at))
        assert (found.wants_check if found else None) is want

    def test_it_ends_when_it_says(self) -> None:
        rng = random.Random(7)
        for _ in range(200):
            words = [word(rng.choice("abc"), at=rng.uniform(-3, 0) * DAY, went_on=rng.random() < 0.7) for _ in range(5)]
            found = following(words, NOW)
            if found is None:
                continue
            before = following(words, found.ends - timedelta(seconds=2))
            assert before is not None
            assert before.wants_check is found.wants_check

    def test_it_comes_to_an_end_within_days(self) -> None:
        words, now, looks = [word(owner, at=60 * n) for n in range(8) for owner in "abc"], NOW, 0
        while (found := following(words, now)) is not None:
            assert found.ends > now
            now, looks = found.ends, looks + 1
        assert (now - NOW < LASTS + timedelta(hours=1), looks < 30) == (True, True)

    def test_it_names_the_newest_failure_of_each_job(self) -> None:
        found = following([word(at=0), word(at=60, attempt=9), word("b", at=30)], after(70))
        assert found is not None
        assert [(each.job, each.attempt) for each in found.reports] == [("a/llama", 9), ("b/llama", 1)]
        assert (found.since, found.newest) == (NOW, after(60))

    def test_public_words_name_nobody(self) -> None:
        for words in ([word(), word(at=1)], [word(), word("b")]):
            found = following(words, after(2))
            assert found is not None
            assert "llama" not in found.in_public

    def test_a_clock_that_jumps_makes_no_word_weigh_more(self) -> None:
        assert weight(word(at=10**9), NOW) == weight(word(), NOW) == 1.0


def told(*of: tuple[str, str, Iterable[JobFailureReport]]) -> JobFailureReports:
    """Job, node, words; each job with a record of its own."""
    found = JobFailureReports()
    for number, (job, node, words) in enumerate(of):
        found.replace_record(JobRecord(job.split("/")[0], job, f"uid-{number}", node, tuple(words)))
    return found


class TestJobWords:
    def test_a_word_is_about_its_node(self) -> None:
        words = told(("a/llama", "n1", [word()]), ("b/llama", "n2", [word("b")]))
        assert words.failures_on("n1", 100, NOW) == [word()]
        assert words.failures_on("n3", 100, NOW) == []

    def test_what_changes_is_told(self) -> None:
        words = JobFailureReports()
        assert words.replace_record(JobRecord("a", "a/llama", "u", "n1", (word(),))) == {"n1"}
        assert words.replace_record(JobRecord("a", "a/llama", "u", "n1", (word(),))) == set()
        assert words.replace_record(JobRecord("a", "a/llama", "u", "n2", (word(),))) == {"n1", "n2"}
        assert words.replace_record(JobRecord("a", "a/llama", "u", "", ())) == {"n2"}
        assert words.failures_on("n2", 100, NOW) == []

    def test_a_job_that_was_created_again_and_fails_elsewhere_blames_nobody(self) -> None:
        words = told(("a/llama", "n1", [word()]), ("a/llama", "n2", [word(at=60)]))
        assert (words.failures_on("n1", 100, after(60)), words.failures_on("n2", 100, after(60))) == ([], [])

    def test_a_job_that_was_created_again_and_fails_there_again_is_two_failures(self) -> None:
        words = told(("a/llama", "n1", [word()]), ("a/llama", "n1", [word(at=60)]))
        assert len(words.failures_on("n1", 100, after(60))) == 2

    def test_an_owner_whose_jobs_fail_on_many_nodes_is_not_heard(self) -> None:
        several = [(f"a/{n}-{i}", f"n{n}", [word(job=f"{n}-{i}")]) for n in range(MAX_NODES) for i in range(2)]
        other = ("b/llama", "n0", [word("b")])
        words = told(*several, other)
        assert len(words.failures_on("n0", 100, NOW)) == 3
        words = told(*several, ("a/x", "n9", [word(job="x")]), ("a/y", "n9", [word(job="y")]), other)
        assert words.failures_on("n0", 100, NOW) == [word("b")]
        assert words.failures_on("n9", 100, NOW) == []
        assert len(words.failures_on("n9", 16384, NOW)) == 2, "a large fleet has more nodes that are bad"

    def test_who_is_not_heard_any_more_is_told_of_all_nodes(self) -> None:
        words = told(("a/x", "n1", [word(job="x")]), ("a/y", "n2", [word(job="y")]))
        assert words.replace_record(JobRecord("a", "a/z", "uid-z", "n3", (word(job="z"),))) == {"n1", "n2", "n3"}

    def test_old_words_are_forgotten_and_leave_nothing(self) -> None:
        words = told(("a/x", "n1", [word(job="x")]), ("b/y", "n1", [word("b", "y", at=60)]))
        words.forget(NOW + LASTS)
        assert words.failures_on("n1", 100, NOW) == [word("b", "y", at=60)]
        words.forget(after(60) + LASTS)
        assert words.failures_on("n1", 100, NOW) == []
        assert not any(value for name, value in vars(words).items() if name != "_repeated_at")

    def test_a_name_has_few_records(self) -> None:
        words = JobFailureReports()
        for number in range(1000):
            words.replace_record(JobRecord("a", "a/llama", f"uid-{number}", "n1", (word(at=number),)))
        assert len(words.failures_on("n1", 100, after(1000))) == 4

    def test_the_index_is_what_a_new_one_would_be(self) -> None:
        rng = random.Random(11)
        records: dict[tuple[str, str], tuple[str, tuple[JobFailureReport, ...]]] = {}
        words = JobFailureReports()
        for step in range(2000):
            owner, job = rng.choice("abc"), rng.choice("xyz")
            node = f"n{rng.randrange(4)}"
            said = (word(owner, job, at=step),) if rng.random() < 0.7 else ()
            words.replace_record(JobRecord(owner, f"{owner}/{job}", owner + job, node if said else "", said))
            records[owner, job] = (node, said)
        fresh = told(*((f"{owner}/{job}", node, said) for (owner, job), (node, said) in records.items() if said))
        for node in range(4):
            key = lambda each: (each.job, each.time)  # noqa: E731
            assert sorted(words.failures_on(f"n{node}", 9999, after(2000)), key=key) == sorted(
                fresh.failures_on(f"n{node}", 9999, after(2000)), key=key
            )

    def test_jobs_take_work_by_the_jobs_of_an_owner_and_not_by_nodes(self) -> None:
        assert_that_work_goes_by_the_jobs_of_an_owner(owners=3)


class TestAsked:
    def test_so_many_of_a_pool_have_their_turn(self) -> None:
        asked = job_failures.TestRequests()
        for number in range(20):
            assert asked.set_request(f"n{number}", "H200") == set()
        asked.set_request("c0", "CPU")
        assert [number for number in range(20) if asked.may_be_tested(f"n{number}", 10)] == list(range(10))
        assert asked.may_be_tested("c0", 1)
        assert asked.set_request("n0", "H200") == set(), "nothing new"
        assert "n10" in asked.set_request("n0", None)
        assert asked.may_be_tested("n10", 10)
        assert asked.set_request("n0", None) == set()

    def test_one_person_with_two_namespaces_does_not_have_every_turn(self) -> None:
        asked = job_failures.TestRequests()
        for number in range(20):
            asked.set_request(f"mine{number}", "H200", ("me-a", "me-b"))
        asked.set_request("theirs", "H200", ("x", "y"))
        assert [asked.may_be_tested(f"mine{number}", 2) for number in range(3)] == [True, False, False]
        assert asked.may_be_tested("theirs", 2), "asked last, and served second"

    def test_nor_by_one_partner_after_the_other(self) -> None:
        asked = job_failures.TestRequests()
        for number in range(20):
            asked.set_request(f"mine{number}", "H200", ("me", f"other{number}"))
        assert asked.may_be_tested("mine0", 1)
        asked.set_request("theirs", "H200", ("x", "y"))
        assert not asked.may_be_tested("theirs", 1), "who has a turn keeps it"
        assert "theirs" in asked.set_request("mine0", None)
        assert not asked.may_be_tested("mine1", 1)
        assert asked.may_be_tested("theirs", 1)
        asked.set_request("theirs", None)
        assert asked.may_be_tested("mine1", 1), "nobody else waits"

    def test_a_node_that_changes_pools_asks_in_the_other_one(self) -> None:
        asked = job_failures.TestRequests()
        asked.set_request("n0", "H200")
        asked.set_request("n1", "H200")
        assert asked.set_request("n0", "H100") == {"n1"}
        assert asked.may_be_tested("n0", 1)
        assert asked.may_be_tested("n1", 1)
