"""A log at the door: what is broken is refused with rule, value and row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.off_policy import estimate, overlap
from raglab.off_policy.logs import CHUNK_ROUNDS, SUM_TOLERANCE, read_log, target_array, weigh

N = 6
LOG = pd.DataFrame({"action": [0, 1] * 3, "reward": [0.0, 1.0] * 3, "propensity": [0.5] * N})
EVEN = np.full((N, 2), 0.5)
NAN = float("nan")


def changed(column, value, row=4):
    """Log with one value replaced."""
    log = LOG.astype({column: object})
    log.loc[row, column] = value
    return log if isinstance(value, str) else log.astype({column: float})


LOGS: list[tuple[pd.DataFrame, str]] = [
    (LOG.drop(columns="propensity"), r"must have the columns .*'propensity'\] is missing"),
    (LOG.iloc[:0], "at least one round, got none"),
    (changed("reward", NAN), "reward must be finite.* got nan in row 4"),
    (changed("reward", np.inf), "reward must be finite.* got inf in row 4"),
    (changed("reward", "good"), "reward must be numbers"),
    (LOG.assign(action=[0, 1, 0, 2, 0, 1]), r"action must be one of 0..1, got 2 in row 3"),
    (LOG.assign(action="graph"), r"got 'graph' in row 0; name them"),
    (LOG.assign(q_0=0.5), r"a column for every arm.*\['q_1'\] is missing"),
    (LOG.assign(q_0=0.5, q_1="x"), "q_1 must be numbers"),
    *(
        (changed("propensity", value), rf"propensity must be in \(0, 1\], got {value} in row 4 \(1")
        for value in (0.0, -0.1, 1.01, NAN)
    ),
    *(
        (changed("action", value), f"action must be one of 0..1, got {value:.1f} in row 4")
        for value in (2, -1, 0.5)
    ),
    (changed("action", NAN), r"action must not be missing, got nan in row 4"),
]
ROWS = np.arange(N)[:, None]
TARGETS: list[tuple[Any, str]] = [
    (EVEN[:4], r"with T = 6, .*got .*shape \(4, 2\)"),
    (np.full((N, 2), "a"), "target must be numbers .* got <U1"),
    (EVEN[None], r"got .*shape \(1, 6, 2\)"),
    (np.where(ROWS == 3, 0.4, EVEN), r"sum to 1, got \[0.4, 0.4\] with sum 0.8 in row 3"),
    (np.where(ROWS == 2, [1.5, -0.5], EVEN), r"got \[1.5, -0.5\] with sum 1 in row 2"),
    (np.where(ROWS == 5, NAN, EVEN), r"got \[nan, nan\].*in row 5"),
    (pd.DataFrame(EVEN, columns=["a", "a"]), "name each of the 2 columns"),
    (np.empty((N, 0)), r"got .*shape \(6, 0\)"),
]
SESSIONS: list[tuple[Any, str]] = [
    ("user", r"session must be a column of the log, got 'user'"),
    ([1, 2], r"session must be \[T\] with T = 6"),
    ([1.0, NAN, 1.0, 1.0, 2.0, 2.0], "session must not be missing, got nan in row 1"),
]


def test_what_is_broken_is_refused():
    """Logs by every estimator alike, targets and sessions: with the row that breaks the rule."""
    calls = (
        (lambda log: estimate(log, np.full((len(log), 2), 0.5)), LOGS),
        (lambda target: overlap(LOG, target), TARGETS),
        (lambda session: overlap(LOG, EVEN, session=session), SESSIONS),
    )
    for call, table in calls:
        for broken, message in table:
            with pytest.raises(ValueError, match=message):
                call(broken)


def test_a_broken_row_is_named_beyond_the_first_chunk():
    """Rows are counted from the start of the log, not of a chunk."""
    n = 2 * CHUNK_ROUNDS + 5
    log = pd.DataFrame({"action": np.zeros(n, dtype=int), "reward": 1.0, "propensity": 0.5})
    target = np.full((n, 2), 0.5)
    target[CHUNK_ROUNDS + 7] = 0.1
    with pytest.raises(ValueError, match=f"in row {CHUNK_ROUNDS + 7}"):
        overlap(log, target)


def test_what_the_estimators_read():
    """Weights, arm means, the log's mean for an arm never logged, mass and pulls, over chunks.

    The chunks are several.
    """
    rng = np.random.default_rng(0)
    n = CHUNK_ROUNDS + 100
    action, reward = rng.integers(0, 3, n), rng.random(n)
    target = rng.dirichlet(np.ones(4), n)
    log = pd.DataFrame({"action": action, "reward": reward, "propensity": 0.25})
    rows = weigh(read_log(log, 4), target_array(target, n))
    means = np.array([*(reward[action == arm].mean() for arm in range(3)), reward.mean()])
    np.testing.assert_allclose(rows.weight, target[np.arange(n), action] / 0.25)
    np.testing.assert_allclose(rows.predicted, means[action])
    np.testing.assert_allclose(rows.expected, target @ means)
    np.testing.assert_allclose(rows.mass, target.mean(axis=0))
    assert rows.pulls.tolist() == np.bincount(action, minlength=4).tolist()
    assert rows.unsupported == pytest.approx(target[:, 3].mean())
    assert rows.fitted
    model = {f"q_{arm}": rng.random(n) for arm in range(4)}
    rows = weigh(read_log(log.assign(**model), 4), target_array(target, n))
    side = np.column_stack(list(model.values()))
    np.testing.assert_allclose(rows.predicted, side[np.arange(n), action])
    np.testing.assert_allclose(rows.expected, (side * target).sum(axis=1))
    assert not rows.fitted


@pytest.mark.parametrize("modelled", [False, True])
# two kinds of log
def test_compiled_weights_are_those_of_numpy(modelled):
    """To 1e-12 over several chunks, with a prediction missing where the target has no mass.

    The same when repeated.
    """
    pytest.importorskip("numba", reason="numba is not installed")
    rng = np.random.default_rng(2)
    n = 2 * CHUNK_ROUNDS + 100
    target = rng.dirichlet(np.ones(3), n)
    target[:5] = [0.5, 0.5, 0.0]
    model = {f"q_{arm}": rng.random(n) for arm in range(3)} if modelled else {}
    log = pd.DataFrame(
        {"action": rng.integers(0, 3, n), "reward": rng.random(n), "propensity": 1 / 3, **model}
    )
    log.loc[:4, "action"] = 0
    if modelled:
        log.loc[:4, "q_2"] = NAN
    read = read_log(log, 3)
    plain, compiled, again = (
        weigh(read, target, engine=engine) for engine in ("numpy", "numba", "numba")
    )
    for name in ("weight", "predicted", "expected", "mass"):
        assert np.isfinite(getattr(plain, name)).all()
        np.testing.assert_allclose(
            getattr(compiled, name), getattr(plain, name), rtol=1e-12, atol=0
        )
        assert getattr(again, name).tobytes() == getattr(compiled, name).tobytes()
    assert (compiled.fitted, compiled.pulls.tolist()) == (plain.fitted, plain.pulls.tolist())


def test_both_engines_draw_the_same_line():
    """Rows whose sum lies on the tolerance, where the order of summing decides.

    Refused by both or by none.
    """
    pytest.importorskip("numba", reason="numba is not installed")
    read = read_log(LOG, 7)

    def refusal(target, engine):
        try:
            weigh(read, target, engine=engine)
        except ValueError as error:
            return str(error)
        return ""

    for seed in range(20):
        target = np.random.default_rng(seed).dirichlet(np.ones(7), N)
        target *= (1.0 + SUM_TOLERANCE) / target.sum(axis=1, keepdims=True)
        assert refusal(target, "numpy") == refusal(target, "numba")


@pytest.mark.parametrize("row", [[0.5, 0.6], [-0.5, 1.5], [NAN, 1.0]])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_both_engines_refuse_what_is_no_distribution(engine, row):
    """By row, and a mask or a model that is broken as well."""
    if engine == "numba":
        pytest.importorskip("numba", reason="numba is not installed")
    read = read_log(LOG, 2)
    target = np.tile([0.5, 0.5], (N, 1))
    with pytest.raises(ValueError, match="must have no mass on an arm that was not available"):
        weigh(read, target, np.array([True, False]), engine=engine)
    with pytest.raises(ValueError, match=r"q_<arm> must be finite .* row 2"):
        weigh(
            read._replace(model=(np.ones(N), np.where(np.arange(N) == 2, NAN, 1.0))),
            target,
            engine=engine,
        )
    target[3] = row
    with pytest.raises(ValueError, match=r"a row of target must be probabilities .* in row 3"):
        weigh(read, target, engine=engine)
