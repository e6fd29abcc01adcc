"""Policies on disk: what is stated comes back, the rest is published, and what is wrong is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from raglab.policy import PolicyData as Plain
from raglab.store.files import InputError
from raglab.store.loaders import MAX_POLICY_BYTES, Policy


def written(folder: Path, content: str | bytes) -> Path:
    """Write a policy file."""
    path = folder / "policy.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(folder: Path, content: str | bytes) -> str:
    """Message with which a policy file is refused; it names the file."""
    path = written(folder, content)
    with pytest.raises(ValueError, match=r"policy\.yaml") as caught:
        Policy.load(path)
    return str(caught.value)


class TestLoad:
    """A file states what differs from the published thresholds."""

    def test_nothing_given_is_published(self, tmp_path: Path) -> None:
        """No path, a file of comments, and an empty mapping are the published policy."""
        published = Plain.from_mapping()
        assert Policy.load().policy_id == published.policy_id
        for content in ("# nothing stated\n", "{}", "---\n"):
            assert Policy.load(written(tmp_path, content)).model_dump() == published.model_dump()

    def test_a_partial_file_is_filled_in(self, tmp_path: Path) -> None:
        """One stated threshold changes that one, not its neighbours in the section."""
        policy = Policy.load(written(tmp_path, "l2:\n  max_l2: 0.6\n"))
        assert policy == Policy.load().replace("l2.max_l2", 0.6)
        assert (policy.l2.max_l2, policy.l2.soft_max_l2, policy.l2.enabled) == (0.6, 1.05, True)

    def test_null_unsets(self, tmp_path: Path) -> None:
        """A threshold that may be unset is unset by null; the published one is not filled in."""
        assert Policy.load(written(tmp_path, "l2: {soft_max_l2: null}")).l2.soft_max_l2 is None

    def test_a_byte_order_mark_and_other_line_ends(self, tmp_path: Path) -> None:
        """A file from an editor that marks UTF-8 and ends lines with CR LF is read."""
        content = "\ufeffl2:\r\n  max_l2: 0.6\r\nnotes: é\r\n"
        policy = Policy.load(written(tmp_path, content))
        assert (policy.l2.max_l2, policy.notes) == (0.6, "é")


class TestRoundTrip:
    """What was saved comes back."""

    @pytest.mark.parametrize(
        "changes",
        [
            (),
            ("l2.soft_max_l2", None, "gap.min_gap", None, "confidence.tau_default", 27.5),
            ("similarity.min_similarity", 0.1 + 0.2, "gap.min_gap", 1e-17),
            ("patterns.deny", (r"\bmeteo\b", ["été", r"a: #b"]), "patterns.entities", {"no": ("on", "1e3", "~")}),
            ("certificate", {"delta": 0.1, "n": [1, 2]}, "notes", "line one\nline two: 'quoted' \u2028 \x85 é"),
        ],
    )
    def test_every_value_comes_back(self, tmp_path: Path, changes: tuple[object, ...]) -> None:
        """Thresholds to the last bit, unset ones, patterns that look like YAML, certificate and notes."""
        policy = Policy.load().replace(*changes)
        policy.save(tmp_path / "policy.yaml")
        again = Policy.load(tmp_path / "policy.yaml")
        assert again.model_dump() == policy.model_dump()
        assert again.policy_id == policy.policy_id

    def test_the_file_names_its_policy(self, tmp_path: Path) -> None:
        """The first line is a comment with the policy_id; every section stands below it, a pack where one is named."""
        policy = Policy.load()
        policy.save(tmp_path / "policy.yaml")
        text = (tmp_path / "policy.yaml").read_text(encoding="utf-8")
        assert text.splitlines()[0] == f"# policy_id {policy.policy_id}"
        assert set(yaml.safe_load(text)) == set(Plain.model_fields) - {"certificate", "notes", "pack", "pack_hash"}

    def test_one_list_in_two_places(self, tmp_path: Path) -> None:
        """A list that stands in two fields is written out twice, since aliases are refused on loading."""
        shared = {"bounds": [0.1, 0.2]}
        policy = Policy.load().replace("certificate", {"a": shared, "b": shared})
        policy.save(tmp_path / "policy.yaml")
        assert Policy.load(tmp_path / "policy.yaml").certificate == {"a": shared, "b": shared}

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        """Saving into no folder is told with the path, and leaves nothing."""
        with pytest.raises(InputError, match="the file must be writable"):
            Policy.load().save(tmp_path / "none" / "policy.yaml")
        assert list(tmp_path.iterdir()) == []


class TestId:
    """The policy_id is that of what decides."""

    def test_notes_and_certificate_do_not_count(self, tmp_path: Path) -> None:
        """Words about a policy leave its id as it is; a threshold, a switch and a pattern change it."""
        known = Policy.load().policy_id
        assert Policy.load(written(tmp_path, "notes: tuned on Monday\ncertificate: {delta: 0.1}")).policy_id == known
        for content in ("l2: {max_l2: 0.81}", "gap: {enabled: false}", "patterns: {deny: [x]}", "refusal_message: No."):
            assert Policy.load(written(tmp_path, content)).policy_id != known

    def test_form_does_not_count(self, tmp_path: Path) -> None:
        """Order, flow style, and a value stated as published leave the id as it is."""
        known = Policy.load(written(tmp_path, "l2: {max_l2: 0.6, enabled: true}\nrefine: {max_depth: 2}")).policy_id
        other = "refine:\n  max_depth: 2\nl2:\n  soft_max_l2: 1.05\n  max_l2: 0.60\n"
        assert Policy.load(written(tmp_path, other)).policy_id == known


class TestRefused:
    """What breaks a rule stops with file, key or line, value and rule."""

    @pytest.mark.parametrize(
        ("content", "parts"),
        [
            ("l2: {maxl2: 0.6}", ("l2.maxl2", "unknown key")),
            ("thresholds: {}", ("thresholds", "unknown key")),
            ("l2: {max_l2: 70}", ("l2.max_l2", "less than or equal to 4", "got 70", "squared L2 distance")),
            ("similarity: {min_similarity: 70}", ("similarity.min_similarity", "got 70", "not a percentage")),
            ("similarity: {min_similarity: .nan}", ("similarity.min_similarity", "got nan")),
            ("l2: {max_l2: .inf}", ("l2.max_l2", "got inf")),
            ("density: {min_keep: 0}", ("density.min_keep", "got 0")),
            ("chosen: {order: random}", ("chosen.order", "'rank' or 'l2'", "got 'random'")),
            ("confidence: {tau_default: high}", ("confidence.tau_default", "got 'high'")),
            ("l2: 0.6", ("l2", "got 0.6")),
            ("1: {}", ("1", "keys should be strings")),
        ],
    )
    def test_keys_and_ranges(self, tmp_path: Path, content: str, parts: tuple[str, ...]) -> None:
        """An unknown key and a value out of range are told with the path of the key and what came."""
        message = refusal(tmp_path, content)
        assert all(part in message for part in parts), message

    @pytest.mark.parametrize(
        ("content", "parts"),
        [
            ("patterns: {deny: ['(']}", ("patterns.deny", "linear-time regular expression", "got '('", "RE2")),
            ("patterns: {generic: ['(?=.*a)b']}", ("patterns.generic", "look-around", "write a list")),
            ("patterns: {facet: ['(a)\\1']}", ("patterns.facet", "linear-time")),
            ("patterns: {deny: [[a, '(?!x)']]}", ("patterns.deny", "got '(?!x)'", "look-around")),
            ("patterns: {entities: {fleet: ['*']}}", ("patterns.entities", "got '*'")),
            ("patterns: {deny: x}", ("patterns.deny", "got 'x'")),
        ],
    )
    def test_patterns(self, tmp_path: Path, content: str, parts: tuple[str, ...]) -> None:
        """A bad expression and a look-ahead are told with the key, the expression and what to write instead."""
        message = refusal(tmp_path, content)
        assert all(part in message for part in parts), message

    @pytest.mark.parametrize(
        ("content", "parts"),
        [
            ("l2: {max_l2: 0.6", ("line 1", "must be valid YAML")),
            ("l2:\n\tmax_l2: 0.6", ("line 2", "must be valid YAML", r"'\t'")),
            ("l2:\n  max_l2: 0.6\n  max_l2: 0.7\n", ("line 3", "key 'max_l2' twice in one mapping")),
            ("l2: {}\ngap: {}\nl2: {max_l2: 0.6}\n", ("line 3", "key 'l2' twice in one mapping")),
            ("patterns:\n  deny: &a [x]\n  allow: *a\n", ("line 3", "the alias *a; write the value out")),
            ("notes: !!python/object/apply:os.getcwd []", ("line 1", "must be valid YAML", "tag")),
            ("notes: 2026-13-45", ("must be valid YAML", "month")),
            ("[" * 2000 + "]" * 2000, ("must be valid YAML", "nesting too deep")),
            ("? [1]\n: 2", ("line 1", "unhashable key")),
            ("- l2\n", ("must be a mapping of sections", "got list")),
            ("just words", ("must be a mapping of sections", "got str")),
            (" \n", ("must not be empty",)),
            (b"l2:\n  max_l2: 0.6 # \xff\n", ("line 2", "must be UTF-8", "0xff")),
            ("l2: {}".encode("utf-16"), ("must be UTF-8",)),
        ],
    )
    def test_form(self, tmp_path: Path, content: str | bytes, parts: tuple[str, ...]) -> None:
        """What is no YAML, no mapping or no UTF-8, and what would hide a value, is told with its line."""
        message = refusal(tmp_path, content)
        assert all(part in message for part in parts), message

    def test_a_bomb_of_aliases(self, tmp_path: Path) -> None:
        """Ten lines that stand for ten billion words are refused at the first alias."""
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
        assert "line 2: a policy must be valid YAML, got the alias *a0" in refusal(tmp_path, "\n".join(lines))

    def test_too_long_and_not_there(self, tmp_path: Path) -> None:
        """A file past the limit, a folder and no file are refused with the path."""
        assert "at most" in refusal(tmp_path, "#" * (MAX_POLICY_BYTES + 1))
        with pytest.raises(InputError, match="must be a file"):
            Policy.load(tmp_path)
        with pytest.raises(InputError, match="No such file"):
            Policy.load(tmp_path / "none.yaml")
