"""Numbers for people have significant digits, and never an exponent."""

import pytest

from muster.protocol.numerals import significant


@pytest.mark.parametrize("exponent", range(-6, 10))
@pytest.mark.parametrize("head", [1.0, 1.2345, 9.9996])
def test_no_number_has_an_exponent(head: float, exponent: int) -> None:
    value = head * 10**exponent
    for digits in (2, 3, 4, 6):
        text = significant(value, digits)
        assert "e" not in text
        assert float(text.replace(",", "")) == pytest.approx(value, rel=10.0 ** (1 - digits))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.2e-6, "0.0000012"),
        (0.0123, "0.0123"),
        (6.0, "6"),
        (6.4567, "6.46"),
        (9.996, "10"),
        (100.0, "100"),
        (999.6, "1,000"),
        (12_345.6, "12,346"),
        (-0.5, "-0.5"),
        (5e-324, "less than 0.000001"),
        (1e308, "more than 10^15"),
    ],
)
def test_a_number_is_written_with_three_digits_and_a_large_one_whole(value: float, text: str) -> None:
    assert significant(value) == text
