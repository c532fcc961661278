"""The burst as a picture: for each transaction, when it was sent and when it was answered.

Job: one row for each transaction, a band of rows for each sender with the lowest nonce on top; the bar goes from the
request to the answer. Answers in nonce order form an edge that leans to the right, row by row.
Must not know: how the flights came about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from PIL import Image, ImageDraw, ImageFont

from acceptance.burst.report import by_sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acceptance.burst.report import Summary
    from acceptance.burst.run import Flight

SCALE: Final = 2  # drawn larger and shrunk, which smooths the edges
WIDTH: Final = 1280
LEFT, RIGHT, TOP, BOTTOM = 176, 36, 92, 62
ROWS_HEIGHT: Final = 900  # of all rows together, where they do not reach their largest height
ROW_LIMITS: Final = (0.5, 14.0)
BAND_GAP: Final = 12.0
LABEL_HEIGHT: Final = 17
TICKS: Final = 10  # at most

SENDERS: Final = ("#2563a8", "#2e8b57", "#8e5ea2", "#c98a1b", "#1f8a9c", "#6b6fb5", "#7a8b2a", "#a0627d")
REFUSED: Final = "#d62728"
FAILED: Final = "#3a3a3a"
INK, FAINT, GRID, PAPER = "#1d232b", "#6a737d", "#e4e8ec", "#ffffff"


@dataclass(frozen=True, slots=True)
class Scale:
    """Where things lie, in pixels. From the left edge, ``start_s``, to the right one it is ``span_s``."""

    start_s: float
    span_s: float
    row: float
    gap: float
    bands: tuple[float, ...]
    height: int

    def x(self, seconds: float) -> float:
        """Where an instant lies."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (seconds - self.start_s) / self.span_s

    @property
    def bottom(self) -> float:
        """Where the axis of time lies."""
        return self.height - BOTTOM


def draw(flights: Sequence[Flight], addresses: Sequence[str], summary: Summary) -> Image.Image:
    """The picture, of at least one flight."""
    lanes = by_sender(flights, len(addresses))
    scale = _scale(lanes)
    image = Image.new("RGB", (WIDTH * SCALE, scale.height * SCALE), PAPER)
    pen = _Pen(ImageDraw.Draw(image))
    _draw_axis(pen, scale)
    for number, flown in enumerate(lanes):
        _draw_band(pen, scale, number, flown)
    _draw_labels(pen, scale, addresses, lanes)
    _draw_head(pen, summary)
    return image.resize((WIDTH, scale.height), Image.Resampling.LANCZOS)


class _Pen:
    """Draws in pixels of the finished picture."""

    def __init__(self, canvas: ImageDraw.ImageDraw) -> None:
        self._canvas = canvas
        self._fonts = {size: ImageFont.load_default(size * SCALE) for size in (12, 13, 18)}

    def box(self, left: float, top: float, right: float, bottom: float, colour: str) -> None:
        """A filled rectangle, at least a fine line wide and high."""
        least = 1 / SCALE
        right, bottom = max(right, left + least), max(bottom, top + least)
        corners = [left * SCALE, top * SCALE, right * SCALE - 1, bottom * SCALE - 1]
        self._canvas.rectangle(corners, fill=colour)

    def text(self, x: float, y: float, words: str, *, anchor: str, size: int = 13, colour: str = INK) -> float:
        """Words, placed by Pillow's two-letter anchor. How wide they are."""
        font = self._fonts[size]
        self._canvas.text((x * SCALE, y * SCALE), words, fill=colour, font=font, anchor=anchor)
        return self._canvas.textlength(words, font=font) / SCALE


def step(span: float, most: int) -> float:
    """The smallest of 1, 2, 5 × 10ⁿ that divides ``span`` into at most ``most`` parts."""
    size = 10.0 ** math.floor(math.log10(span / most))
    return next(size * factor for factor in (1, 2, 5, 10) if span / (size * factor) <= most)


def _scale(lanes: Sequence[Sequence[Flight]]) -> Scale:
    count = sum(map(len, lanes))
    row = min(max(ROWS_HEIGHT / count, ROW_LIMITS[0]), ROW_LIMITS[1])
    gap = BAND_GAP if len(lanes) <= ROWS_HEIGHT / 4 / BAND_GAP else 1.0
    bands, top = [], float(TOP)
    for flown in lanes:
        bands.append(top)
        top += len(flown) * row + gap
    start = min(flight.sent_s for flown in lanes for flight in flown)
    end = max(flight.answered_s for flown in lanes for flight in flown)
    return Scale(start, max(end - start, 1e-6) * 1.01, row, gap, tuple(bands), math.ceil(top - gap + 6) + BOTTOM)


def _draw_axis(pen: _Pen, scale: Scale) -> None:
    unit, name = (1.0, "s") if scale.span_s >= 10 else (1e-3, "ms")
    width = step(scale.span_s / unit, TICKS)
    for tick in range(int(scale.span_s / unit / width) + 1):
        x = scale.x(scale.start_s + tick * width * unit)
        pen.box(x, TOP - 6, x + 1, scale.bottom, GRID)
        pen.text(x, scale.bottom + 6, f"{tick * width:g}", anchor="mt", size=12)
    pen.box(LEFT, scale.bottom, WIDTH - RIGHT, scale.bottom + 1, FAINT)
    pen.text((LEFT + WIDTH - RIGHT) / 2, scale.bottom + 30, f"time since the first request, {name}", anchor="mt")


def _draw_band(pen: _Pen, scale: Scale, number: int, flown: Sequence[Flight]) -> None:
    colour = SENDERS[number % len(SENDERS)]
    thick = scale.row * 0.8 if scale.row >= 2 else scale.row
    mark = 2.0
    for place, flight in enumerate(flown):
        top = scale.bands[number] + place * scale.row
        strong = {"accepted": colour, "refused": REFUSED, "failed": FAILED}[flight.kind]
        left, right = scale.x(flight.sent_s), scale.x(flight.answered_s)
        pen.box(left, top, right, top + thick, _pale(strong, 0.45 if scale.row >= 2 else 0.75))
        pen.box(left, top, left + mark / 2, top + thick, strong)
        pen.box(max(right - mark, left), top, max(right, left + mark), top + thick, strong)


def _draw_labels(pen: _Pen, scale: Scale, addresses: Sequence[str], lanes: Sequence[Sequence[Flight]]) -> None:
    """Each band's sender and nonces, as far as there is room."""
    free_from = 0.0
    for number, (address, flown) in enumerate(zip(addresses, lanes, strict=True)):
        top = scale.bands[number]
        if top < free_from:
            continue
        colour = SENDERS[number % len(SENDERS)]
        pen.text(LEFT - 64, top, f"{address[:6]}…{address[-4:]}", anchor="rt", size=12, colour=colour)
        free_from = top + LABEL_HEIGHT
        bottom = top + len(flown) * scale.row
        pen.text(LEFT - 8, top, str(flown[0].nonce), anchor="rt", size=12, colour=FAINT)
        if bottom - top >= 2 * LABEL_HEIGHT:
            pen.text(LEFT - 8, bottom, str(flown[-1].nonce), anchor="rb", size=12, colour=FAINT)
            free_from = bottom
    pen.text(LEFT - 64, TOP - 10, "sender", anchor="rb", size=12, colour=FAINT)
    pen.text(LEFT - 8, TOP - 10, "nonce", anchor="rb", size=12, colour=FAINT)


def _draw_head(pen: _Pen, summary: Summary) -> None:
    title = f"{summary.accepted} of {summary.sent} accepted, {summary.refused} refused, {summary.failed} unanswered"
    pen.text(LEFT, 16, title, anchor="lt", size=18)
    x = float(LEFT)
    bars = ((SENDERS[0], "accepted (a colour for each sender)"), (REFUSED, "refused"), (FAILED, "no usable answer"))
    for colour, words in bars:
        pen.box(x, 48, x + 30, 58, _pale(colour))
        pen.box(x, 48, x + 1, 58, colour)
        pen.box(x + 28, 48, x + 30, 58, colour)
        x += 38 + pen.text(x + 38, 53, words, anchor="lm") + 28
    pen.text(WIDTH - RIGHT, 53, "from request to answer", anchor="rm", colour=FAINT)


def _pale(colour: str, share: float = 0.45) -> str:
    """``share`` of ``colour`` in white."""
    mixed = (round(255 - (255 - int(colour[at : at + 2], 16)) * share) for at in (1, 3, 5))
    return "#" + "".join(f"{part:02x}" for part in mixed)
