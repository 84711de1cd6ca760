"""What the end-to-end cases share: one run of the program, its records, and the loop over the cases."""
import json, os, pathlib, shutil, subprocess, sys, traceback

PROGRAM, WORK = os.environ["PROGRAM"], pathlib.Path(os.environ["WORK"])
MODEL = os.environ.get("MODEL", "")
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")


def refuse_constant(text):
    raise ValueError(f"{text} is no JSON")


def records_of(path):
    """The records of a .jsonl by custom_id, in order of the file; strict JSON, UTF-8."""
    lines = path.read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == "", f"{path} ends within a line"
    records = [json.loads(line, parse_constant=refuse_constant) for line in lines]
    assert len({r["custom_id"] for r in records}) == len(records)
    return {r["custom_id"]: r for r in records}


def run(lines, *options, model=None, np=1, name="case", keep=False, status=None):
    """Runs lines (objects, strings, or raw bytes; None: those of last time); returns (records by custom_id, exit code, stderr)."""
    out, source = WORK / name, WORK / (name + ".jsonl")
    if not keep:
        shutil.rmtree(out, ignore_errors=True)
    if isinstance(lines, bytes):
        source.write_bytes(lines)
    elif lines is not None:
        source.write_text("".join((l if isinstance(l, str) else json.dumps(l, ensure_ascii=False)) + "\n" for l in lines), encoding="utf-8")
    if model is None and "--max-model-len" not in options:
        options += ("--max-model-len", "1024")
    launch = [] if np == 1 else ["mpirun", "-np", str(np), "--oversubscribe", "--bind-to", "none"]
    result = subprocess.run([*launch, PROGRAM, "run", "--model", str(model or MODEL), "--input", str(source), "--output", str(out), *options],
                            capture_output=True, encoding="utf-8")
    records = {}
    if (out / "completions.jsonl").exists() and result.returncode in (0, 20):
        records = records_of(out / "completions.jsonl")
        failed = {k: r for k, r in records.items() if r["error"]}
        assert records_of(out / "errors.jsonl") == failed and all(r["response"] is None for r in failed.values())
        assert result.returncode == (20 if failed else 0), (result.returncode, list(failed))
    if status is not None:
        assert result.returncode == status, (result.returncode, result.stderr[-800:])
    return records, result.returncode, result.stderr


def many(*options, **cases):
    """Cases that share one run: custom_id = request."""
    return run([{"custom_id": k, **v} for k, v in cases.items()], *options)[0]


def choice(record, i=0):
    assert record["response"], record["error"]
    return record["response"]["body"]["choices"][i]


def text(record, i=0): return choice(record, i)["text"] if "text" in choice(record, i) else choice(record, i)["message"]["content"]
def tokens(record, i=0): return choice(record, i)["logprobs"]["tokens"]
def usage(record): return record["response"]["body"]["usage"]
def code(record): return record["error"]["code"]
def message(record): return record["error"]["message"]


class Skip(Exception):
    """The data of a case is absent."""


def main(cases):
    """Runs the cases whose name holds the first argument (all without one); ends the process."""
    WORK.mkdir(parents=True, exist_ok=True)
    counts = {"ok": 0, "skipped": 0, "FAILED": 0}
    for case in cases:
        if len(sys.argv) > 1 and sys.argv[1] not in case.__name__:
            continue
        said = ""
        try:
            case()
            outcome = "ok"
        except Skip as reason:
            outcome, said = "skipped", reason
        except Exception as e:
            frame = next(f for f in traceback.extract_tb(e.__traceback__) if f.name == case.__name__)
            outcome, said = "FAILED", f"line {frame.lineno}: {frame.line} {e!r:.800}"
        counts[outcome] += 1
        print(f"{outcome:8}", case.__name__, said, flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in counts.items()))
    sys.exit(1 if counts["FAILED"] or not any(counts.values()) else 0)
