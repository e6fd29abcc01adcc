"""Tables of documents as the room reads them.

Of web pages and CSV files, in every language, as numbers are read.
"""

from __future__ import annotations

import pytest

from raglab.extensions.graph_table.quantities import cell_quantity
from raglab.extensions.graph_table.table_records import OPERATIONS, markdown_tables
from raglab.extensions.graph_table.tables import table_rows
from raglab.store.loaders import load_corpus
from raglab.words.languages import LANGUAGES
from third_language import run_with_german


def test_rows_of_a_web_page(tmp_path):
    """A cell over two rows stands in both, with its bar.

    The table's name is that of its headings.
    """
    table = (
        "<table><tr><th>Cause<th>Franchise<tr><td rowspan=2>Eau|gel<td>250 €<tr><td>300 €</table>"
    )
    page = (
        f"<title>Contrat &amp; prime</title><h1>Contrat <em>habitation</em></h1><p>La prime.{table}"
    )
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    assert [row.text for row in table_rows(load_corpus(tmp_path).chunks)] == [
        f"Contrat habitation (Contrat & prime) - Cause: Eau|gel; Franchise: {price} €"
        for price in (250, 300)
    ]


def test_cells_of_a_csv_file_come_back_as_written(tmp_path):
    """With their bars, a line break as a blank; rows of all its tables, in order."""
    path = tmp_path / "x.csv"
    path.write_text(
        'a,b\n"1|2","3\n4"\n' + "".join(f"{n},{n}\n" for n in range(60)), encoding="utf-8"
    )
    rows = [row for table in markdown_tables(load_corpus(path).chunks) for row in table.rows]
    assert [cell.text for cell in rows[0]] == ["1|2", "3 4"]
    assert [row[0].text for row in rows[1:]] == [str(n) for n in range(60)]


def test_operations_of_a_language_are_known():
    """A misspelt name would read nothing, and say nothing."""
    assert LANGUAGES.tables.operations.keys() <= set(OPERATIONS)


def test_tables_read_a_third_language(tmp_path):
    """Units, words for nothing and periods."""
    program = """
from raglab.extensions.graph_table.quantities import cell_quantity, head_period

assert cell_quantity("14 Tage").unit == "days" and cell_quantity("keine").high == 0.0
assert head_period("bis zum 31. März 2025") == head_period("until 31 March 2025")
"""
    run_with_german(program, tmp_path)


@pytest.mark.parametrize("text", ["1.200 €", "€1.200", "EUR 1.200", "1.200 euros"])
def test_a_cell_reads_a_sum_as_answers_do(text):
    """One rule for marks; see `test_numerals`."""
    assert cell_quantity(text).low == 1200.0
