"""Expected regret of learners on two Bernoulli arms by dynamic programming, without the package."""

from __future__ import annotations

import math
from collections import defaultdict

State = tuple[int, int, int, int]  # successes and failures of arm 0, of arm 1
ONE_EACH = (0, 0, 0, 0)


def _log_beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def thompson_second(state, memo):
    """Probability that a draw of arm 1 is above one of arm 0, of Beta(1 + wins, 1 + losses).

    By recursion to (1, 1).
    """
    if state not in memo:
        if state == ONE_EACH:
            memo[state] = 0.5
        else:
            k = next(place for place in range(4) if state[place] > 0)
            less = tuple(count - (place == k) for place, count in enumerate(state))
            a, b, c, d = (1 + count for count in less)
            log = _log_beta(a + c, b + d) - _log_beta(a, b) - _log_beta(c, d)
            step = math.exp(log) / (a, b, c, d)[k] * (-1, 1, 1, -1)[k]
            memo[state] = thompson_second(less, memo) + step
    return memo[state]


def thompson():
    """Probability of arm 1 under Thompson sampling from Beta(1, 1)."""
    memo: dict[State, float] = {}
    return lambda state: thompson_second(state, memo)


def ucb1(tie=0.0):
    """Probability of arm 1 under UCB1; tie: of arm 1 where both are level."""

    def second(state):
        n0, n1 = state[0] + state[1], state[2] + state[3]
        if n0 == 0 or n1 == 0:
            return tie if n0 == n1 else float(n1 == 0)
        level = 2.0 * math.log(n0 + n1)
        one, two = (wins / n + math.sqrt(level / n) for wins, n in ((state[0], n0), (state[2], n1)))
        return tie if abs(one - two) < 1e-12 else float(two > one)

    return second


def expected_regret(second, means, at):
    """Expected cumulative regret after so many rounds each, where arm 1 is the better one."""
    chance: dict[State, float] = {ONE_EACH: 1.0}
    regret, found = 0.0, []
    for t in range(1, max(at) + 1):
        after: dict[State, float] = defaultdict(float)
        for state, share in chance.items():
            p = second(state)
            regret += share * (1.0 - p) * (means[1] - means[0])
            for arm, weight in ((0, share * (1.0 - p)), (1, share * p)):
                if weight > 0.0:
                    for lost, paid in ((0, means[arm]), (1, 1.0 - means[arm])):
                        place = 2 * arm + lost
                        after[tuple(n + (k == place) for k, n in enumerate(state))] += weight * paid
        chance = after
        if t in at:
            found.append(regret)
    return found
