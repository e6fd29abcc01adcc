"""Configuration of Sphinx.

`docs/site/build.py` stages the pages and starts it, `make docs` starts that.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from raglab import __version__

project = "raglab"
author = "The raglab authors"
project_copyright = "the raglab authors, Apache-2.0"
version = release = __version__
language = "en"
root_doc = "index"
exclude_patterns = ["reference/api/templates"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "site_extension",
]
suppress_warnings = [
    "myst.header",  # notebooks begin at the level that JupyterLab shows best
    "ref.python",  # a public name is at its door and in its module: two places, one thing
]

# Pages: Markdown as GitHub reads it, with the cards and tables of contents of Sphinx
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_dmath_allow_labels = False
myst_dmath_double_inline = False
myst_dmath_allow_space = False  # $5 and $6 are sums of money, no formula
myst_dmath_allow_digits = False
myst_heading_anchors = 4
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # names of types; documents and anchors are checked

# Notebooks: as they are committed
nb_execution_mode = "off"
nb_merge_streams = True
nb_number_source_lines = False

# Reference: docstrings in Google's form
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
maximum_signature_line_length = 100
python_maximum_signature_line_length = 100
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = [
    ("Source", "notes_style"),
    ("Laws", "notes_style"),
    ("Assumes", "notes_style"),
]
default_role = "literal"
napoleon_attr_annotations = False  # the class shows the types
templates_path = [str(Path(__file__).parent / "templates")]

html_theme = "pydata_sphinx_theme"
html_title = "raglab"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_sidebars = {"index": [], "start": [], "glossary": [], "gallery": []}
html_theme_options = {
    "logo": {"text": f"raglab {version}"},  # on each page
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
