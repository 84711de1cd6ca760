"""Promise 1, measured: the file of one rank, one thread, one sequence at a time and no cache, against the files of other runs.

First each factor by itself, then 30 random combinations of all (SEED names them, COMBINATIONS their number); a third of those are
killed once and go on under another combination. One line a run: its digest, seconds, and what it ran with. A run over shuffled input is
compared line by line. Needs PROGRAM, MODEL and WORK; the arguments go to every run. With --device cuda: layouts of up to GPUS GPUs (1).
"""
import hashlib, json, os, pathlib, random, re, shutil, signal, subprocess, sys, time

PROGRAM, MODEL, WORK = os.environ["PROGRAM"], os.environ["MODEL"], pathlib.Path(os.environ["WORK"])
COMMON = ["--max-model-len", "400", "--progress", "off", *sys.argv[1:]]
ON_GPU = "cuda" in COMMON
FAILED_LINES = 20  # the exit code: the input has faulty lines


def model_config():
    """Of a directory; of a GGUF file, SmolLM2's."""
    path = pathlib.Path(MODEL) / "config.json"
    return json.loads(path.read_text()) if path.exists() else {}


def requests():
    """Every kind of request, in lengths around the borders of pages and chunks; half of them begin alike."""
    rng = random.Random(7)
    scale = 1 if model_config().get("vocab_size", 49152) > 1000 else 5  # a small vocabulary takes a token a byte
    words = "river stone seven light under winter paper glass".split()
    shared = "These are the notes of a long journey. " + " ".join(rng.choice(words) for _ in range(70 // scale)) + ". "
    kinds = [
        {"temperature": 0},
        {"temperature": 0, "logprobs": 3},
        {"temperature": 0.9, "seed": 11},
        {"temperature": 1.1},
        {"temperature": 0.8, "n": 3, "top_p": 0.9},
        {"temperature": 0.7, "top_k": 20, "min_p": 0.02, "logprobs": 1},
        {"temperature": 0.9, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3, "n": 2},
        {"temperature": 0, "logit_bias": {"70": 3, "12": -100}, "min_tokens": 6},
        {"temperature": 0, "echo": True, "logprobs": 2, "max_tokens": 0},
        {"temperature": 0.6, "echo": True, "logprobs": 0},
    ]
    lines = []
    for i in range(16):
        n_words = -(-(1, 15, 16, 17, 31, 40, 70, 100)[i % 8] // scale)
        prompt = (shared if i % 2 else "") + " ".join(rng.choice(words) for _ in range(n_words))
        lines.append({"custom_id": f"r{i}", "prompt": prompt, "max_tokens": 4 + 3 * (i % 5), "ignore_eos": i % 3 > 0,
                      **kinds[i % len(kinds)]})
    for i in range(8):  # that grow by three pages each: in the smallest KV memory some have to make room
        lines.append({"custom_id": f"long{i}", "prompt": words[i], "max_tokens": 50, "temperature": i % 2, "ignore_eos": True})
    lines.append({"custom_id": "list", "prompt": [shared, shared + "more", "other"], "max_tokens": 5, "temperature": 0})
    lines.append({"custom_id": "faulty", "prompt": "x", "max_tokens": "8"})
    lines.append({"custom_id": "too long", "prompt": "x y " * 400})
    return [json.dumps(line) for line in lines]


def write(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def command(np, options, input_file, out):
    run = [PROGRAM, "run", "--model", MODEL, "--input", str(input_file), "--output", str(out), *COMMON, *options]
    return run if np == 1 else ["mpirun", "-np", str(np), "--oversubscribe", "--bind-to", "none", *run]


def finish(np, options, input_file, out):
    done = subprocess.run(command(np, options, input_file, out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != FAILED_LINES:
        sys.exit(f"FAILED: exit code {done.returncode} of {' '.join(command(np, options, input_file, out))}\n{done.stdout[-3000:]}")
    return (out / "completions.jsonl").read_text(encoding="utf-8") + (out / "errors.jsonl").read_text(encoding="utf-8")


def kill_midway(np, options, input_file, out, n_records):
    """Kills the whole job with signal 9 once its journal holds n_records; True if that interrupted it."""
    job = subprocess.Popen(command(np, options, input_file, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           start_new_session=True)
    while job.poll() is None:
        if sum(p.read_bytes().count(b"\n") for p in out.glob("journal/e*.jsonl")) >= n_records:
            break
        time.sleep(0.005)
    interrupted = job.poll() is None
    if interrupted:
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    subprocess.run(["pkill", "-9", "-f", f"{PROGRAM} run .*{out} "], check=False)
    return interrupted


def smallest_kv_memory(input_file):
    """What the program says that one sequence needs."""
    refused = subprocess.run(command(1, ["--kv-memory", "1"], input_file, WORK / "refused"), capture_output=True, text=True)
    needed = re.search(r"needs ([0-9.]+ ?[KMG]?i?B)", refused.stderr + refused.stdout)
    if refused.returncode != 2 or not needed:
        sys.exit(f"FAILED: --kv-memory 1 gave exit code {refused.returncode}: {refused.stderr}")
    return needed[1].replace(" ", "")


def layouts():
    config = model_config()
    heads, layers = config.get("num_key_value_heads", 3), config.get("num_hidden_layers", 30)
    most = int(os.environ.get("GPUS", "1")) if ON_GPU else 4
    every = [(tp, pp, dp) for tp in (1, 2, 3, 4) for pp in (1, 2, 3, 4) for dp in (1, 2, 3, 4) if tp * pp * dp <= most]
    return [(tp, pp, dp) for tp, pp, dp in every if tp <= heads and pp <= layers]


def shown(combination):
    words = {"layout": lambda v: "tp%d.pp%d.dp%d" % v, "input": lambda v: v.stem, "after": lambda v: f"({shown(v)})"}
    return " ".join(f"{name} {words.get(name, str)(value)}" for name, value in combination.items())


def in_any_order(text):
    """The records of a run over shuffled input: a fault names its line's number, and that has changed."""
    return sorted(re.sub(r"\bline \d+", "line", line) for line in text.splitlines())


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    lines = requests()
    straight = write(WORK / "straight.jsonl", lines)
    shuffled = write(WORK / "shuffled.jsonl", random.Random(3).sample(lines, len(lines)))
    kv = smallest_kv_memory(straight)
    factors = {
        "layout": layouts()[1:],
        "--max-batch-tokens": [64, 100, 1000, 8192],
        "--max-sequences": [1, 2, 5, 256],
        "--prefix-cache": ["off", "on"],
        "--kv-memory": [kv],
        "--swap-memory": ["0", "1M", "1G"],
        "--threads": [2, 3],
        "--lag": [0, 1, 4],
        "input": [shuffled],
        "--graphs": ["on", "off"] if ON_GPU else [],
    }
    factors = {name: values for name, values in factors.items() if values}
    combinations = [{name: value} for name, values in factors.items() for value in values] + [{"killed": 3}]
    combinations.append({"--kv-memory": kv, "--swap-memory": "1G"})
    rng = random.Random(int(os.environ.get("SEED", "1")))
    for _ in range(int(os.environ.get("COMBINATIONS", "30"))):
        combination = {name: rng.choice(values) for name, values in factors.items() if rng.random() < 0.6}
        if rng.random() < 1 / 3:
            combination["killed"] = rng.randrange(1, len(lines) - 3)
        combinations.append(combination)

    def options_of(combination):
        tp, pp, dp = combination.get("layout", (1, 1, 1))
        options = ["--tp", str(tp), "--pp", str(pp), "--dp", str(dp)]
        for name, value in {"--threads": 1, **combination}.items():
            if name.startswith("--"):
                options += [name, str(value)]
        return tp * pp * dp, options

    reference = finish(1, ["--threads", "1", "--max-sequences", "1", "--prefix-cache", "off"], straight, WORK / "reference")
    n_chosen = reference.count('"finish_reason":')
    print(f"reference {hashlib.sha256(reference.encode()).hexdigest()[:16]}: {len(lines)} lines, {n_chosen} choices")
    n_killed = n_swapped = 0
    for i, combination in enumerate(combinations):
        out, start = WORK / f"out{i}", time.monotonic()
        input_file = combination.get("input", straight)
        if "killed" in combination:
            n_killed += kill_midway(*options_of(combination), input_file, out, combination["killed"])
            combination = {**rng.choice(combinations), "after": combination}
        text = finish(*options_of(combination), input_file, out)
        equal = in_any_order(text) == in_any_order(reference) if input_file == shuffled else text == reference
        print(f"{'same ' if equal else 'OTHER'} {hashlib.sha256(text.encode()).hexdigest()[:16]} {time.monotonic() - start:5.1f} s  {shown(combination)}", flush=True)
        n_swapped += json.loads((out / "run.json").read_text()).get("memory_bytes", {}).get("swap", 0) > 0
        if not equal:
            sys.exit(f"FAILED: {out}/completions.jsonl differs from {WORK}/reference/completions.jsonl")
        shutil.rmtree(out)
    print(f"{len(combinations)} combinations, all the same; {n_killed} runs were killed and went on, {n_swapped} kept KV on the host")
    if n_killed == 0:
        sys.exit("FAILED: no kill fell into a run")
    if n_swapped == 0:
        sys.exit("FAILED: no sequence's KV went to the host")


main()
