"""Confusables: words as they look on a screen, so that what a steward refused cannot come back in other letters.

Unicode's own table of confusables (UTS #39) has six thousand entries, and no library that is maintained has it. Most
entries are other forms of a letter, which normalisation undoes, or letters of phonetics and of scripts that nobody
writes a purpose in, which are refused. What is left of Latin, Greek and Cyrillic, which texts do mix, stands below.
"""

from __future__ import annotations

import unicodedata
from functools import cache

# Each class is one letter to a reader, in small or in capital form. To be told apart, two purposes have to differ in
# more than that.
_CLASSES = (
    "aаα",
    "bɓвβьъ",
    "cсς",
    "dđðɖɗԁ",
    "eеεєҽəҿɛǝ",
    "fƒ",
    "hnvħŋһнηпνћђ",
    "iljıɩιіӏј1|",
    "kĸƙкκқҝҟҡ",
    "oοоσөøѳ0",
    "pрρþ",
    "rг",
    "sѕ5",
    "tтτ",
    "uyɣʋυуμүұγ",
    "xхχҳ",
    "zζ",
    "3зӡҙ",
)
_FOLDED = {ord(letter): one[0] for one in _CLASSES for letter in one}
_SEVERAL = str.maketrans({"m": "rn", "м": "rn", "w": "vv", "ω": "vv", "ш": "vv", "æ": "ae", "œ": "oe", "ł": "l"})
_EXTRA = frozenset("æœøłđðþħıŋəĸɓɖɗƙƒɛɔɣɩʋǝ")
_GREEK, _CYRILLIC = frozenset(map(chr, range(0x3B1, 0x3CA))), frozenset(map(chr, range(0x430, 0x530)))
_EAST_ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"})
_OTHERS = frozenset(  # those of UTS #31 that are in wide use today
    {
        *("ARABIC", "ARMENIAN", "BENGALI", "DEVANAGARI", "ETHIOPIC", "GEORGIAN", "GUJARATI", "GURMUKHI", "HEBREW"),
        *("KANNADA", "KHMER", "LAO", "MALAYALAM", "MYANMAR", "ORIYA", "SINHALA", "TAMIL", "TELUGU", "THAANA"),
        *("THAI", "TIBETAN"),
    }
)
_EUROPEAN, _UNKNOWN = "European", "unknown"
_BLANKS = "\u115f\u1160\u3164\uffa0"  # letters by their category, and nothing on a screen
_SIGNS = frozenset(map(chr, range(0x2B9, 0x300)))  # apostrophes and the like, which some languages count as letters


def fold_confusables(text: str) -> str:
    """The letters and digits of a text, confusables as one: without case, accents, blanks, signs and what cannot be
    seen.

    Parameters
    ----------
    text : anybody's words
    """
    plain = _plain(text).translate(_SEVERAL)
    return "".join(c for c in plain if unicodedata.category(c)[0] in "LN" or c == "|").translate(_FOLDED)


def has_disallowed_script(text: str) -> bool:
    """Whether a letter is of no alphabet in wide use, or a word mixes alphabets that `fold_confusables` keeps apart.

    Latin, Greek and Cyrillic count as one. East Asian scripts may stand in a word with them.

    Parameters
    ----------
    text : anybody's words
    """
    for word in _plain(text).split():
        scripts = {_script(c) for c in word if unicodedata.category(c)[0] == "L"}
        if _UNKNOWN in scripts or (len(scripts) > 1 and scripts & _OTHERS):
            return True
    return False


def _plain(text: str) -> str:
    """Without what cannot be seen, case, accents, and other forms of the same letters."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", text) if c not in _BLANKS)
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", seen.casefold()))
    drawn = (c for c in apart if c not in _SIGNS and unicodedata.category(c) not in ("Mn", "Me", "Cf"))
    return "".join(" " if c.isspace() else c for c in drawn)


@cache
def _script(letter: str) -> str:
    """The alphabet of a letter, which its name begins with in Unicode."""
    if letter.isascii() or letter in _EXTRA or letter in _GREEK or letter in _CYRILLIC:
        return _EUROPEAN
    name = unicodedata.name(letter, "").split(" ")[0]
    return "East Asian" if name in _EAST_ASIAN else name if name in _OTHERS else _UNKNOWN
