"""Templates of pages, which escape everything, and the assets that pages are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, Template, Undefined
from markupsafe import Markup

from verticopula.formatting import count_of, format_number, format_percent, readable


def page_template(name: str) -> Template:
    """A page's template. It escapes everything, and spells out what cannot be seen.

    Parameters
    ----------
    name : of an asset
    """
    return _environment().get_template(name)


@cache
def read_asset(name: str, package: str = "verticopula.report") -> str:
    """The text of a template, a style sheet or a script.

    Parameters
    ----------
    name : of an asset
    package : whose it is
    """
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


def page_environment(
    package: str,
    filters: Mapping[str, Callable[..., object]],
    shown: Callable[[str], str] = readable,
    undefined: type[Undefined] = Undefined,
) -> Environment:
    """Templates that escape everything.

    Parameters
    ----------
    package : whose assets they are
    filters : by their names in templates
    shown : how text stands on a page; what this package makes as HTML passes as it is
    undefined : what a value is that nobody gave; an empty place where nothing else is said
    """
    environment = Environment(
        loader=FunctionLoader(lambda name: read_asset(name, package)),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=undefined,
        finalize=lambda value: shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters |= filters
    return environment


@cache
def _environment() -> Environment:
    return page_environment(
        "verticopula.report", {"number": format_number, "percent": format_percent, "several": count_of}
    )
