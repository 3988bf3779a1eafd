"""What the page says, as text without markup."""

import base64
import gzip
import html
import json
import re

from markupsafe import Markup

from tilewise.report import render, sections


class Words(render.Page):
    """A page without tables and figures; some tables that its sentences ask for may be given.

    `rungs` are those of the float ladder, `ladder` the best of every kernel.
    """

    def __init__(self, evidence, rungs=None, ladder=None, **tables):
        super().__init__(evidence)
        self._made |= {f"table {name}": table for name, table in tables.items()}
        self._made |= {"rungs ladder_float": rungs} if rungs is not None else {}
        self._made |= {"ladder": ladder} if ladder is not None else {}

    def claims(self, *_, **__):
        return Markup("")

    table = figure = tiles = _piece = claims


def pages(output):
    """The text of all pages of a run, of which `output` is one."""
    return "".join(output.with_name(f"{name}.html").read_text() for name in sections.PAGES)


def plain(page):
    """The words of HTML."""
    page = re.sub(r'<a class="anchor-link".*?</a>', "", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).replace("\u00a0", " ").split())


def unpacked(page):
    """The whole table that the fold of a page's only table makes: its heads and its rows."""
    [packed] = re.findall(r'data-table="([^"]+)"', page)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def said(evidence, source):
    """What a piece of a section says of some evidence."""
    return plain(Words(evidence).text(source))


def section(evidence, name, **tables):
    """What a whole section says of some evidence; `tables` replace those of `render.TABLES`."""
    return plain(Words(evidence, **tables).section(name))
