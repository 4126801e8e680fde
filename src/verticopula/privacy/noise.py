"""Where randomness comes from: the operating system for real releases, a seed for simulations.

Both sources produce their bits with AES-128 in counter mode, so that one implementation of every
mechanism serves both. They differ in the key: `SecureNoise` draws it from the operating system
for each stream and forgets it; `SeededNoise` derives it from the seed and the stream's label, so
the same seed gives the same bits on every machine, in any order of parties. Whoever knows a seed
can undo the noise: a seeded release is **not private**, and everything made from it says so.

The Laplace and Gaussian noise of the secure source is OpenDP's, discrete: no floating-point sampling.
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import enable_features

enable_features("contrib")

_AES_BLOCK = 16
KEYSTREAM_SPARE = _AES_BLOCK  # bytes that an array needs beyond those of a keystream
_ZEROS_SIZE = 1 << 16  # small enough to stay in the processor's cache
_ZEROS = bytes(_ZEROS_SIZE)


class Keystream:
    """An endless AES-128-CTR keystream. Not thread-safe; make one per task."""

    def __init__(self, key: bytes) -> None:
        # A key is used for one stream only, so the counter may start at zero.
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(_AES_BLOCK))).encryptor()

    def fill(self, out: NDArray[np.uint8], size: int) -> None:
        """Write fresh bytes to the front of an array.

        Parameters
        ----------
        out : has at least 16 bytes more than `size`
        size : how many bytes
        """
        view = memoryview(out.data).cast("B")
        done = 0
        while done < size:
            step = min(size - done, _ZEROS_SIZE)
            zeros = _ZEROS if step == _ZEROS_SIZE else memoryview(_ZEROS)[:step]
            self._encryptor.update_into(zeros, view[done : done + step + _AES_BLOCK])
            done += step

    def words(self, count: int, room: NDArray[np.uint8] | None = None) -> NDArray[np.uint64]:
        """Fresh 64-bit words.

        Parameters
        ----------
        count : how many
        room : where they are written, with `KEYSTREAM_SPARE` bytes more than they have; None for fresh memory
        """
        out = np.empty(8 * count + KEYSTREAM_SPARE, dtype=np.uint8) if room is None else room
        self.fill(out, 8 * count)
        return out[: 8 * count].view(np.uint64)


class Noise(Protocol):
    """What a mechanism may ask of a source of randomness."""

    @property
    def is_private(self) -> bool:
        """False if someone could replay the noise."""
        ...

    def stream(self, *label: str) -> Keystream:
        """A keystream of its own for this label.

        Parameters
        ----------
        label : what the stream is for
        """
        ...

    def stream_key(self, *label: str) -> bytes:
        """The key of such a stream, where it is drawn elsewhere; for no second use.

        Parameters
        ----------
        label : what the stream is for
        """
        ...

    def discrete_laplace(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        """`values` plus independent integers with P(k) proportional to exp(-|k|/scale).

        Parameters
        ----------
        values, scale : what is noised, and by how much
        label : what the noise is for
        """
        ...

    def discrete_gaussian(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        """`values` plus independent integers with P(k) proportional to exp(-k^2/(2 scale^2)).

        Parameters
        ----------
        values, scale : what is noised, and by how much
        label : what the noise is for
        """
        ...


class SecureNoise:
    """Randomness for real releases: fresh keys from the operating system, OpenDP's discrete samplers."""

    is_private = True

    def stream(self, *label: str) -> Keystream:
        return Keystream(self.stream_key(*label))

    def stream_key(self, *label: str) -> bytes:
        return os.urandom(_AES_BLOCK)

    def discrete_laplace(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        mechanism = make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=float(scale))
        return np.asarray(mechanism(values.tolist()), dtype=np.int64)

    def discrete_gaussian(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        mechanism = make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=float(scale))
        return np.asarray(mechanism(values.tolist()), dtype=np.int64)


class SeededNoise:
    """Reproducible randomness for simulations. Not private: the seed undoes it.

    Parameters
    ----------
    seed, prefix : what all streams are keyed by, besides their labels
    study : stands in all labels in place of their first part, which is a study's name, so that a simulation can be
        repeated under another name; empty for the labels as they are
    """

    is_private = False

    def __init__(self, seed: int, *prefix: str, study: str = "") -> None:
        self._seed = int(seed)
        self._prefix = prefix
        self._study = study

    def derive(self, name: str) -> SeededNoise:
        """The source for one party: keyed by its name, so the order of parties does not matter."""
        return SeededNoise(self._seed, *self._prefix, name, study=self._study)

    def stream(self, *label: str) -> Keystream:
        return Keystream(self.stream_key(*label))

    def stream_key(self, *label: str) -> bytes:
        label = (self._study, *label[1:]) if self._study else label
        return derive_key(self._seed, *self._prefix, *label)

    def discrete_laplace(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(self.stream_key(*label))))
        # The difference of two geometric variables is discrete Laplace.
        success = -np.expm1(-1.0 / scale)
        return values + rng.geometric(success, values.shape) - rng.geometric(success, values.shape)

    def discrete_gaussian(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(self.stream_key(*label))))
        # A rounded normal: at the scales in use here nobody can tell the difference, and a seed protects nobody.
        return np.asarray(values + np.rint(rng.normal(0.0, scale, values.shape)).astype(np.int64))


def derive_key(seed: int, *label: str) -> bytes:
    """16 bytes that depend on the seed and on every part of the label, unambiguously."""
    digest = hashlib.blake2b(digest_size=_AES_BLOCK)
    for part in (str(seed), *label):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()


def server_generator(seed: int | None, *label: str) -> np.random.Generator:
    """The coordinator's generator for draws that protect nobody (post-processing of releases)."""
    if seed is None:
        return np.random.default_rng()
    return np.random.default_rng(int.from_bytes(derive_key(seed, "coordinator", *label)))
