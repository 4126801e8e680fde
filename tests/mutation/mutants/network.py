"""Mistakes in what processes between organisations show and ask."""

from __future__ import annotations

from tests.mutation.judges import CONSENT
from tests.mutation.runner import Mutant, one_of

MUTANTS = (
    Mutant(
        "typed-ahead-is-an-answer",
        "network/party/consent_prompt.py",
        "            self.drop_typed()\n",
        "",
        "a line typed before the question would be a yes to it",
        one_of(CONSENT, "what_is_typed_before_a_question_stands_there_answers_nothing"),
    ),
    Mutant(
        "prompt-with-the-study-s-name",
        "network/party/consent_prompt.py",
        '_mark_lines(console, f"study: {request.content.study}")',
        "console.print(request.content.study)",
        "a study's name could draw lines of the prompt",
        one_of(CONSENT, "a_long_name_of_a_study_cannot_look_like_lines_of_the_prompt"),
    ),
)
