#!/usr/bin/env python3
"""Writes what a GGUF file says of its tokenizer as JSON, for tokenizer_gguf_file_test.cpp.

For vocabularies whose licence keeps them out of test data: put the results as llama2.json, llama3.json, .. into a folder and
name it in the environment variable LOCKSTEP_VOCABS. The PyPI source package llama-cpp-python 0.3.36 holds
models/ggml-vocab-llama-spm.gguf (llama2) and models/ggml-vocab-llama-bpe.gguf (llama3).

    pip install gguf
    python3 dump_gguf_vocab.py model.gguf > llama2.json
"""

import json
import sys

from gguf import GGUFReader

FIELDS = {
    "model": "model", "pre": "pre", "tokens": "tokens", "scores": "scores", "token_type": "token_types", "merges": "merges",
    "bos_token_id": "bos_id", "eos_token_id": "eos_id", "unknown_token_id": "unk_id", "padding_token_id": "pad_id",
    "add_bos_token": "add_bos", "add_eos_token": "add_eos", "add_space_prefix": "add_space_prefix",
}


def main():
    fields = GGUFReader(sys.argv[1]).fields
    vocab = {}
    for key, name in FIELDS.items():
        field = fields.get("tokenizer.ggml." + key)
        if field is not None:
            vocab[name] = field.contents()
    json.dump(vocab, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
