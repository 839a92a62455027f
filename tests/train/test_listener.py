"""A listener and the student that it hears: shapes, padding, losses by hand, a run, errors."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nanospeech.architectures import ListenerConfig
from nanospeech.audio.postfilter import postfilter
from nanospeech.config import AudioConfig, ModelConfig, PostfilterConfig
from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.folder import load_config, open_release
from nanospeech_torch.checkpoint_reader import read_tensors
from nanospeech_torch.listener import Listener
from nanospeech_torch.train.config import read_run, run_config
from nanospeech_torch.train.data.batch import Batch, EarConfig, LossConfig
from nanospeech_torch.train.data.heard import disturbance
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches, StreamOptions
from nanospeech_torch.train.objectives.distill import Distilled
from nanospeech_torch.train.objectives.distill_config import DistillConfig
from nanospeech_torch.train.objectives.distill_end import DistilledEnd
from nanospeech_torch.train.objectives.ear import MOST, Ear, postfiltered, whole_patches
from nanospeech_torch.train.objectives.listening import Listening, ListeningConfig
from nanospeech_torch.train.objectives.text_aligner import TextAligner
from nanospeech_torch.train.run import build_student, dry_run, train
from nanospeech_torch.train.students import build_listener, read_listener
from tests.train.test_distill import Student, Teacher
from tests.train.test_golden_batches import (
    BANDS,
    LENS,
    MEAN,
    SPANS,
    STD,
    TEXTS,
    WIDTH,
    Network,
    golden_batch,
    means_of_patches,
    normal,
    numbers,
    spoken,
)
from tests.train.test_golden_batches import best_path as best
from tests.training import write_shards

SPREAD, MOST_STRENGTH = 0.5, 3.0
AUDIO = AudioConfig(n_mels=BANDS, mel_mean=MEAN, mel_std=STD)
TINY = {"log_every": 1, "ema_decay": 0.5, "buckets": 1, "schedule": "constant", "keep": 9}


def listener(tokens: int = 6, **fields: Any) -> Listener:
    torch.manual_seed(0)
    sizes = {"dim": 16, "dilations": (1, 2), "n_mels": BANDS, "tokens": tokens, **fields}
    return Listener(ListenerConfig(**sizes))


def learn_words(model: Any, parameters: Iterable[torch.nn.Parameter], steps: int, lr: float):
    """Mean cross entropies of some steps by the words alone."""
    optimizer, means = torch.optim.AdamW(parameters, lr=lr), []
    for _ in range(steps):
        total, count = model(golden_batch())["words"]
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        means.append((total / count).item())
    return means


def words_by_hand(ear: Listener, batch, ends, filters, beside=None) -> tuple[float, int]:
    """Cross entropy in the patches that are learnt, of mels (N, M) that end so; and how many.

    beside (B, N, M) is heard with them, in prompts too.
    """
    nats, patches = 0.0, 0
    for b, end in enumerate(ends):
        first, last = SPANS[b]
        mel = normal(batch, b).copy()
        mel[first:last] = postfilter(end[first:last].astype(np.float32), filters)
        mel += 0 if beside is None else beside[b, : len(mel)].numpy()
        logs = ear(torch.from_numpy(mel)[None])[0].log_softmax(-1)
        tokens = [TEXTS[b][t] for t in spoken(batch, b, "aligned", 2)]
        for i, (told, said) in enumerate(zip(logs.detach().numpy(), tokens, strict=True)):
            if first <= 2 * i and 2 * i + 2 <= last:
                nats, patches = nats + min(MOST, -told[said]), patches + 1
    return nats, patches


@pytest.mark.parametrize("patch", [1, 2, 3])
def test_a_listener_answers_for_each_patch_whatever_the_padding(patch):
    net = listener(patch_size=patch)
    mel = torch.randn(2, 12, BANDS)
    short = 7
    mel[1, short:] = 0
    logits = net(mel, torch.tensor([12, short]))
    assert logits.shape == (2, 12 // patch, 6)
    alone = net(mel[1:, :short])
    assert torch.allclose(logits[1, : -(-short // patch)], alone[0], atol=1e-6)
    assert torch.allclose(logits[:1], net(mel[:1]), atol=1e-6)


def test_a_patch_hears_as_far_as_its_dilations_reach():
    net = listener(dilations=(1, 2, 4), patch_size=2)
    mel = torch.randn(1, 60, BANDS, requires_grad=True)
    net(mel)[0, 15].sum().backward()
    patches = mel.grad.abs().sum(-1).reshape(30, 2).sum(1)  # type: ignore[union-attr]
    assert patches.nonzero()[:, 0].tolist() == list(range(15 - 7, 15 + 8))


class Reader(Network):
    """A stub of an aligned speech model, whose whole clip is the prompt."""

    def __init__(self, patch: int):
        super().__init__("aligned", patch)


def listening(patch: int, **fields: Any) -> Listening:
    aligner = TextAligner(Reader(patch), AUDIO)  # type: ignore[arg-type]
    config = ListeningConfig(**fields)
    return Listening(listener(patch_size=patch), aligner, None, AUDIO, LossConfig(), config)


def tokens_by_hand(batch, b: int, patch: int, before: int = 0) -> list[int]:
    """Ids of an item's patches: the best path for the speaker that the whole clip tells."""
    patches = means_of_patches(normal(batch, b), patch)
    sounds = np.stack([Reader(patch).sounds.detach().numpy()[t] for t in TEXTS[b]])
    return [TEXTS[b][t] for t in best(patches[before:], sounds + 0.1 * patches.mean(0))]


@pytest.mark.parametrize("patch", [1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_its_loss_is_the_cross_entropy_of_the_tokens_that_are_placed(patch, smoothing):
    batch = golden_batch()
    model = listening(patch, noise=0.0, label_smoothing=smoothing)
    got = numbers(model(batch))
    assert {k: v.item() for k, v in model.counts(batch).items()} == {
        "words": got["words"][1], "accuracy": got["words"][1]
    }  # fmt: skip
    total = hits = count = 0.0
    for b, n in enumerate(LENS):
        mel = torch.from_numpy(normal(batch, b))
        logs = model.listener(mel[None])[0].log_softmax(-1).detach().double().numpy()
        for said, told in zip(tokens_by_hand(batch, b, patch), logs, strict=True):
            total -= (1 - smoothing) * told[said] + smoothing * told.mean()
            hits, count = hits + (told.argmax() == said), count + 1
        assert n  # every frame of the item, and none past it
    assert got["words"] == pytest.approx((total, count), rel=1e-5)
    assert got["accuracy"] == (hits, count)
    assert model.weights() == {"words": 1.0}  # the other is only logged
    plain = numbers(model.eval()(batch))["words"]
    assert (plain[0] == pytest.approx(total, rel=1e-5)) == (smoothing == 0)


def test_tokens_are_placed_for_the_speaker_of_the_whole_clip_whatever_it_is_padded_to():
    reader, batch = Reader(2), golden_batch()
    TextAligner(reader, AUDIO).tokens(batch)  # type: ignore[arg-type]
    assert reader.speaker is not None
    for b in range(len(LENS)):
        wanted = means_of_patches(normal(batch, b), 2).mean(0)
        np.testing.assert_allclose(reader.speaker[b], wanted, atol=1e-5)


def test_tokens_are_placed_in_float32_whatever_the_rest_is_in():
    """Sounds that differ by little beside what they share: bfloat16 would not tell them apart."""
    reader, batch = Reader(2), golden_batch()
    batch.mel = batch.mel + 20 * AUDIO.mel_std * (batch.mel != 0)
    with torch.no_grad():
        reader.sounds += 20
    aligner = TextAligner(reader, AUDIO)  # type: ignore[arg-type]
    want = aligner.tokens(batch)
    assert all(want[b].unique().numel() > 1 for b in range(len(LENS)))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(aligner.tokens(batch), want)


def test_texts_are_read_between_the_edges_of_the_model_that_places_them():
    model = listening(2)
    model.tokenizer = print
    assert model.aligner.dit.config.text_upsampling == "aligned"
    assert model.batches([], BatchPlan(2, 200, 100), StreamOptions()).edge == " "


def test_padded_lengths_are_multiples_of_eight_patches():
    assert [listening(patch).multiple() for patch in (1, 2, 4)] == [8, 16, 32]


def test_half_of_the_items_have_noise_in_training_alone():
    batch = golden_batch()
    batch.time[1] = 0.5
    model = listening(2, noise=0.4)
    got = model.heard(batch)
    for b, n in enumerate(LENS):
        time = batch.time[b].item()
        amount = 0.4 * 2 * time if time < 0.5 else 0.0
        want = normal(batch, b) + amount * batch.noise[b, :n].numpy()
        assert np.allclose(got[b, :n].numpy(), want, atol=1e-5) and not got[b, n:].any()
    assert np.allclose(model.eval().heard(batch)[0, : LENS[0]].numpy(), normal(batch, 0), atol=1e-6)


def with_few_words() -> Batch:
    """A batch whose second item has no text, and the third the vocabulary's first token alone."""
    batch = golden_batch()
    text = batch.text.clone()
    text[1:3] = -1
    text[2, 0] = 0
    return replace(batch, text=text)


def test_words_that_are_not_in_the_text_are_not_heard():
    part = replace(with_few_words(), wordless=torch.tensor([5, 0, 0, 0, 5]))
    model = listening(2).eval()
    tokens = model.aligner.tokens(part)
    for b in (0, 4):
        assert tokens[b, :7].tolist() == [-1, -1, *tokens_by_hand(part, b, 2, before=2)]
    assert (tokens[1] == -1).all() and tokens[0, 7:].tolist() == [-1]
    assert (tokens[2] == 0).any()
    assert model.counts(part)["words"] == numbers(model(part))["words"][1]


def test_it_learns_the_tokens_of_a_toy_set():
    batch = golden_batch()
    model = listening(2, noise=0.1)
    learn_words(model, model.parameters(), 60, 0.01)
    told = numbers(model.eval()(batch))
    entropy = told["words"][0] / told["words"][1]
    drawn = Counter(t for b in range(len(LENS)) for t in tokens_by_hand(batch, b, 2))
    share = np.array([*drawn.values()]) / sum(drawn.values())
    assert entropy < 0.3 * -(share * np.log(share)).sum()  # far below guessing by frequency
    assert told["accuracy"][0] / told["accuracy"][1] > 0.9


@pytest.mark.parametrize(("smooth", "sharpen"), [(0.2, 0.0), (0.0, 0.7), (0.25, 1.1)])
def test_the_postfilter_is_that_of_speaking(smooth, sharpen):
    config = PostfilterConfig(smooth=smooth, sharpen=sharpen)
    rng = np.random.default_rng(0)
    mel = rng.standard_normal((3, 20, 40)).astype(np.float32)
    spans = ((0, 20), (5, 16), (7, 8))
    new = torch.zeros(3, 20, dtype=torch.bool)
    for b, (first, end) in enumerate(spans):
        new[b, first:end] = True
    got = postfiltered(torch.from_numpy(mel), new, config).numpy()
    for b, (first, end) in enumerate(spans):
        raw = -2.17 + 2.82 * mel[b, first:end]  # in log mels, as in speaking
        want = (postfilter(raw, config) + 2.17) / 2.82
        assert np.allclose(got[b, first:end], want, atol=1e-5)
    same = torch.from_numpy(mel)
    assert postfiltered(same, new, None) is same


def test_which_patches_are_whole():
    learned = torch.tensor([[0, 1, 1, 1, 1, 1, 0], [1, 1, 0, 1, 1, 1, 1]], dtype=torch.bool)
    assert whole_patches(learned, 2).tolist() == [
        [False, True, True, False], [True, False, True, False]
    ]  # fmt: skip


class Likewise(Teacher):
    """A student that goes as its teacher goes."""

    def forward(self, x, cond, text, time, lens):
        return super().forward(x, cond, text, time[:, 0], lens)


def ended(student: torch.nn.Module, patch: int = 2, heard: int = 0, **fields: Any) -> DistilledEnd:
    filters = fields.pop("postfilter", None)
    about = ModelConfig(audio=AUDIO, temperature=SPREAD, cfg_rescale=0.0, postfilter=filters)
    settings = DistillConfig(method="end", max_strength=MOST_STRENGTH, **fields)
    ears = [listener(patch_size=patch, dim=16 + n) for n in range(heard)]
    teacher = Teacher("aligned", patch, 0.7)
    return DistilledEnd(student, about, teacher, settings, None, listeners=ears)  # type: ignore


def test_there_is_nothing_to_learn_where_both_end_alike():
    batch = replace(golden_batch(), time=torch.zeros(len(LENS)))  # without guidance
    alike = ended(Likewise("aligned", 2, 0.7), steps=3, substeps=1)
    total, count = numbers(alike(batch))["flow"]
    assert total == pytest.approx(0, abs=1e-9)
    assert count == sum(last - first for first, last in SPANS) == alike.counts(batch)["flow"]
    assert numbers(ended(Likewise("aligned", 2, 0.9), steps=3, substeps=1)(batch))["flow"][0] > 0.1


def test_a_single_step_ends_where_a_trajectory_of_one_does():
    """With guidance of each item's own strength, and rescaled."""
    batch, sums = golden_batch(), []
    for method in ("end", "trajectory"):
        about = ModelConfig(audio=AUDIO, temperature=SPREAD, cfg_rescale=0.6)
        config = DistillConfig(method=method, steps=1, substeps=3, max_strength=MOST_STRENGTH)
        kind = DistilledEnd if method == "end" else Distilled
        networks = Student("aligned", 2, 1.0), about, Teacher("aligned", 2, 0.7)
        sums.append(numbers(kind(*networks, config, None)(batch))["flow"])  # type: ignore
    assert sums[0] == pytest.approx(sums[1], rel=1e-5) and sums[0][0] > 1


class Stepped(Student):
    """It has a weight for each of two steps."""

    def __init__(self, patch: int):
        super().__init__("aligned", patch, 1.0)
        self.each = torch.nn.Parameter(torch.zeros(2, BANDS))

    def forward(self, x, cond, text, time, lens):
        with torch.no_grad():
            velocity = super().forward(x, cond, text, time, lens)
        pull = self.each[(time[:, 0] > 0).long()][:, None]
        return velocity + 0.1 * x + pull


@pytest.mark.parametrize("heard", [0, 1])
def test_the_first_step_learns_through_the_last(heard):
    network = Stepped(2)
    model = ended(network, heard=heard, steps=2, substeps=2)
    sums = model(golden_batch())
    total, count = sums["words" if heard else "flow"]
    (total / count).backward()
    assert network.each.grad is not None
    middle = 1 - np.cos(np.pi / 4)
    first, last = network.each.grad.numpy()
    # what the first step adds is there at the end, and in the velocity of the last
    assert np.allclose(first, last * middle * (1 / (1 - middle) + 0.1), rtol=1e-4)
    assert np.abs(last).min() > 1e-4
    times = sorted({float(t) for call in network.calls for t in call[:, 0]})
    assert times == pytest.approx([0, middle]) and len(network.calls) == 2
    assert all((call[:, 2] == 0.5).all() for call in network.calls)
    assert all(np.allclose(call[:, 1], golden_batch().time) for call in network.calls)


@pytest.mark.parametrize("filters", [None, PostfilterConfig(smooth=0.2, sharpen=0.5)])
def test_what_is_heard_is_the_students_where_it_learns_and_the_condition_elsewhere(filters):
    batch = golden_batch()
    model = ended(Stepped(2), heard=1, steps=2, postfilter=filters)
    voice = model.voices[0]
    given = model.given(voice, batch)
    end = model.end(voice, given, batch.time).detach()
    ear = model.ear.listeners[0]  # type: ignore[union-attr]
    total, count = numbers(model(batch))["words"]
    want, patches = words_by_hand(ear, batch, end.numpy(), filters)
    assert all(n >= last for n, (_, last) in zip(LENS, SPANS))
    assert (total, count) == (pytest.approx(want, rel=1e-4), patches)
    assert model.counts(batch)["words"] == patches
    assert model.weights() == {"flow": 1.0, "words": 0.05}


def test_a_patch_counts_for_six_nats_at_most():
    model = ended(Stepped(2), heard=1, steps=2)
    ear = model.ear.listeners[0]  # type: ignore[union-attr]
    with torch.no_grad():
        ear.out.weight.zero_()
        ear.out.bias.copy_(torch.tensor([50.0, 0, 0, 0, 0, 0]))  # sure of token 0
    total, count = numbers(model(golden_batch()))["words"]
    batch, wrong = golden_batch(), 0
    for b in range(len(LENS)):
        tokens = [TEXTS[b][t] for t in spoken(batch, b, "aligned", 2)]
        first, last = SPANS[b]
        wrong += sum(t != 0 for i, t in enumerate(tokens) if first <= 2 * i and 2 * i + 2 <= last)
    assert 0 < wrong < count and total == pytest.approx(6 * wrong)


def beside(batch, strength: float = 0.5) -> torch.Tensor:
    """Something to hear beside a batch, nothing past its items."""
    torch.manual_seed(5)
    valid = torch.arange(batch.mel.shape[1]) < batch.lens[:, None]
    return strength * torch.randn(batch.mel.shape) * valid[..., None]


def test_what_disturbs_is_heard_in_training_alone():
    batch = golden_batch()
    loud = replace(batch, disturbance=beside(batch))
    model = ended(Stepped(2), heard=1, steps=2)
    end = model.end(model.voices[0], model.given(model.voices[0], batch), batch.time).detach()
    ear = model.ear.listeners[0]  # type: ignore[union-attr]
    want = [words_by_hand(ear, batch, end.numpy(), None, b) for b in (None, loud.disturbance)]
    assert abs(want[0][0] - want[1][0]) > 0.1
    for training, heard, (nats, patches) in (
        (True, batch, want[0]), (True, loud, want[1]), (False, loud, want[0])
    ):  # fmt: skip
        got = numbers(model.train(training)(heard))
        assert got["words"] == (pytest.approx(nats, rel=1e-4), patches)
        assert got["flow"] == numbers(model(batch))["flow"]


def test_listeners_take_turns_by_the_step_alone_and_the_first_hears_what_is_not_trained():
    batch = golden_batch()
    model, again = (ended(Stepped(2), heard=2, steps=2) for _ in range(2))
    end = model.end(model.voices[0], model.given(model.voices[0], batch), batch.time).detach()
    want = [words_by_hand(e, batch, end.numpy(), None)[0] for e in model.ear.listeners]  # type: ignore[union-attr]
    assert abs(want[0] - want[1]) > 0.1
    heard = []
    for step in range(60):
        model.begin_step(step, 60.0)
        got = numbers(model(batch))["words"][0]
        heard.append(min((0, 1), key=lambda i: abs(want[i] - got)))
        assert got == pytest.approx(want[heard[-1]], rel=1e-4)
    assert 18 < sum(heard) < 42 and model.ear.turn == heard[-1]  # type: ignore[union-attr]
    assert len({tuple(heard[i : i + 3]) for i in range(57)}) > 4  # no pattern
    for step in (41, 7, 42, 40):  # as a run that goes on, or another process
        again.begin_step(step, 99.0)
        assert again.ear.turn == heard[step]  # type: ignore[union-attr]
    again.begin_step(heard.index(1), 99.0)
    assert numbers(again.eval()(batch))["words"][0] == pytest.approx(want[0], rel=1e-4)
    other = Ear(model.ear.listeners, None, seed=1)  # type: ignore[union-attr]
    turns = []
    for step in range(60):
        other.begin_step(step)
        turns.append(other.turn)
    assert turns != heard


def amounts(count: int = 400, **kinds: float) -> np.ndarray:
    """What is heard beside so many clips of 9 frames and 61 bands."""
    ear = EarConfig(**{"noise": 0.0, "level": 0.0, "colour": 0.0, **kinds})
    return np.stack([disturbance(9, 61, ear, np.random.default_rng(i)) for i in range(count)])


def test_each_kind_of_disturbance_is_as_much_as_it_should_be():
    spread = amounts(noise=0.3).reshape(400, -1).std(1)
    assert spread.min() < 0.01 and 0.28 < spread.max() < 0.32
    assert np.quantile(spread, [0.25, 0.5, 0.75]) == pytest.approx([0.075, 0.15, 0.225], abs=0.025)
    assert np.abs(amounts(noise=0.3).mean()) < 0.002
    level = amounts(level=0.2)
    assert (level == level[:, :1, :1]).all()
    assert np.quantile(level[:, 0, 0], [0, 0.25, 0.5, 0.75, 1]) == pytest.approx(
        [-0.2, -0.1, 0, 0.1, 0.2], abs=0.025
    )
    colour = amounts(colour=0.1)
    assert (colour == colour[:, :1]).all()
    coloured = colour[:, 0].any(1)
    assert 0.42 < coloured.mean() < 0.58
    points = colour[coloured, 0, ::12]  # between which lines are straight
    assert points.shape[1] == 6 and points.std() == pytest.approx(0.1, abs=0.006)
    lines = np.repeat(np.diff(points, axis=1) / 12, 12, axis=1)
    assert np.allclose(np.diff(colour[coloured, 0], axis=1), lines, atol=1e-6)
    corners = np.corrcoef(points.T)[np.triu_indices(6, 1)]
    assert np.abs(corners).max() < 0.3
    assert not amounts(3).any()


def test_what_disturbs_is_drawn_after_all_else_and_not_past_an_item():
    items = [
        {"mel": np.zeros((n, 4)), "text": "c", "key": str(n), "refs": [(0, 0, n)], "frames": n}
        for n in (40, 25)
    ]

    def collated(ear: EarConfig | None, epoch: int = 0):
        plan = BatchPlan(2, 200, 100, buckets=1)
        ids = lambda texts: np.ones((1, 3), int)  # noqa: E731
        audio = AudioConfig(n_mels=4)
        made = SpeechBatches([], ids, plan, audio, LossConfig(), seed=3)
        made.ear = ear
        ready = [made.finished({**i, "epoch": epoch}, Counter()) for i in items]
        batch, _ = made.collate(ready, epoch, Counter())  # type: ignore[arg-type]
        assert batch is not None
        return vars(batch)

    plain, heard, again, later = (
        collated(ear, epoch)
        for ear, epoch in ((None, 0), (EarConfig(), 0), (EarConfig(), 0), (EarConfig(), 1))
    )
    assert plain["disturbance"].shape == (2, 0, 4)
    added = heard["disturbance"]
    assert added.shape == heard["mel"].shape and added.dtype == torch.float32
    assert added[0, :40].std() > 0 and added[1, :25].any() and not added[1, 25:].any()
    assert not torch.equal(added[0, :25], added[1, :25])
    assert all(torch.equal(plain[n], t) for n, t in heard.items() if n != "disturbance")
    assert torch.equal(added, again["disturbance"])
    assert not torch.equal(added, later["disturbance"])
    for heard_by, want in ((1, EarConfig()), (0, None)):
        model = ended(Stepped(2), heard=heard_by)
        model.tokenizer = print
        assert model.batches([], BatchPlan(2, 200, 100), StreamOptions()).ear == want


class Learner(Student):
    """It learns what to say of each token."""

    def __init__(self):
        super().__init__("aligned", 2, 1.0)
        torch.manual_seed(1)
        parts = torch.nn.Linear(WIDTH, 16), torch.nn.Tanh(), torch.nn.Linear(16, BANDS)
        self.own = torch.nn.Sequential(*parts)

    def forward(self, x, cond, text, time, lens):
        with torch.no_grad():
            velocity = super().forward(x, cond, text, time, lens)
        return velocity + self.own(text).repeat_interleave(2, 1)[:, : x.shape[1]]


def test_a_student_learns_to_be_understood():
    """By the words alone: what a listener hears becomes what is to be said."""
    ear = listening(2, noise=0.0)
    learn_words(ear, ear.parameters(), 40, 0.01)
    network = Learner()
    model = ended(network, heard=1, steps=2)
    model.ear = Ear([ear.listener], None)
    before = {n: t.clone() for n, t in ear.listener.state_dict().items()}
    words = learn_words(model, network.own.parameters(), 25, 0.03)
    assert words[-1] < 0.8 * words[0]
    assert all(torch.equal(before[n], t) for n, t in ear.listener.state_dict().items())
    assert not any("listener" in name for name in model.state_dict())


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, 2)
    return f"{folder}/*.tar"


def settings(model: str, folder: Path, teacher: Path, shards: str, steps: int, **more) -> dict:
    return {
        "model": model, "teacher": str(teacher), "run_dir": str(folder),
        "total_steps": steps, "warmup_steps": 1, "save_step": 3, "mixed_precision": "no",
        "data": {"shards": [shards], "batch_size": 2, "max_duration": 300},
        "train": TINY, "loss": {"pair": 0.0}, **more,
    }  # fmt: skip


SMALL = {"listener": {"dim": 16, "dilations": [1, 2]}, "optimizer": {"lr": 3e-3}}


@pytest.fixture(scope="module")
def heard(tmp_path_factory, tiny_aligned, shards) -> Path:
    """A run of a listener, of six steps."""
    folder = tmp_path_factory.mktemp("heard") / "run"
    log = {"held_out": [shards], "held_out_every": 3}
    train(run_config(settings("listener", folder, tiny_aligned, shards, 6, log=log, **SMALL)))
    return folder


def test_a_run_goes_on_exactly(heard, tiny_aligned, tmp_path, shards):
    values = settings("listener", tmp_path / "parts", tiny_aligned, shards, 6, **SMALL)
    train(run_config(values), minutes=1e-9)
    assert int((tmp_path / "parts" / "latest").read_text()[5:]) < 6
    train(run_config(values))
    first, second = (read_tensors(f / "step_00000006") for f in (heard, tmp_path / "parts"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[n], second[n]) for n in first)
    rows = list(csv.DictReader((heard / "log.csv").open()))
    assert float(rows[-1]["words"]) > 0 and 0 <= float(rows[-1]["accuracy"]) <= 1
    assert any(float(row["held_out_words"] or 0) > 0 for row in rows)


def test_a_student_of_a_run_hears_the_average(heard, tiny_aligned, tmp_path, shards):
    ear = read_listener(str(heard), open_release(tiny_aligned))
    kept = read_tensors(heard / "step_00000006", "ema.")
    assert all(torch.equal(kept[f"listener.{n}"], t) for n, t in ear.state_dict().items())
    distill = {"method": "end", "steps": 2, "listener": [str(heard), str(heard)]}
    more = {"distill": distill, "ear": {"noise": 0.1}}
    values = settings("distilled", tmp_path / "run", tiny_aligned, shards, 2, **more)
    train(run_config(values))
    [*_, row] = csv.DictReader((tmp_path / "run" / "log.csv").open())
    assert float(row["flow"]) > 0 and float(row["words"]) > 0
    model = build_student(run_config(values))
    assert model.model_config()["sampling"]["step_counts"] == [2]
    assert len(model.ear.listeners) == 2  # type: ignore[attr-defined]
    assert model.ear.config == EarConfig(noise=0.1)  # type: ignore[attr-defined]
    distill["listener"] = str(heard)
    assert len(build_student(run_config(values)).ear.listeners) == 1  # type: ignore[attr-defined]


def test_listeners_and_teachers_that_do_not_fit_are_told(
    heard, tiny_aligned, make_release, tmp_path, shards
):
    def student(teacher: Path, folder: Path) -> None:
        distill = {"method": "end", "listener": str(folder)}
        build_student(
            run_config(settings("distilled", tmp_path, teacher, shards, 1, distill=distill))
        )

    with pytest.raises(InputError, match=r"patch_size 2, .* 1; train a listener with teacher="):
        student(make_release(text_upsampling="aligned", patch_size=1), heard)
    other = tmp_path / "other"
    other.mkdir()
    for file in Path(tiny_aligned).iterdir():
        (other / file.name).symlink_to(file)
    (other / "vocab.txt").unlink()
    vocab = (Path(tiny_aligned) / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (other / "vocab.txt").write_text("\n".join([*vocab[:-1], "§"]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"has vocabulary of .*, the teacher .* with .§.; train a"):
        student(other, heard)
    (other / "config.json").unlink()
    config = load_config(tiny_aligned)
    replace(config, audio=replace(config.audio, mel_std=9.0)).save(other / "config.json")
    (other / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"audio .*mel_std=9"):
        student(other, heard)
    with pytest.raises(CheckpointError, match=r"step_"):
        student(tiny_aligned, tmp_path / "other")
    with pytest.raises(InputError, match=r"dit\.text_upsampling=average"):
        student(make_release(text_upsampling="average", patch_size=2), heard)
    apart = settings("listener", tmp_path, make_release(text_upsampling="none"), shards, 1)
    with pytest.raises(InputError, match=r"dit\.text_upsampling=none"):
        build_listener(run_config(apart))
    with pytest.raises(InputError, match="whole on every process"):
        split = {"parallel": {"shard": 2}}
        build_listener(run_config(settings("listener", tmp_path, tiny_aligned, shards, 1, **split)))


def test_settings_that_do_not_go_together_are_told(tiny_aligned):
    for wrong, told in (
        ({"method": "end", "also": [4]}, "also is for trajectory"),
        ({"method": "trajectory", "listener": "x"}, "listener is for end"),
        ({"method": "end", "words": -1}, "words"),
        ({"method": "end", "listener": ["a", 3]}, r"distill\.listener is \['a', 3\]; name run"),
    ):
        with pytest.raises(InputError, match=told):
            DistillConfig(**wrong)  # type: ignore[arg-type]
    for name, bad in (("noise", (-0.1, 10.1)), ("label_smoothing", (-0.1, 1.0))):
        for amount in bad:
            with pytest.raises(InputError, match=f"{name} is {amount}"):
                ListeningConfig(**{name: amount})
    assert ListeningConfig(noise=0, label_smoothing=0) and ListeningConfig(noise=10)
    for name in ("noise", "level", "colour"):
        for bad_amount in (-0.1, 11):
            with pytest.raises(InputError, match=rf"ear\.{name} is {bad_amount}; choose 0 to 10"):
                EarConfig(**{name: bad_amount})
    with pytest.raises(InputError, match="dilations"):
        ListenerConfig(dilations=[0])
    with pytest.raises(InputError, match="so is a listener"):
        run_config({"model": "listener"})
    recipe = Path(__file__).parents[2] / "nanospeech" / "configs" / "listener.yaml"
    config = read_run(recipe, [f"teacher={tiny_aligned}"])
    assert "weights" in dry_run(config)
    saved = config.to_dict()
    assert saved["listening"]["noise"] == 0.3 and saved["teacher"] and "distill" not in saved
    assert config.loss.pair == 0
