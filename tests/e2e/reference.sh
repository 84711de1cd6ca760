#!/usr/bin/env bash
# The file that all layouts are compared with: one rank, one thread, checked against known answers.
source "$(dirname "$0")/lib.sh"
rm -rf "$WORK/out"
lockstep 1 --input "$DATA/prompts.jsonl" --output "$WORK/out" --threads 1 --max-model-len 2048
expect_status 20
python3 - "$WORK/out" <<'P'
import json, sys
records = {r["custom_id"]: r for r in map(json.loads, open(sys.argv[1] + "/completions.jsonl", encoding="utf-8"))}
errors = [json.loads(line) for line in open(sys.argv[1] + "/errors.jsonl", encoding="utf-8")]
body = lambda name: records[name]["response"]["body"]
text = lambda name, i=0: body(name)["choices"][i]["text"]
assert len(records) == 29, len(records)
assert text("capital") == " Paris"
logprobs = body("capital")["choices"][0]["logprobs"]
assert list(logprobs["top_logprobs"][0]) == [" Paris", " the", " London", " Le", " New"], logprobs
assert abs(logprobs["token_logprobs"][0] + 0.258) < 2e-3, logprobs
assert text("counting") == " 6, 7, 8, 9, 10, 11, 12,", text("counting")
assert body("counting")["usage"] == {"prompt_tokens": 14, "completion_tokens": 24, "total_tokens": 38}
assert body("sum")["choices"][0]["message"]["content"].startswith("2 + 2 = 4") and "<|im_" not in json.dumps(body("sum")), body("sum")
assert body("sum")["usage"]["completion_tokens"] == 12 and body("sum")["choices"][0]["finish_reason"] == "length"
assert text("unseeded") != text("unseeded-2")
assert "\n" not in text("stop") and body("stop")["choices"][0]["finish_reason"] == "stop"
assert len(body("list")["choices"]) == 2 and text("ids").startswith(" Paris")
assert len(body("three")["choices"]) == 3 and len(set(text("three", i) for i in range(3))) == 3
assert all(len(c["logprobs"]["tokens"]) > 10 for c in body("score")["choices"])
assert len(errors) == 5 and {e["custom_id"] for e in errors} == {"line-11", "typo", "bad-type", "empty", "too-long"}, errors
by_id = {e["custom_id"]: e["error"] for e in errors}
assert "max_token" in by_id["typo"]["message"] and by_id["typo"]["message"].startswith("line "), by_id
P
