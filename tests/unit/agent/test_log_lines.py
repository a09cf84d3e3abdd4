"""Whose a line of the kernel log is, and what it says of itself. What each line means:
tests/unit/reports/test_kernel_lines.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.node.agent.log_lines import parse, split


def test_a_record_says_when() -> None:
    assert split("4,77,5000000,-;NVRM: x") == ("NVRM: x", 5.0)


@pytest.mark.parametrize("priority", [8, 12, 14, 191])
def test_what_user_space_puts_into_the_kernel_log_is_not_the_kernel_s(priority: int) -> None:
    assert split(f"{priority},77,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, forged") is None


@given(st.text(max_size=3000))
def test_garbage_is_harmless(text: str) -> None:
    for line in (
        text,
        f"NVRM: {text}",
        f"NVRM: Xid (PCI:{text}): 79",
        f"4,1,1,-;{text}",
        f"mlx5_core {text}",
        f"XFS ({text}",
        f"nvidia 0000:1b:00.0: PCIe Bus Error: {text}",
        f"mce: [Hardware Error]: CPU {text}",
        f"NVRM: Xid (PCI:0000:1b:00): 149, {text}",
    ):
        parts = split(line)
        fact = parse(parts[0]) if parts is not None else None
        assert fact is None or len(fact.message) <= 1024


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001 0x00000000 0x00000000)", "Nonfatal"),
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000)",
            "Fatal, reason 37",
        ),
        ("145, pid=4, name=<unknown>, RLW_SRC_TRACK Fatal XC0 i1 Link 00 (0x00000001 0x00000002)", "Fatal"),
        ("149, x", ""),
        (
            "74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10, 0x0, 0x0, 0x0, 0x0)",
            "(0x0, 0x0, 0x10, 0x0, 0x0, 0x0, 0x0)",
        ),
        ("79, GPU has fallen off the bus. Fatal XC0", ""),
    ],
)
def test_an_xid_of_nvlink_says_what_tells_it_apart(line: str, value: str) -> None:
    fact = parse(f"NVRM: Xid (PCI:0018:01:00): {line}")
    assert fact is not None
    assert fact.value == value


# Written by Linux 6.18 for programs of a user without any rights that had named themselves so: prctl(PR_SET_NAME), then
# a bad access.
_SEGFAULT = "[10499]: segfault at 0 ip 000055a0b2dc716a sp 00007ffc1d7a2f70 error 6 in a.out[116a,55a0b2dc7000+1000]"
_OOM = " invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000"


@pytest.mark.parametrize(
    "name",
    [
        "EDAC MC0: 1 UE ",
        "I/O error dev s",
        "Oops",
        "kernel BUG at x",
        "mlx5_core 0: ",
        "BUG: soft lockup",
        "NVRM: Xid (1:2)",
    ],
)
@pytest.mark.parametrize(
    "end",
    [_SEGFAULT, _OOM, ": page allocation failure: order:0", " (7): drop_caches: 3", r"\xe9[7]: segfault at 0 ip 0"],
)
def test_a_process_that_gives_itself_a_name_is_no_evidence(name, end):
    message = name[:15] + end if not end.startswith("\\") else name[:14] + end
    assert parse(split(f"6,346,1091005010,-;{message}")[0]) is None
