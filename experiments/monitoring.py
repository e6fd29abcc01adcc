r"""False alarms, false statements and delays of the monitor on simulated streams; Markdown tables.

    python experiments/monitoring.py --streams 2000 --steps 10000

A stream is a sequence of labelled rows: answered requests whose answer is an error with probability
p, given the past. A request without label is a step of 0, which leave wealth as it is, so none is
drawn. The promise is p <= alpha. A process bets on the rows since its own start and states *alarm*
or *held* at each row. An alarm is false where the mean of p over the rows of its process is alpha
or less, `held` where the mean since the start is alpha or more. Delta is spent as the monitor does:
half for alarms, half for `held`; with a window half of the alarms' share is for the process since
the start, the rest for processes that open every `window` rows and live 4 windows, 1 / (r (r + 1))
of it for number r.

Inclusion: `equal` is any constant probability of a label, 1 or 0.2, which gives rows of equal
weight and so the same wealth. `two levels` labels 0.1 of four fifths of the requests and 0.5 of a
fifth in which errors are three times as likely; rows weigh 1 / probability.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import inf, log
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raglab.extensions.monitoring.betting import Wealth, log_bar, log_mean, opening_wealth
from raglab.metrics import binomial_p, clopper_pearson

Places = NDArray[np.float64]
IsEnough = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]  # of counts among n
DELTA, LIFE, BLOCK, MOST, ROUNDING = 0.1, 4, 1000, 5000, 1e-9  # MOST rows of a fixed sample
WINDOWS = {"no window": None, "window 250": 250, "window 500": 500, "window 1000": 1000}
DASHBOARDS, LIVES = {"all rows": None, "last 500": 500}, (2, 4, 8)
FEW = (
    "at the bound",
    "0.5 alpha",
    "blocks of 0.5 and 1.5 alpha",
    "by the past",
    "2 alpha",
    "break drawn",
)
LEVELS = {  # share of the requests, inclusion probability, error probability as a multiple of p
    "equal": ((1.0, 1.0, 1.0),),
    "two levels": ((0.8, 0.1, 1.0 / 1.4), (0.2, 0.5, 3.0 / 1.4)),
}


class Setting(NamedTuple):
    """Error probabilities of a stream.

    rates: multiples of alpha, of the rows' places in [0, 1) and the place of the break; None: by
    the errors before. rupture: place from which on rows are worse than the promise; None: none is.
    spread: range that the place is drawn from. rival: multiple of alpha that a fixed sample is
    planned to show; 0: none is.
    """

    rates: Callable[[Places, Places], Places] | None
    rupture: float | None = None
    spread: float = 0.0
    rival: float = 0.0


def broken(rate: float, before: float = 0.5) -> Callable[[Places, Places], Places]:
    """Rates that change at the break."""
    return lambda place, rupture: np.where(place < rupture, before, rate)


SETTINGS = {
    "at the bound": Setting(broken(1.0, 1.0)),
    "0.5 alpha": Setting(broken(0.5, 0.5), rival=0.5),
    "blocks of 0.5 and 1.5 alpha": Setting(
        lambda place, _: 0.5 + np.floor(100.0 * place + ROUNDING) % 2
    ),
    "by the past": Setting(None),
    "1.5 alpha": Setting(broken(1.5, 1.5), 0.0, rival=1.5),
    "2 alpha": Setting(broken(2.0, 2.0), 0.0, rival=2.0),
    "0.5, then 2 alpha": Setting(broken(2.0), 0.2, rival=2.0),
    "break drawn": Setting(broken(2.0), 0.2, 0.1, 2.0),
    "weak break drawn": Setting(broken(1.5), 0.2, 0.1, 1.5),
    "late break drawn": Setting(broken(2.0), 0.8, 0.1, 2.0),
    "slow, 0.5 to 2 alpha": Setting(lambda place, _: 0.5 + 1.5 * place, 1.0 / 3.0),
}


class Streams(NamedTuple):
    """Labelled rows.

    kinds: of the rows' steps, 2 * level + error, [S, T]. steps: value of each kind, [V]. excess:
    sum of p - alpha before each row and at the end, [S or 1, T + 1]. rupture: rows before the
    break, [S]; NaN without one.
    """

    kinds: NDArray[np.int8]
    steps: Places
    excess: Places
    rupture: Places


def drawn(
    setting: Setting, inclusion: str, alpha: float, shape: tuple[int, int], rng: np.random.Generator
) -> Streams:
    """Streams of a setting, [S, T]."""
    share, chance, factor = np.array(LEVELS[inclusion]).T
    streams, rows = shape
    labelled = share * chance / (share * chance).sum()
    level = (
        (rng.random(shape) >= labelled[0]).astype(np.int8)
        if len(share) > 1
        else np.zeros(shape, dtype=np.int8)
    )
    uniform = rng.random(shape) / factor[level]
    rupture = np.full(
        (streams if setting.spread else 1, 1),
        np.nan if setting.rupture is None else setting.rupture,
    )
    if setting.spread:
        rupture += setting.spread * rng.random(rupture.shape)
    if setting.rates is None:
        p, errors = np.empty(shape), np.zeros(shape, dtype=np.bool_)
        # alpha - p so far: never below 0, so that the promise holds at every row
        budget = np.zeros(streams)
        for row in range(rows):
            after_error = errors[:, row - 1] if row else np.zeros(streams, dtype=np.bool_)
            p[:, row] = np.where(after_error, 0.5 * alpha, np.minimum(1.5 * alpha, alpha + budget))
            errors[:, row] = uniform[:, row] < p[:, row]
            budget = np.maximum(budget + alpha - p[:, row], 0.0)
    else:
        p = alpha * setting.rates(
            np.broadcast_to(np.arange(rows) / rows, (len(rupture), rows)), rupture
        )
        errors = uniform < p
    weight = chance.min() / chance  # weights scaled to 1 at most, which moves no wealth
    steps = (weight[:, None] * np.array([-alpha, 1.0 - alpha])).ravel()
    excess = np.concatenate([np.zeros((len(p), 1)), (p - alpha).cumsum(axis=1)], axis=1)
    return Streams(
        2 * level + errors, steps, excess, np.broadcast_to(np.ceil(rupture[:, 0] * rows), streams)
    )


def least_counts(is_enough: IsEnough, rows: int) -> NDArray[np.int64]:
    """Least count among n that is enough, of n = 1 … rows, [rows]; n + 1 where none is.

    More are enough as well.
    """
    n = np.arange(1, rows + 1)
    low, high = np.zeros_like(n), n + 1
    while (low < high).any():
        middle = (low + high) // 2
        enough = (low < high) & is_enough(np.minimum(middle, n), n)
        low, high = (
            np.where(enough | (low == high), low, middle + 1),
            np.where(enough, middle, high),
        )
    return low


def statements(
    streams: Streams, wealth: Wealth, bar: float, start: int, stop: int
) -> NDArray[np.bool_]:
    """Whether a process from row `start` is at the wealth bar after each row, [S, stop - start]."""
    rates = np.log1p(wealth.bets[:, None] * streams.steps)  # [J, V]
    kinds = streams.kinds[:, start:stop]
    if len(streams.steps) == 2:  # wealth grows with the count of errors, or falls with it
        rise, fall = (1, 0) if wealth.bets[0] > 0.0 else (0, 1)
        least = least_counts(
            lambda k, n: (
                log_mean(k[:, None] * rates[:, rise] + (n - k)[:, None] * rates[:, fall]) >= bar
            ),
            stop - start,
        )
        return (kinds == rise).cumsum(axis=1) >= least
    stated = np.empty(kinds.shape, dtype=np.bool_)
    for row, of_stream in zip(stated, kinds, strict=True):
        counts = (of_stream == np.arange(len(streams.steps))[:, None]).cumsum(axis=1)
        logs = rates @ counts.astype(np.float64)  # [J, rows]
        best = logs.max(axis=0)  # the mean lies between 1 / J of it and all of it
        row[:] = best >= bar + log(len(rates))
        unclear = np.flatnonzero((best >= bar) & ~row)
        row[unclear] = log_mean(logs[:, unclear].T) >= bar
    return stated


def processes(window: int | None, rows: int, life: int = LIFE) -> Iterator[tuple[int, int, float]]:
    """First row, row after the last, and share of delta of each process that may alarm."""
    share = DELTA / 2.0
    yield 0, rows, share if window is None else share / 2.0
    for start in range(window or rows, rows, window or rows):
        number = start // (window or rows)
        yield (
            start,
            min(rows, (number + life) * (window or rows)),
            share / 2.0 / (number * (number + 1)),
        )


def first_rows(stated: NDArray[np.bool_]) -> Places:
    """Rows until the first statement, itself included, [S]; infinity without one."""
    return np.where(stated.any(axis=1), stated.argmax(axis=1) + 1.0, inf)


def alarm_rows(
    streams: Streams, alpha: float, window: int | None, life: int = LIFE
) -> tuple[Places, Places]:
    """Rows until the first alarm of any process, and until the first false one, [S]."""
    alarm, false = np.full((2, len(streams.kinds)), inf)
    for start, stop, share in processes(window, streams.kinds.shape[1], life):
        stated = statements(
            streams, opening_wealth(-alpha, 1.0 - alpha), log_bar(share), start, stop
        )
        mean = streams.excess[:, start + 1 : stop + 1] - streams.excess[:, start, None]
        alarm = np.minimum(alarm, start + first_rows(stated))
        false = np.minimum(false, start + first_rows(stated & (mean <= ROUNDING)))
    return alarm, false


def held_rows(streams: Streams, alpha: float) -> dict[str, Places]:
    """Rows until `held` is stated, until falsely stated, and from the break to withdrawal, [S]."""
    wealth = opening_wealth(-alpha, 1.0 - alpha, below=True)
    stated = statements(streams, wealth, log_bar(DELTA / 2.0), 0, streams.kinds.shape[1])
    past = np.arange(stated.shape[1]) - streams.rupture[:, None]  # rows since the break
    is_stated = (stated & (past == -1.0)).any(axis=1)
    return {
        "held": first_rows(stated),
        "false held": first_rows(stated & (streams.excess[:, 1:] >= -ROUNDING)),
        "withdrawn": np.where(
            is_stated, first_rows(~stated & (past >= 0.0)) - streams.rupture, np.nan
        ),
    }


def critical_counts(alpha: float, rows: int) -> NDArray[np.int64]:
    """Least errors of n for which the exact binomial test at delta / 2 rejects alpha, [rows].

    Alpha is the rate that is tested.
    """
    return least_counts(
        lambda k, n: np.asarray(binomial_p(n - k, n, 1.0 - alpha)) <= DELTA / 2.0, rows
    )


def fixed_sizes(alpha: float, rival: float) -> str:
    """Least samples whose exact binomial test at delta / 2 shows a rate above or below alpha.

    The powers are 80 and 90 %.
    """
    if rival < alpha:
        alpha, rival = 1.0 - alpha, 1.0 - rival
    n, least = np.arange(1, MOST + 1), critical_counts(alpha, MOST)
    power = np.where(least <= n, binomial_p(np.maximum(n - least, 0), n, 1.0 - rival), 0.0)
    return "; ".join(f"{n[np.flatnonzero(power >= enough)[0]]:,}" for enough in (0.8, 0.9))


def dashboard_rows(streams: Streams, alpha: float) -> dict[str, Places]:
    """Rows until the test for a fixed sample rejects, repeated every 100 rows, [S]."""
    rows = streams.kinds.shape[1]
    errors = np.pad((streams.kinds % 2).cumsum(axis=1), ((0, 0), (1, 0)))
    stops, least, firsts = np.arange(100, rows + 1, 100), critical_counts(alpha, rows), {}
    for name, most in DASHBOARDS.items():
        starts = np.maximum(0, stops - (most or rows))
        firsts[name] = 100.0 * first_rows(
            errors[:, stops] - errors[:, starts] >= least[stops - starts - 1]
        )
    return firsts


def measured(
    setting: str, inclusion: str, alpha: float, size: tuple[int, int], seed: int
) -> pd.DataFrame:
    """Rows until each event in each stream of a setting, infinity where it does not happen."""
    blocks = []
    for first in range(0, size[0], BLOCK):
        rng = np.random.default_rng(
            [seed, first, list(SETTINGS).index(setting), list(LEVELS).index(inclusion)]
        )
        streams = drawn(
            SETTINGS[setting], inclusion, alpha, (min(BLOCK, size[0] - first), size[1]), rng
        )
        columns = {"rupture": streams.rupture} | held_rows(streams, alpha)
        for name in WINDOWS if inclusion == "equal" else ("no window", "window 500"):
            columns[f"alarm {name}"], columns[f"false {name}"] = alarm_rows(
                streams, alpha, WINDOWS[name]
            )
        if inclusion == "equal":
            columns |= dashboard_rows(streams, alpha)
        blocks.append(pd.DataFrame(columns))
    return pd.concat(blocks, ignore_index=True)


def share(happened: pd.Series) -> str:
    """Share of the streams with its exact 95 % interval."""
    low, high = clopper_pearson(int(happened.sum()), len(happened))
    return f"{happened.mean():.3f} [{float(low):.3f}, {float(high):.3f}]"


def quantiles(rows: pd.Series) -> str:
    """Median and 90 % quantile; a dash where too few streams come to it."""
    values = np.quantile(rows, [0.5, 0.9], method="inverted_cdf") if len(rows) else (inf, inf)
    return "; ".join(f"{value:,.0f}" if value < inf else "–" for value in values)


def delay(frame: pd.DataFrame, name: str) -> str:
    """Streams that alarm after the break, of those that did not before, with their delay."""
    rows = (frame[f"alarm {name}"] - frame["rupture"])[frame[f"alarm {name}"] > frame["rupture"]]
    return f"{share(rows < inf)}: {quantiles(rows)}"


def print_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Markdown."""
    print("\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for line in lines:
        print("| " + " | ".join(line) + " |", flush=True)


def print_tables(alpha: float, frames: dict[tuple[str, str], pd.DataFrame]) -> None:
    """Print what was measured at one alpha.

    False statements, delays, `held`, and the repeated test.
    """
    false, late, held, repeated = [], [], [], []
    for key, frame in frames.items():
        setting, names = SETTINGS[key[0]], [name for name in WINDOWS if f"alarm {name}" in frame]
        fixed = fixed_sizes(alpha, alpha * setting.rival) if setting.rival else "–"
        alarms = {name: share(frame[f"false {name}"] < inf) for name in names}
        false.append(
            [*key, *(alarms.get(name, "") for name in WINDOWS), share(frame["false held"] < inf)]
        )
        if setting.rupture is not None:
            delays = {name: delay(frame, name) for name in names}
            late.append([*key, *(delays.get(name, "") for name in WINDOWS), fixed])
        elif "all rows" in frame:
            columns = [*DASHBOARDS, *(f"alarm {name}" for name in WINDOWS)]
            repeated.append([key[0], *(share(frame[column] < inf) for column in columns)])
        if (frame["held"] < inf).mean() > DELTA:
            rows = f"{share(frame['held'] < inf)}: {quantiles(frame['held'])}"
            held.append(
                [
                    *key,
                    rows,
                    fixed if setting.rival < 1.0 else "–",
                    quantiles(frame["withdrawn"].dropna()),
                ]
            )
    heads = [f"alpha {alpha:g}", "labels", *WINDOWS]
    print_table([*heads, "`held`"], false)
    print_table([*heads, "fixed sample"], late)
    print_table([*heads[:2], "`held`: rows", "fixed sample", "withdrawn after the break"], held)
    print_table([heads[0], *(f"repeated, {name}" for name in DASHBOARDS), *WINDOWS], repeated)


def print_lives(alpha: float, size: tuple[int, int], seed: int) -> None:
    """Print the delay by window and by process life in windows, for a clear and a weak break."""
    lines = []
    for setting, window in product(
        ("break drawn", "weak break drawn"), (100, 250, 500, 1000, 2000)
    ):
        streams = drawn(SETTINGS[setting], "equal", alpha, size, np.random.default_rng(seed))
        frame = pd.DataFrame(
            {f"alarm {life}": alarm_rows(streams, alpha, window, life)[0] for life in LIVES}
        )
        frame["rupture"] = streams.rupture
        lines.append([setting, str(window), *(delay(frame, str(life)) for life in LIVES)])
    print_table([f"alpha {alpha:g}", "window", *(f"lives {life} windows" for life in LIVES)], lines)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=10_000, help="labelled rows of a stream")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    size, seed = (arguments.streams, arguments.steps), arguments.seed
    few, weighted = list(product(FEW, ["equal"])), list(product(FEW, ["two levels"]))
    for alpha, keys in ((0.1, [*product(SETTINGS, ["equal"]), *weighted]), (0.02, few)):
        print_tables(alpha, {key: measured(*key, alpha, size, seed) for key in keys})
        print_lives(alpha, (-(-arguments.streams // 8), arguments.steps), seed)


if __name__ == "__main__":
    main()
