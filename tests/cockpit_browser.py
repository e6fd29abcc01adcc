"""The cockpit's page in a browser: what it shows, and how a hand moves it."""

from __future__ import annotations

PATH = "similarity.min_similarity"


def cockpit_of(page):
    """The cockpit's element."""
    return page.locator(".raglab-cockpit").first


def figure(page, rate):
    """Value and counts of a rate as they are shown."""
    row = cockpit_of(page).locator(f'.rate[data-rate="{rate}"]')
    return " ".join(row.locator(part).inner_text() for part in (".value", ".counts"))


def policy_id(page):
    """Id of the policy that is shown."""
    return str(cockpit_of(page).locator("header code").first.inner_text())


def turned(page, was, *, back=False):
    """Wait until another policy is shown, or the same one again."""
    told = (
        "(was) => (document.querySelector('.raglab-cockpit header code').innerText === was.id) "
        "=== was.back"
    )
    page.wait_for_function(told, arg={"id": was, "back": back})


def cut_elements(page):
    """Elements of the cockpit whose content is wider than they are.

    Only handles and curves may reach over an edge.
    """
    return list(
        page.evaluate(
            """() => [...document.querySelectorAll(".raglab-cockpit, .raglab-cockpit *")]
              .filter((one) => one.clientWidth && one.scrollWidth > one.clientWidth)
              .filter((one) => !one.closest(".slider, .bar, svg"))
              .map((one) => `${one.className || one.tagName}: ${one.textContent.slice(0, 40)}`)"""
        )
    )


def is_within(page, inner, outer):
    """Whether an element of the cockpit stands whole in the window and in another element of it."""
    boxes = [cockpit_of(page).locator(selector).first.bounding_box() for selector in (inner, outer)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    top, bottom = (boxes[0]["y"], boxes[0]["y"] + boxes[0]["height"])
    height = page.viewport_size["height"] if page.viewport_size else 0
    return max(0, boxes[1]["y"]) <= top < bottom <= min(height, boxes[1]["y"] + boxes[1]["height"])


def slide(page, path, share):
    """Drag a slider's handle to a share of its width, in steps."""
    slider = cockpit_of(page).locator(f'.threshold[data-path="{path}"] .slider')
    slider.scroll_into_view_if_needed()
    handle, box = slider.locator(".handle").bounding_box(), slider.bounding_box()
    assert handle is not None
    assert box is not None
    y = handle["y"] + handle["height"] / 2
    page.mouse.move(handle["x"] + handle["width"] / 2, y)
    page.wait_for_timeout(300)  # the axis comes while the pointer rests
    page.mouse.down()
    page.mouse.move(box["x"] + share * box["width"], y, steps=12)
