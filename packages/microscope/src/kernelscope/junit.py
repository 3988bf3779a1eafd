"""Write the results of tests as JUnit's XML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree


@dataclass(frozen=True)
class Case:
    """A test: its suite and name, its failures or errors as (type, message, text), seconds if known, and its output."""

    suite: str
    name: str
    failures: Sequence[tuple[str, str, str]] = ()
    errors: Sequence[tuple[str, str, str]] = ()
    seconds: float | None = None
    output: str = ""


def junit(cases: Iterable[Case]) -> str:
    """The cases as a document of one suite for each run of cases of one suite. Control characters become `?`."""
    root = ElementTree.Element("testsuites")
    for name, group in groupby(cases, lambda case: case.suite):
        own = list(group)
        failed, broken = sum(bool(case.failures) for case in own), sum(bool(case.errors) for case in own)
        counts = {"tests": str(len(own)), "failures": str(failed), "errors": str(broken)}
        suite = ElementTree.SubElement(root, "testsuite", {"name": _text(name)} | counts)
        for case in own:
            attributes = {"classname": _text(name), "name": _text(case.name)}
            if case.seconds is not None:
                attributes["time"] = str(case.seconds)
            test = ElementTree.SubElement(suite, "testcase", attributes)
            for tag, found in (("failure", case.failures), ("error", case.errors)):
                for kind, message, text in found:
                    entry = ElementTree.SubElement(test, tag, type=_text(kind), message=_text(message))
                    entry.text = _text(text) or None
            if case.output:
                ElementTree.SubElement(test, "system-out").text = _text(case.output)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _text(words: str) -> str:
    """Words without the characters that XML does not take."""
    return "".join(sign if sign in "\t\n" or sign.isprintable() else "?" for sign in words)
