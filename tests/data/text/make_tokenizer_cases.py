#!/usr/bin/env python3
"""Writes tokenizer_cases.json: small tokenizers with many combinations of components, and what Hugging Face `tokenizers`
makes of hostile little texts with them: ids and the decoded text.

    pip install tokenizers==0.23.3
    python3 make_tokenizer_cases.py > tokenizer_cases.json
"""

import copy
import json
import random
import sys
import unicodedata

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TRAINING = """The quick brown fox jumps over the lazy dog. It's what we'll see, they're here; I've been told he'd go.
In 1984 and 2024 there were 12345 words (more or less), e.g. naïve café, Grüße, 東京 and Привет мир.
A tool is a word, a word is a tool: see the tree, the trees, the three. HELLO Hello hello HTTPServer.
"""
FILL = ["\n", "\t", "  ", " ", "'s", "'LL", "'ſ", "é", "e\u0301", "Å", "ﬁ", "각", "\u1680", "\u00a0", "½", "Ⅷ", "٣", "１２", "中文", "Ⱥ",
        "\U0001f600", "👩🏽‍💻", "\u0378", "\u0300\u0323", "!?", "$", "…", "<tool>", "<a", "<a>", "<s>", "</s>", "tool", "▁", "_", "123", "a1"]
WORDS = TRAINING.split()
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def base_file(byte_level):
    tokenizer = Tokenizer(models.BPE(unk_token=None if byte_level else "<unk>", byte_fallback=not byte_level, fuse_unk=True))
    special = ["<s>", "</s>"] if byte_level else ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    if byte_level:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                               decoders.Strip(" ", 1, 0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TRAINING.splitlines(), trainer)
    file = json.loads(tokenizer.to_str())
    # The pieces <0xNN> are part of the vocabulary only.
    file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x")]
    return file


def patches():
    """name -> (base, {component: value}, added tokens)"""
    cases = {"gpt2": ("bytes", {}), "pieces": ("pieces", {})}
    for name, pre in {
        "digits": sequence({"type": "Digits", "individual_digits": True}, GPT2),
        "digit runs": sequence({"type": "Digits", "individual_digits": False}, BYTES),
        "llama3": sequence(split(LLAMA3), BYTES),
        "falcon": sequence({"type": "Punctuation", "behavior": "Contiguous"}, GPT2, {"type": "Digits", "individual_digits": False},
                           split("[0-9][0-9][0-9]")),
        "prefix": dict(GPT2, add_prefix_space=True),
        "white space": sequence({"type": "WhitespaceSplit"}, BYTES),
        "empty matches": sequence(split(r"(?=\d)|x*"), BYTES),
        "text": sequence({"type": "Split", "pattern": {"String": "e"}, "behavior": "MergedWithNext", "invert": False}, BYTES),
        "engine": sequence(split(r"[a-z&&[^e]]++|(?:\w\W)*[A-Z]{2,}?|\P{L}(?=\s|$)|(?!x)\S\b"), BYTES),
    }.items():
        cases[name] = ("bytes", {"pre_tokenizer": pre})
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            cases[f"{behavior} {invert}"] = ("bytes", {"pre_tokenizer": sequence(split(r"[aeio ]|\d\d?", behavior, invert), BYTES)})
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        cases[form] = ("bytes", {"normalizer": {"type": form}})
    cases["strip"] = ("bytes", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}})
    for scheme in ("always", "first", "never"):
        for splits in (True, False):
            metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": splits}
            cases[f"metaspace {scheme} {splits}"] = ("pieces", {"normalizer": None, "pre_tokenizer": metaspace, "decoder": metaspace})
    cases["no decoder"] = ("pieces", {"decoder": None})
    cases["ignore merges"] = ("pieces", {"model.ignore_merges": True})
    cases["no bytes"] = ("pieces", {"model.byte_fallback": False})
    cases["no fusing"] = ("pieces", {"model.byte_fallback": False, "model.fuse_unk": False})
    cases["nothing unknown"] = ("pieces", {"model.byte_fallback": False, "model.unk_token": None})
    for base in ("bytes", "pieces"):
        for flag in (None, *FLAGS):
            cases[f"added {base} {flag}"] = (base, {}, [(c, {f: f == flag for f in FLAGS}) for c in ("<tool>", "<a", "<a>", "tool")])
        both = {"lstrip": True, "rstrip": True}
        cases[f"added {base} spaces"] = (base, {}, [(c, both) for c in ("\n", "<tool>", "\u00a0")])
    return cases


def make_file(bases, base, patch, added=()):
    file = copy.deepcopy(bases[base])
    for key, value in patch.items():
        part = file
        *path, last = key.split(".")
        for name in path:
            part = part[name]
        part[last] = value
    next_id = len(file["model"]["vocab"])
    for content, token_flags in added:
        known = file["model"]["vocab"].get(content)
        token = {"id": next_id if known is None else known, "content": content, "special": False}
        file["added_tokens"].append({**token, **dict.fromkeys(FLAGS, False), **token_flags})
        next_id += known is None
    return file


def text(rng):
    parts = []
    for _ in range(rng.randrange(1, 9)):
        parts.append(rng.choice(WORDS) if rng.random() < 0.4 else rng.choice(FILL))
        if rng.random() < 0.15:
            parts.append(rng.choice(["\n \n", " \n", "\n\n", " \u00a0\n"]))
        parts.append(rng.choice(["", "", " "]))
    return unicodedata.normalize(rng.choice(["NFC", "NFD"]), "".join(parts)) if rng.random() < 0.2 else "".join(parts)


def main():
    rng = random.Random(1)
    bases = {"bytes": base_file(True), "pieces": base_file(False)}
    out = {"bases": bases, "cases": []}
    for name, (base, patch, *added) in patches().items():
        added = added[0] if added else []
        tokenizer = Tokenizer.from_str(json.dumps(make_file(bases, base, patch, added)))
        runs = []
        for _ in range(24):
            prompt = text(rng)
            ids = tokenizer.encode(prompt).ids
            runs.append([prompt, ids, tokenizer.decode(ids, skip_special_tokens=False)])
        file = make_file(bases, base, patch, added)
        changed = {key: file[key] for key in ("normalizer", "pre_tokenizer", "decoder", "added_tokens") if file[key] != bases[base][key]}
        model = {key: value for key, value in file["model"].items() if value != bases[base]["model"][key]}
        out["cases"].append({"name": name, "base": base, "changed": changed, "model": model, "runs": runs})
    json.dump(out, sys.stdout, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
