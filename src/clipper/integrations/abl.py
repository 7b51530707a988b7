"""ClipperReasoner: a reasoner for ABLkit that chooses among the revisions that pruning leaves.

This is the only module that needs ABLkit (`pip install ablkit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import as_tensor, shown, yes_or_no
from clipper.candidates import Candidates
from clipper.errors import InputError, require
from clipper.proximity import Pixels, embed
from clipper.proximity.encoders import check_embedding
from clipper.pruning import Clipper, Pruning

_REASONING: Any = require("ablkit.reasoning", peer="ablkit")


class ClipperReasoner(_REASONING.Reasoner):  # type: ignore[misc]
    """A `Reasoner` that discards revisions before ABLkit chooses among them by the model's confidence.

    For each example, ABLkit abduces the revision that is most probable by the model. This reasoner gets all revisions
    of all examples from the knowledge base and prunes them by the similarity of inputs. ABLkit then chooses among the
    remaining ones. Use it in a bridge in place of `ablkit.reasoning.Reasoner`.

    Args:
        kb: ABLkit's knowledge base. The reasoner uses all revisions, not only minimal ones, because minimal ones depend
            on the predictions of an untrained model and would rule out right labels of other examples.
        clip: how to prune. `Clipper(objective="joint")` looks at all examples at once.
        embed: from a list of inputs, as ABLkit holds them, to embeddings `(instances, d)`. If None, the inputs are
            tensors or arrays of one shape, and the encoder of `clip` embeds them; without an encoder, they are used as
            embeddings.
        once: whether each example is pruned only once. If False, every call prunes its examples again, which makes
            sense if `embed` changes while the model learns.
        dist_func: as in `Reasoner`: how to choose among the remaining revisions.
        idx_to_label: as in `Reasoner`.

    Attributes:
        pruning: the last pruning; None before the first.

    Raises:
        InputError: an argument has the wrong type, or both `embed` and an encoder are given.
    """

    def __init__(
        self,
        kb: Any,
        clip: Clipper,
        embed: Callable[[list[Any]], Tensor] | None = None,
        once: bool = True,
        *,
        dist_func: str | Callable[..., Any] = "confidence",
        idx_to_label: Mapping[int, Any] | None = None,
    ) -> None:
        if not isinstance(clip, Clipper):
            raise InputError(f"expected clip to be a Clipper(...), got {shown(clip)}")
        if embed is not None and not callable(embed):
            raise InputError(f"expected embed to be a function from inputs to embeddings, got {shown(embed)}")
        if embed is not None and clip.encoder is not None:
            raise InputError(
                "got embed= and a Clipper with an encoder; embeddings come from one of them: leave one out"
            )
        super().__init__(kb, dist_func=dist_func, idx_to_label=idx_to_label, max_revision=-1)
        self.clip = replace(clip, encoder=None)
        self.embed = embed
        self._encoder = Pixels() if clip.encoder is None else clip.encoder
        self.once = yes_or_no(once, "once")
        self.pruning: Pruning[Candidates] | None = None
        self._survivors: dict[int, tuple[Any, list[Any], list[Any]]] = {}  # by the identity of an example's inputs

    def prune(self, data: Any) -> None:
        """Prune the revisions of some examples together. `batch_abduce` calls it for examples that are new.

        Call it with all training data before `bridge.train(…, segment_size=…)` splits them into segments: pruning is
        better with more examples.

        Args:
            data: ABLkit's `ListData`, or a tuple `(X, gt_pseudo_label, Y)`.

        Raises:
            InputError: inputs and targets do not fit together, or a revision has a label that is not in the knowledge
                base's list.
        """
        inputs, targets = (data[0], data[2]) if isinstance(data, tuple) else (data.X, data.Y)
        if len(inputs) != len(targets):
            raise InputError(f"expected a target for each of {len(inputs)} examples, got {len(targets)}")
        if not self.once:
            self._survivors.clear()
        new = [(x, y) for x, y in zip(inputs, targets, strict=True) if id(x) not in self._survivors]
        found = {id(x): (x, *self._revisions(x, y)) for x, y in new}
        possible = [example for example in found.values() if example[1]]
        if possible:
            self.pruning = self._pruned(possible)
            keep = torch.split(self.pruning.keep, self.pruning.original.counts)
            for mask, (x, revisions, results) in zip(keep, possible, strict=True):
                rows = mask.nonzero()[:, 0].tolist()
                found[id(x)] = x, [revisions[row] for row in rows], [results[row] for row in rows]
        self._survivors |= found

    def _pruned(self, examples: list[tuple[Any, list[Any], list[Any]]]) -> Pruning[Candidates]:
        """The pruning of examples, given as inputs, revisions and results."""
        place = {label: i for i, label in enumerate(self.kb.pseudo_label_list)}
        try:
            lists = [[[place[label] for label in revision] for revision in revisions] for _, revisions, _ in examples]
        except KeyError as error:
            raise InputError(
                f"expected revisions of the knowledge base's own labels, {shown(list(place))}, got the label {error}"
            ) from error
        candidates = Candidates.from_lists(lists, classes=len(place))
        return self.clip.prune(candidates, self._embeddings([x for x, _, _ in examples]))

    def batch_abduce(self, data_examples: Any) -> list[list[Any]]:
        """The most probable remaining revision of each example by the model's predictions; [] if none remains.

        Args:
            data_examples: ABLkit's `ListData`, with predictions.

        Returns:
            The abduced pseudo-labels, which are also stored in `data_examples.abduced_pseudo_label`.

        Raises:
            InputError: as for `prune`.
        """
        self.prune(data_examples)
        abduced: list[list[Any]] = super().batch_abduce(data_examples)
        return abduced

    def abduce(self, data_example: Any) -> list[Any]:
        """As `batch_abduce`, for one example. All revisions of an example that was never pruned remain.

        Args:
            data_example: ABLkit's `ListData` of one example, with predictions.
        """
        known = self._survivors.get(id(data_example.X))
        revisions = known[1:] if known is not None else self._revisions(data_example.X, data_example.Y)
        abduced: list[Any] = self._get_one_candidate(data_example, *revisions)
        return abduced

    def _revisions(self, x: Sequence[Any], y: Any) -> tuple[list[list[Any]], list[Any]]:
        """All revisions of an example, and the knowledge base's result for each."""
        slots = len(x)
        anything = [self.kb.pseudo_label_list[0]] * slots  # every position is revised
        if isinstance(self.kb, _REASONING.GroundKB):  # a GroundKB has a list of them
            revisions, results = self.kb.abduce_candidates(anything, y, x, slots, slots)
        else:  # not abduce_candidates: its cache mixes up knowledge bases
            revisions, results = self.kb.revise_at_idx(anything, y, x, list(range(slots)))
        return [list(revision) for revision in revisions], list(results)

    def _embeddings(self, examples: list[Sequence[Any]]) -> list[Tensor]:
        """The vectors `(length, d)` of each example's inputs."""
        inputs = [one for example in examples for one in example]
        if self.embed is not None:
            vectors = check_embedding(self.embed(inputs), len(inputs))
        else:
            vectors = embed(self._encoder, _stacked(inputs)[:, None])[:, 0]
        return list(torch.split(vectors, [len(example) for example in examples]))


def _stacked(inputs: list[Any]) -> Tensor:
    """Inputs of one shape as one tensor of floating point, `(instances, *shape)`."""
    tensors = [as_tensor(one, "inputs") for one in inputs]
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1 or () in shapes:
        raise InputError(
            f"expected inputs of one shape, got {', '.join(map(str, sorted(shapes)))}; pass embed=, a function from a "
            "list of inputs to embeddings (instances, d)"
        )
    stacked = torch.stack(tensors)
    return stacked if stacked.is_floating_point() else stacked.float()
