"""The offences of a machine, whatever the name of its node.

A node's name does not identify its hardware: clouds give a new machine an old name, and an old machine a new one. So
offences are stored by the mainboard's UUID and the serial numbers of the GPUs, which do not change. Neither alone is
enough. A virtual machine has a new UUID at each start. A GPU that has fallen off the bus reports no serial number, just
when the record is needed. So an identity is a list of short digests. Two identities are the same machine when most of
the GPUs are the same, or, where no GPU is known, the mainboard.
"""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from muster.api.nodehealth import MAX_EARLIER_OFFENCES, AgentStatus, Offences

MAX_GPUS = 8
_BOARD_DIGITS, _GPU_DIGITS = 12, 5
_LEAST = Decimal("0.0001")
MAX_SCORE = Decimal(1000)


def identity(agent: AgentStatus | None) -> str:
    """Return the identity of the machine: `<digest of the board>:<digest of a GPU>,...`, at most 60 characters; "" if
    unknown."""
    if agent is None:
        return ""
    board = _digest(agent.system_uuid, _BOARD_DIGITS)
    gpus = sorted({_digest(serial, _GPU_DIGITS) for serial in agent.gpu_serials} - {""})[:MAX_GPUS]
    return f"{board}:{','.join(gpus)}" if board or gpus else ""


def same_machine(machine: str, other: str) -> bool:
    """Whether two known identities are of one machine. Two that have no kind of digest in common are not."""
    (board, gpus), (other_board, other_gpus) = _parts(machine), _parts(other)
    if gpus and other_gpus:
        return 2 * len(gpus & other_gpus) > min(len(gpus), len(other_gpus))
    return bool(board) and board == other_board


def may_be_same(now: str, recorded: str) -> bool:
    """Whether the machine may still turn out to be the one from before: no GPU of it is known yet, and that one had
    some.

    Args:
        now: the identity of the machine now.
        recorded: the identity on record.
    """
    return not _parts(now)[1] and bool(_parts(recorded)[1])


def identity_to_keep(now: str, recorded: str) -> str:
    """Return the identity to keep of two identities of one machine: the one with more GPUs, so that a lost GPU stays
    known."""
    return recorded if len(_parts(recorded)[1]) > len(_parts(now)[1]) else now


def charged_score(offences: Offences) -> Decimal:
    """Return the account of offences after its last charge, as it is stored.

    A text that is no positive number counts as 0, and the result is at most 1000.
    """
    try:
        value = Decimal(offences.score)
    except InvalidOperation:
        return Decimal(0)
    return min(value, MAX_SCORE) if value.is_finite() and value > 0 else Decimal(0)


def score(offences: Offences, now: datetime, half_life_seconds: int) -> Decimal:
    """Return what is left of an account of offences now: it loses half of its weight in each half-life.

    Args:
        offences: the account; without a time it counts as 0.
        now: the time; a last charge that lies ahead of it counts as now.
        half_life_seconds: the half-life.
    """
    if offences.as_of is None:
        return Decimal(0)
    halvings = max(0.0, (now - offences.as_of).total_seconds()) / half_life_seconds
    left = charged_score(offences) * Decimal(0.5 ** min(halvings, 1000.0))
    return left.quantize(_LEAST, ROUND_HALF_EVEN)


def accounts_to_keep(
    accounts: Iterable[Offences], machine: str, now: datetime, half_life_seconds: int
) -> tuple[Offences, ...]:
    """Return the accounts to keep in a node's record of the machines that had its name, the highest first.

    Args:
        accounts: of these machines; among equals the first are kept.
        machine: the identity of the machine that has the name now; its own account is in use again.
        now: the time.
        half_life_seconds: the time in which an account loses half of its weight.
    """
    scored = [
        (score(account, now, half_life_seconds), account)
        for account in accounts
        if not same_machine(machine, account.hardware)
    ]
    scored.sort(key=lambda pair: pair[0], reverse=True)
    return tuple(account for left, account in scored[:MAX_EARLIER_OFFENCES] if left)


class MachineOffences:
    """The accounts of offences of all machines, to be asked by the machine's identity.

    Args:
        accounts: those that never change, so that they need no name.
    """

    def __init__(self, accounts: Iterable[Offences] = ()) -> None:
        self._named: dict[Hashable, Mapping[Hashable, Offences]] = {}
        self._by_board: defaultdict[str, dict[Hashable, Offences]] = defaultdict(dict)
        self._by_gpu: defaultdict[str, dict[Hashable, Offences]] = defaultdict(dict)
        for number, account in enumerate(accounts):
            self.set_accounts(number, [account])

    def set_accounts(self, name: Hashable, accounts: Iterable[Offences]) -> None:
        """Replace the accounts of offences that are kept under a name: of its machine, and of those before it."""
        for key, account in self._named.pop(name, {}).items():
            self._drop(key, account)
        by_key: dict[Hashable, Offences] = {
            (name, number): account for number, account in enumerate(accounts) if account.hardware
        }
        if by_key:
            self._named[name] = by_key
        for key, account in by_key.items():
            board, gpus = _parts(account.hardware)
            if board:
                self._by_board[board][key] = account
            for gpu in gpus:
                self._by_gpu[gpu][key] = account

    def highest_score(self, machine: str, now: datetime, half_life_seconds: int) -> Decimal:
        """Return the highest offence score of the machine under any node name; 0 if there is none.

        Args:
            machine: its identity.
            now: the time at which the accounts are compared.
            half_life_seconds: the time in which an account loses half of its weight.
        """
        scores = (score(account, now, half_life_seconds) for account in self.accounts_of(machine))
        return max(scores, default=Decimal(0))

    def accounts_of(self, machine: str) -> list[Offences]:
        """Return the accounts of a machine under any node name.

        Args:
            machine: its identity.
        """
        board, gpus = _parts(machine)
        candidates = {name: account for gpu in gpus for name, account in self._by_gpu.get(gpu, {}).items()}
        if board:
            candidates |= self._by_board.get(board, {})
        return [account for account in candidates.values() if same_machine(machine, account.hardware)]

    def _drop(self, name: Hashable, account: Offences) -> None:
        board, gpus = _parts(account.hardware)
        for index, key in ((self._by_board, board), *((self._by_gpu, gpu) for gpu in gpus)):
            if key in index:
                index[key].pop(name, None)
                if not index[key]:
                    del index[key]


def _digest(text: str, digits: int) -> str:
    cleaned = text.strip().lower()
    significant = cleaned.strip("0-")  # firmware that knows none writes zeros
    return hashlib.sha256(cleaned.encode()).hexdigest()[:digits] if significant else ""


def _parts(machine: str) -> tuple[str, frozenset[str]]:
    board, _, gpus = machine.partition(":")
    return board, frozenset(gpu for gpu in gpus.split(",") if gpu)
