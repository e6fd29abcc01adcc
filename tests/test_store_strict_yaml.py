"""YAML at every door: what would hide a value, and what YAML's own reader trips over."""

from __future__ import annotations

import pytest

from raglab.store.files import InputError
from raglab.store.policies import Policy, load_pack
from raglab.store.records import MAX_NAME_CHARACTERS
from raglab.store.strict_yaml import MAX_YAML_VALUES
from raglab.words.languages import parse_language

# What stands on the second line, after a first one that is right, and what is said of it.
WRONG = {
    "a timestamp that is none": ("b: !!timestamp foo", "'foo', which is no timestamp"),
    "a month that is none": (
        "b: 2026-13-45",
        "'2026-13-45', which is no timestamp: month must be in 1..12",
    ),
    "an hour that is none": (
        "b: 2026-01-01T25:00:00Z",
        "which is no timestamp: hour must be in 0..23",
    ),
    "an integer that is none": ("b: !!int foo", "'foo' as a number; write it in decimal digits"),
    "an empty integer": ("b: !!int ''", "'' as a number"),
    "a float that is none": ("b: !!float x", "'x', which is no float"),
    "a truth that is none": ("b: !!bool x", "'x', which is no bool"),
    "bytes that are none": ("b: !!binary éé", "failed to convert base64 data"),
    "a call of Python": (
        "b: !!python/object/apply:os.system [ls]",
        "could not determine a constructor for the tag",
    ),
    "a name of Python": (
        "b: !!python/name:os.system",
        "could not determine a constructor for the tag",
    ),
    "pairs that are none": ("b: !!omap [x]", "expected a mapping of length 1"),
    "a merge": ("b: {<<: {c: 1}}", "the merge <<; write the keys out"),
    "a mapping that is none": ("b: !!map x", "expected a mapping node"),
    "an anchor twice": ("b: [&x 1, &x 2]", "second occurrence"),
    "a number in sixties": (
        "b: 1:30",
        "'1:30' as a number; write it in decimal digits, or in quotes",
    ),
    "a share in sixties": ("b: 1:30.5", "'1:30.5' as a number"),
    "a number in eights": ("b: 010", "'010' as a number"),
    "a number in sixteens": ("b: 0xff", "'0xff' as a number"),
    "a long number": ("b: " + "9" * 5000, "'9999"),
    "a long number in sixteens": ("b: 0x" + "f" * 5000, "'0xff"),
    "a long key": (
        "x" * (MAX_NAME_CHARACTERS + 1) + ": 1",
        f"a key of {MAX_NAME_CHARACTERS + 1} characters",
    ),
    "a key twice": ("b: {c: 1, c: 2}", "key 'c' twice in one mapping"),
    "deep lists": ("b: " + "[" * 20_000, "nesting too deep"),
    "deep mappings": ("b: " + "{a: " * 20_000, "nesting too deep"),
    "deep dashes": ("- " * 20_000, ""),
    "deep questions": ("? " * 20_000, "nesting too deep"),
    "many values": (
        "b: [" + "1," * MAX_YAML_VALUES + "]",
        f"more than {MAX_YAML_VALUES} keys and values",
    ),
    "two documents": ("---", "but found another document"),
    "a NUL": ("b: \0", "special characters are not allowed"),
}


@pytest.mark.parametrize(("line", "came"), WRONG.values(), ids=WRONG.keys())
def test_policies_and_packs_say_what_is_wrong_and_where(tmp_path, line, came):
    """One line with file and line of the file, whatever YAML's reader makes of it."""
    path = tmp_path / "a.yaml"
    path.write_text(f"a: 1\n{line}\n")
    for what, load in (("a policy", Policy.load), ("a pack", load_pack)):
        with pytest.raises(InputError) as caught:
            load(path)
        message = str(caught.value)
        assert message.isprintable()
        assert len(message) < 700
        assert f"{what} must be valid YAML, got " in message
        assert came in message
        # the reader of characters knows no lines
        assert "\0" in line or f"{path}, line " in message


def test_the_line_is_that_of_the_value(tmp_path):
    """Not that of the mapping it stands in."""
    path = tmp_path / "a.yaml"
    path.write_text("notes: x\nl2:\n  soft_max_l2: 1.0\n  max_l2: !!timestamp foo\n")
    with pytest.raises(InputError, match=r"a\.yaml, line 4: .* at column 11"):
        Policy.load(path)


def test_a_second_byte_order_mark_is_refused(tmp_path):
    """At the beginning or in the middle it would become a part of a key that looks right."""
    for text, line in (("\ufeff\ufeffl2: {}\n", 1), ("\ufeffl2: {}\n\ufeffgap: {}\n", 2)):
        (tmp_path / "a.yaml").write_text(text)
        for load in (Policy.load, load_pack):
            with pytest.raises(InputError, match=rf"a\.yaml, line {line}: .*byte-order mark"):
                load(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    "line", ["max_l2: 1.0e+400", "max_l2: .inf", "max_l2: .nan", "max_l2: 1e400"]
)
def test_numbers_beyond_a_double_are_refused(tmp_path, line):
    """As infinity, or as a word, which is what YAML takes `1e400` for."""
    (tmp_path / "a.yaml").write_text(f"l2:\n  {line}\n")
    with pytest.raises(
        ValueError, match=r"a\.yaml: l2\.max_l2: input should be a (finite|valid) number"
    ):
        Policy.load(tmp_path / "a.yaml")


@pytest.mark.parametrize("pack", ["x" * 5000, "a/" * 3000, '"a\\0b"', "loop"])
def test_a_path_that_can_be_none_is_refused(tmp_path, pack):
    """A policy may name any pack; the system's own complaint becomes one line."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a.yaml").write_text(f"pack: {pack}\n")
    with pytest.raises(InputError) as caught:
        Policy.load(tmp_path / "a.yaml")
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    "text", ["b: 2026-13-45", "b: !!omap [x]", "[" * 100_000, "{a: " * 100_000, "- " * 100_000]
)
def test_a_language_is_told_so_too(text):
    """No loader ends the process: the compiled one does on deep nesting."""
    with pytest.raises(ValueError, match=r"^de\.yaml: ") as caught:
        parse_language(text, "de.yaml")
    assert "\n" not in str(caught.value)
