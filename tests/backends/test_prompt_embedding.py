"""The prompt's statistics: what a vector of the given mel depends on, in all backends."""

from __future__ import annotations

import numpy as np
import pytest

DIM, HIDDEN, WIDTH = 12, 6, 5


@pytest.fixture
def embed(backend):
    """embed(cond) -> (vector, weights) of a network with random weights, in NumPy."""
    rng = np.random.default_rng(0)
    weights = {
        "to_features.weight": rng.standard_normal((HIDDEN, DIM)),
        "to_features.bias": rng.standard_normal(HIDDEN),
        "to_time.weight": rng.standard_normal((WIDTH, 2 * HIDDEN)),
        "to_time.bias": rng.standard_normal(WIDTH),
    }
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    if backend == "torch":
        import torch

        from nanospeech_torch.dit import PromptEmbedding

        net = PromptEmbedding(DIM, HIDDEN, WIDTH)
        net.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()})
        return lambda cond: net(torch.from_numpy(cond)).detach().numpy(), weights
    if backend == "onnx":
        return in_a_graph(weights), weights
    import mlx.core as mx

    from nanospeech_mlx.dit import PromptEmbedding

    mlx = PromptEmbedding(DIM, HIDDEN, WIDTH)
    mlx.load_weights([(n, mx.array(w)) for n, w in weights.items()])
    return lambda cond: np.array(mlx(mx.array(cond))), weights


def in_a_graph(weights):
    """The same as a graph of ONNX Runtime."""
    from nanospeech_onnx.dit import PromptEmbedding
    from nanospeech_onnx.graph import BATCH, TOKENS, Graph
    from nanospeech_onnx.session import Place

    net, graph = PromptEmbedding(DIM, HIDDEN, WIDTH), Graph("prompt")
    assert {p.name for p in net.parameters()} == weights.keys()
    graph.output("vector", net(graph.input("cond", (BATCH, TOKENS, DIM))))
    session = Place().session(graph, weights)
    return lambda cond: session(cond=cond)[0]


def prompts() -> np.ndarray:
    """Two items of nine and four given patches of fifteen: float32 (2, 15, DIM)."""
    cond = np.random.default_rng(1).standard_normal((2, 15, DIM)).astype(np.float32)
    cond[0, 9:] = 0
    cond[1, 4:] = 0
    return cond


def test_the_prompt_embedding_is_of_means_and_deviations_of_features(embed):
    run, w = embed
    cond = prompts()
    got = run(cond)
    for item, patches in enumerate((9, 4)):
        x = cond[item, :patches] @ w["to_features.weight"].T + w["to_features.bias"]
        x = x / (1 + np.exp(-x))
        both = np.concatenate([x.mean(0), np.sqrt(x.var(0) + 1e-6)])
        wanted = both @ w["to_time.weight"].T + w["to_time.bias"]
        np.testing.assert_allclose(got[item], wanted, atol=1e-3)


def test_order_position_padding_and_repetition_do_not_matter(embed):
    run, _ = embed
    cond = prompts()
    wanted = run(cond)
    shuffled = np.stack([row[np.random.default_rng(2).permutation(15)] for row in cond])
    longer = np.concatenate([cond, np.zeros((2, 40, DIM), np.float32)], 1)
    for same in (shuffled, longer, np.concatenate([cond, cond], 1)):
        np.testing.assert_allclose(run(same), wanted, atol=2e-3)


def test_where_nothing_is_given_it_is_one_constant_vector(embed):
    run, w = embed
    nothing = run(np.zeros((2, 15, DIM), np.float32))
    np.testing.assert_array_equal(nothing[0], nothing[1])
    wanted = 1e-3 * w["to_time.weight"][:, HIDDEN:].sum(1) + w["to_time.bias"]
    np.testing.assert_allclose(nothing[0], wanted, atol=1e-5)
