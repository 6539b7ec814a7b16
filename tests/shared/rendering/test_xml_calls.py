from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.shared.rendering.xml_calls import XmlCallReader, schemas_of

TOOL = {
    "name": "write",
    "parameters": {
        "properties": {
            "path": {"type": "string"},
            "rows": {"type": "array"},
            "limit": {"type": "integer"},
            "note": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        }
    },
}
SCHEMAS = schemas_of([{"type": "function", "function": TOOL}, {"type": "function", "function": {"name": "bare"}}])


def call(*parameters: tuple[str, str], name: str = "write") -> str:
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"\n<function={name}>\n{written}</function>\n"


def read(text: str, *, step: int = 1) -> tuple[XmlCallReader, str]:
    """The reader after `text` in pieces of `step` characters, and the arguments as they were passed on."""
    reader = XmlCallReader(SCHEMAS)
    passed = "".join(reader.push(text[at : at + step]) for at in range(0, len(text), step))
    passed += reader.close()
    assert reader.source() == text
    assert reader.arguments() == passed
    return reader, passed


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_call_is_read_however_it_is_cut(step: int) -> None:
    text = call(("path", "a.md"), ("rows", '[1, "</function>"]'), ("limit", "3"), ("note", "7"), ("more", "true"))
    reader, passed = read(text, step=step)
    assert reader.name == "write"
    assert json.loads(passed) == {"path": "a.md", "rows": [1, "</function>"], "limit": 3, "note": 7, "more": True}
    assert reader.complete and not reader.broken()


def test_arguments_are_passed_on_parameter_by_parameter() -> None:
    reader = XmlCallReader(SCHEMAS)
    assert reader.push("\n<function=write>\n") == ""
    assert reader.name == "write"
    assert reader.push("<parameter=path>\na</parameter>") == '{"path": "a"'
    assert reader.push("\n<parameter=limit>\n3\n</parameter>\n</function>") == ', "limit": 3}'
    assert reader.push("\n") == reader.close() == ""


def test_text_keeps_its_white_space_and_its_digits() -> None:
    text = "  indented\n\n\tlines \n"
    reader, passed = read(call(("path", text), ("note", " x ")))
    assert json.loads(passed) == {"path": text, "note": " x "}
    assert json.loads(read(call(("path", "12")))[1]) == {"path": "12"}
    assert not reader.broken()


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (call(("limit", "many")), {"limit": "many"}),
        (call(("limit", "NaN")), {"limit": "NaN"}),
        ("<function=write>\n<parameter=path>\na\n</parameter>\n", {"path": "a"}),
        ("<function=write>\n<parameter=path>\na", {}),
        ("<function=write>", {}),
    ],
)
def test_a_call_outside_the_grammar_is_called_broken(text: str, arguments: dict[str, Any]) -> None:
    reader, passed = read(text)
    assert json.loads(passed) == arguments
    assert reader.broken()


def test_a_call_without_parameters() -> None:
    reader, passed = read(call(name="bare"))
    assert (reader.name, passed, reader.broken()) == ("bare", "{}", False)


@pytest.mark.parametrize("text", ["", "Ninety.", '{"name": "write"}', "<function=", "<function>"])
def test_text_without_a_call_has_no_name(text: str) -> None:
    reader, passed = read(text)
    assert (reader.name, passed, reader.broken()) == (None, "", False)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["path", "a", "b c"]), st.text(max_size=12), max_size=3), st.integers(1, 7))
def test_any_text_of_a_string_parameter_survives(values: dict[str, str], step: int) -> None:
    schemas = {"write": {key: {"type": "string"} for key in values}}
    text = call(*values.items())
    if any("</parameter>" in value for value in values.values()):
        return
    reader = XmlCallReader(schemas)
    passed = "".join(reader.push(text[at : at + step]) for at in range(0, len(text), step)) + reader.close()
    assert json.loads(passed) == values
