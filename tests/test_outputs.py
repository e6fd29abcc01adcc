"""Texts compared as notebooks are: last digits may differ, what is said may not."""

from __future__ import annotations

import numpy as np
import pytest

from outputs import difference

ROW = """\
   gate        value  threshold  passes
0  similarity  0.6625  0.7000     False
1  confidence 78.003037 40.000     True
similarity of the nearest hit 0.6625 is below min_similarity 0.7; confidence 78.0030 is at or \
above tau_default 40
refuse, 12 of 370 cases, -0.0375, p 0.00024, 1.2e-05, policy d0448e5b6726, 2024-05-01, \
£148,600.00"""


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("78.003037", "78.003016"),  # another processor
        ("78.0030", "78.0031"),  # on the edge of two roundings
        ("0.6625 is", "0.6626 is"),
        ("-0.0375", "-0.0374"),
        ("p 0.00024", "p 0.00025"),
        ("1.2e-05", "1.3e-05"),
        ("40.000", "40.0000000"),  # pandas shows as many decimals as a column needs
        ("0.7000 ", "0.70   "),
        ("0  similarity  0.6625", "0  similarity   0.6625"),
    ],
)
def test_last_digits_are_the_same(was, now):
    """A number another processor shows otherwise, and its column's width, make no difference."""
    assert was in ROW
    assert difference(ROW, ROW.replace(was, now)) == ""


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("refuse", "ok"),  # a status
        ("False", "True "),
        ("is below", "is at or above"),
        ("12 of 370", "13 of 370"),  # a count
        ("tau_default 40", "tau_default 41"),
        ("0.6625 is", "0.6691 is"),  # one percent
        ("78.003037", "78.783067"),
        ("78.003037", "78.03"),
        ("-0.0375", "0.0375"),  # a sign
        ("-0.0375", "-0.0379"),
        ("p 0.00024", "p 0.00034"),
        ("d0448e5b6726", "d0448e5b6727"),
        ("2024-05-01", "2024-05-02"),
        ("£148,600.00", "£150,086.00"),
        ("£148,600.00", "£148,600.00\nand more"),
    ],
)
def test_a_change_is_a_change(was, now):
    """A changed status, count, name, sign or threshold, a number off by 1 %, or one more line."""
    assert was in ROW
    assert difference(ROW, ROW.replace(was, now)) != ""
    assert difference(ROW.replace(was, now), ROW) != ""


def test_one_percent_is_seen_wherever_it_can_be_shown():
    """Numbers of any size.

    Off by 1 % they differ where the text shows it, off by 1e-5 they never do.
    """
    rng = np.random.default_rng(0)
    for value in np.exp(rng.uniform(np.log(0.02), np.log(1e6), 2000)).tolist():
        for other, same in (
            (value * (1.0 + 1e-5), True),
            (value * 1.01, False),
            (value * 0.99, False),
        ):
            assert (difference(f"risk {value:.4f}, say", f"risk {other:.4f}, say") == "") is same, (
                value,
                other,
            )


@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_coarse_number_is_as_good_as_it_is_shown(places):
    """One unit of the last decimal passes only if it is at most half a percent of the value."""
    unit = 10.0**-places
    assert difference(f"{300 * unit:.{places}f}", f"{301 * unit:.{places}f}") == ""
    assert difference(f"{30 * unit:.{places}f}", f"{31 * unit:.{places}f}") != ""
