"""Three years of a federation: certificates are renewed, run out, are revoked, and the root is replaced.

The clock of real processes is moved (`shifted_clock.c`). Nobody is ever restarted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.network.years import Years, years

pytestmark = pytest.mark.network

PARTIES = ("left", "middle", "right")
EVERYBODY = ("server", "lead", *PARTIES)


def start(found: Years, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in found.environment.items():
        monkeypatch.setenv(key, value)
    found.net.start_all()
    for key in found.environment:
        monkeypatch.delenv(key)
    found.wait_until_connected(*PARTIES)


def succeed(found: Years, number: int) -> None:
    done = found.study(number)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (found.net.folder / f"study-{number}" / "study.json").is_file()


def test_three_years_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with years(tmp_path) as found:
        start(found, monkeypatch)
        processes = {name: process.pid for name, process in found.net.processes.items()}
        succeed(found, 0)

        # Day 306: everybody is warned; all but one are renewed in time.
        warned = found.log("left")
        found.set_day(306)
        warned.wait("this kit's certificate ends in 58 days|this kit's certificate ends in 59 days")
        found.provision("--renew-all")
        renewed = found.log("left")
        found.hand_over("server", "lead", "left", "middle")
        renewed.wait("connecting again with it")
        found.wait_until_connected(*PARTIES)
        succeed(found, 1)

        # Day 370: the one that was forgotten is refused, told why, and the lead does not wait.
        told = found.log("right")
        found.set_day(370)
        told.wait("no connection to the coordinator: the certificate of 'right' expired on .* --renew right")
        refused = found.study(2)
        assert refused.returncode == 1
        assert "party 'right' cannot take part: the certificate of 'right' expired on" in refused.stderr.replace(
            "\n", " "
        )
        shown = found.command("status", "--kit", "kits/lead").stdout
        assert "expired on" in shown

        # Renewed after the end, it goes on.
        found.hand_over("right")
        found.wait_until_connected(*PARTIES)
        succeed(found, 3)

        # Day 900: everything has ended. The lead's command says so in a line.
        found.set_day(900)
        ended = found.study(4)
        assert ended.returncode == 1
        assert "the certificate of 'lead' expired on" in ended.stderr.replace("\n", " ")
        assert "Traceback" not in ended.stderr
        found.provision("--renew-all")
        found.hand_over(*EVERYBODY)
        found.wait_until_connected(*PARTIES)
        succeed(found, 5)

        # A new root: the coordinator gets the notice, and everybody else gets it from there.
        found.provision("--rotate-root")
        taken = [found.log(name) for name in PARTIES]
        found.hand_over("server", files=("notice.json",))
        for log in taken:
            log.wait("notice .* was taken from the coordinator")
        found.wait_until_connected(*PARTIES)
        found.provision("--renew-all")
        found.hand_over(*EVERYBODY)
        found.wait_until_connected(*PARTIES)
        succeed(found, 6)

        # The old root is retired on day 1,000, and a study runs on the new one alone.
        found.set_day(1000)
        found.provision("--retire-root")
        taken = [found.log(name) for name in PARTIES]
        found.hand_over("server", files=("notice.json",))
        for log in taken:
            log.wait("notice .* was taken from the coordinator")
        found.wait_until_connected(*PARTIES)
        succeed(found, 7)

        # A stolen kit: revoked, its live connection ends, and it is told why.
        stolen = found.log("left")
        revoked = found.command("revoke", "left", "--out", str(found.provisioned), "--reason", "stolen")
        assert revoked.returncode == 0, revoked.stderr
        found.hand_over("server", files=("notice.json",))
        stolen.wait(r"it refused this one: the certificate of 'left' was revoked \(stolen\)")
        refused = found.study(8)
        assert "was revoked (stolen)" in refused.stderr.replace("\n", " ")
        found.provision("--renew", "left")
        found.hand_over("left")
        found.wait_until_connected(*PARTIES)
        succeed(found, 9)

        assert {name: process.pid for name, process in found.net.processes.items()} == processes
        assert all(process.poll() is None for process in found.net.processes.values())
        assert not any("Traceback" in found.net.output(name) for name in processes)
