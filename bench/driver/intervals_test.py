import random
import statistics
import unittest

from driver import intervals


class OfRatio(unittest.TestCase):
    def test_equal_samples_leave_no_doubt(self):
        self.assertEqual(intervals.of_ratio((10, 10, 10), (20, 20, 20)), (0.5, 0.5))

    def test_one_round_says_nothing_of_its_spread(self):
        self.assertIsNone(intervals.of_ratio((10,), (20,)))

    def test_five_rounds_reach_from_the_least_to_the_most(self):
        # Three of five draws are the least round with a probability of 5.8 %, which is more than 2.5 %.
        self.assertEqual(intervals.of_ratio((9, 10, 11, 12, 13), (10, 10, 10, 10, 10)), (0.9, 1.3))

    def test_eleven_rounds_leave_the_outermost_out(self):
        low, high = intervals.of_ratio(tuple(range(10, 21)), (10,) * 11)
        self.assertTrue(1.0 < low < 1.5 < high < 2.0, (low, high))

    def test_a_round_stays_together(self):
        # Both twice as slow in some rounds: the ratio is as sure as if the machine had been quiet.
        self.assertEqual(intervals.of_ratio((10, 20, 10, 20, 10), (20, 40, 20, 40, 20)), (0.5, 0.5))

    def test_samples_of_different_rounds_are_drawn_apart(self):
        low, high = intervals.of_ratio((10, 12), (10, 10, 10))
        self.assertEqual((low, high), (1.0, 1.2))

    def test_a_peer_at_zero_has_none(self):
        self.assertIsNone(intervals.of_ratio((1, 2, 3), (0, 0, 0)))

    def test_it_holds_the_true_ratio_about_as_often_as_it_says(self):
        drawn = random.Random(3)
        held = 0
        for _ in range(400):
            own = tuple(drawn.gauss(10, 1) for _ in range(5))
            other = tuple(drawn.gauss(20, 2) for _ in range(5))
            low, high = intervals.of_ratio(own, other)
            held += low <= 0.5 <= high
        self.assertGreater(held / 400, 0.9)

    def test_it_holds_the_ratio_of_the_medians(self):
        drawn = random.Random(4)
        for rounds in (2, 3, 5, 9):
            own, other = (tuple(drawn.uniform(1, 9) for _ in range(rounds)) for _ in range(2))
            low, high = intervals.of_ratio(own, other)
            ratio = statistics.median(own) / statistics.median(other)
            self.assertTrue(low <= ratio <= high)


if __name__ == "__main__":
    unittest.main()
