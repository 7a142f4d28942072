"""A sequential test for failures in clusters: all failures of one version within a window count as one.

The tests of `betting` assume that requests fail independently. An incident, such as a pod that restarts, makes many
requests of one version fail in a row, and `betting` counts each of them as evidence. This test only uses whether a version
failed in a window. Its null hypothesis: a request to the candidate starts an incident with at most the probability of a
request to the reference. An incident may have any effect on the version's requests, for at most the length of a window.

Let x be the probability that a request starts no incident, and a and b the numbers of requests to the reference and to
the candidate in a window. The versions have no failure with the probabilities x**a and x**b.

- If b <= a, a window counts if exactly one version failed. The odds that this is the candidate are
  (x**-b - 1) / (x**-a - 1). They are at most b/a, because x**-n - 1 is convex in n, and 0 for n = 0.
- If b > a, a window counts if any version failed. The odds that this is the candidate alone are
  x**a * (1 - x**b) / (1 - x**a). They are at most b/a, because (1 - y**r) / (1 - y) <= r for y = x**a and r = b/a > 1.

So a window that counts shows a failure of the candidate alone with a probability of at most b / (a + b). The bets are on a
larger probability. x may differ from window to window and depend on earlier windows.

An incident may cross the end of a window. So the window after one with a failure is skipped: it decides no bet. An incident
of the candidate may begin in it and reach the next window; therefore its requests to the candidate add to b there.
"""

from headgate.resources.meta import Value
from headgate.statistics.betting import Block, RateTest, Rejects, Sample, Wealth


class ClusterWealth(Value, frozen=True, kw_only=True, rename="camel"):
    """The state of a `ClusterTest`: the bets, whether the next window is skipped, and the skipped requests to the candidate."""

    wealth: Wealth
    is_paused: bool = False
    skipped: int = 0

    @property
    def evidence(self) -> float:
        """The evidence against the null hypothesis: it reaches 1/error with a probability of at most `error`."""
        return self.wealth.evidence


class ClusterTest:
    """A sequential test for incidents that start more often at requests to the candidate than to the reference."""

    def start(self) -> ClusterWealth:
        """Return the state before the first window."""
        return ClusterWealth(wealth=_candidate_alone_at_most(0.5).start())

    def after(self, state: ClusterWealth, window: Block) -> ClusterWealth:
        """Return the state after the next window.

        Windows follow each other without gaps, and are at least as long as an incident. The versions' shares of the
        requests do not change within a window.
        """
        if state.is_paused:
            return self.without(state, window)
        reference, candidate = window
        exposed = candidate.trials + state.skipped
        failed = bool(reference.events), bool(candidate.events)
        counts = any(failed) if exposed > reference.trials else failed[0] != failed[1]
        wealth = state.wealth
        if counts and reference.trials:
            candidate_alone = Sample(1, int(not reference.events))
            test = _candidate_alone_at_most(exposed / (reference.trials + exposed))
            wealth = test.after(wealth, Block(Sample(0, 0), candidate_alone))
        return ClusterWealth(wealth=wealth, is_paused=any(failed))

    def without(self, state: ClusterWealth, window: Block) -> ClusterWealth:
        """Return the state after a window that is not counted, such as one in which the shares changed."""
        return ClusterWealth(wealth=state.wealth, skipped=state.skipped + window.candidate.trials)


def _candidate_alone_at_most(share: float) -> RateTest:
    """Return a test of: at most this share of the windows that count show a failure of the candidate alone."""
    return RateTest(rejects=Rejects.HIGHER, limit=share, is_absolute=True)
