"""Parts of networks that no published checkpoint has, against their formulas in float64.

In PyTorch alone: the other backends have the same text of them, as test_twins.py compares.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nanospeech.config import DiTConfig  # noqa: E402
from nanospeech_torch.dit import Aligner, DiT  # noqa: E402
from nanospeech_torch.duration import DurationHead, DurationTransformer, statistics  # noqa: E402

TINY = {"dim": 16, "depth": 1, "heads": 2, "dim_head": 8, "text_dim": 8, "text_num_embeds": 9}
SIZES = {**TINY, "n_mels": 5, "conv_layers": 1}


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    """The module in float64 with random weights everywhere, also where it begins at zero."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return module.double().eval().requires_grad_(False)


def linear(layer: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    return x @ layer.weight.numpy().T + layer.bias.numpy()


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def test_statistics_are_mean_spread_and_change_of_each_prompts_frames():
    mel = np.random.default_rng(0).standard_normal((4, 9, 5)) - 4
    lens = np.array([9, 4, 1, 0])
    mel[np.arange(9) >= lens[:, None]] = 0
    found = statistics(torch.from_numpy(mel), torch.from_numpy(lens)).numpy()
    for item, n, got in zip(mel, lens, found, strict=True):
        x, count = item[:n], max(n, 1)
        mean = x.sum(0) / count
        spread = np.sqrt(np.square(x - mean).sum(0) / count + 1e-6)
        change = np.abs(np.diff(x, axis=0)).sum(0) / count
        np.testing.assert_allclose(got, np.concatenate([mean, spread, change]), rtol=1e-9)


@pytest.mark.parametrize("dim", [0, 6])
def test_an_aligners_means_are_of_token_and_speaker_and_of_both(dim):
    aligner = drawn(Aligner(8, 5, dim))
    rng = np.random.default_rng(0)
    tokens, speaker = rng.standard_normal((2, 7, 8)), rng.standard_normal((2, 5))
    wanted = linear(aligner.to_mean, tokens) + linear(aligner.speaker_mean, speaker)[:, None]
    if dim:
        both = linear(aligner.token_in, tokens) + linear(aligner.speaker_in, speaker)[:, None]
        wanted += linear(aligner.both_out[1], silu(both))
    given = torch.from_numpy(tokens), torch.from_numpy(speaker)
    np.testing.assert_allclose(aligner.means(*given).numpy(), wanted, rtol=1e-9, atol=1e-12)
    hidden = tokens + linear(aligner.speaker_duration, speaker)[:, None]
    first, _, last = aligner.to_duration
    wanted = linear(last, silu(linear(first, hidden)))[..., 0]
    np.testing.assert_allclose(aligner.log_durations(*given).numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_a_students_time_is_of_time_guidance_and_step():
    dit = drawn(DiT(DiTConfig(**SIZES, max_strength=3.0)))
    time = torch.tensor([[0.2, 0.7, 0.25], [0.9, 0.0, 0.5]])
    parts = zip((dit.time_embed, dit.strength_embed, dit.step_embed), time.T, strict=True)
    assert torch.allclose(dit.embed_time(time), sum(part(x) for part, x in parts))


def test_what_a_new_network_begins_without():
    """Students, voices and blocks learn from what was there: at first nothing is added to it."""
    options = {"max_strength": 3.0, "prompt_dim": 4, "aligner_dim": 6}
    dit = DiT(DiTConfig(**SIZES, text_upsampling="aligned", **options))
    assert dit.aligner and dit.strength_embed and dit.step_embed and dit.prompt_embed
    time, cond = torch.rand(2), torch.randn(2, 4, 5)
    assert dit.time_embed(time).all()
    added = [dit.strength_embed(time), dit.step_embed(time), dit.prompt_embed(cond)]
    added += [dit.proj_out(torch.randn(2, 16)), *dit.norm_out(torch.randn(2, 16))]
    added += dit.transformer_blocks[0].attn_norm(torch.randn(2, 16))
    added += [layer(cond) for layer in (dit.aligner.speaker_mean, dit.aligner.speaker_duration)]
    added += [dit.aligner.both_out(torch.randn(2, 6))]
    assert not any(x.any() for x in added)
    plain = DiT(DiTConfig(**SIZES, adaln_zero=False))
    assert plain.proj_out.weight.any() and plain.norm_out.linear.weight.any()


@pytest.mark.parametrize("count", [0, 1])
def test_texts_that_convolutions_read_have_positions_where_tokens_have_no_times(count):
    sizes = {**SIZES, "conv_layers": count}
    for kind in ("none", "average", "aligned"):
        embed = DiT(DiTConfig(**sizes, text_upsampling=kind)).text_embed
        assert embed.positions == (count > 0 and kind != "aligned")
    assert DurationTransformer(**sizes).text_embed.positions == (count > 0)


@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("by_places", [False, True])
def test_which_places_of_a_text_are_masked(masking, everywhere, by_places):
    """Convolutions see the text's places, or all; GRN norms over these, or over all frames."""
    options = {"grn_all_frames": everywhere, "null_text_places": by_places}
    dit = DiT(DiTConfig(**SIZES, text_masking=masking, **options))
    asked = []
    dit.text_embed.forward = lambda *given: asked.append(given)  # type: ignore[method-assign]
    text = torch.tensor([[1, 0, 3, -1], [4, 5, -1, -1]])
    none, valid = torch.full_like(text, -1), torch.arange(6) < torch.tensor([[5], [1]])
    for frames in (None, valid):
        for given, places in ((text, None), (none, None), (none, text)):
            dit.embed_text(given, 6, frames, places)
            ids, mask, norm_mask = asked.pop()
            assert torch.equal(ids, torch.cat([given, none[:, :2]], 1))
            known = text if by_places and places is not None else given
            seen = torch.cat([known >= 0, torch.zeros(2, 2, dtype=torch.bool)], 1)
            wanted = seen & valid if masking and frames is not None else seen if masking else frames
            normed = frames if everywhere else wanted
            for got, expected in ((mask, wanted), (norm_mask, normed)):
                assert got is expected or torch.equal(got, expected)


@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("lens", [None, [6, 3, 1]])
def test_which_places_of_a_duration_models_text_are_masked(masking, lens):
    """Those of padding, or of no token; token 0 is one like others. Text past the end is cut."""
    network = DurationTransformer(**SIZES, text_masking=masking)
    asked = []
    plain = network.text_embed.forward
    network.text_embed.forward = lambda *given: (asked.append(given), plain(*given))[1]  # type: ignore
    text = torch.tensor([[1, 0, 3, -1], [0, 5, 7, 8], [2, 4, -1, -1]])
    padded = torch.cat([text, torch.full((3, 2), -1)], 1)
    for places in (6, 3):
        network(torch.zeros(3, places, 5), text, None if lens is None else torch.tensor(lens))
        ids, mask, norm_mask = asked.pop()
        valid = torch.arange(places) < torch.tensor(lens or [places] * 3)[:, None]
        there = padded[:, :places] >= 0
        wanted = there & valid if masking else valid if lens else None
        assert torch.equal(ids, padded[:, :places])
        for got in (mask, norm_mask):
            assert got is wanted or torch.equal(got, wanted)


def test_a_duration_model_of_statistics_hears_them_at_each_token_and_no_more():
    head = DurationHead(DurationTransformer(**SIZES, prompt="statistics"))
    asked = []
    head.transformer.forward = lambda *given: asked.append(given)  # type: ignore
    mel, lens = torch.randn(2, 12, 5), torch.tensor([12, 5])
    text = torch.tensor([[1, 2, 3, 4], [5, 0, -1, -1]])
    _, places, tokens = head.hidden(mel, text, lens)
    ((heard, ids, counts),) = asked
    clean = mel * (torch.arange(12) < lens[:, None])[..., None]
    wanted = statistics(clean, lens)[:, None].expand(2, 4, 15)
    torch.testing.assert_close(heard, wanted)
    assert ids is text
    assert all(n.tolist() == [4, 2] for n in (counts, places, tokens))


def test_tokens_have_seconds_each_however_long_their_prompt_is():
    head = drawn(DurationHead(DurationTransformer(**SIZES, pooling="tokens")))
    text = torch.tensor([[1, 2, 3, 4], [5, 0, -1, -1]])
    for frames in (2, 4, 12):
        mel = torch.randn(2, frames, 5, dtype=torch.float64)
        found = head.token_seconds(mel, text, torch.tensor([frames, 1]))
        assert found.shape == (2, 4) and (found[1, 2:] == 0).all() and (found[0] > 0).all()


def test_tokens_last_a_tenth_of_what_the_network_says_and_padding_nothing():
    fields = {**SIZES, "pooling": "tokens", "prompt": "statistics", "text_masking": True}
    head = drawn(DurationHead(DurationTransformer(**fields)))
    mel, lens = torch.randn(2, 12, 5, dtype=torch.float64), torch.tensor([12, 5])
    text = torch.tensor([[1, 2, 3, 4], [5, 6, -1, -1]])
    x, _, _ = head.hidden(mel, text, lens)
    wanted = 0.1 * np.log1p(np.exp(linear(head.to_pred[0], x.numpy())[..., 0]))
    wanted[1, 2:] = 0
    np.testing.assert_allclose(head.token_seconds(mel, text, lens).numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(head(mel, text, lens).numpy(), wanted.sum(1), rtol=1e-6)
    # no frame behind a prompt, and no token behind a text, changes what is said
    again = head.token_seconds(mel[1:, :5], text[1:, :2], lens[1:])
    np.testing.assert_allclose(again[0].numpy(), wanted[1, :2], rtol=1e-6)
