#!/usr/bin/env python3
"""Weights as people have them, through the program: padded, tied, sharded, split, of mixed types, damaged. On tiny models, and
the goldens where a case needs them."""
import json, math, random, shutil, struct

from model_files import BOOL, STRING, Gguf, change, gguf_string, read_safetensors, split_gguf, write_safetensors
from runner import WORK, choice, code, main, message, text, tokens, usage
from tiny_models import ALL, CHAT, DRAWN, RAW, answers, ask, echo, edit_json, edit_weights, golden, refusal, tiny

# ---- the vocabulary ----

def rc53_padded_vocabulary():
    """Rows past the tokenizer's 260 tokens are never sampled, listed or counted, whatever they hold."""
    for tied in (0, 1):
        shape = dict(tied=tied, n_heads=6, n_kv_heads=3, family="qwen2")
        small, padded = tiny("small", vocab=260, **shape), tiny("padded", vocab=389, **shape)
        head = "model.embed_tokens.weight" if tied else "lm_head.weight"
        seeds = [{**DRAWN, "custom_id": f"s{i}", "seed": i, "max_tokens": 120} for i in range(4)] + [RAW, CHAT]
        want = answers(small, lines=seeds)
        for fill in (1e4, -1e4, 0.0, float("nan")):
            edit_weights(padded, lambda t: [change(t, n, lambda i, v: fill if i // 64 >= 260 else v) for n in {head, "model.embed_tokens.weight"}])
            assert answers(padded, lines=seeds) == want, (tied, fill)
        for np, layout in ((3, "--tp"), (3, "--dp")):
            assert answers(padded, layout, "3", lines=seeds, np=np) == want, layout
        bad = [{**RAW, "custom_id": "id", "prompt": [260]}, {**RAW, "custom_id": "bias", "logit_bias": {"388": 1}}]
        records, _, _ = ask(padded, bad + [{**RAW, "stop_token_ids": [300]}], status=20)
        assert "260" in message(records["id"]) and "logit_bias" in message(records["bias"]) and records["raw"] == want["raw"]
        assert all(len(t) <= 3 and sum(map(math.exp, t.values())) <= 1 for t in choice(want["raw"])["logprobs"]["top_logprobs"])


def rc53_all_logits_negative():
    """Nothing of a tensor rank's making, such as a logit of 0, wins over logits that are all below 0."""
    m = tiny(n_heads=6, n_kv_heads=3, vocab=261)
    best = 77
    def edit(t):
        for name in t:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                change(t, name, lambda i, v: 0.0)
            elif name.endswith(("embed_tokens.weight", "norm.weight")):
                change(t, name, lambda i, v: 1.0)
        change(t, "lm_head.weight", lambda i, v: -1.0 - abs(v) if i // 64 != best else -0.5)
    edit_weights(m, edit)
    for np in (1, 3):
        record = answers(m, *(["--tp", "3"] if np > 1 else []), lines=[{**RAW, "prompt": [9, 10]}], np=np)["raw"]
        assert tokens(record) == [chr(best - 4)] * 8, record
        assert all(abs(v) < 1e-6 for v in choice(record)["logprobs"]["token_logprobs"])  # by far the largest


# ---- files ----

def rc55_tied_head_that_differs():
    m = tiny(tied=1)
    clean = answers(m)
    edit_weights(m, lambda t: t.update({"lm_head.weight": [*t["model.embed_tokens.weight"]]}))
    assert "lm_head" not in ask(m, ALL, status=0)[2]
    edit_weights(m, lambda t: change(t, "lm_head.weight", lambda i, v: -v))
    for np, options in ((1, ()), (2, ("--pp", "2")), (2, ("--tp", "2")), (2, ("--dp", "2"))):
        records, _, stderr = ask(m, ALL, *options, np=np, status=0)
        assert records == clean and stderr.count("lm_head.weight is ignored") == 1 and "differs" in stderr, (np, stderr)
    edit_json(m / "config.json", tie_word_embeddings=False)
    assert answers(m) != clean


def rc56_files_the_index_does_not_name():
    clean, m, other = tiny("clean", n_shards=3), tiny("m", n_shards=3), tiny("other", n_shards=9, seed=2)
    (m / "pytorch_model.bin").write_bytes(b"pickle")
    shutil.copy(other / "model-00001-of-00009.safetensors", m)
    shutil.copy(tiny("stale", seed=3) / "model.safetensors", m / "consolidated.safetensors")
    shutil.copy(tiny("stale", seed=3) / "model.safetensors", m / "model.safetensors")
    records, _, stderr = ask(m, ALL, status=0)
    assert records == answers(clean)
    ask(m, ALL, status=0)
    said = [line for line in stderr.splitlines() if "ignored" in line]
    assert len(said) == 1 and "4 files" in said[0] and all(n in said[0] for n in ("pytorch_model.bin", "model-00001-of-00009.safetensors", "consolidated.safetensors")), stderr
    files = json.dumps(json.loads((WORK / "case" / "run.json").read_text())["model"])
    assert "model-00003-of-00003.safetensors" in files and "consolidated" not in files and "00009" not in files, files


def rc57_types_and_shapes():
    half, m = tiny("half", dtype="bf16"), tiny()
    want = answers(m)
    assert answers(half, "--dtype", "f32") == want
    edit_weights(half, lambda t: [change(t, n, lambda i, v: v, "F32") for n in t if "norm" in n])
    assert answers(half, "--dtype", "f32") == want
    edit_weights(half, lambda t: change(t, "model.layers.0.mlp.up_proj.weight", lambda i, v: v, "F16"))
    edit_weights(m, lambda t: change(t, "model.layers.0.mlp.up_proj.weight", lambda i, v: v, "F16"))
    assert answers(half, "--dtype", "f32") == answers(m)  # what f16 can't hold is rounded in both
    wide = tiny("wide", head_dim=32)
    assert answers(wide) != want
    edit_json(wide / "config.json", head_dim=None)
    assert "q_proj.weight' has shape [128, 64], the config asks for [64, 64]" in refusal(wide)

    m = tiny()
    edit_weights(m, lambda t: t.update({"foo.bar": ["I8", [2], b"ab"]}))
    records, _, stderr = ask(m, ALL, status=0)
    assert records == want and stderr.count("foo.bar") == 1
    for dtype, size in (("F64", 8), ("I8", 1)):
        bad = tiny("bad")
        edit_weights(bad, lambda t: t.update({"model.norm.weight": [dtype, [64], bytes(64 * size)]}))
        said = refusal(bad)
        assert "'model.norm.weight' has dtype " + dtype in said and "BF16 are supported" in said


def rc58_heads_and_ranks():
    grouped, single = tiny("grouped", n_heads=8, n_kv_heads=2), tiny("single", n_heads=4, n_kv_heads=1)
    for model, tp, n_kv in ((grouped, 4, 2), (single, 2, 1)):
        said = refusal(model, "--tp", str(tp), np=tp, status=2)
        assert said.count(f"--tp {tp}: the model has {n_kv} kv head") == 1 and "at least one" in said, said
    assert answers(grouped, "--tp", "2", np=2) == answers(grouped)
    said = refusal(tiny("uneven", n_heads=6, n_kv_heads=4))
    assert "num_attention_heads 6 is not a multiple of num_key_value_heads 4" in said


def rc59_windows():
    """A window of w sees w positions, its own included: row w is the first that differs from full attention."""
    full, null = tiny("full", family="mistral"), tiny("null", family="llama")
    lines = [echo(str(n), "the quick brown fox jumps"[:n]) for n in (7, 8, 9, 20)] + [RAW]
    scores = lambda model: {k: choice(r)["logprobs"]["token_logprobs"][1:] for k, r in answers(model, lines=lines).items()}
    want = scores(full)
    assert json.loads((full / "config.json").read_text())["sliding_window"] is None and scores(null) == want
    for window in (8, 19, 30):
        got = scores(tiny("window", family="mistral", sliding_window=window))
        for n in (7, 8, 9, 20):  # a prompt of n tokens has scores of n - 1 rows
            first = next((i for i, (x, y) in enumerate(zip(got[str(n)], want[str(n)])) if x != y), None)
            assert first == (window if window < n - 1 else None), (window, n, first)
    edit_json(full / "config.json", sliding_window=0)
    assert "sliding_window is 0" in refusal(full)


def rc60_the_same_weights_in_both_formats():
    hf, gguf = golden("tiny/llama"), golden("tiny_gguf/llama-f16.gguf")
    lines = [{**RAW, "max_tokens": 24, "logprobs": 5}, {**RAW, "custom_id": "long", "prompt": "The quick brown fox jumps over the lazy dog. " * 3, "max_tokens": 24}, echo("score", "It was the best of times, it was the worst of times."), CHAT]
    a, b = answers(hf, "--dtype", "f32", lines=lines), answers(gguf, "--dtype", "f32", lines=lines)
    for k in a:
        assert text(a[k]) == text(b[k]) and usage(a[k]) == usage(b[k]), k
        for x, y in zip(*([v for v in choice(r)["logprobs"]["token_logprobs"] if v is not None] for r in (a[k], b[k]) if k != "chat") if k != "chat" else ()):
            assert abs(x - y) < 1e-3, (k, x, y)


def rc61_gguf_files():
    source = golden("tiny_gguf/llama-f16.gguf")
    parts = WORK / "models" / "split"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    part = lambda i: parts / f"model-{i:05}-of-00003.gguf"
    split_gguf(Gguf(source), part, 3)
    want = answers(source)
    assert answers(part(1)) == answers(part(2)) == answers(parts) == want
    part(2).rename(parts / "away")
    for given in (part(1), part(3), parts):
        assert "1 missing: model-00002-of-00003.gguf" in refusal(given)

    shutil.rmtree(parts)
    parts.mkdir()
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(source, parts / name)
    said = refusal(parts)
    assert "a.gguf" in said and "b.gguf" in said
    changed = WORK / "models" / "changed.gguf"

    def with_change(edit):
        g = Gguf(source)
        edit(g)
        g.write(changed)
        return changed
    said = refusal(with_change(lambda g: g.tensor("blk.1.ffn_up.weight").__setitem__(2, 99)))
    assert "blk.1.ffn_up.weight" in said and "99" in said, said
    assert "version 99" in refusal(with_change(lambda g: setattr(g, "version", 99)))
    said = refusal(with_change(lambda g: g.metadata.pop("tokenizer.ggml.pre")))
    assert "tokenizer.ggml.pre" in said, said
    said = refusal(with_change(lambda g: g.metadata.update({"tokenizer.ggml.pre": (STRING, gguf_string("martian"))})))
    assert "'martian'" in said, said
    records, _, _ = ask(with_change(lambda g: g.metadata.pop("tokenizer.chat_template")), ALL, status=20)
    assert code(records["chat"]) == "no_chat_template" and records["raw"] == want["raw"]
    bos = answers(with_change(lambda g: g.metadata.update({"tokenizer.ggml.add_bos_token": (BOOL, b"\1")})))
    assert usage(bos["raw"])["prompt_tokens"] == usage(want["raw"])["prompt_tokens"] + 1 and bos["chat"] == want["chat"]


# ---- numbers ----

BROKEN = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "1e30": 1e30}


def rc62_damaged_weights():
    """One bad value in any tensor: refused with its place, whatever the run's dtype; no line is answered."""
    m = tiny(family="qwen3", n_layers=2)
    sound = read_safetensors(m / "model.safetensors")
    for k, (name, (_, shape, data)) in enumerate(sound.items()):
        said_as, value = list(BROKEN.items())[k % 4]
        n, cols = len(data) // 4, shape[-1]
        at = random.Random(k).randrange(min(n, 260 * cols))  # rows past the tokenizer are not used
        tensors = dict(sound)
        tensors[name] = ["F32", shape, data[:4 * at] + struct.pack("<f", value) + data[4 * at + 4:]]
        write_safetensors(m / "model.safetensors", tensors)
        said = refusal(m, "--dtype", ("f32", "bf16")[k % 2])
        assert f"tensor '{name}' holds {said_as} at row {at // cols if len(shape) == 2 else 0}, column {at % cols}" in said.replace("1e+30", "1e30"), said
    bad = {"bf16": ("BF16", b"\xc0\x7f", "nan"), "f16": ("F16", b"\x00\x7c", "inf")}
    for dtype, raw, said_as in bad.values():
        tensors = dict(sound)
        name = "model.layers.1.mlp.down_proj.weight"
        tensors[name] = [dtype, sound[name][1], raw + bytes(len(sound[name][2]) // 2 - 2)]
        write_safetensors(m / "model.safetensors", tensors)
        assert f"'{name}' holds {said_as} at row 0, column 0" in refusal(m)
    # The scale of a quantised block is a number too.
    g = Gguf(golden("tiny_gguf/llama-q8_0.gguf"))
    up = g.tensor("blk.1.ffn_up.weight")
    up[3] = b"\x00\x7c" + up[3][2:]  # d = infinity
    g.write(WORK / "models" / "changed.gguf")
    assert "'model.layers.1.mlp.up_proj.weight' holds" in refusal(WORK / "models" / "changed.gguf")


def rc62_damage_on_one_rank():
    m = tiny(n_heads=6, n_kv_heads=3)
    edit_weights(m, lambda t: change(t, "model.layers.1.mlp.down_proj.weight", lambda i, v: math.nan if i == 63 * 96 + 5 else v))
    for options in (("--tp", "3"), ("--dp", "3")):
        said = refusal(m, *options, np=3)
        assert "'model.layers.1.mlp.down_proj.weight' holds nan at row 63, column 5" in said and "r2" in said or "--dp" in options, said


def rc62_numbers_that_overflow():
    """Sound weights whose products overflow: the line fails, with its place; no id 0 passes as an answer."""
    m = tiny()
    edit_weights(m, lambda t: [change(t, n, lambda i, v: v * 1e11) for n in t if "layers.1.mlp" in n or "layers.1.post" in n])
    for options in ((), ("--dtype", "bf16"), ("--tp", "2")):
        records, _, _ = ask(m, ALL, *options, np=2 if "--tp" in options else 1, status=20)
        assert {code(r) for r in records.values()} == {"non_finite_logits"} and all(r["error"] for r in records.values())
        assert "line 1" in message(records["raw"]) and "token 0 of the completion" in message(records["raw"])
    m = tiny()
    edit_weights(m, lambda t: change(t, "model.layers.0.mlp.down_proj.weight", lambda i, v: v * 1e6))
    assert set(answers(m)) == {"raw", "drawn", "chat"}  # too large for f16, not for us


main([f for name, f in list(globals().items()) if name.startswith("rc")])
