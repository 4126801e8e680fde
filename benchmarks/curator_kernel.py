"""Mirror descent on a junction tree, compiled once for all trees. Belongs to `curator_baseline.py`, and runs beside it.

mbi compiles a program for every set of measured cliques, which takes seconds, while the steps of a small tree take a
fraction of one. Here the tree is data. Steps, step sizes and stopping are those of mbi's `MirrorDescent`.
"""

import math

import numpy as np
from numba import njit


@njit(_nrt=False)
def infer(heads, maps, theta, total, logs, belief, work, mu):
    """Marginals of all cliques from their log potentials; nodes are ordered so that parents come first.

    heads : (1 + nodes + cliques, 7) how many nodes and cliques; of a node its first cell, cells, parent (-1: none),
            cells shared with it, places in `maps` of node -> shared and parent -> shared, and its first place in
            `work`; of a clique its node, its place in `maps`, its first entry, and entries
    """
    nodes = heads[0, 0]
    cliques = heads[0, 1]
    for k in range(nodes):
        first, cells = heads[1 + k, 0], heads[1 + k, 1]
        for x in range(cells):
            logs[first + x] = 0.0
    for c in range(cliques):
        node, place, start = heads[1 + nodes + c, 0], heads[1 + nodes + c, 1], heads[1 + nodes + c, 2]
        first, cells = heads[1 + node, 0], heads[1 + node, 1]
        for x in range(cells):
            logs[first + x] += theta[start + maps[place + x]]
    for k in range(nodes - 1, -1, -1):
        first, cells, up, shared = heads[1 + k, 0], heads[1 + k, 1], heads[1 + k, 2], heads[1 + k, 3]
        own, over, at = heads[1 + k, 4], heads[1 + k, 5], heads[1 + k, 6]
        for s in range(shared):
            work[at + s] = -1e300
            work[at + shared + s] = 0.0
        for x in range(cells):
            s = at + maps[own + x]
            work[s] = max(work[s], logs[first + x])
        for x in range(cells):
            s = at + maps[own + x]
            value = math.exp(logs[first + x] - work[s])
            belief[first + x] = value
            work[s + shared] += value
        if up >= 0:
            base, above = heads[1 + up, 0], heads[1 + up, 1]
            for s in range(shared):
                work[at + s] += math.log(work[at + shared + s])
            for x in range(above):
                logs[base + x] += work[at + maps[over + x]]
    for k in range(nodes):
        first, cells, up, shared = heads[1 + k, 0], heads[1 + k, 1], heads[1 + k, 2], heads[1 + k, 3]
        own, over, at = heads[1 + k, 4], heads[1 + k, 5], heads[1 + k, 6]
        if up < 0:
            for s in range(shared):
                work[at + s] = total
        else:
            base, above = heads[1 + up, 0], heads[1 + up, 1]
            for s in range(shared):
                work[at + s] = 0.0
            for x in range(above):
                work[at + maps[over + x]] += belief[base + x]
        for s in range(shared):
            work[at + s] /= work[at + shared + s]
        for x in range(cells):
            belief[first + x] *= work[at + maps[own + x]]
    for c in range(cliques):
        node, place, start = heads[1 + nodes + c, 0], heads[1 + nodes + c, 1], heads[1 + nodes + c, 2]
        size = heads[1 + nodes + c, 3]
        first, cells = heads[1 + node, 0], heads[1 + node, 1]
        for i in range(size):
            mu[start + i] = 0.0
        for x in range(cells):
            mu[start + maps[place + x]] += belief[first + x]


@njit(_nrt=False)
def descend(heads, maps, theta, target, weight, total, alpha, steps, logs, belief, work, room):
    """`steps` of mirror descent with Armijo's rule, `theta` in place. `room` holds four vectors as long as `theta`."""
    p = theta.size
    mu, other, trial, slope = room[:p], room[p : 2 * p], room[2 * p : 3 * p], room[3 * p :]
    infer(heads, maps, theta, total, logs, belief, work, mu)
    loss = 0.0
    for i in range(p):
        loss += 0.5 * weight[i] * (mu[i] - target[i]) ** 2
    for _ in range(steps):
        for i in range(p):
            slope[i] = weight[i] * (mu[i] - target[i])
            trial[i] = theta[i] - alpha * slope[i]
        infer(heads, maps, trial, total, logs, belief, work, other)
        loss2, gain = 0.0, 0.0
        for i in range(p):
            loss2 += 0.5 * weight[i] * (other[i] - target[i]) ** 2
            gain += slope[i] * (mu[i] - other[i])
        if loss - loss2 >= 0.5 * alpha * gain:
            alpha *= 1.01
            loss = loss2
            for i in range(p):
                theta[i] = trial[i]
                mu[i] = other[i]
        else:
            alpha *= 0.5
    return loss


def pack(nodes, near, cliques, sizes):
    """Arrays for `descend`: a tree's nodes, their neighbours, and measured cliques (all tuples of columns)."""
    order, parent = [], {}
    for root in range(len(nodes)):
        if root in parent:
            continue
        parent[root], stack = -1, [root]
        while stack:
            k = stack.pop()
            order.append(k)
            for other in near[k]:
                if other not in parent:
                    parent[other] = k
                    stack.append(other)
    place = {k: i for i, k in enumerate(order)}
    shape = [[sizes[a] for a in nodes[k]] for k in order]
    cells = [math.prod(s) for s in shape]
    firsts = np.concatenate([[0], np.cumsum(cells)])
    heads, maps, at, used = [[len(nodes), len(cliques), 0, 0, 0, 0, 0]], [], 0, 0

    def add(k, columns):
        nonlocal at
        maps.append(_index(nodes[k], [sizes[a] for a in nodes[k]], columns, sizes))
        at += maps[-1].size
        return at - maps[-1].size

    for i, k in enumerate(order):
        up = parent[k]
        shared = () if up < 0 else tuple(a for a in nodes[k] if a in nodes[up])
        size = math.prod(sizes[a] for a in shared)
        own = add(k, shared)
        over = add(up, shared) if up >= 0 else 0
        heads.append([firsts[i], cells[i], place[up] if up >= 0 else -1, size, own, over, used])
        used += 2 * size
    start = 0
    for c in cliques:
        k = min((k for k in order if set(c) <= set(nodes[k])), key=lambda k: cells[place[k]])
        size = math.prod(sizes[a] for a in c)
        heads.append([place[k], add(k, c), start, size, 0, 0, 0])
        start += size
    return np.array(heads, dtype=np.int64), np.concatenate(maps).astype(np.int32), int(firsts[-1]), used, start


def _index(node, shape, columns, sizes):
    """For every cell of a node the cell of some of its columns."""
    flat = np.zeros(shape, dtype=np.int32)
    for a in columns:
        flat *= sizes[a]
        axis = [1] * len(shape)
        axis[node.index(a)] = sizes[a]
        flat += np.arange(sizes[a], dtype=np.int32).reshape(axis)
    return flat.ravel()
