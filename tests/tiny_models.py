"""Tiny models with random weights, one of each kind, made on the spot; under 100 kB each."""

from __future__ import annotations

from typing import Any

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "what",
    "does",
    "the",
    "policy",
    "cover",
    "water",
    "fire",
    ".",
]
DIM = 16


def save_bert(folder, kind, words=WORDS, **settings):
    """Write a BERT of one layer and a vocabulary of some words, which reads 32 tokens."""
    import torch
    import transformers as untyped

    transformers: Any = untyped
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    config = transformers.BertConfig(
        vocab_size=len(words),
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


def save_encoder(
    folder,
    prompts=None,
    default=None,
    words=WORDS,
):
    """Write an encoder: mean of the tokens, not normalised; with prompts where given."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    bert = save_bert(folder.parent / f"{folder.name}-bert", "BertModel", words)
    more: Any = (
        {} if prompts is None else {"prompts": dict(prompts), "default_prompt_name": default}
    )
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(DIM)], device="cpu", **more).save(
        str(folder)
    )
    return folder


CLIP_DIM, CLIP_TOKENS = 8, 24
COLOURS = {"red": (220, 20, 20), "green": (20, 200, 30), "blue": (20, 30, 220)}


def save_clip(folder):
    """Write a CLIP model of one layer a tower, that reads 24 letters and 32 x 32 pixels.

    No modules.json, as published.

    Its projections are solved for, so that the word and the square of a colour have the same
    embedding.
    """
    import string

    import torch
    import transformers as untyped
    from PIL import Image

    transformers: Any = untyped
    letters = [
        "<|startoftext|>",
        "<|endoftext|>",
        *string.ascii_lowercase,
        *(f"{c}</w>" for c in string.ascii_lowercase),
    ]
    tokenizer = transformers.CLIPTokenizer(
        vocab={letter: i for i, letter in enumerate(letters)}, merges=[]
    )
    tokenizer.model_max_length = CLIP_TOKENS
    tower = {
        "hidden_size": DIM,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    words = {"vocab_size": len(letters), "max_position_embeddings": CLIP_TOKENS}
    words |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.CLIPConfig(
            text_config=tower | words,
            vision_config=tower | {"image_size": 32, "patch_size": 16},
            projection_dim=CLIP_DIM,
        )
        model = transformers.CLIPModel(config).eval()
    scaled = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    processor = transformers.CLIPProcessor(
        image_processor=transformers.CLIPImageProcessorPil(**scaled), tokenizer=tokenizer
    )
    squares = [Image.new("RGB", (32, 32), colour) for colour in COLOURS.values()]
    with torch.inference_mode():
        read = [tokenizer(word, return_tensors="pt") for word in COLOURS]
        texts = torch.cat([model.text_model(**one).pooler_output for one in read])
        pixels = processor.image_processor(squares, return_tensors="pt")["pixel_values"]
        pictures = model.vision_model(pixel_values=pixels).pooler_output
        target = torch.eye(len(COLOURS), CLIP_DIM)
        model.text_projection.weight.copy_((torch.linalg.pinv(texts) @ target).T)
        model.visual_projection.weight.copy_((torch.linalg.pinv(pictures) @ target).T)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_causal(folder, words=WORDS):
    """Write a one-layer Llama over some words, with a chat template, that reads 64 tokens."""
    import torch
    import transformers as untyped
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    transformers: Any = untyped
    folder.mkdir(parents=True)
    level = Tokenizer(
        WordLevel({word: place for place, word in enumerate(words)}, unk_token=words[1])
    )
    level.pre_tokenizer = WhitespaceSplit()
    special = {
        f"{name}_token": mark
        for name, mark in (("unk", "[UNK]"), ("pad", "[PAD]"), ("eos", "[SEP]"))
    }
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=level, **special)
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message['content'] }} [SEP] {% endfor %}"
        "{% if add_generation_prompt %}[CLS] {% endif %}"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=DIM,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
