"""Features of texts for a linear learner (algebra): length, source, TF-IDF components (S4.2).

One call makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.learner import check_count
from raglab.bandit.table_frames import INTERCEPT_FEATURE
from raglab.values import FloatArray, refuse
from raglab.words.tokeniser import word_count

if TYPE_CHECKING:
    import pandas as pd

LENGTHS = ("log_words", "log_characters")
SOURCE = "source="
ROUNDING = 1e-9  # share of the largest value, at least of 1, below which a spread is rounding


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """Features fitted on some texts, for these texts and for others.

    Attributes:
      vectorizer: of scikit-learn, fitted.
      reduction: of scikit-learn, fitted; None without components.
      sources: known sources.
      names: columns of `frame`, `intercept` (ones) first.
      mean: of the fitted texts' features, [F - 1]; with `scale` it standardises all but the
        intercept.
      scale: of the fitted texts' features, [F - 1]; infinite where a feature does not vary.
      spread: standard deviation of each feature after that.
    """

    vectorizer: Any
    reduction: Any
    sources: tuple[str, ...]
    names: tuple[str, ...]
    mean: FloatArray
    scale: FloatArray
    spread: float

    def frame(self, texts: Sequence[str], sources: Sequence[object] | None = None) -> pd.DataFrame:
        """Features of texts, a row a text and a column a name, standardised as the fitted ones.

        The intercept is always among them: in a few texts another feature may be constant, and pass
        for one.

        Args:
          texts: [Q] of any table.
          sources: [Q]; needed where the features were fitted with sources. One that was not among
            those has 0 of every source, and is counted in a warning.

        Raises:
          ValueError: no strings, or sources that are missing, too many, or of features without
            them.
        """
        import pandas as pd

        checked = _texts(texts)
        raw = self._raw(checked, sources) if checked else np.zeros((0, len(self.mean)))
        values = self.spread * (raw - self.mean) / self.scale
        return pd.DataFrame(
            np.column_stack([np.ones(len(values)), values]), columns=list(self.names)
        )

    def _raw(self, texts: list[str], sources: Sequence[object] | None) -> FloatArray:
        """Features [Q, F] before they are standardised."""
        # log of 1 + words and of 1 + characters
        sizes = [[word_count(text), len(text)] for text in texts]
        parts = [np.log1p(sizes).reshape(len(texts), 2)]
        if sources is None and self.sources:
            refuse(
                "sources must be given as they were when the features were fitted",
                "none",
                "give one a text",
            )
        if sources is not None and not self.sources:
            refuse(
                "sources must be none, as when the features were fitted",
                f"{len(sources)}",
                "fit them with sources",
            )
        if sources is not None:
            if isinstance(sources, str) or len(sources) != len(texts):
                refuse("sources must be one a text", (len(sources), len(texts)), "give as many")
            labels = np.array([str(source) for source in sources], dtype=object)
            dummies = labels[:, None] == np.array(self.sources, dtype=object)
            # A source without a dummy would pass for an average one in silence.
            unknown = sorted(set(labels[~dummies.any(axis=1)]))
            if unknown:
                count = int((~dummies.any(axis=1)).sum())
                shown = ", ".join(unknown)[:120]
                rest = f"came with none of the fitted texts ({shown})"
                warn_user(
                    f"{count} of {len(texts)} texts have a source that {rest}: taken as none."
                )
            parts.append(dummies.astype(np.float64))
        if self.reduction is not None:
            parts.append(
                np.asarray(self.reduction.transform(self.vectorizer.transform(texts)), np.float64)
            )
        return np.concatenate(parts, axis=1)


def text_features(
    texts: Sequence[str],
    sources: Sequence[object] | None = None,
    *,
    components: int = 32,
    spread: float = 1.0,
    seed: int | None = 0,
) -> TextFeatures:
    """Features of texts.

    Log of words and of characters, a 0/1 column a source, components of TF-IDF; standardised.

    Nothing supervised is in them: neither rewards nor costs are read, so a table's own features
    leak no outcome, and a model on them needs no other fold than its own (`fit_priced_policy`
    predicts each row without it). The components fit the fitted texts better than new texts, whose
    components are a little smaller.

    Args:
      texts: [Q], what is known of a question before an arm is chosen.
      sources: [Q], such as the set or the tenant.
      components: of the TF-IDF matrix (sublinear counts; words in at least two texts), by truncated
        singular value decomposition; 0 for none. A warning names how many there are where the texts
        have fewer. One that does not vary in these texts, as where few words differ, is 0 in all.
      spread: standard deviation of each feature. The ridge of a linear learner shrinks small
        features more than its intercept: 0.1 makes a learner online take an arm's mean first and
        the texts' part later.
      seed: of the decomposition's random start, which moves components of near weight a little;
        None: the components to which all starts lead, by Lanczos steps up to rounding, which take
        longer.

    Raises:
      ValueError: no texts, texts that are no strings, a wrong number of sources, components or a
        spread.

    Source: Halko, Martinsson and Tropp, Finding structure with randomness (2011), as scikit-learn's
      TruncatedSVD.

    Example:
      >>> fitted = text_features(
      ...     ["a short one", "a rather longer question"], ["faq", "web"], components=0
      ... )
      >>> fitted.frame(["a rather short one"], ["web"]).round(2).to_dict("records")[0]
      {'intercept': 1.0, 'log_words': 1.0, 'log_characters': 0.25, 'source=faq': -1.0, \
'source=web': 1.0}
    """
    values = _texts(texts)
    check_count("components", components, 0, "0 leaves TF-IDF out")
    if seed is not None:
        check_count("seed", seed, 0, "state a seed")
    if isinstance(spread, bool | str) or not 0.0 < spread < np.inf:
        refuse("spread must be above 0", spread, "1 standardises")
    if not values:
        refuse("there must be a text", "none", "give the questions of a table")
    if isinstance(sources, str):
        refuse("sources must be one a text", repr(sources), "give a list")
    labels = () if sources is None else tuple(sorted({str(source) for source in sources}))
    vectorizer, reduction = _reduction(values, components, seed)
    count = 0 if reduction is None else int(reduction.components_.shape[0])
    dummies = (SOURCE + label for label in labels)
    parts = (f"tfidf_{number}" for number in range(count))
    names = (INTERCEPT_FEATURE, *LENGTHS, *dummies, *parts)
    plain = TextFeatures(
        vectorizer, reduction, labels, names, np.zeros(len(names) - 1), np.ones(len(names) - 1), 1.0
    )
    raw = plain._raw(values, sources)  # noqa: SLF001 - its own
    # A feature that is the same in every text, but for rounding, is 0 in these and in others. The
    # TF-IDF of a text has length 1, so a component below a billionth is rounding as a whole.
    scale = raw.std(axis=0)
    scale = np.where(scale > ROUNDING * np.abs(raw).max(initial=1.0), scale, np.inf)
    return TextFeatures(vectorizer, reduction, labels, names, raw.mean(axis=0), scale, spread)


def _texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list of strings."""
    if isinstance(texts, str):
        refuse("texts must be a sequence of strings", "one string", "put it in a list")
    values = list(texts)
    wrong = [(row, text) for row, text in enumerate(values) if not isinstance(text, str)]
    if wrong:
        row, text = wrong[0]
        refuse(
            "texts must be strings",
            f"{type(text).__name__} in row {row}, one of {len(wrong)}",
            "fill or drop it",
        )
    return values


def _reduction(texts: list[str], components: int, seed: int | None) -> tuple[Any, Any]:
    """TF-IDF and its truncated decomposition, fitted.

    Both None where there is nothing to decompose.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    if components == 0:
        return None, None
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # its word for "no word occurs in two texts"
        warn_user(
            f"No word occurs in two of the {len(texts)} texts: 0 of {components} components of "
            "TF-IDF."
        )
        return None, None
    # A decomposition has fewer components than the matrix has rows and columns.
    count = min(components, min(matrix.shape) - 1)
    if count < components:
        words = matrix.shape[1]
        warn_user(
            f"{len(texts)} texts have {words} words that two of them share: {count} of "
            f"{components} components."
        )
    if count < 1:
        return None, None
    # Texts of the same words have no variance, whose share scikit-learn divides by; the components
    # are 0.
    exact = TruncatedSVD(count, algorithm="arpack", random_state=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return vectorizer, (
            exact if seed is None else TruncatedSVD(count, n_iter=10, random_state=seed)
        ).fit(matrix)
