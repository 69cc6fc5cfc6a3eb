"""A page as plain tables, before it is Markdown or HTML."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """What stands in a place of a table: words of ours, or what somebody else wrote, which must do nothing."""

    lines: tuple[str, ...]
    ours: bool = False


def own(*lines: object) -> Item:
    return Item(tuple(map(str, lines)), ours=True)


def given(*lines: str) -> Item:
    return Item(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A heading, what stands above the table, and a table where there are rows; title and columns are words of ours."""

    title: str
    lines: tuple[Item, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Item, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Most important first; the last section has every required cell."""

    decision: str
    about: tuple[tuple[str, Item], ...]
    summary: str
    sections: tuple[Section, ...]
