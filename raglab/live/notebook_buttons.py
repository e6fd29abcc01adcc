"""Buttons (shore): a question to the user in a notebook, answered by a click."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raglab.default_learner import OTHER
from raglab.live.ask import reply
from raglab.live.response import Response
from raglab.live.system import System
from raglab.values import refuse
from raglab.words.characters import visible
from raglab.words.text import NO_MATH, html_text

_BUTTON_WORDS = {
    "en": {"yes": "Yes", "no": "No", OTHER: "Other", "hint": "your own words"},
    "fr": {"yes": "Oui", "no": "Non", OTHER: "Autre", "hint": "avec vos mots"},
}
# texts of the option `other`
_FRENCH_OPTIONS = frozenset({"autre chose", "une autre page, par son numéro"})


# a widget
def buttons(
    response: Response,
    *,
    system: System,
    on_answer: Callable[[Response], object] | None = None,
) -> Any:  # noqa: ANN401
    """A box with the question, buttons for yes, no and other values, and a field for the rest.

    A click replies once: the answer replaces the buttons. Where the request is shown again, new
    buttons replace them. A reply that is refused is shown, and the buttons stay.

    Args:
      response: whose `clarification` asks.
      system: the system that gave it.
      on_answer: function that is called with the answer.

    Raises:
      ValueError: the response asks nothing.

    Example:
      `raglab.live.buttons(raglab.ask("Who is the vendor?", system=system, documents=["a.md"]),
      system=system)`
    """
    question = response["clarification"]
    if question is None:
        choice_value = f"one of status {response['status']!r}"
        refuse("buttons need a response that asks", choice_value, "show the response itself")
    import ipywidgets as widgets

    button_words = _BUTTON_WORDS[
        "fr" if response["options"][-1]["text"] in _FRENCH_OPTIONS else "en"
    ]
    output_area = widgets.Output()
    widget_box = widgets.VBox()
    text_field = widgets.Text(placeholder=button_words["hint"])

    def answer(button_text: str) -> None:
        if choice_row not in widget_box.children:
            return  # the second click of two, on buttons that are gone
        output_area.clear_output()
        try:
            final_response = reply(response["request_id"], button_text, system=system)
        except ValueError as error:
            output_area.append_stdout(f"{visible(str(error))}\n")
            return
        if final_response["clarification"] is not None:
            widget_box.children = buttons(
                final_response, system=system, on_answer=on_answer
            ).children
            return
        widget_box.children = (question_head, output_area)
        output_area.append_display_data(final_response)
        if on_answer is not None:
            on_answer(final_response)

    def button(button_label: str, on_click: Callable[[], None]) -> Any:  # noqa: ANN401 - a widget
        widget = widgets.Button(description=button_label, layout=widgets.Layout(width="auto"))
        widget.on_click(lambda _: on_click())
        return widget

    question_html = html_text(question["question_to_user"])
    # breaks its lines, as a label does not
    question_head = widgets.HTML(f'<span class="{NO_MATH}">{question_html}</span>')
    proposed_default = question["proposed_default"]
    text_of_value = {} if proposed_default is None else {"yes": button_words["yes"]}
    text_of_value["no"] = button_words["no"]
    # The proposed value is the button `yes`, and `other` is the field for own words.
    for option in response["options"]:
        if option["value"] not in {proposed_default, OTHER}:
            text_of_value[option["value"]] = visible(option["text"])
    choice_row = widgets.HBox(
        [
            button(button_text, partial(answer, choice_value))
            for choice_value, button_text in text_of_value.items()
        ]
    )
    widget_box.children = (
        question_head,
        choice_row,
        widgets.HBox([text_field, button(button_words[OTHER], lambda: answer(text_field.value))]),
        output_area,
    )
    return widget_box
