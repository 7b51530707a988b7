"""A vision model of transformers as an encoder; `test_peers.py` runs this where transformers is."""

from __future__ import annotations

import pytest
import torch

from clipper import Clipper, ClipperError, infer
from clipper.proximity import Frozen, embed
from tests.integrations.digit_sums import SEEDS, digit_sums, run_page
from tests.integrations.environments import peer_module, write_figures

peer_module("transformers")


def test_the_code_on_the_page_embeds_what_the_model_says() -> None:
    digits = digit_sums(0, samples=20)
    names = run_page("python transformers", images=digits.images)
    model, preprocessing, embeddings = names["model"], names["encoder"].preprocessing, names["embeddings"]
    with torch.no_grad():
        expected = model(preprocessing(digits.images.flatten(0, 1))).pooler_output
    torch.testing.assert_close(embeddings, expected.view(20, 2, 64))
    kept = Clipper(k=1, encoder=names["encoder"])(digits.candidates, digits.images)
    assert torch.equal(kept.labels, Clipper(k=1)(digits.candidates, embeddings).labels)


def test_a_model_that_returns_several_tensors_is_refused_with_their_names() -> None:
    digits = digit_sums(0, samples=2)
    names = run_page("python transformers", images=digits.images)
    with pytest.raises(ClipperError, match=r"last_hidden_state.*pooler_output"):
        embed(Frozen(names["model"], names["encoder"].preprocessing), digits.images)


@pytest.mark.slow
def test_an_encoder_that_knows_nothing_is_not_believed() -> None:
    for seed in SEEDS:
        digits = digit_sums(seed)
        torch.manual_seed(seed)
        posterior = infer(digits.candidates, run_page("python transformers", images=digits.images)["embeddings"])
        right = 100 * posterior.calibration(digits.labels).right
        write_figures(f"random ViT, seed {seed}: {posterior.verdict}, {right:.1f} % of the labels are right")
        assert right > 90 or posterior.prune().discarded == 0
