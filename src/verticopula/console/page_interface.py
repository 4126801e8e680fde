"""What a page is: a handler that is given a request of somebody who is logged in, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol

from jinja2 import Environment, StrictUndefined

from verticopula.console.login_sessions import Session
from verticopula.formatting import count_of, readable, shorten_time
from verticopula.network.kit.startup_kit import Kit
from verticopula.report.page_template import page_environment, read_asset

_PACKAGE = "verticopula.console"
_MOST_SHOWN = 600  # characters of one piece of text on a page; a name of ten thousand letters is no name


@dataclass(frozen=True)
class PageRequest:
    """What a handler is given.

    Attributes
    ----------
    named : the parts of the address that the route names
    form : the fields of a form, each once
    """

    session: Session
    named: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page to be made from a template; `live` pages renew the parts that change."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    live: bool = False


@dataclass(frozen=True)
class Redirect:
    """Another page of the console, after something was done."""

    to: str


@dataclass(frozen=True)
class Download:
    """A file to be saved, never to be shown: what a coordinator made may hold any script."""

    name: str
    content: bytes | Iterable[bytes]
    size: int | None = None


PageAnswer = Page | Redirect | Download


@dataclass(frozen=True)
class PageRoute:
    """An address below the console's own, such as `/requests/{request}`, and who answers there."""

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[PageRequest], PageAnswer]


class PageSet(Protocol):
    """The pages of one kind of kit.

    `title` says whose console it is; `menu` has the pages that every page links to, by address.
    """

    @property
    def kit(self) -> Kit: ...

    @property
    def title(self) -> str: ...

    @property
    def menu(self) -> Mapping[str, str]: ...

    def routes(self) -> list[PageRoute]: ...

    def close(self) -> None: ...


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """A page as text. Everything is escaped, and what cannot be seen is spelled out.

    Parameters
    ----------
    template : of an asset
    values : by their names in the template
    """
    return _environment().get_template(template).render(values)


def read_console_asset(name: str) -> str:
    """The text of a template, a style sheet or a script of the console.

    Parameters
    ----------
    name : of an asset
    """
    return read_asset(name, _PACKAGE)


@cache
def _environment() -> Environment:
    return page_environment(_PACKAGE, {"several": count_of, "moment": shorten_time}, _shown, StrictUndefined)


def _shown(text: str) -> str:
    return readable(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} …")
