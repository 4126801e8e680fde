"""Who vouches for a list of masked points: lists are signed by the party that masked them last, for one study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.matching.private_intersection import points_digest
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.protocol.study_messages import MaskRequest, SignedPoints
from verticopula.protocol.study_proposal import points_statement
from verticopula.schema.federation import Federation


@dataclass(frozen=True, repr=False)
class PointSignatures:
    """One party's signatures of its lists, and how it knows those of the others.

    Attributes
    ----------
    federation, fingerprint : the party's own file
    authenticity : how it signs, and how it knows what others signed
    n_rows : how many subjects the party has
    """

    party: str
    federation: Federation
    fingerprint: str
    authenticity: Authenticity
    n_rows: int

    def sign(self, study: str, masked_by: tuple[str, ...], points: NDArray[np.uint8]) -> bytes:
        """The party's signature of these points.

        Parameters
        ----------
        study : what they are for
        masked_by : who masked them, in their order
        points : (n, 32) the list
        """
        said = masked_by, points.shape[0], points_digest(points)
        return self.authenticity.sign(points_statement(study, self.fingerprint, *said))

    def check(self, request: MaskRequest, listed: int) -> tuple[SignedPoints, int]:
        """Who signed the points, and the cohort's size; ProtocolError unless another party vouches for each of them.

        Parameters
        ----------
        request : the list that is to be masked
        listed : the cohort's size, as it was signed before in this study; 0 if it was not
        """
        signed, cohort, response = request.signed, request.cohort, self.federation.response.party
        if signed is None or signed.masked_by[:1] != (request.origin,) or not self._is_signed(request.study, signed):
            raise ProtocolError(f"party {self.party!r}: the points of {request.origin!r} are not signed by a party")
        if (signed.count, signed.digest) != (request.points.shape[0], points_digest(request.points)):
            raise ProtocolError(f"party {self.party!r}: other points of {request.origin!r} were signed than these")
        if self.party == response:
            return signed, self.n_rows
        if cohort is None or cohort.masked_by != (response,) or not self._is_signed(request.study, cohort):
            raise ProtocolError(f"party {self.party!r}: the cohort's size is not signed by {response!r}")
        if request.points.shape[0] > cohort.count or listed not in (0, cohort.count):
            raise ProtocolError(f"party {self.party!r}: {request.origin!r} cannot have so many subjects of this cohort")
        return signed, cohort.count

    def _is_signed(self, study: str, signed: SignedPoints) -> bool:
        """Whether the party that masked these points last signed them, and all who did are others of the federation."""
        others = {p.name for p in self.federation.parties} - {self.party}
        by = signed.masked_by
        if not by or len(set(by)) != len(by) or not set(by) <= others:
            return False
        message = points_statement(study, self.fingerprint, by, signed.count, signed.digest)
        return self.authenticity.verify(by[-1], message, signed.signature)
