"""Tiny models with random weights, one of each kind, made on the spot; under 100 kB each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", "does", "the", "policy", "cover", "water", "fire", "."]
DIM = 16


def save_bert(folder: Path, kind: str, **settings: Any) -> Path:
    """Write a BERT of one layer and a vocabulary of thirteen words, which reads 32 tokens."""
    import torch
    import transformers as untyped

    transformers: Any = untyped
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=DIM,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        getattr(transformers, kind)(config).save_pretrained(folder)
    tokenizer.model_max_length = 32
    tokenizer.save_pretrained(folder)
    return folder


def save_encoder(folder: Path, prompts: Mapping[str, str] | None = None, default: str | None = None) -> Path:
    """Write an encoder: mean of the tokens, not normalised; with prompts where given."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    bert = save_bert(folder.parent / f"{folder.name}-bert", "BertModel")
    more: Any = {} if prompts is None else {"prompts": dict(prompts), "default_prompt_name": default}
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(DIM)], device="cpu", **more).save(str(folder))
    return folder
