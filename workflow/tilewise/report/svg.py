"""A Matplotlib figure as SVG, with a value for every mark. style.css gives its greys the page's colours."""

import io
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from xml.etree import ElementTree

import matplotlib
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from tilewise.report import notes

_STYLE = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("paper", font_scale=1.1),
    "svg.fonttype": "none",  # text stays text, so it can be searched, copied and read aloud
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "axes.titley": 1.0,  # where they are anyway; by default each drawing looks whether ticks are in their way
    "axes.edgecolor": "0.6",
    "grid.color": "0.88",
    "text.hinting": "none",  # letters as wide as a browser draws them
    "legend.frameon": False,
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
}
GREY = "0.45"
#: A description lists the values of so many points at most.
_MOST_SAID = 20
#: Until the SVG is written, the id of an artist holds the tooltips of its marks, in their order.
_TELLS, _NEXT = "tells:", "\u00b6"
_SVG = "{http://www.w3.org/2000/svg}"
ElementTree.register_namespace("", _SVG[1:-1])
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def style() -> AbstractContextManager[None]:
    """A context in which all that is drawn looks like the page."""
    return matplotlib.rc_context(_STYLE)


def empty_figure(why: str) -> Figure:
    """A figure that shows the reason for its emptiness."""
    with style():
        figure = Figure(figsize=(7.6, 1.2), layout="constrained")
        figure.set_label(why)
        axis = figure.subplots()
        axis.set_axis_off()
        axis.text(0.5, 0.5, why, ha="center", va="center", color=GREY)
    return figure


def missing_reason(figure: Figure) -> str:
    """The reason why a figure is empty, which is its label; "" if it shows something."""
    return str(figure.get_label())


def set_tooltips(artist: Artist, words: Iterable[str]) -> None:
    """Set a tooltip on each mark of an artist."""
    artist.set_gid(_TELLS + _NEXT.join(" ".join(word.split()) for word in words))


def svg(figure: Figure, name: str = "figure", title: str = "", description: str = "") -> str:
    """The figure as SVG text without a header, under a `name` that is unique on its page; the same figure gives the
    same text.

    It has `title` and `description`. What `set_tooltips` gave a mark is its <title>.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": name}):  # two drawings of a page may have the same marks
        if engine := figure.get_layout_engine():
            engine.execute(figure)
        figure.set_layout_engine("none")
        for patch in (figure.patch, *(axis.patch for axis in figure.axes)):
            patch.set(facecolor="none", edgecolor="none")
        # Not by savefig, which draws the whole figure twice if it ever had a layout.
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ElementTree.fromstring(buffer.getvalue())
    ElementTree.indent(root, "")
    for element in root.iter():
        if "d" in element.attrib:  # a hundredth of a pixel is near enough
            element.set("d", re.sub(r"(\.\d\d)\d+", r"\1", element.attrib["d"]))
        if element.get("id", "").startswith(_TELLS):
            _entitle(element)
    if why := missing_reason(figure):
        root.set(notes.ATTRIBUTE, why)
    said = [mark.text or "" for mark in root.iter(f"{_SVG}title")]
    if len(said) > _MOST_SAID:
        said = ["its table has the values of all points"]
    for number, (tag, words) in enumerate({"title": title or name, "desc": "; ".join([description, *said])}.items()):
        element = ElementTree.Element(f"{_SVG}{tag}", {"id": f"{name}-{tag}"})
        element.text = words
        root.insert(number, element)
    about = {"role": "img", "aria-labelledby": f"{name}-title", "aria-describedby": f"{name}-desc"}
    root.attrib |= about | {"style": f"width: {round(100 * figure.get_figwidth())}px"}
    text = ElementTree.tostring(root, encoding="unicode")
    # Matplotlib names every group, which is a sixth of a drawing.
    named = {*about.values(), *re.findall(r'(?:href="#|url\(#)([^")]+)', text)}
    return re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in named else "", text)


def _entitle(group: ElementTree.Element) -> None:
    """Give the marks of a group the words in its id as titles."""
    words = group.attrib.pop("id").removeprefix(_TELLS).split(_NEXT)
    marks = group.findall(f".//{_SVG}use") or group.findall(f".//{_SVG}path")
    if len(marks) == len(words):
        for mark, word in zip(marks, words):
            ElementTree.SubElement(mark, f"{_SVG}title").text = word
