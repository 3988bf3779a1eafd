"""What the page says, as text without markup."""

import base64
import gzip
import html
import json
import re

from tilewise.explain import provenance
from tilewise.report import sections


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


def packed_files(page):
    """The tables to which the links of a page lead, by the name of their files."""
    found = re.findall(r'data-file="([^"]+)" data-packed="([^"]*)"', page)
    return {name: gzip.decompress(base64.b64decode(packed)).decode() for name, packed in found}


def checks(evidence):
    """What the table of checks has of a run's first machine: check -> words."""
    return provenance.checks(evidence).set_index("fact").iloc[:, 0].to_dict()
