#!/usr/bin/env python3
"""Templates and tokens as models bring them, through the program: where a template comes from and how it fails, marks in content,
BOS, clean-up, added tokens. On tiny models, and the goldens where a case needs them."""
import json

from runner import WORK, code, main, message, text, tokens, usage
from tiny_models import ALL, CHAT, RAW, ask, echo, edit_json, golden, refusal, tiny

# ---- templates ----

def prompt_bytes(model, template=None, *options, **request):
    """The length of a rendered prompt: a token is a byte, or one of the special texts."""
    if template is not None:
        (model / "chat_template.jinja").write_text(template)
    records, _, _ = ask(model, [{**CHAT, "max_tokens": 1, **request}], *options, status=0)
    return usage(records["chat"])["prompt_tokens"]


def rc50_template_sources():
    m = tiny()
    config = m / "tokenizer_config.json"
    option = WORK / "option.jinja"
    option.write_text("from option")
    named = [{"name": "tool_use", "template": "with tools"}, {"name": "default", "template": "default!"}]
    edit_json(config, chat_template="config")
    assert prompt_bytes(m) == len("config")
    edit_json(config, chat_template=named)
    assert prompt_bytes(m) == len("default!")
    edit_json(config, chat_template=named[::-1])
    assert prompt_bytes(m) == len("default!")
    assert prompt_bytes(m, "file") == len("file")
    assert prompt_bytes(m, None, "--chat-template", str(option)) == len("from option")
    assert "no such file" in ask(m, [CHAT], "--chat-template", str(WORK / "nowhere"), status=3)[2]


def rc50_no_template():
    m = tiny()
    for template in (None, [{"name": "rag", "template": "x"}]):
        edit_json(m / "tokenizer_config.json", chat_template=template)
        records, _, stderr = ask(m, ALL, status=20)
        assert code(records["chat"]) == "no_chat_template" and "line 3" in message(records["chat"]) and "no chat template" in message(records["chat"])
        assert text(records["raw"]) is not None and text(records["drawn"])
        assert template is None or "rag" in stderr


def rc50_errors_of_templates():
    m = tiny()
    roles = [CHAT] + [{**CHAT, "custom_id": role, "messages": [{"role": role, "content": "x"}]} for role in ("tool", "foo")]
    (m / "chat_template.jinja").write_text("{% for m in messages %}\n{% if m.role != 'user' %}{{ raise_exception('Only users: ' + m.role) }}{% endif %}{% endfor %}ok")
    records, _, _ = ask(m, roles, status=20)
    assert records["chat"]["response"]
    for line, role in ((2, "tool"), (3, "foo")):
        assert records[role]["error"] == {"code": "template_error", "message": f"line {line}: Only users: {role}"}, records[role]
    # What fails while it runs is the line's fault and says where in the template.
    for template, where in (("{{ messages[0].a.b }}", 1), ("\n\n{{ messages[0].a.b }}", 3), ("{% macro f(x) %}\n\n{{ x.a.b }}\n{% endmacro %}\n{{ f(messages[0]) }}", 3),
                            ("{% for m in messages %}\n{% set x = 1 // (m.content | length - 2) %}\n{% endfor %}", 2), ("{% if true and\n messages[0].a.b %}{% endif %}", 2)):
        (m / "chat_template.jinja").write_text(template)
        records, _, _ = ask(m, [RAW, CHAT], status=20)
        assert message(records["chat"]).startswith("line 2: ") and message(records["chat"]).endswith(f" (chat template line {where})"), message(records["chat"])
    # What can't be parsed is refused before anything runs.
    for template, where, what in (("a\n{% include 'x' %}", 2, "include"), ("\n\n{{ messages | frobnicate }}", 3, "frobnicate"), ("{% if x %}", 1, "never closed")):
        (m / "chat_template.jinja").write_text(template)
        said = refusal(m)
        assert f"chat template line {where}: " in said and what in said, said


def rc50_what_templates_use():
    m = tiny()
    conversation = [{"role": "user", "content": " x "}, {"role": "assistant", "content": "y"}, {"role": "user", "content": "é"}]
    for template, prompt in (
            ("{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + loop.index0 %}{{ m.content.strip() }}{% endfor %}={{ ns.n }}", "éyx=3"),
            ("{{ messages[1:] | tojson }}", json.dumps(conversation[1:], ensure_ascii=False)), ("{{ strftime_now('%Y-%m-%d') }}", "2025-01-02"),
            ("{% for t in tools or [] %}{{ t.function.name }};{% endfor %}", ""), ("{{ tools | length }}{{ depth }}", "1deep")):
        more = {} if prompt or "tools" not in template else {"max_tokens": 1}
        if "tools" in template:
            more = {"tools": [{"type": "function", "function": {"name": "look"}}], "chat_template_kwargs": {"depth": "deep"}}
            prompt = prompt or "look;"
        assert prompt_bytes(m, template, messages=conversation, **more) == len(prompt.encode()), template


def rc48_marks_in_content_either_file():
    gguf = golden("tiny_gguf/llama-f16.gguf")
    for model, mark in ((tiny(), "<|im_end|>"), (gguf, "<|bos|>"), (golden("tiny/llama"), "<|bos|>")):
        plain = ask(model, [{**CHAT, "messages": [{"role": "user", "content": "x"}]}], status=0)[0]
        forged = [{**CHAT, "messages": [{"role": "user", "content": mark}]}]
        n = usage(plain["chat"])["prompt_tokens"] - 1
        as_text, as_token = (usage(ask(model, forged, "--content-special-tokens", mode, status=0)[0]["chat"])["prompt_tokens"] - n for mode in ("text", "parse"))
        assert as_text > 3 and as_token == 1, (mark, as_text, as_token)
        raw = ask(model, [{**RAW, "prompt": mark, "max_tokens": 1}], status=0)[0]["raw"]
        assert usage(raw)["prompt_tokens"] == 1


def rc49_one_bos():
    m = tiny()
    lines = [{**RAW, "custom_id": "text", "prompt": "abc"}, {**RAW, "custom_id": "ids", "prompt": [1, 101, 102]},
             {**RAW, "custom_id": "no bos", "prompt": [101, 102]}, {**RAW, "custom_id": "own", "prompt": "<|im_start|>abc"}, CHAT]
    count = lambda: {k: usage(r)["prompt_tokens"] for k, r in ask(m, lines, status=0)[0].items()}
    before = count()
    edit_json(m / "tokenizer_config.json", add_bos_token=True)
    assert count() == {**before, "text": before["text"] + 1} and before["text"] == 3 and before["own"] == 4


def rc52_clean_up_is_off():
    m = tiny()
    prompts = ["a , b . c ?", "x != y", "it 's", " do n't ", "a\u00a0b\r\n"]
    for flag in (True, False):
        edit_json(m / "tokenizer_config.json", clean_up_tokenization_spaces=flag)
        records, _, _ = ask(m, [echo(f"p{i}", p) for i, p in enumerate(prompts)] + [echo("ids", list(b + 4 for b in b"a , b ?"))], status=0)
        assert [text(records[f"p{i}"]) for i in range(len(prompts))] == prompts and text(records["ids"]) == "a , b ?"
        # Sampled text is joined as it comes: bias makes the model say " ?" again and again.
        said = ask(m, [{**RAW, "max_tokens": 6, "frequency_penalty": 2, "logit_bias": {str(ord(" ") + 4): 100, str(ord("?") + 4): 100}}], status=0)[0]["raw"]
        assert " ?" in text(said) and text(said) == "".join(tokens(said)) and set(text(said)) == {" ", "?"}, text(said)


# ---- tokens ----

def rc54_added_tokens():
    m = tiny(vocab=320)
    plain = json.loads((m / "tokenizer.json").read_text())
    def with_tokens(*added):
        tokens_of = [{"id": id, "content": content, "special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, **flags} for id, content, flags in added]
        (m / "tokenizer.json").write_text(json.dumps({**plain, "added_tokens": plain["added_tokens"] + tokens_of}))
    def cut(*prompts):
        records, _, _ = ask(m, [echo(p, p) for p in prompts], status=0)
        assert all(text(r) == p for p, r in records.items())
        return [tokens(records[p]) for p in prompts]
    for flags, apart, joined, inside in (({}, "x|.|<tool>|.|y", "x|<tool>|y", "x|x|<tool>|x|x"), ({"lstrip": True}, "x|<tool>|.|y", "x|<tool>|y", "x|x|<tool>|x|x"),
                                         ({"rstrip": True}, "x|.|<tool>|y", "x|<tool>|y", "x|x|<tool>|x|x"), ({"normalized": True}, "x|.|<tool>|.|y", "x|<tool>|y", "x|x|<tool>|x|x"),
                                         ({"single_word": True}, "x|.|<tool>|.|y", "x|<|t|o|o|l|>|y", "x|x|<|t|o|o|l|>|x|x")):
        with_tokens((260, "<tool>", flags))
        records, _, _ = ask(m, [echo(p, p) for p in ("x <tool> y", "x<tool>y", "xx<tool>xx")], status=0)
        got = ["|".join(tokens(r)).replace(" ", ".") for r in records.values()]
        assert got == [apart, joined, inside], (flags, got)
    with_tokens((260, "<a", {}), (261, "<a>", {}))
    assert cut("<a>", "<a", "<a<a>") == [["<a>"], ["<a"], ["<a", "<a>"]]
    # An id past the embedding is the fault of the line that uses it, and never sampled.
    m = tiny(vocab=261)
    with_tokens((260, "<near>", {}), (261, "<far>", {}))
    records, _, _ = ask(m, [echo("near", "<near>"), echo("far", "x<far>"), echo("id", [261]), *ALL], status=20)
    assert all(code(records[k]) == "invalid_token" and "261" in message(records[k]) for k in ("far", "id")), records["far"]
    assert usage(records["near"])["prompt_tokens"] == 1 and all(records[k]["response"] for k in ("raw", "drawn", "chat"))


main([f for name, f in list(globals().items()) if name.startswith("rc")])
