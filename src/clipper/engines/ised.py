"""ISED: draw labels from the classifier, run the program on them, compare the outputs with the target."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import whole_number, widened, yes_or_no
from clipper.candidates import CandidateSet
from clipper.candidates.abduction import run_on_columns, run_on_row
from clipper.candidates.base import check_satisfiable
from clipper.candidates.kinds import kind_of_label
from clipper.candidates.packed import equal_rows
from clipper.candidates.rules import Rule
from clipper.engines.base import Context, RandomEngine, checked_log_probs
from clipper.engines.outputs import LOWEST_LOG, cost_of_others
from clipper.errors import InputError


class IsedLoss(RandomEngine):
    """ISED's loss, for a black-box program: it has no derivative and no list of outputs.

    Label tuples are drawn from the classifier, and the program is run on each. The mass of an output is the sum of the
    probabilities of the drawn tuples with this output. The loss is the binary cross-entropy of these masses,
    L2-normalised, against the sample's own output, over all outputs seen in the batch. A wrong output with probability
    1, or a target that was never drawn, costs 100 and has no gradient. Drawn tuples that give the target but are not
    among the sample's candidates have been pruned; they are ignored.

    Args:
        rule: the program, any function of a tuple of labels; it returns None if there is no output.
        samples: how many label tuples to draw per sample.
        distinct: count a tuple that is drawn several times only once. The masses then approach the exact probability
            of each output. As published (False) every draw counts, so that the masses divided by `samples`
            approach Σ p(σ)² over the tuples σ that give the output: likely tuples are counted by their square.
        seed: the seed of the draws; `state_dict` holds the state of the generator.
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Attributes:
        rule: the program.
        samples: how many label tuples to draw per sample.
        distinct: whether a tuple that is drawn several times counts once.

    Raises:
        InputError: an option is out of range; when called, if the rule fails or returns None for a candidate.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[1, 2], slots=2, classes=3)
        >>> log_probs = torch.zeros(2, 2, 3).log_softmax(-1)
        >>> engine = IsedLoss(sum, samples=200, distinct=True)
        >>> masses, outputs = engine.output_masses(log_probs, candidates)
        >>> outputs
        [0, 1, 2, 3, 4]
        >>> masses[0]
        tensor([0.1111, 0.2222, 0.3333, 0.2222, 0.1111])
        >>> engine(log_probs, candidates).shape
        torch.Size([2])
    """

    def __init__(
        self,
        rule: Callable[..., Any],
        samples: int = 100,
        *,
        distinct: bool = False,
        seed: int = 0,
        entropy: float = 0.0,
    ) -> None:
        super().__init__(seed=seed, entropy=entropy)
        if not callable(rule):
            advice = "; pass its value, such as rules.total().value" if isinstance(rule, Rule) else ""
            raise InputError(f"expected rule to be a function of a tuple of labels, got {rule!r}{advice}")
        self.rule, self.samples, self.distinct = rule, whole_number(samples, "samples"), yes_or_no(distinct, "distinct")

    def losses(self, log_probs: Tensor, candidates: CandidateSet, _: Context) -> Tensor:
        """The loss of each sample, see `Engine.losses`."""
        masses, _outputs, targets = self._masses(log_probs, candidates)
        normalised = torch.nn.functional.normalize(masses, dim=1)
        right = normalised.gather(1, targets[:, None])[:, 0]
        drawn = ~(right <= 0)  # NaN stays NaN
        logs = torch.where(drawn, torch.where(drawn, right, 1).log(), LOWEST_LOG)
        return cost_of_others(normalised, targets) - logs

    def output_masses(self, log_probs: Tensor, candidates: CandidateSet) -> tuple[Tensor, list[Hashable]]:
        """The mass of each output according to the draws, before normalisation.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.
            candidates: the possible labels of each sample.

        Returns:
            The estimated mass of each output, `(n, outputs)`, and the outputs that were seen.

        Raises:
            InputError: the values do not fit the candidates, a sample has no candidates, or the rule fails.
        """
        log_probs = checked_log_probs(log_probs, candidates)
        check_satisfiable(candidates)
        if not candidates.samples:
            return log_probs.new_zeros(0, 0), []
        masses, outputs, _ = self._masses(log_probs, candidates)
        return masses, outputs

    def _masses(self, log_probs: Tensor, candidates: CandidateSet) -> tuple[Tensor, list[Hashable], Tensor]:
        labels = self._draw(log_probs.detach(), candidates)  # (n, samples, m)
        known = candidates.first  # any candidate of a sample gives its target
        output, values = run_program(self.rule, torch.cat([labels.flatten(0, 1), known]))
        drawn, targets = output[: -len(known)].view(len(labels), -1), output[-len(known) :]
        without = (targets < 0).nonzero()
        if len(without):
            raise InputError(
                f"the rule gives None for the first candidate of sample {int(without[0])}: "
                "the candidates must come from the same rule"
            )
        counts = self._counts(labels, drawn, targets, candidates)
        facts = log_probs.gather(2, labels.clamp(min=0).transpose(1, 2))  # (n, m, samples)
        weight = torch.where(labels.transpose(1, 2) < 0, 0, facts).sum(1).exp()
        masses = weight.new_zeros(len(labels), len(values))
        return masses.scatter_add(1, drawn.clamp(min=0), torch.where(counts, weight, 0)), values, targets

    def _draw(self, log_probs: Tensor, candidates: CandidateSet) -> Tensor:
        """Labels from each slot's own kind, `(n, samples, m)`; -1 in unused slots."""
        n, m, c = log_probs.shape
        kind = kind_of_label(torch.arange(c, device=log_probs.device), candidates.kinds)
        share = widened(torch.where(kind == candidates.kind[..., None], log_probs, -torch.inf).exp())
        steps = share.cumsum(2)  # (n, m, c)
        noise = torch.rand(n, m, self.samples, generator=self.generator, dtype=torch.float64)
        labels = torch.searchsorted(steps, noise.to(steps) * steps[..., -1:], right=True).clamp_(max=c - 1)
        return torch.where(candidates.kind[..., None] < 0, -1, labels).transpose(1, 2)

    def _counts(self, labels: Tensor, drawn: Tensor, targets: Tensor, candidates: CandidateSet) -> Tensor:
        """The draws that count, `(n, samples)` bool: with an output, not pruned, and new if `distinct`."""
        n, samples, _ = labels.shape
        sample = torch.arange(n, device=labels.device).repeat_interleave(samples)
        rows = labels.flatten(0, 1)
        group, first = equal_rows(rows, sample)
        right = (drawn == targets[:, None]).flatten()
        pruned = right.index_select(0, first)  # only tuples that give the target can have been pruned
        asked = first[pruned]
        pruned[pruned.clone()] = ~candidates.select(sample[asked]).contains(rows[asked])
        counts = (drawn.flatten() >= 0) & ~pruned.index_select(0, group)
        if self.distinct:
            counts &= torch.zeros_like(counts).index_fill_(0, first, True)
        return counts.view(n, samples)


def row_numbers(labels: Tensor) -> Tensor:
    """A number from 0 for each row of `labels (rows, m)`, `(rows,)`; equal rows have equal numbers."""
    width = int(labels.max()) + 2 if labels.numel() else 1
    if width ** labels.shape[1] < 2**62:
        weight = width ** torch.arange(labels.shape[1], device=labels.device)
        _, numbers = torch.unique(((labels.long() + 1) * weight).sum(1), return_inverse=True)
    else:
        _, numbers = torch.unique(labels, dim=0, return_inverse=True)
    return numbers  # type: ignore[no-any-return]


def distinct_rows(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of `labels (rows, m)`, and the index of each row among them, `(rows,)`."""
    place = row_numbers(labels)
    one_of = torch.empty(int(place.max()) + 1, dtype=torch.long, device=labels.device)
    one_of.scatter_(0, place, torch.arange(len(labels), device=labels.device))
    return labels[one_of], place


def run_program(rule: Callable[..., Any], labels: Tensor) -> tuple[Tensor, list[Hashable]]:
    """The value of a rule for each row of labels. The rule is called once for each distinct row.

    Args:
        rule: a function of a tuple of labels.
        labels: the labels, `(rows, m)`; -1 in unused slots.

    Returns:
        `output (rows,)`: the index of each row's value among the distinct values, -1 where the rule returns None;
        and these values.

    Examples:
        >>> run_program(sum, torch.tensor([[1, 2], [3, -1], [4, 4]]))
        (tensor([0, 0, 1]), [3, 8])
    """
    place: dict[Hashable, int] = {}
    device, labels = labels.device, labels.cpu()  # where the rule runs
    output = torch.empty(len(labels), dtype=torch.long)
    patterns, pattern = distinct_rows((labels >= 0).long())
    for i, used in enumerate(patterns.bool()):  # samples of different lengths give the rule different tuples
        rows = (pattern == i).nonzero()[:, 0]
        distinct, inverse = distinct_rows(labels[rows][:, used])
        together = run_on_columns(rule, distinct)
        listed = [run_on_row(rule, tuple(row)) for row in distinct.tolist()] if together is None else together.tolist()
        numbers = [-1 if value is None else place.setdefault(value, len(place)) for value in listed]
        output[rows] = torch.tensor(numbers)[inverse]
    return output.to(device), list(place)
