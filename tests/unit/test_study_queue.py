"""The coordinator's queue of studies: in order, each once, and nobody is forgotten who waits."""

from __future__ import annotations

import threading

from verticopula.network.coordinator.study_queue import STOPPED, StudyQueue


def test_studies_come_in_the_order_in_which_they_were_added() -> None:
    studies = StudyQueue(tuple)
    for name in ("first", "second", "third"):
        studies.add(name)
    studies.stop()
    assert [studies.take() for _ in range(4)] == ["first", "second", "third", STOPPED]


def test_a_study_stands_in_the_queue_once_and_may_come_back_after_it_was_taken() -> None:
    studies = StudyQueue(tuple)
    for name in ("one", "one", "other", "one"):
        studies.add(name)
    assert studies.take() == "one"
    studies.add("one")
    studies.stop()
    assert [studies.take() for _ in range(3)] == ["other", "one", STOPPED]


def test_studies_that_wait_are_taken_up_again_although_nobody_says_so() -> None:
    studies = StudyQueue(lambda: ["waits"], look_again=0.01)
    assert [studies.take() for _ in range(3)] == ["waits"] * 3


def test_studies_that_wait_are_taken_up_again_although_the_queue_is_never_empty() -> None:
    studies = StudyQueue(lambda: ["waits"], look_again=0.0)
    studies.add("busy")
    assert [studies.take() for _ in range(2)] == ["busy", "waits"]


def test_who_takes_from_an_empty_queue_is_woken_by_the_next_study() -> None:
    studies, taken = StudyQueue(tuple), list[str]()
    taker = threading.Thread(target=lambda: taken.append(studies.take()))
    taker.start()
    studies.add("late")
    taker.join()
    assert taken == ["late"]
