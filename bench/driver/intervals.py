"""How sure a ratio of two medians is: an interval from resamples of the rounds (a bootstrap).

The rounds are drawn again, with replacement and as many as there were, and each draw gives a ratio of medians; the
interval holds the middle 95 % of them. A round stays together: what disturbs it disturbs both. Up to EXACT_MAX rounds
all possible draws are counted, so nothing is random; with more, a fixed seed draws some.
"""

import functools
import itertools
import math
import random
import statistics

PART = 0.95
EXACT_MAX = 7
DRAWS = 2000


@functools.lru_cache(maxsize=None)
def _all_draws(rounds):
    """(which rounds, in how many orders): every draw of so many rounds from so many."""
    draws = []
    for chosen in itertools.combinations_with_replacement(range(rounds), rounds):
        orders = math.factorial(rounds)
        for index in set(chosen):
            orders //= math.factorial(chosen.count(index))
        draws.append((chosen, orders))
    return draws


def _some_draws(rounds, drawn):
    return [(tuple(drawn.randrange(rounds) for _ in range(rounds)), 1) for _ in range(DRAWS)]


def _median_of(values, chosen):
    return statistics.median(values[i] for i in chosen)


def _ratio(own, other):
    return own / other if other > 0 else math.inf


def _weighted(own, others):
    """(ratio, weight) of every draw; None if there is nothing to draw from."""
    rounds = len(own)
    if rounds == len(others):
        draws = _all_draws(rounds) if rounds <= EXACT_MAX else _some_draws(rounds, random.Random(1))
        return [(_ratio(_median_of(own, c), _median_of(others, c)), weight) for c, weight in draws]
    # Not of the same rounds, so each is drawn for itself.
    drawn = random.Random(1)
    pairs = zip(_some_draws(rounds, drawn), _some_draws(len(others), drawn))
    return [(_ratio(_median_of(own, a), _median_of(others, b)), 1) for (a, _), (b, _) in pairs]


def _quantile(weighted, q):
    left = q * sum(weight for _, weight in weighted)
    for ratio, weight in weighted:
        left -= weight
        if left <= 0:
            return ratio
    return weighted[-1][0]


@functools.lru_cache(maxsize=None)
def of_ratio(own, other):
    """(low, high) of median(own) / median(other), from two tuples of samples by rounds; None for less than two rounds."""
    if min(len(own), len(other)) < 2:
        return None
    weighted = sorted(_weighted(own, other))
    low, high = _quantile(weighted, (1 - PART) / 2), _quantile(weighted, (1 + PART) / 2)
    return (low, high) if math.isfinite(high) else None
