#!/usr/bin/env python3
"""The rules of resuming (README, "Resume"), one function each, through the program over a tiny model: what goes on, what is refused and
by which name, what --overwrite may touch, who holds a directory. Run by resume_rules.sh; arguments choose checks by name."""
import hashlib, json, os, pathlib, shutil, socket, subprocess, sys, time

PROGRAM, MODEL, WORK = os.environ["PROGRAM"], os.environ["MODEL"], pathlib.Path(os.environ["WORK"])
OUT, INPUT, MARKS = WORK / "out", WORK / "input.jsonl", WORK / "marks"
LINES = [{"custom_id": f"r{i}", "prompt": f"line {i}", "max_tokens": 4, "temperature": i % 2} for i in range(8)]
FAULTY = {"custom_id": "bad", "prompt": "x", "max_token": 3}
CHAT = {"custom_id": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


def write_input(lines, path=INPUT):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def command(*options, np=1, model=MODEL, out=OUT, source=INPUT):
    launcher = ["mpirun", "-np", str(np), "--oversubscribe", "--bind-to", "none"] if np > 1 else []
    return [*launcher, PROGRAM, "run", "--model", str(model), "--input", str(source), "--output", str(out), *([] if "--threads" in options else ["--threads", "1"]), *options]


def run(*options, status=0, says=(), env=None, **where):
    """Runs the program and checks its exit code and the words of its messages."""
    result = subprocess.run(command(*options, **where), capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert result.returncode == status, f"{options}: exit code {result.returncode}, expected {status}\n{result.stderr[-800:]}"
    for word in says:
        assert word in result.stderr, f"{options}: no word of {word!r}\n{result.stderr[-800:]}"
    return result


def refused(*options, says, status=2, **where):
    """The run is refused, by these names, and nothing in the directory has changed."""
    before = snapshot()
    run(*options, status=status, says=says, **where)
    assert snapshot() == before, f"{options}: a refused run changed the directory"


def fresh(lines=LINES, *options, status=0, **where):
    shutil.rmtree(OUT, ignore_errors=True)
    write_input(lines)
    run(*options, status=status, **where)
    return records()


def records(name="completions.jsonl"):
    return {r["custom_id"]: r for r in map(json.loads, (OUT / name).read_text().splitlines())}


def snapshot():
    """Every file: content, and when it was written."""
    return {str(p.relative_to(OUT)): (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest())
            for p in sorted(OUT.rglob("*")) if p.is_file()}


RULES = []
def rule(check):
    RULES.append(check)
    return check


def n_epochs(): return len(list((OUT / "journal/epochs").glob("*.json")))
def n_journal(): return sum(len(p.read_text().splitlines()) for p in (OUT / "journal").glob("e*.jsonl"))


# ---- lines ----
@rule
def finished_and_unchanged_does_nothing():
    fresh()
    before = snapshot()
    run(says=["nothing to do"])
    run("--dp", "2", np=2, says=["nothing to do"])
    assert snapshot() == before


@rule
def finished_with_failures_says_so_again():
    fresh(LINES + [FAULTY], status=20)
    before = snapshot()
    run(status=20)
    assert snapshot() == before


@rule
def appended_lines_run_and_only_they():
    first = fresh()
    write_input(LINES + [{"custom_id": "new", "prompt": "another", "max_tokens": 4}])
    run()
    assert n_journal() == 9 and list(records()) == [*first, "new"] and all(records()[k] == first[k] for k in first)


@rule
def inserted_lines_run_too():
    first = fresh()
    write_input(LINES[:3] + [{"custom_id": "new", "prompt": "another", "max_tokens": 4}] + LINES[3:])
    run()
    assert n_journal() == 9 and list(records())[3] == "new" and all(records()[k] == first[k] for k in first)


@rule
def reordered_lines_are_fine():
    first = fresh()
    write_input(LINES[::-1])
    run()
    assert n_journal() == 8 and list(records()) == list(first)[::-1] and records() == first


@rule
def a_renamed_or_touched_input_is_the_same_input():
    fresh()
    other = WORK / "other.jsonl"
    other.write_text("\ufeff" + "\r\n".join(json.dumps(line) for line in LINES))
    before = (OUT / "completions.jsonl").read_bytes()
    run(source=other)
    assert n_journal() == 8 and (OUT / "completions.jsonl").read_bytes() == before


@rule
def edited_lines_are_refused_by_name():
    fresh()
    write_input(LINES[:2] + [{**LINES[2], "prompt": "changed"}, {**LINES[3], "max_tokens": 5}] + LINES[4:])
    refused(says=["2 edited", "'r2' (line 3)", "'r3' (line 4)", "--overwrite"])


@rule
def removed_lines_are_refused_by_name():
    fresh()
    write_input(LINES[:3] + LINES[5:])
    refused(says=["2 removed", "'r3'", "'r4'", "--overwrite"])


@rule
def a_smaller_limit_removes_lines():
    fresh()
    refused("--limit", "5", says=["3 removed"])


@rule
def a_larger_limit_appends_lines():
    fresh(LINES, "--limit", "5")
    assert len(records()) == 5
    run()
    assert n_journal() == 8 and len(records()) == 8


# ---- failed lines ----
@rule
def failed_lines_stay_failed():
    fresh(LINES + [FAULTY], status=20)
    run(status=20)
    assert n_journal() == 9 and records()["bad"]["error"]


@rule
def retry_errors_runs_them_again_and_no_others():
    first = fresh(LINES + [FAULTY], status=20)
    run("--retry-errors", status=20)
    assert n_journal() == 10 and records() == first and n_epochs() == 2


@rule
def a_line_has_one_record_after_a_retry():
    fresh(LINES + [FAULTY], status=20)
    run("--retry-errors", status=20)
    assert len((OUT / "completions.jsonl").read_text().splitlines()) == 9 and len((OUT / "errors.jsonl").read_text().splitlines()) == 1


# ---- options ----
@rule
def options_that_change_results_are_refused_by_name():
    template = WORK / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    fresh()
    for options, name in [(["--seed", "1"], "--seed"), (["--max-tokens", "9"], "--max-tokens"), (["--temperature", "0.5"], "--temperature"),
                          (["--top-p", "0.5"], "--top-p"), (["--dtype", "f32"], "--dtype"), (["--max-model-len", "128"], "--max-model-len"),
                          (["--chat-template", str(template)], "--chat-template"), (["--served-model-name", "x"], "--served-model-name"),
                          (["--content-special-tokens", "parse"], "--content-special-tokens"), (["--require-model", "x"], "--require-model")]:
        refused(*options, says=["other options", name + " (was ", ", now "])
    refused("--seed", "1", "--top-p", "0.5", says=["--seed (was '0', now '1')", "--top-p (was 'model', now '0.5')"])


@rule
def an_edited_template_is_another_template():
    template = WORK / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    fresh(LINES + [CHAT], "--chat-template", str(template))
    run("--chat-template", str(template), says=["nothing to do"])
    template.write_text("{% for m in messages %}- {{ m.content }}{% endfor %}")
    refused("--chat-template", str(template), says=["--chat-template"])


@rule
def another_model_is_refused():
    other = WORK / "other" / pathlib.Path(MODEL).name  # by the same name
    fresh()
    for changed in ("model.safetensors", "tokenizer_config.json", "generation_config.json"):
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(MODEL, other)
        path = other / changed
        data = bytearray(path.read_bytes())
        if changed.endswith(".json"):
            data += b" "
        else:
            data[-1] ^= 1
        path.write_bytes(data)
        refused(model=other, says=["other options", "model (was '"])
    shutil.rmtree(other)
    shutil.copytree(MODEL, other)
    run(model=other, says=["nothing to do"])  # a copy elsewhere is the same model


@rule
def another_kernel_class_or_version_is_refused():
    fresh()
    manifest = OUT / "journal/manifest.json"
    kept = manifest.read_text()
    for field in ("kernel class", "results version"):
        changed = json.loads(kept)
        assert field in changed["fields"], changed
        changed["fields"][field] = "another"
        manifest.write_text(json.dumps(changed))
        refused(says=[f"{field} (was 'another', now '"])
    manifest.write_text(kept)
    run(says=["nothing to do"])


@rule
def options_that_change_no_result_are_accepted():
    whole = fresh()
    for np, options in [(1, ["--max-batch-tokens", "64"]), (1, ["--max-sequences", "2"]), (1, ["--threads", "2"]), (1, ["--kv-memory", "64M"]),
                        (1, ["--prefix-cache", "off"]), (1, ["--lag", "2"]), (1, ["--swap-memory", "1G"]), (1, ["--progress", "off"]), (2, ["--tp", "2"]), (2, ["--pp", "2"]),
                        (2, ["--dp", "2"])]:
        fresh(LINES[:4])
        write_input(LINES)
        run(*options, np=np)
        assert records() == whole and n_journal() == 8, options


# ---- starting anew ----
@rule
def overwrite_starts_anew():
    fresh()
    other = [{**line, "prompt": "other " + line["prompt"]} for line in LINES[:5]]
    write_input(other)
    run("--overwrite", "--seed", "3")
    assert list(records()) == [line["custom_id"] for line in other] and n_journal() == 5
    anew = records()
    shutil.rmtree(OUT)
    run("--seed", "3")
    assert records() == anew
    run("--seed", "3", says=["nothing to do"])


@rule
def overwrite_touches_nothing_before_all_checks_have_passed():
    fresh()
    broken = WORK / "broken"
    shutil.rmtree(broken, ignore_errors=True)
    shutil.copytree(MODEL, broken)
    (broken / "model.safetensors").write_bytes((broken / "model.safetensors").read_bytes()[:5000])
    refused("--overwrite", model=WORK / "absent", status=3, says=["absent"])
    refused("--overwrite", model=broken, status=3, says=["model.safetensors"])
    refused("--overwrite", source=WORK / "absent.jsonl", status=3, says=["absent.jsonl"])
    refused("--overwrite", "--chat-template", str(WORK / "absent.jinja"), status=3, says=["absent.jinja"])
    refused("--overwrite", "--kv-memory", "4K", status=2, says=["KV memory"])
    refused("--overwrite", "--tp", "64", status=2, says=["64"])
    refused("--overwrite", "--max-model-len", "100000", status=2, says=["100000"])
    write_input(LINES + [LINES[0]])
    refused("--overwrite", status=2, says=["'r0' on lines 1 and 9"])
    write_input([])
    refused("--overwrite", status=3, says=["no request"])
    # The last check is the reading of the weights themselves.
    shutil.rmtree(broken)
    shutil.copytree(MODEL, broken)
    (broken / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE", "vocab": {')
    write_input(LINES)
    refused("--overwrite", model=broken, status=3, says=["tokenizer"])


@rule
def resume_never_refuses_what_is_there():
    fresh()
    refused("--resume", "never", says=["holds a run already", "--overwrite"])
    shutil.rmtree(OUT)
    run("--resume", "never")
    assert len(records()) == 8
    run("--resume", "never", "--overwrite")
    assert len(records()) == 8


@rule
def results_without_a_journal_are_not_overwritten():
    fresh()
    shutil.rmtree(OUT / "journal")
    (OUT / "journal").mkdir()
    (OUT / "journal/epochs").mkdir()
    refused(says=["completions.jsonl", "--overwrite"])


@rule
def lost_final_files_are_made_again():
    fresh()
    want = (OUT / "completions.jsonl").read_bytes()
    for lost in ("completions.jsonl", "errors.jsonl", "run.json"):
        (OUT / lost).unlink()
        run()
        assert (OUT / "completions.jsonl").read_bytes() == want and (OUT / lost).exists() and n_journal() == 8


@rule
def a_damaged_record_runs_again():
    first = fresh()
    shard = next((OUT / "journal").glob("e*.jsonl"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    (OUT / "completions.jsonl").unlink()
    run(says=["1 damaged lines"])
    assert records() == first and n_journal() == 9


# ---- one job a directory ----
def holder(**changes):
    return json.dumps({"host": "node7", "pid": 4711, "process_start": 1, "machine": "another", "since": "2026-01-02T03:04:05Z",
                       "token": "0123456789abcdef", **changes}) + "\n"


def put_lock(text, age_s=0):
    lock = OUT / "journal/lock"
    lock.write_text(text)
    os.utime(lock, (time.time() - age_s,) * 2)
    return lock


def hanging(at):
    """A job that waits at this call until its marks say go."""
    for path in (OUT, MARKS):
        shutil.rmtree(path, ignore_errors=True)
    MARKS.mkdir()
    write_input(LINES)
    faults = {"LD_PRELOAD": os.environ["BAD_DISK_LIBRARY"], "BAD_DISK": at, "BAD_DISK_MARKS": str(MARKS)}
    job = subprocess.Popen(command(), env={**os.environ, **faults}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (MARKS / "0").exists():
        assert job.poll() is None, job.stderr.read()
        time.sleep(0.01)
    return job


def unfinished():
    """A directory with half of its work done."""
    fresh(LINES[:4])
    write_input(LINES)


@rule
def the_second_job_is_refused_while_the_first_lives():
    first = hanging("open:/journal/e0001:wait")
    for options in ([], ["--overwrite"], ["--takeover"]):  # --takeover is for other hosts: this one is seen to be alive
        refused(*options, says=["in use by process " + str(first.pid), socket.gethostname(), "since 20"])
    merge = subprocess.run([PROGRAM, "merge", "--partial", str(OUT)], capture_output=True, text=True)
    assert merge.returncode == 2 and f"process {first.pid}" in merge.stderr, merge.stderr
    (MARKS / "go").touch()
    assert first.wait(60) == 0 and len(records()) == 8


@rule
def the_lock_of_a_dead_process_needs_no_hand_work():
    first = hanging("open:/journal/e0001:wait")
    first.kill()
    first.wait()
    assert (OUT / "journal/lock").exists()
    run(says=[f"took over the lock of process {first.pid}"])
    assert len(records()) == 8 and not (OUT / "journal/lock").exists()


@rule
def a_reused_process_number_is_not_the_holder():
    unfinished()
    mine = next(line for line in open("/proc/self/stat"))
    machine = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + os.readlink("/proc/self/ns/pid")
    start = int(mine.rsplit(")", 1)[1].split()[19])
    put_lock(holder(host=socket.gethostname(), pid=os.getpid(), process_start=start, machine=machine))
    refused(says=[f"in use by process {os.getpid()}"])
    put_lock(holder(host=socket.gethostname(), pid=os.getpid(), process_start=start - 1, machine=machine))
    run()
    assert len(records()) == 8


@rule
def a_holder_on_another_host_is_alive_for_five_minutes():
    unfinished()
    put_lock(holder(), age_s=240)
    refused(says=["process 4711 on node7", "since 2026-01-02T03:04:05Z", "300 s", "--takeover"])


@rule
def a_holder_on_another_host_is_dead_after_five_silent_minutes():
    unfinished()
    put_lock(holder(), age_s=310)
    run(says=["took over the lock of process 4711 on node7"])
    assert len(records()) == 8 and not (OUT / "journal/lock").exists()


@rule
def takeover_does_not_wait():
    unfinished()
    put_lock(holder(), age_s=1)
    run("--takeover", says=["took over the lock of process 4711 on node7"])
    assert len(records()) == 8


@rule
def a_job_that_was_taken_over_stops_and_changes_nothing():
    # The first job hangs in the middle of its work; it is taken for dead (its lock goes), the second finishes; then the first wakes up.
    first = hanging("pread:/input.jsonl:wait@6")
    (OUT / "journal/lock").unlink()
    run()
    done = {k: v for k, v in snapshot().items() if "e0001" not in k}
    (MARKS / "go").touch()
    first.wait(60)
    words = first.stderr.read()
    assert first.returncode == 2 and "took this directory over" in words, (first.returncode, words)
    assert {k: v for k, v in snapshot().items() if "e0001" not in k} == done
    run(says=["nothing to do"])


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@rule
def a_late_writer_does_not_count():
    # A good line of the first epoch, with another answer, reaches its shard after the next epoch sealed it. Were it read, it would win.
    fresh(LINES[:4])
    write_input(LINES)
    run()
    want = (OUT / "completions.jsonl").read_bytes()
    _, kind, name, content, epoch, record = next((OUT / "journal").glob("e0002-*.jsonl")).read_bytes().splitlines()[0].split(b" ", 5)
    assert epoch == b"2" and crc32c(b"123456789") == 0xE3069283
    body = b" ".join([kind, name, content, b"1", record.replace(b'"text":"', b'"text":"late ')])
    late = b"%08x " % crc32c(body) + body + b"\n"
    with open(next((OUT / "journal").glob("e0001-*.jsonl")), "ab") as shard:
        shard.write(late)
    (OUT / "journal/e0001-w007.jsonl").write_bytes(late)  # a shard that the seal does not know
    (OUT / "completions.jsonl").unlink()
    run(says=["written after the file was sealed, ignored"])
    assert (OUT / "completions.jsonl").read_bytes() == want


@rule
def torn_and_zeroed_ends_run_again():
    whole = fresh()
    shard = next((OUT / "journal").glob("e*.jsonl"))
    data = shard.read_bytes()
    for damage in (data[:-40], data[:-40] + b"\0" * 40, data + b"\0" * 4096, data[: len(data) // 2], b"", data[:300] + data[200:]):
        shutil.rmtree(OUT)
        run()
        next((OUT / "journal").glob("e*.jsonl")).write_bytes(damage)
        for name in ("completions.jsonl", "errors.jsonl", "run.json"):
            (OUT / name).unlink()
        run()
        assert records() == whole


if __name__ == "__main__":
    chosen = [f for f in RULES if not sys.argv[1:] or f.__name__ in sys.argv[1:]]
    n_failed = 0
    for check in chosen:
        try:
            check()
            print("ok     ", check.__name__.replace("_", " "), flush=True)
        except Exception as e:  # all of them are told
            n_failed += 1
            print("FAILED ", check.__name__.replace("_", " ") + ":", type(e).__name__, e, flush=True)
    print(len(chosen) - n_failed, "of", len(chosen), "rules hold")
    sys.exit(n_failed > 0 or not chosen)
