"""Trees: XML from anywhere as elements, by the standard library's parser with entities refused."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nanospeech.errors import InputError

DEEPEST = 100  # elements within elements


def parse_xml(data: bytes, name: str) -> Element:
    """The root element; tags have no namespaces, attributes neither.

    Nothing outside of the data is ever read. A document type may be named, as many tables of
    contents do, but declares no entities; those of HTML, such as &eacute;, are known.

    Args:
        data: of any encoding that expat knows.
        name: what to call it in errors.

    Raises:
        InputError: it is no XML, declares entities, or is too deep.
    """
    builder, depth = TreeBuilder(), 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise InputError(f"{name} has elements more than {DEEPEST} deep")
        builder.start(local(tag), {local(k): v for k, v in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(local(tag))

    def skipped(entity: str, parameter: bool) -> None:
        builder.data("" if parameter else unescape(f"&{entity};"))

    def refuse(*_: object) -> None:
        raise InputError(f"{name} declares entities, which are not read")

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    parser.UseForeignDTD(True)  # so that entities without a declaration are skipped
    parser.SkippedEntityHandler = skipped
    try:
        parser.Parse(data.lstrip(), True)
        return builder.close()
    except (expat.ExpatError, AssertionError, LookupError, ValueError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"{name} is no XML that can be read ({e})") from e


def local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("}")[2]


def find_all(root: Element, tag: str) -> Iterator[Element]:
    """All elements of a name below a root, in order."""
    return root.iter(tag)


def first_text(root: Element, tag: str) -> str:
    """The text of the first element of a name that has any."""
    for element in root.iter(tag):
        if said := " ".join("".join(element.itertext()).split()):
            return said
    return ""
