"""One unit's budget over time as a picture: an SVG in the page, with its numbers in words for whoever cannot see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from verticopula.console.budget_history import BudgetPoint
from verticopula.formatting import readable
from verticopula.privacy.statement import format_epsilon, format_remaining
from verticopula.schema.units import Unit

_WIDTH, _HEIGHT = 460.0, 190.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 22.0, 30.0
_ROOM_ABOVE = 1.12  # of the largest value
_MOST_NAME = 60


def draw_budget(points: Sequence[BudgetPoint], unit: Unit, name: str, now: datetime) -> Markup:
    """A step line of what counts, up to now, below the cap if there is one.

    Parameters
    ----------
    points : as `TableBudget` has them; the first is before the first study
    unit : which one
    name : for the picture's parts, of which every one on a page needs another
    now : where the picture ends
    """
    values = [point.units[unit].counted for point in points]
    cap = points[-1].units[unit].cap
    finite = [value for value in (*values, cap or 0.0) if math.isfinite(value)]
    highest = max(finite) * _ROOM_ABOVE or 1.0
    times = _moments(points, now)
    begin, end = times[0], max(times[-1], now.timestamp())

    def across(moment: float) -> float:
        share = (moment - begin) / (end - begin) if end > begin else 1.0
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        share = 1.0 if math.isinf(value) else value / highest
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    floor, right = up(0.0), across(end)
    line = f"M {across(times[0]):.1f} {up(values[0]):.1f}"
    for moment, value in zip(times[1:], values[1:], strict=True):
        line += f" H {across(moment):.1f} V {up(value):.1f}"
    line += f" H {right:.1f}"
    area = f"{line} V {floor:.1f} H {across(times[0]):.1f} Z"
    parts = [
        f'<svg class="budget" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-labelledby="{name}-t {name}-d">',
        f'<title id="{name}-t">Epsilon per {unit.value} over time</title>',
        f'<desc id="{name}-d">{escape(describe_budget(points, unit))}</desc>',
        *_axis(highest, up),
        f'<path class="spent" d="{area}"/><path class="line" d="{line}"/>',
    ]
    if cap is not None:
        parts.append(
            f'<path class="cap" d="M {_LEFT:g} {up(cap):.1f} H {right:.1f}"/>'
            f'<text class="cap-name" x="{_LEFT + 4:g}" y="{up(cap) - 5:.1f}">cap {cap:,g}</text>'
        )
    for point, moment, value in zip(points[1:], times[1:], values[1:], strict=True):
        said = escape(readable(f"{point.study[:_MOST_NAME]}: {format_epsilon(value)}"))
        parts.append(f'<circle cx="{across(moment):.1f}" cy="{up(value):.1f}" r="4"><title>{said}</title></circle>')
    first = datetime.fromtimestamp(begin, UTC).date().isoformat()
    parts.append(f'<text class="tick" x="{_LEFT:g}" y="{_HEIGHT - 10:g}">{first}</text>')
    parts.append(f'<text class="tick end" x="{right:g}" y="{_HEIGHT - 10:g}">{now.date().isoformat()}</text></svg>')
    return Markup("".join(parts))


def describe_budget(points: Sequence[BudgetPoint], unit: Unit) -> str:
    """The picture in a sentence.

    Parameters
    ----------
    points, unit : as `draw_budget` has them
    """
    last = points[-1].units[unit]
    studies = len({point.study for point in points if point.study})
    spent = f"{format_epsilon(last.counted)} after {studies} {'study' if studies == 1 else 'studies'}"
    if last.cap is None or last.left is None:
        return f"{spent}; no cap."
    return f"{spent}; the cap is {last.cap:,g}, of which {format_remaining(last.left)} is left."


def _axis(highest: float, up: Callable[[float], float]) -> list[str]:
    """Three lines and their values."""
    step = 10.0 ** math.floor(math.log10(highest))
    step = next(by * step for by in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if highest / (by * step) <= 4.0)
    return [
        f'<path class="grid" d="M {_LEFT:g} {up(k * step):.1f} H {_WIDTH - _RIGHT:g}"/>'
        f'<text class="tick end" x="{_LEFT - 6:g}" y="{up(k * step) + 4:.1f}">{k * step:,.6g}</text>'
        for k in range(int(highest / step) + 1)
    ]


def _moments(points: Sequence[BudgetPoint], now: datetime) -> list[float]:
    """Seconds since 1970 of every point, never going back; a clock that was set back moves nothing to the left."""
    found: list[float] = []
    for point in points[1:]:
        try:
            moment = datetime.fromisoformat(point.time).timestamp()
        except ValueError:
            moment = found[-1] if found else now.timestamp()
        found.append(max([moment, *found[-1:]]))
    # A little before the first release, so that the step from nothing is seen.
    first = found[0] if found else now.timestamp()
    span = max(now.timestamp() - first, 60.0)
    return [first - 0.04 * span, *found]
