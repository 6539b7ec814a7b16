"""Where the embedded policy's training starts: with the circuit for copying already laid.

An answer carries names, objects and numbers over from its question. A small transformer spends most of its
training on discovering how: a head in one layer that writes each token's predecessor beside it, and a head in the next
layer that looks for the place whose predecessor is the present token and copies what stands there (an "induction"
pair). Here both are written into the initial weights by hand, on random directions; everything is trained from there.

    residual stream: [0] a constant, [1:96] the token, [96:116] its predecessor, the rest free
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

TOKEN_SCALE = 0.06
CONSTANT = 0.3
SHARPNESS = 2.0
"""Weight of the query and key norms: scores reach SHARPNESS² · √head_dim."""


@torch.no_grad()
def lay_copying_circuit(model: Qwen3ForCausalLM) -> None:
    """Overwrites a fresh model's weights: in layer 0 a head looks one token back; in layer 1 one head a group copies.

    The rotary embedding decides which dimensions serve: its fastest ones tell neighbours apart, its slowest ones leave
    content comparable at any distance.
    """
    config = model.config
    width, head = config.hidden_size, config.head_dim
    half = head // 2
    slowest = [*range(half - 10, half), *range(head - 10, head)]
    fastest = range(4)
    token = slice(1, width - 32)
    predecessor = slice(width - 32, width - 32 + len(slowest))
    layers = model.model.layers
    for layer in layers:
        layer.self_attn.q_norm.weight.fill_(SHARPNESS)
        layer.self_attn.k_norm.weight.fill_(SHARPNESS)
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()

    embedding = model.model.embed_tokens.weight
    embedding.normal_(std=TOKEN_SCALE)
    embedding[:, 0] = CONSTANT
    embedding[:, width - 32 :] = 0

    spread = _orthonormal(len(slowest), token.stop - token.start)
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)

    before = layers[0].self_attn
    before.q_proj.weight[:head] = 0
    before.k_proj.weight[:head] = 0
    for pair in fastest:
        before.k_proj.weight[pair, 0] = 1
        before.q_proj.weight[pair, 0] = torch.cos(frequencies[pair])
        before.q_proj.weight[pair + half, 0] = -torch.sin(frequencies[pair])
    before.v_proj.weight[:head] = 0
    before.v_proj.weight[: len(slowest), token] = spread
    before.o_proj.weight[predecessor, : len(slowest)] = TOKEN_SCALE * torch.eye(len(slowest))

    copying = layers[1].self_attn
    queries_per_group = config.num_attention_heads // config.num_key_value_heads
    for group in range(config.num_key_value_heads):
        key_rows = slice(group * head, (group + 1) * head)
        query = group * queries_per_group
        query_rows = slice(query * head, (query + 1) * head)
        copying.k_proj.weight[key_rows] = 0
        copying.q_proj.weight[query_rows] = 0
        for place, dimension in enumerate(slowest):
            copying.k_proj.weight[group * head + dimension, predecessor.start + place] = 1
            copying.q_proj.weight[query * head + dimension, token] = spread[place]
        read = _orthonormal(head, token.stop - token.start)
        copying.v_proj.weight[key_rows] = 0
        copying.v_proj.weight[key_rows, token] = read
        copying.o_proj.weight[token, query_rows] = TOKEN_SCALE * read.T


def _orthonormal(rows: int, columns: int) -> Tensor:
    """[rows, columns] with orthonormal rows."""
    basis: Tensor = torch.linalg.qr(torch.randn(columns, rows))[0]
    return basis.T
