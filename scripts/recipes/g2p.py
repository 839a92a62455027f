"""Trains the network that says words which the dictionary lacks, and measures it.

    python -m scripts.recipes.g2p train --minutes 25 --out g2p.safetensors
    python -m scripts.recipes.g2p measure                 the one that ships, beside letters alone

Trained on nine tenths of the CMU dictionary that ships, by CTC; a hash of the word says which tenth
it is in. Words with an apostrophe and initials are left out: rules say those. What is chosen is
chosen on one word in fifty of the nine tenths. The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.cli import Parser, command
from nanospeech.text import phonemes
from nanospeech.text.g2p import ALPHABET, LAYERS, PER_LETTER, WEIGHTS, Network, letter_ids
from nanospeech.text.phonemes import SYMBOLS, dictionary

Words = dict[str, tuple[str, ...]]


def part(word: str) -> int:
    """0 to 99 by a hash: below 10 held out, 10 and 11 to choose by, else trained on."""
    return hashlib.sha1(word.encode()).digest()[0] * 100 // 256


def load_words() -> tuple[Words, Words, Words]:
    """The words to train on, to choose by and held out, with their phonemes."""
    names = {c: dictionary()[c] for c in ALPHABET[:26]} | {"a": "EY1"}
    found: tuple[Words, Words, Words] = ({}, {}, {})
    for word, said in dictionary().items():
        bare = [p.rstrip("012") for p in said.split()]
        initials = [p.rstrip("012") for c in word for p in names.get(c, "?").split()]
        if set(word) <= set(ALPHABET[:26]) and bare != initials and len(bare) <= 2 * len(word):
            place = part(word)
            found[2 if place < 10 else 1 if place < 12 else 0][word] = tuple(said.split())
    return found


class Model:
    """torch's twin of g2p.Network."""

    def __new__(cls, width: int, embed: int, dropout: float) -> Any:
        import torch
        from torch import nn

        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(len(ALPHABET) + 1, embed)
                self.rnn = nn.GRU(
                    embed, width, LAYERS, batch_first=True, dropout=dropout, bidirectional=True
                )
                self.drop = nn.Dropout(dropout)
                self.out = nn.Linear(2 * width, PER_LETTER * (len(SYMBOLS) + 1))

            def forward(self, ids_BL: torch.Tensor) -> torch.Tensor:
                """Log probabilities (B, PER_LETTER * L, C) of words of one length."""
                x, _ = self.rnn(self.embed(ids_BL))
                x = self.out(self.drop(x))
                return x.unflatten(-1, (PER_LETTER, -1)).flatten(1, 2).log_softmax(-1)

        return Reader()


def batches(words: Words, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
    """Letters, phonemes and their counts, of words of one length each, in random order."""
    import torch

    by_length: dict[int, list[str]] = {}
    for word in words:
        by_length.setdefault(len(word), []).append(word)
    groups = []
    for some in by_length.values():
        some = [some[i] for i in rng.permutation(len(some))]
        groups += [some[i : i + size] for i in range(0, len(some), size)]
    for n in rng.permutation(len(groups)):
        said = [[SYMBOLS.index(p) + 1 for p in words[w]] for w in groups[n]]
        counts = torch.tensor([len(s) for s in said])
        flat = torch.tensor([p for s in said for p in s])
        yield torch.from_numpy(letter_ids(groups[n])[0]), flat, counts


def train(args: argparse.Namespace) -> None:
    """Trains for so many minutes in all, the learning rate by the clock; writes the network."""
    import torch
    from torch.nn.functional import ctc_loss

    torch.manual_seed(0)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    words, choose, _ = load_words()
    print(f"{len(words)} words to train on, {len(choose)} to choose by")
    model = Model(args.width, args.embed, args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), 0.0, (0.9, 0.98), weight_decay=0.01)
    state, spent, epoch = args.out.with_suffix(".pt"), 0.0, 0
    if state.is_file():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        spent, epoch = saved["spent"], saved["epoch"]
    end, began, losses = 60 * args.minutes, time.monotonic() - spent, []
    stop = spent + 60 * args.pause_after if args.pause_after else end
    while (spent := time.monotonic() - began) < min(end, stop):
        for ids, said, counts in batches(words, args.batch, np.random.default_rng(epoch)):
            share = (time.monotonic() - began) / end
            if share >= 1 or share * end >= stop:
                break
            rate = args.rate * min(1, share * 50 + 0.02) * 0.5 * (1 + math.cos(math.pi * share))
            for group in optimizer.param_groups:
                group["lr"] = rate
            logs = model(ids).transpose(0, 1)
            lengths = torch.full((len(ids),), logs.shape[0])
            loss = ctc_loss(logs, said, lengths, counts, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
        epoch += 1
        save(model, args.out)
        spent = time.monotonic() - began
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            | {"spent": spent, "epoch": epoch},
            state,
        )
        rate = error_rate(Network.load(args.out).phonemes(list(choose)), list(choose.values()))
        mean = np.mean(losses[-400:])
        print(
            f"epoch {epoch}, {spent / 60:.1f} min, loss {mean:.3f}, errors {rate:.2%}", flush=True
        )


def save(model: Any, path: Path) -> None:
    """Writes the network, float16."""
    from safetensors.numpy import save_file

    state = model.state_dict()
    save_file({n: t.detach().numpy().astype(np.float16) for n, t in state.items()}, path)


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Insertions, deletions and replacements that make b of a."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def error_rate(said: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> float:
    """Errors a phoneme."""
    return sum(map(distance, said, right)) / sum(map(len, right))


def bare(said: Sequence[Sequence[str]]) -> list[list[str]]:
    """Without stress."""
    return [[p.rstrip("012") for p in word] for word in said]


def letter_sounds(words: Words) -> dict[str, str]:
    """The commonest phoneme of each letter in words that have as many phonemes as letters."""
    counts: dict[str, Counter] = {c: Counter() for c in ALPHABET[:26]}
    for word, said in words.items():
        if len(word) == len(said):
            for letter, phoneme in zip(word, said):
                counts[letter][phoneme] += 1
    return {letter: found.most_common(1)[0][0] for letter, found in counts.items()}


def by_rules(word: str, known: dict[str, str]) -> tuple[str, ...] | None:
    """What the rules of phonemes.py make of a word by the words that were trained on."""
    rules = phonemes.inflected, phonemes.respelled, phonemes.compound
    return next((said for rule in rules if (said := rule(word, known))), None)


def measure(args: argparse.Namespace) -> None:
    """Prints phoneme error rates on the held-out tenth."""
    words, _, held = load_words()
    known = {word: " ".join(said) for word, said in words.items()}
    sounds = letter_sounds(words)
    network = Network.load(args.network)
    began = time.perf_counter()
    guesses = dict(zip(held, network.phonemes(list(held))))
    took = time.perf_counter() - began
    parts = {word: said for word in held if (said := by_rules(word, known))}
    letters = {word: [sounds[c] for c in word] for word in held}
    rows = {
        "each letter by its commonest sound": letters,
        "rules, else letters": {w: parts.get(w, letters[w]) for w in held},
        "the network": guesses,
        "rules, else the network": {w: parts.get(w, guesses[w]) for w in held},
    }
    alone = [w for w in held if w not in parts]
    size = Path(args.network).stat().st_size
    print(f"{len(held)} held-out words, {len(alone)} of them without a rule; {size} bytes;")
    print(f"{1000 * took / len(held):.2f} ms a word\n")
    print("| said by | errors | without stress | words wrong | errors, words without a rule |")
    print("|---|---|---|---|---|")
    right = list(held.values())
    for name, row in rows.items():
        said = [row[w] for w in held]
        wrong = np.mean([list(a) != list(b) for a, b in zip(said, right)])
        hard = error_rate([row[w] for w in alone], [held[w] for w in alone])
        print(
            f"| {name} | {error_rate(said, right):.1%} | {error_rate(bare(said), bare(right)):.1%}"
            f" | {wrong:.1%} | {hard:.1%} |"
        )


@command
def main(argv: list[str] | None = None) -> int:
    parser = Parser("python -m scripts.recipes.g2p", __doc__)
    tools = parser.add_subparsers(dest="tool", required=True, metavar="train | measure")
    add = tools.add_parser("train", help="make a network").add_argument
    add("--out", type=Path, required=True, help="safetensors file to write; beside it X.pt")
    add("--minutes", type=float, default=27.0, help="of training in all (default: %(default)s)")
    add("--pause-after", type=float, metavar="MINUTES", help="stop then; go on another time")
    add("--width", type=int, default=128, help="of a GRU (default: %(default)s)")
    add("--embed", type=int, default=48, help="of a letter (default: %(default)s)")
    add("--dropout", type=float, default=0.1, help="between layers (default: %(default)s)")
    add("--batch", type=int, default=192, help="words (default: %(default)s)")
    add("--rate", type=float, default=4e-3, help="highest learning rate (default: %(default)s)")
    add = tools.add_parser("measure", help="print error rates").add_argument
    add("--network", type=Path, default=WEIGHTS, help="default: the one that ships")
    args = parser.parse_args(argv)
    {"train": train, "measure": measure}[args.tool](args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
