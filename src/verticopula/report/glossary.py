"""The terms that a report uses, in a sentence each; docs/reference/glossary.md has more."""

from __future__ import annotations

GLOSSARY = (
    (
        "block",
        "Everything that one party holds about one person. A missing block is a person whom a party does not know.",
    ),
    ("client", "A unit of epsilon: the same as for variable, added up over the columns of one party."),
    ("cohort", "The people whom a study is about: the subjects of the party that holds the response."),
    ("copula", "A model of how columns move together, apart from each column's own distribution."),
    ("delta", "The chance with which a bound by epsilon may fail. One in a million is usual."),
    ("epsilon", "How much seeing a release can change a guess: the odds by at most e to that power. It needs a unit."),
    ("ledger", "A party's list of all its releases. Each line holds the hash of the line before."),
    ("margin", "The distribution of one column."),
    ("missing at random", "What is missing depends on what was observed, not on the missing values."),
    ("party", "An organisation that holds columns."),
    ("person", "A unit of epsilon: everything that all parties hold about one person, replaced."),
    ("release", "Something that leaves a party, with noise and a price."),
    ("response", "The column that is to be explained. The people of its party are the cohort."),
    ("standard error", "The typical distance of an estimate from the truth."),
    ("synthetic", "Drawn from the fitted model. No synthetic row belongs to a person."),
    (
        "variable",
        "A unit of epsilon: one comparison of two people, or one person's part in noisy counts, in one column.",
    ),
)
