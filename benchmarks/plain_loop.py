"""A plain training loop, written as anybody would: what `bench_training.py --reference` keeps beside the product's.

It shares nothing with the product: decoders of three families (`gpt2`, `llama`, `lfm`: two layers by default, heads of
32 features, tied embeddings), shuffled segments, AdamW, warm-up and cosine to zero, weights N(0, 1/√fan-in), the
embedding twice as fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

D_HEAD = 32


def norm(family: str, width: int) -> nn.Module:
    return nn.LayerNorm(width) if family == "gpt2" else nn.RMSNorm(width, 1e-5)


class Attention(nn.Module):
    def __init__(self, family: str, width: int) -> None:
        super().__init__()
        self.family, self.heads = family, width // D_HEAD
        self.kv_heads = self.heads if family == "gpt2" else self.heads // 2
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * D_HEAD, bias=family == "gpt2")
        self.out = nn.Linear(width, width, bias=family == "gpt2")
        self.qk_norm = nn.ModuleList(nn.RMSNorm(D_HEAD, 1e-5) for _ in range(2)) if family == "lfm" else None

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        heads = self.qkv(x).unflatten(2, (-1, D_HEAD)).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
        if self.qk_norm is not None:
            q, k = self.qk_norm[0](q), self.qk_norm[1](k)
        if rotation is not None:
            q, k = rotated(q, *rotation), rotated(k, *rotation)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.family != "gpt2")
        return self.out(mixed.transpose(1, 2).flatten(2))


class ShortConv(nn.Module):
    def __init__(self, width: int, kernel: int = 3) -> None:
        super().__init__()
        self.kernel = kernel
        self.up, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.taps = nn.Parameter(torch.empty(kernel, width).uniform_(-(kernel**-0.5), kernel**-0.5))

    def forward(self, x: Tensor, _: object) -> Tensor:
        gate_in, gate_out, passed = self.up(x).chunk(3, -1)
        padded, length = F.pad(gate_in * passed, (0, 0, self.kernel - 1, 0)), x.shape[1]
        mixed = sum(padded[:, place : place + length] * tap for place, tap in enumerate(self.taps))
        return self.out(gate_out * mixed)


class FeedForward(nn.Module):
    def __init__(self, family: str, width: int) -> None:
        super().__init__()
        self.gated, bias = family != "gpt2", family == "gpt2"
        inner = 3 * width if self.gated else 4 * width
        self.up = nn.Linear(width, inner * (2 if self.gated else 1), bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor, _: object) -> Tensor:
        if not self.gated:
            return self.down(F.gelu(self.up(x)))
        gate, inner = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * inner)


class Decoder(nn.Module):
    """Tokens [batch, sequence] to logits [batch, sequence, vocabulary]."""

    def __init__(self, family: str, width: int, layers: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width) if family == "gpt2" else None
        self.blocks = nn.ModuleList()
        for layer in range(layers):
            convolves = family == "lfm" and layer % 2 == 0
            self.blocks.append(ShortConv(width) if convolves else Attention(family, width))
            self.blocks.append(FeedForward(family, width))
        self.norms = nn.ModuleList(norm(family, width) for _ in range(2 * layers + 1))
        angles = torch.outer(torch.arange(length), 10_000.0 ** -(torch.arange(0, D_HEAD, 2) / D_HEAD))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and not name.endswith("taps"):
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        length, x = tokens.shape[1], self.table(tokens)
        rotation = None
        if self.places is not None:
            x = x + self.places.weight[:length]
        else:
            rotation = self.cos[:length], self.sin[:length]
        for block, before in zip(self.blocks, self.norms, strict=False):
            x = x + block(before(x), rotation)
        return F.linear(self.norms[-1](x), self.table.weight)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def train(
    model: Decoder, tokens: np.ndarray, lr: float, steps: int, rows: int, segment: int, seed: int
) -> Iterator[None]:
    """Takes one step each time that it is asked for the next item."""
    tables = [parameter for name, parameter in model.named_parameters() if name.startswith(("table", "places"))]
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and not name.startswith(("table", "places"))]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [
        {"params": tables, "rate": 2 * lr, "weight_decay": 0.1},
        {"params": matrices, "rate": lr, "weight_decay": 0.1},
        {"params": vectors, "rate": lr, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)
    text, rng = torch.from_numpy(tokens.astype(np.int64)), torch.Generator().manual_seed(seed)
    order, warmup = torch.empty(0, dtype=torch.int64), max(1, steps // 10)
    for step in range(steps):
        if len(order) < rows:
            order = torch.randperm((len(text) - 1) // segment, generator=rng)
        starts, order = order[:rows] * segment, order[rows:]
        batch = text[starts.unsqueeze(1) + torch.arange(segment + 1)]
        share = min((step + 1) / warmup, (1 + math.cos(math.pi * max(0, step - warmup) / (steps - warmup))) / 2)
        for group in optimizer.param_groups:
            group["lr"] = group["rate"] * share
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield
