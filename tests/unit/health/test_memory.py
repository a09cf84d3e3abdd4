from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.health.builders import NOW, after, agent

from muster.api.nodehealth import Offences
from muster.health.memory import MachineOffences, accounts_to_keep, identity, identity_to_keep, same_machine, score

WEEK = 604800
SERIALS = [f"165212300{index}" for index in range(8)]
ZEROS = "00000000-0000-0000-0000-000000000000"


def machine(**changes: Any) -> str:
    return identity(agent(**changes))


class TestIdentity:
    @pytest.mark.parametrize(
        ("changes", "same"),
        [
            pytest.param({}, True, id="itself"),
            pytest.param({"system_uuid": "another-board"}, True, id="a virtual machine has a new UUID at each start"),
            pytest.param({"gpu_serials": SERIALS[1:]}, True, id="a GPU has fallen off the bus"),
            pytest.param({"gpu_serials": []}, True, id="no driver: the board is known"),
            pytest.param({"gpu_serials": [*SERIALS[1:], "9"]}, True, id="one GPU was replaced"),
            pytest.param({"gpu_serials": list(reversed(SERIALS))}, True, id="in another order"),
            pytest.param(
                {"gpu_serials": [f"9{index}" for index in range(8)]}, False, id="other GPUs on the same board"
            ),
            pytest.param({"system_uuid": "another-board", "gpu_serials": []}, False, id="another board"),
        ],
    )
    def test_is_that_of_the_hardware(self, changes: dict[str, Any], same: bool) -> None:
        assert same_machine(machine(), machine(**changes)) is same
        assert same_machine(machine(**changes), machine()) is same

    def test_nothing_known_is_no_machine(self) -> None:
        assert identity(None) == ""
        assert machine(system_uuid="", gpu_serials=[]) == ""
        assert machine(system_uuid=ZEROS, gpu_serials=["0", "0"]) == ""
        assert not same_machine("", "")
        assert not same_machine(":", ":")

    def test_has_room_in_the_api(self) -> None:
        Offences(hardware=machine(gpu_serials=[f"serial-{index}" for index in range(16)]))

    def test_a_lost_gpu_is_not_forgotten(self) -> None:
        whole, less = machine(), machine(gpu_serials=SERIALS[:7])
        assert identity_to_keep(less, whole) == whole
        assert identity_to_keep(whole, less) == whole


class TestScore:
    @pytest.mark.parametrize(
        ("offences", "at", "left"),
        [
            pytest.param(Offences(score="4", as_of=NOW), 0, "4.00", id="now"),
            pytest.param(Offences(score="4", as_of=NOW), WEEK, "2.00", id="after a half-life"),
            pytest.param(Offences(score="4", as_of=NOW), 3 * WEEK, "0.50", id="after three"),
            pytest.param(Offences(score="4", as_of=NOW), 10**9, "0.00", id="after ages"),
            pytest.param(Offences(score="4", as_of=NOW), -WEEK, "4.00", id="a clock that went back"),
            pytest.param(Offences(score="4"), 0, "0", id="without a time"),
            pytest.param(Offences(score="lots", as_of=NOW), 0, "0", id="no number"),
            pytest.param(Offences(score="NaN", as_of=NOW), 0, "0", id="not a number"),
            pytest.param(Offences(score="Infinity", as_of=NOW), 0, "0", id="infinite"),
            pytest.param(Offences(score="-3", as_of=NOW), 0, "0", id="negative"),
            pytest.param(Offences(score="1E+900", as_of=NOW), 0, "1000.00", id="absurd"),
        ],
    )
    def test_halves_and_survives_garbage(self, offences: Offences, at: float, left: str) -> None:
        assert score(offences, after(at), WEEK) == Decimal(left)

    @given(st.text(max_size=32), st.floats(-1e12, 1e12))
    def test_is_never_negative_or_too_much(self, text: str, at: float) -> None:
        at = max(-1e9, min(at, 1e9))
        assert 0 <= score(Offences(score=text, as_of=NOW), after(at), WEEK) <= 1000


def test_of_many_machines_that_had_a_name_the_worst_are_kept() -> None:
    boards = [machine(system_uuid=f"board-{number}", gpu_serials=[]) for number in range(12)]
    accounts = [Offences(hardware=board, score=str(number), as_of=NOW) for number, board in enumerate(boards)]
    kept = accounts_to_keep(accounts[:11], boards[9], NOW, WEEK)
    assert [account.score for account in kept] == ["10", "8", "7", "6", "5", "4", "3", "2"]
    assert accounts_to_keep(accounts[:1], boards[1], NOW, WEEK) == ()


class TestMemory:
    def test_finds_the_machine_under_another_name(self) -> None:
        memory = MachineOffences([Offences(hardware=machine(), score="2", as_of=NOW)])
        assert memory.highest_score(machine(system_uuid="new"), after(WEEK), WEEK) == Decimal("1.00")
        assert memory.highest_score(machine(gpu_serials=[]), NOW, WEEK) == Decimal("2.00")

    def test_another_machine_inherits_nothing(self) -> None:
        memory = MachineOffences([Offences(hardware=machine(), score="2", as_of=NOW), Offences(score="9", as_of=NOW)])
        assert memory.highest_score(machine(system_uuid="new", gpu_serials=["7"]), NOW, WEEK) == 0
        assert memory.highest_score("", NOW, WEEK) == 0

    def test_the_highest_account_counts(self) -> None:
        accounts = [Offences(hardware=machine(), score=score, as_of=NOW) for score in ("1", "3", "2")]
        assert MachineOffences(accounts).highest_score(machine(), NOW, WEEK) == Decimal("3.00")

    def test_an_account_is_replaced_and_dropped_by_name(self) -> None:
        memory = MachineOffences()
        memory.set_accounts("a", [Offences(hardware=machine(), score="3", as_of=NOW)])
        memory.set_accounts("b", [Offences(hardware=machine(), score="1", as_of=NOW)])
        memory.set_accounts(
            "a", [Offences(hardware=machine(system_uuid="board-2", gpu_serials=["7"]), score="2", as_of=NOW)]
        )
        assert memory.highest_score(machine(), NOW, WEEK) == Decimal("1.00")
        assert memory.highest_score(machine(system_uuid="board-2", gpu_serials=["7"]), NOW, WEEK) == Decimal("2.00")
        memory.set_accounts("b", [])
        memory.set_accounts("never there", [])
        assert memory.highest_score(machine(), NOW, WEEK) == 0

    def test_what_is_dropped_takes_no_room(self) -> None:
        memory = MachineOffences()
        memory.set_accounts("a", [Offences(hardware=machine(), score="3", as_of=NOW)])
        memory.set_accounts("a", [Offences()])
        assert not memory._named
        assert not memory._by_board
        assert not memory._by_gpu
