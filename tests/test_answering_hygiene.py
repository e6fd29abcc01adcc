import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.answering.hygiene import (
    _BLANK_ELEMENTS,
    _INLINE_ELEMENTS,
    _LINE_ELEMENTS,
    MAX_PASSES,
    CleanAnswer,
    clean,
    insufficiency,
    visible,
)
from raglab.words.languages import Reason
from raglab.words.text import split_code

KINDS = (
    "hidden characters",
    "code fence",
    "empty code",
    "html",
    "script link",
    "heading",
    "label line",
    "placeholder line",
    "empty bullet",
    "empty examples",
    "closing sources",
    "blanks",
    "blank lines",
)


def text_of(answer):
    """What is left of an answer."""
    return clean(answer).text


CODE = "```python\nif a:\n    b =  1  # two  blanks\n\n\n    <b>c</b>\n# no heading\nNone\n- \n```"


STAYS = (
    # lists, tables, emphasis, citations, inline code and inequalities
    "The **excess** is `£250` [1], if a < b.\n\n- Storm: 400\n- Fire: 1 000 €",
    "| a | b |\n| - | - |",
    # code: fenced, in a line, alone, behind a title
    CODE,
    f"Run this:\n{CODE}\nThen rest.",
    f"Run this:\n\n{CODE}\n\n{CODE}",
    "````\n```\n````",
    "The code ```x = 1``` stays.",
    "One ```a``` two ````b``c```` three.",
    "Examples:\n```\nls\n```",
    "A ~~~ B",
    "It is ~~struck~~ ``twice``.",
    "Two ```marks\nnever closed.",
    "```\n<script>x</script>\n```",
    # a label with a value, or one that is none of ours
    "Premium: 400\nIt is £250.",
    "Premium:\nIt is £250.",
    "The answer:\nIt is £250.",
    "Question\nIt is £250.",
    # examples that are there, sources that are the answer, what only looks like a list of them
    "Examples:\n- storm\n- fire",
    "Two kinds.\nExamples:\n\nStorm.",
    "Sources: salary and rent.",
    "Sources: a.md\nThe excess is £250.",
    "It is £250 [1].\n\n[1] home.md",
    "Two.\nSources: a.md\n1. The excess.",
    "Les références :\n1. Le contrat.",
    # what only contains a placeholder, or looks like a bullet
    "None of the drivers is covered.",
    "Excess: None",
    "nullified",
    "No",
    "0",
    *(f"Storm\n{line}" for line in ("-5", "- x", "42.", "1)", "**", "--")),
    # links that lead somewhere, and words that are no scheme
    "[here](https://example.org/a(b)c)",
    "JavaScript: the language",
    "[1]: data: see page 2",
    "[x](#excess)",
    "[x](mailto:a@b.org)",
    "see [javascript: a primer](https://example.org)",
    "a\tb",
)


@pytest.mark.parametrize("answer", STAYS)
def test_text_stays_letter_by_letter(answer):
    """What is no heading, placeholder, bullet or markup is not changed."""
    assert clean(answer) == CleanAnswer(answer, None, ())


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("Before.\n~~~\ncode\n~~~\nAfter.", "Before.\n```\ncode\n```\nAfter."),
        ("Before.\n~~~\n```\n~~~\nAfter.", "Before.\n````\n```\n````\nAfter."),
        ("Before.\n```\nnever closed\n\nmore", "Before.\n```\nnever closed\n\nmore\n```"),
        ("Before.\n~~~ sh\nnever closed", "Before.\n```sh\nnever closed\n```"),
        ("Before.\n   ```\n   code\n   ```\nAfter.", "Before.\n```\ncode\n```\nAfter."),
        ("Before.\n> ```\n> code\n>   in\n> ```\nAfter.", "Before.\n```\ncode\n  in\n```\nAfter."),
        ("Here it is: ```python\ncode\n```\nAfter.", "Here it is:\n```python\ncode\n```\nAfter."),
    ],
)
def test_code_is_fenced_one_way(answer, left):
    """By backticks at the start of a line, closed, longer than any in code, never inside HTML."""
    cleaned = clean(answer)
    assert (cleaned.text, cleaned.refused) == (left, None)
    assert cleaned.changes in {("code fence",), ()}


@pytest.mark.parametrize(
    "answer", ["```", "~~~ crossed out ~~~", "```python\n\n  \n```", "# Run\n```sh\n```"]
)
def test_a_fence_without_code_is_no_answer(answer):
    """Fences by themselves say nothing."""
    cleaned = clean(answer)
    assert cleaned.text == ""
    assert "empty code" in str(cleaned.refused)


def test_a_heading_above_code_goes_and_the_code_is_the_answer():
    """Headings are structure, also the line that is underlined; nothing of the code is one."""
    for heading in ("# Run\n", "Run\n===\n", "Run\n---\n", "**Answer:**\n"):
        cleaned = clean(heading + CODE)
        assert (cleaned.text, cleaned.refused) == (CODE, None)


@pytest.mark.parametrize("answer", ["```\nI cannot answer.\n```", "I cannot answer.\n```\nls\n```"])
def test_code_around_or_below_a_refusal_makes_no_answer_of_it(answer):
    """What is said in words counts; in code where nothing else is said."""
    assert "says that it has none" in str(clean(answer).refused)
    assert clean("Run it:\n```\nI cannot answer.\n```").refused is None


def test_a_comment_takes_the_code_in_it_along():
    """What a page would not show is not answered; a tag ends before code."""
    assert clean("It is so.\n<!-- no\n```\nls\n```\n-->").text == "It is so."
    assert clean("It is so, <b\n```\nls\n```\n>").text == "It is so, < b\n```\nls\n```\n>"


def test_a_tag_in_a_code_span_is_shown_and_read_by_no_browser():
    """The element is what the sentence is about."""
    assert text_of("Use `<details>` and <b>this</b>.") == "Use `< details>` and this."


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("# Excess\nIt is £250.", "It is £250."),
        ("It is £250.\n\n###### Notes", "It is £250."),
        ("Excess\n=====\nIt is £250.", "It is £250."),
        ("#\nIt is £250.", "It is £250."),
        ("#1 is the excess.", "#1 is the excess."),
        ("####### seven", "####### seven"),
        ("It is £250.\n---\nMore.", "It is £250.\n---\nMore."),
        ("Excess\n------\nIt is £250.", "It is £250."),
        ("It is £250.\nExcess\n------", "It is £250.\nExcess\n------"),
    ],
)
def test_a_heading_line_goes(answer, left):
    """One to six hashes before a blank, or a line that is underlined.

    A rule below a sentence or a blank is text.
    """
    assert text_of(answer) == left


@pytest.mark.parametrize(
    "label",
    [
        "Answer:",
        "**Answer**:",
        "__Summary:__",
        "QUESTION:",
        "> Answer:",
        "Réponse\u00a0:",
        "Answer\uff1a",
    ],
)
def test_a_bare_label_line_goes(label):
    """Also bold, in capitals, and in French."""
    cleaned = clean(f"{label}\nIt is £250.")
    assert cleaned.text == "It is £250."
    assert "label line" in cleaned.changes


@pytest.mark.parametrize(
    "line",
    ["None", "n/a", "null", "None.", "- None", "**N/A**", "Answer: None"],
)
def test_a_placeholder_line_goes(line):
    """And an answer that is nothing else is refused."""
    assert clean(f"It is £250.\n{line}") == CleanAnswer("It is £250.", None, ("placeholder line",))
    nothing = Reason("nothing_left", {"named": "placeholder line"})
    assert clean(line) == CleanAnswer("", nothing, ("placeholder line",))


@pytest.mark.parametrize(
    "title",
    ["**Examples:**", "## Examples", "Exemples :"],
)
@pytest.mark.parametrize(
    "after",
    ["", "\n\n", "\n- None\n-\n", "\n\nSources:\n- home.md", "\n\nSources : home.pdf, p. 3"],
)
def test_examples_without_any_go(title, after):
    """In English and French, also where what followed went itself."""
    assert text_of(f"The excess is £250.\n\n{title}{after}") == "The excess is £250."


def test_examples_before_another_title_go():
    """Nothing but the next title follows."""
    assert text_of("It is £250.\nExamples:\n\n## Notes\nMore.") == "It is £250.\n\nMore."
    assert text_of("Exemples :\nExamples:\n\nAnswer:\nIt is £250.") == "It is £250."


@pytest.mark.parametrize(
    "closing",
    [
        "Sources:\n- home.md\n- Home wording, page 3",
        "## References\n[1] Home policy\n\n[2] https://example.org/a",
        "Sources: home.md#3, travel.pdf (p. 3); [2]",
        "- **Source:** [a](home.md)",
        "Références :\n1. Contrat, article 3",
        "Sources:\n- home.md\n\nReferences:\n- travel.md",
    ],
)
def test_a_closing_list_of_sources_goes(closing):
    """With its title, in English and French; the response names its sources itself."""
    cleaned = clean(f"The excess is £250.\n\n{closing}")
    assert (cleaned.text, cleaned.refused) == ("The excess is £250.", None)
    assert "closing sources" in cleaned.changes


def test_an_answer_of_sources_alone_is_none():
    """Files and pages say nothing by themselves."""
    for answer in (
        "Sources:\n- home.md#1\n- travel.pdf, page 2",
        "References: home.md",
        "Examples:\n\nSources: a.md",
    ):
        assert clean(answer).refused is not None
        assert clean(answer).text == ""


@pytest.mark.parametrize("bullet", ["-", "•", "  -", "- -", "-\t"])
def test_an_empty_bullet_goes(bullet):
    """Whatever its mark."""
    assert text_of(f"- Storm\n{bullet}\n- Fire") == "- Storm\n- Fire"
    assert "empty bullet" in clean(f"- Storm\n{bullet}\n- Fire").changes


def test_runs_of_blanks_and_of_newlines_collapse():
    """To one blank and one empty line; a single blank that does not break stays."""
    cleaned = clean("\n  It  is \t £250.  \n \n\n\nAbout\u00a0400.\n")
    assert cleaned == CleanAnswer("It is £250.\n\nAbout\u00a0400.", None, ("blanks", "blank lines"))


def test_what_cannot_be_seen_goes():
    """Control, zero-width, direction and tag characters, half surrogates and terminal colours."""
    hidden = "\x00\x07\x7f\x85\u200b\u200d\u200e\u202e\u2066\ufeff\u00ad\U000e0041\ud800\x1b[31m"
    assert clean(f"It{hidden.replace(chr(133), '')} is") == CleanAnswer(
        "It is", None, ("hidden characters",)
    )
    assert visible("a\r\nb\rc\u2028d\x85e") == "a\nb\nc\nd\ne"


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("It is <b>£250</b>.", "It is £250."),
        ("<p>One</p><p>Two</p>", "One\n\nTwo"),
        ("One<br>Two<br/>Three<BR />Four", "One\nTwo\nThree\nFour"),
        ("It is <script>alert(1)</script>£250.", "It is £250."),
        ("It is <SCRIPT src='x'>alert(1)</SCRIPT >£250.", "It is £250."),
        ("It is £250.<style>p {}</style><iframe src=x>y</iframe>", "It is £250."),
        ("It is £250.<script>never closed", "It is £250."),
        ("It is £250.<!-- hidden <b>x</b> -->", "It is £250."),
        ("It is £250.<!-- never closed", "It is £250."),
        ("<!doctype html><?xml version='1'?>It is £250.", "It is £250."),
        ("<scr<script>x</script>ipt>alert(1)</script>", ""),
        ("<scr<b></b>ipt>alert(1)</script>It", "< script>alert(1)It"),
        ("<<b>script>alert(1)<</b>/script>It", "It"),
        ("a < b and c > d", "a < b and c > d"),
        ("a<b and c>d", "a< b and c>d"),
        ("List<String> of <name>", "List<String> of <name>"),
        ("&lt;b&gt; &amp; &copy;", "&lt;b&gt; &amp; &copy;"),
        ("<img src=x onerror=alert(1)>It", "It"),
        ("<img src=x onerror=alert(1)", "< img src=x onerror=alert(1)"),
        ("<x/onclick=alert(1)>It</x>", "It</x>"),
        ("<x y='>' onclick=alert(1)>", "< x y='>' onclick=alert(1)>"),
        ("<x y='<' onclick=alert(1)>", "< x y='<' onclick=alert(1)>"),
        ('<img alt="a>b" onerror=alert(1)>', 'b" onerror=alert(1)>'),
        ("<svg/onload=alert(1)>It", "It"),
        ("<math><mi>x</mi></math>It", "<mi>x</mi>It"),
        ("See <https://example.org/a?b=c> for more.", "See <https://example.org/a?b=c> for more."),
        ("<https://x/onclick=alert(1)>", ""),
        ("<javascript:alert(1)>It", "It"),
    ],
)
def test_markup_goes_and_comparisons_stay(answer, left):
    """Scripts, styles and frames with their content.

    No browser would see a tag or a handler in what is left.
    """
    assert text_of(answer) == left


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        " JavaScript:alert(1)",
        "&#106;avascript:alert(1)",
        "java&Tab;script:x",
        "vbscript:x",
        "javascript&colon;x",
        "javascript\\:x",
        "<javascript:x>",
        "data:text/html,<b>",
        "\x01javascript:x",
    ],
)
def test_a_link_that_would_run_leads_nowhere(target):
    """However its target is written."""
    cleaned = clean(f"[here]({target}) and ![x]({target}).\n[y]: {target}")
    assert "script" not in cleaned.text
    assert "data:" not in cleaned.text
    assert cleaned.text.startswith("[here](")


def test_changes_say_what_was_removed_in_order():
    """Each once; the blanks that a removal leaves are no change of their own."""
    cleaned = clean(
        "# A\n\nIt <b>is</b>.\n\n# B\n\nNone\n\nN/A\n\n- "
        "\n\nAnswer:\n\n~~~\nx\n~~~\n\n[x](javascript:y)"
    )
    assert cleaned.changes == (
        "html",
        "script link",
        "code fence",
        "heading",
        "placeholder line",
        "empty bullet",
        "label line",
        "blanks",
    )
    assert cleaned.text == "It is.\n\n```\nx\n```\n\n[x](#)"


@pytest.mark.parametrize(
    ("answer", "why"),
    [("", "the answer is empty"), (" \n\t", "nothing is left"), ("# A", "heading")],
)
def test_an_empty_answer_is_refused_with_a_reason(answer, why):
    """And its text is empty."""
    cleaned = clean(answer)
    assert cleaned.text == ""
    assert why in str(cleaned.refused)


NO_ANSWER = """
The context does not contain enough information.
The context does not contain enough information to answer the question. It covers travel only.
I cannot answer.
I can’t answer that question.
**I cannot answer this question** based on the provided documents.
I'm sorry, but I couldn't find the answer in the documents.
I am unable to determine the excess from the context. However, your broker may know it.
I don't know.
I do not have enough information.
Not mentioned in the provided documents
Flood cover is not mentioned in the provided documents.
The provided context does not mention the excess.
The documents do not mention flood.
None of the passages mention the excess.
Unfortunately, the documents provided do not contain information about pets.
Based on the provided context, it is not possible to determine the premium.
Based on the provided context, the premium cannot be determined.
Based on the information provided, I am unable to answer.
This information cannot be verified from the provided documents.
There is not enough information to answer the question.
There is no mention of flood in the provided documents.
Insufficient information.
INSUFFICIENT
The answer is not in the context.
No relevant information was found.
The question cannot be answered based on the given context.
Your question asks about pets. The context does not contain enough information about them.
The documents cover travel only. Therefore, I cannot answer this question.
The context is insufficient.
The available information is not sufficient to answer.
The context lacks sufficient information.
It is not specified in the context what the excess is.
Information not available in the provided context.
Answer: I cannot answer.
Unable to answer based on the context.
It is unclear from the context.
No information available.
Neither passage mentions the premium.
The context only discusses travel insurance and does not mention pets.
There isn't enough information in the context to answer.
Je ne peux pas répondre à cette question.
Désolé, je ne trouve pas la réponse dans le contexte.
Je n'ai pas assez d'informations pour répondre.
Le contexte ne permet pas de répondre à la question.
le contexte ne permet pas
Malheureusement, le contexte fourni ne contient pas cette information.
Les documents ne mentionnent pas la franchise.
La réponse ne se trouve pas dans le contexte.
Aucun document ne mentionne la franchise.
Je ne peux malheureusement pas répondre.
Cette information n’est pas mentionnée dans les documents fournis.
Aucune information sur la franchise dans les documents fournis.
Les informations fournies sont insuffisantes.
Il n'est pas possible de répondre à cette question.
Re\u0301ponse : le contexte ne précise pas le montant.
""".strip().splitlines()


@pytest.mark.parametrize("answer", NO_ANSWER)
def test_an_answer_that_says_it_is_none_is_refused(answer):
    """The reason quotes the sentence; the text stays for the record."""
    cleaned = clean(answer)
    assert cleaned.text
    assert cleaned.refused.key == "says_none"


ANSWERS = """
The policy does not mention flood.
The insurer cannot refuse a claim for late notice alone.
The contract does not cover flood damage.
We cannot provide cover outside the EU.
Insufficient information on the proposal form voids the policy.
There is insufficient evidence of theft to pay the claim.
The information provided by the insured does not include his address.
The documents do not cover flood.
The document does not require a signature.
If the vehicle is not mentioned in the documents, cover is void.
Items that are not listed in the documents are excluded.
Cover ends when the driver is not mentioned in the documents.
The context does not mention the premium, but the excess is £250.
The provided documents do not mention hail. However, storm damage is covered up to £400 [1].
Flood is excluded [1]. The documents do not mention earthquake.
No information about previous claims is required.
The insured cannot answer for third parties.
It is not possible to cancel within 14 days.
The form says "I cannot confirm my address", and must be signed.
No answer from the insurer within 30 days means acceptance.
The source of the leak cannot be determined, so cover is refused.
The claim cannot be verified by the insurer.
Not covered.
Not included in the premium.
The question of fault cannot be settled by the insurer alone.
No details of the claim are shared with third parties.
The information must be provided in writing.
This document does not replace the general conditions.
Any information that is not correct voids the policy.
The information given by the driver does not mention the accident.
When the documents do not mention a limit, the limit is £1,000.
The insurer does not have enough information to pay.
L'assureur ne peut pas refuser la garantie.
Il n'est pas possible de résilier avant un an.
Aucune information médicale n'est demandée.
La police ne mentionne pas les inondations.
Le contrat ne permet pas la résiliation anticipée.
Ce document ne permet pas de conduire à l'étranger.
Il est impossible de souscrire en ligne.
L'assuré n'est pas couvert si le véhicule n'est pas mentionné dans les documents.
""".strip().splitlines()


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_an_answer_says_of_the_insured_matter_is_an_answer(answer):
    """Policies that are silent, insurers who cannot, and documents that matter for cover."""
    assert insufficiency(answer) is None
    assert clean(answer).refused is None


FRAGMENTS = (
    "a",
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\t",
    "\r\n",
    "\u2028",
    "\u00a0",
    "\u200b",
    "\x1b[",
    "\x00",
    "e\u0301",
    "\ud800",
    "&lt;",
    "=",
    "```",
    "````",
    "`",
    "~~~",
    "~",
    "```py\n",
    "\n```\n",
    "\n~~~\n",
    "> ```\n",
    "\n---\n",
    "# ",
    "##",
    "===",
    "Answer:",
    "**",
    "Réponse :",
    "None",
    "N/A",
    "- ",
    "-",
    "• ",
    "<",
    ">",
    "/",
    "<b>",
    "</b>",
    "<br>",
    "<p>",
    "<script>",
    "</script>",
    "<scr",
    "ipt>",
    "<!--",
    "-->",
    "<style",
    "<foo>",
    "<x ",
    " onclick=",
    '"',
    "'",
    "](",
    "[x",
    "javascript:",
    "java",
    "script:",
    "&#106;",
    "(",
    ")",
    "\\",
    "]:",
    "<sup>",
    "<td>",
    "I cannot answer.",
    "The context does not mention it",
    ", but ",
    "£250.",
)


class Browser(HTMLParser):
    """Reads a page as a browser would, noting the tags it sees and attributes that have a value."""

    def __init__(self, page):
        super().__init__(convert_charrefs=False)
        self.tags = []
        self.attributes = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Note an opening."""
        self.tags.append(tag)
        self.attributes += [name for name, value in attrs if value is not None]


ANY = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join) | st.text(max_size=60)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(ANY)
def test_cleaning_twice_is_cleaning_once(answer):
    """Nothing that one removal joins is left for the next.

    Changes say if something changed, and no browser sees markup.
    """
    cleaned = clean(answer)
    again = clean(cleaned.text)
    assert again.text == cleaned.text
    assert again.changes == ()
    assert (cleaned.changes == ()) == (cleaned.text == answer)
    assert set(cleaned.changes) <= set(KINDS)
    assert len(set(cleaned.changes)) == len(cleaned.changes)
    assert cleaned.refused is None or cleaned.refused
    assert cleaned.text or cleaned.refused
    prose = "\n".join(
        part for part in split_code(cleaned.text.split("\n")) if isinstance(part, str)
    )
    assert "  " not in prose
    page = Browser(f"<main>{prose}</main>")
    assert page.tags[0] == "main"
    assert not any(
        known.fullmatch(tag)
        for tag in page.tags[1:]
        for known in (_LINE_ELEMENTS, _BLANK_ELEMENTS, _INLINE_ELEMENTS)
    )
    assert not any(re.fullmatch("on[a-z]+|style", name) for name in page.attributes)


def test_marks_nested_deeper_than_the_bound_are_refused():
    """Nothing of them is shown."""
    nested = "<" * (3 * MAX_PASSES) + "b>" * (3 * MAX_PASSES)
    assert text_of("<" * 3 + "b>" * 3) == ""
    assert clean(nested)[:2] == ("", Reason("nested_marks", {"levels": MAX_PASSES}))
