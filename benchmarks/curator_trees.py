"""Sizes and marginals of junction trees, and zero-concentrated privacy: what a curator's mechanisms compute themselves.

Belongs to `curator_baseline.py`, in whose environment it runs; needs NumPy only.
"""

import itertools
import math

import numpy as np


def find_rho(epsilon, delta):
    """The largest zCDP that is (epsilon, delta)-DP (Canonne, Kamath and Steinke, arXiv:2004.00010, Corollary 13)."""

    def slack(rho):
        """The logarithm of delta at epsilon, least over the order alpha."""
        low, high = 1.000001, (epsilon + 1.0) / (2.0 * rho) + 2.0
        for _ in range(200):
            alpha = 0.5 * (low + high)
            slope = (2.0 * alpha - 1.0) * rho - epsilon + math.log1p(-1.0 / alpha)
            low, high = (alpha, high) if slope < 0.0 else (low, alpha)
        return (alpha - 1.0) * (alpha * rho - epsilon) + alpha * math.log1p(-1.0 / alpha) - math.log(alpha - 1.0)

    low, high = 0.0, epsilon + 1.0
    for _ in range(200):
        rho = 0.5 * (low + high)
        low, high = (rho, high) if slack(rho) <= math.log(delta) else (low, rho)
    return low


class TreeSize:
    """Megabytes of a junction tree: `mbi.junction_tree.hypothetical_model_size`, on bits, hundreds of times faster."""

    def __init__(self, sizes):
        self.sizes = sizes
        self.near = [0] * len(sizes)

    def add(self, columns):
        for a, b in itertools.permutations(columns, 2):
            self.near[a] |= 1 << b

    def of(self, columns=()):
        """With one more clique."""
        near = list(self.near)
        for a, b in itertools.permutations(columns, 2):
            near[a] |= 1 << b
        left, cliques = list(range(len(near))), []
        while left:
            costs = [self._cells(near[a] | 1 << a) for a in left]
            a = left.pop(int(np.argmin(costs)))
            group = near[a]
            cliques.append(group | 1 << a)
            for b in _bits(group):
                near[b] = (near[b] | group) & ~(1 << a) & ~(1 << b)
        kept = [c for c in cliques if not any(c != d and c & d == c for d in cliques)]
        return sum(self._cells(c) for c in set(kept)) * 8 / 2**20

    def _cells(self, group):
        return math.prod(self.sizes[j] for j in _bits(group))


def _bits(group):
    return [j for j in range(group.bit_length()) if group >> j & 1]


class TreeMarginals:
    """Any marginals of a fitted model: a junction tree, calibrated once, asked often."""

    def __init__(self, nodes, near, potentials, sizes, total):
        self.nodes, self.near, self.sizes, self.total = nodes, near, sizes, total
        tables = [np.zeros([sizes[a] for a in node]) for node in self.nodes]
        for own, values in potentials.items():
            home = min((k for k, node in enumerate(self.nodes) if set(own) <= set(node)), key=lambda k: tables[k].size)
            tables[home] += _expand(values.reshape([sizes[a] for a in own]), own, self.nodes[home])
        self._calibrate(tables)
        self.kept = {}

    def _calibrate(self, tables):
        order, self.parent = [], {}
        for root in range(len(tables)):
            if root in self.parent:
                continue
            self.parent[root] = None
            stack = [root]
            while stack:
                k = stack.pop()
                order.append(k)
                for other in self.near[k]:
                    if other not in self.parent:
                        self.parent[other] = k
                        stack.append(other)
        messages = {}
        for k in reversed(order):
            up = self.parent[k]
            if up is not None:
                shared = self._shared(k, up)
                messages[k, up] = _log_sum(tables[k], self.nodes[k], shared)
                tables[up] += _expand(messages[k, up], shared, self.nodes[up])
        for k in order:
            up = self.parent[k]
            if up is not None:
                shared = self._shared(k, up)
                down = _log_sum(tables[up], self.nodes[up], shared) - messages[k, up]
                tables[k] += _expand(down, shared, self.nodes[k])
        self.tables = []
        for table in tables:
            values = np.exp(table - table.max())
            self.tables.append(values / values.sum())

    def _shared(self, k, other):
        return tuple(a for a in self.nodes[k] if a in self.nodes[other])

    def _reduced(self, k, columns):
        """Clique k's table of some of its columns."""
        key = k, columns
        if key not in self.kept:
            out = tuple(a for a, c in enumerate(self.nodes[k]) if c not in columns)
            self.kept[key] = self.tables[k].sum(axis=out)
        return self.kept[key]

    def of(self, columns):
        """Expected counts, flat."""
        inside = [k for k, node in enumerate(self.nodes) if set(columns) <= set(node)]
        if inside:
            k = min(inside, key=lambda k: self.tables[k].size)
            own = tuple(a for a in self.nodes[k] if a in columns)
            return self.total * np.transpose(self._reduced(k, own), [own.index(a) for a in columns]).ravel()
        return self.total * self._joined(columns)

    def _joined(self, columns):
        """Over several cliques: from the leaves of the tree to one that has the first column."""
        root = next(k for k, node in enumerate(self.nodes) if columns[0] in node)
        table, axes, seen = self._gather(root, None, set(columns))
        for a in columns:  # other components of the graph
            if a not in axes:
                other = next(k for k, node in enumerate(self.nodes) if a in node and k not in seen)
                more, more_axes, more_seen = self._gather(other, None, set(columns) - set(axes))
                table = np.multiply.outer(table, more)
                axes, seen = axes + more_axes, seen | more_seen
        return np.transpose(table, [axes.index(a) for a in columns]).ravel()

    def _gather(self, k, above, wanted):
        """(p(wanted columns at k and below, given those shared with above), their axes, cliques seen)."""
        shared = () if above is None else self._shared(k, above)
        own = wanted & set(self.nodes[k])
        parts, seen = [], {k}
        for other in self.near[k]:
            if other == above:
                continue
            below = wanted - set(self.nodes[k])
            table, axes, more = self._gather(other, k, below) if below else (None, (), set())
            seen |= more
            if table is not None and any(a in below for a in axes):
                parts.append((table, axes))
        kept = set(shared) | own
        needed = kept | {a for _, axes in parts for a in axes if a in self.nodes[k]}
        names = tuple(a for a in self.nodes[k] if a in needed)
        table = self._reduced(k, names)
        if shared:
            below = self._reduced(k, shared)
            table = table / np.maximum(_expand(below, shared, names), 1e-300)
        if not parts and not own - set(shared):
            return None, (), seen
        out = tuple(sorted(kept | {a for _, axes in parts for a in axes if a in wanted}))
        operands = [table, list(names)]
        for part, axes in parts:
            operands += [part, list(axes)]
        return np.einsum(*operands, list(out), optimize=True), out, seen


def _expand(table, axes, onto):
    """A table with axes of length 1 where it has none."""
    shape = [table.shape[axes.index(a)] if a in axes else 1 for a in onto]
    return np.transpose(table, [axes.index(a) for a in onto if a in axes]).reshape(shape)


def _log_sum(table, axes, kept):
    """log of the sum of exp over all axes but `kept`."""
    out = tuple(k for k, a in enumerate(axes) if a not in kept)
    if not out:
        return table.copy()
    top = table.max(axis=out, keepdims=True)
    return np.squeeze(np.log(np.exp(table - top).sum(axis=out, keepdims=True)) + top, axis=out)
