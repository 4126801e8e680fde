"""What an epsilon can be an epsilon *of*. No number is printed without one of these."""

from __future__ import annotations

from enum import StrEnum

from verticopula.errors import SettingsError


class Unit(StrEnum):
    """The change of data that an epsilon bounds, from the smallest to the largest."""

    VARIABLE = "variable"
    CLIENT = "client"
    BLOCK = "block"
    PERSON = "person"

    @classmethod
    def parse(cls, text: str) -> Unit:
        """The unit of that name; SettingsError names the known ones."""
        try:
            return cls(text)
        except ValueError:
            raise SettingsError(f"unknown unit {text!r}; known: {', '.join(cls)}") from None

    @property
    def needs_delta(self) -> bool:
        return self in (Unit.BLOCK, Unit.PERSON)

    @property
    def meaning(self) -> str:
        """One line for a steward."""
        return _MEANINGS[self]


_MEANINGS = {
    Unit.VARIABLE: "one comparison of two subjects in one column (ranks), or one person's part in its noisy "
    "counts (marginal); the largest over columns",
    Unit.CLIENT: "the same, added up over all columns of one party; the largest over parties",
    Unit.BLOCK: "everything one party holds about one person, replaced; the largest over parties",
    Unit.PERSON: "everything all parties hold about one person, replaced",
}
