"""Templates of pages, which escape everything, and the assets that pages are made from."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, Template
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
def read_asset(name: str) -> str:
    """The text of a template, a style sheet or a script.

    Parameters
    ----------
    name : of an asset
    """
    return files("verticopula.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(read_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: readable(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters |= {"number": format_number, "percent": format_percent, "several": count_of}
    return environment
