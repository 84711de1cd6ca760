"""Tiny random models for the end-to-end cases (make_tiny_model: a token is a byte), and what the cases ask of them."""
import json, os, pathlib, shutil, subprocess

from model_files import read_safetensors, write_safetensors
from runner import WORK, Skip, run

GOLDENS = pathlib.Path(os.environ["GOLDENS"])
RAW = {"custom_id": "raw", "prompt": "abcab", "max_tokens": 8, "temperature": 0, "logprobs": 3, "ignore_eos": True}
DRAWN = {"custom_id": "drawn", "prompt": "some words", "max_tokens": 40, "temperature": 2, "seed": 3, "logprobs": 2, "ignore_eos": True}
CHAT = {"custom_id": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
ALL = [RAW, DRAWN, CHAT]


def tiny(name="m", **fields):
    """A fresh tiny model; fields: those of TinyModel. dtype f32 unless said otherwise."""
    path = WORK / "models" / name
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(exist_ok=True)
    arguments = [f"{k}={v}" for k, v in {"dtype": "f32", **fields}.items()]
    subprocess.run([os.environ["MAKE_TINY_MODEL"], str(path), *arguments], check=True)
    return path


def edit_json(path, **values):
    root = json.loads(path.read_text())
    root.update(values)
    path.write_text(json.dumps(root))


def edit_weights(model, edit, file="model.safetensors"):
    tensors = read_safetensors(model / file)
    edit(tensors)
    write_safetensors(model / file, tensors)


def golden(name):
    if not (GOLDENS / name).exists():
        raise Skip(f"{GOLDENS / name} is absent")
    return GOLDENS / name


def ask(model, lines, *options, **more):
    return run(lines, "--served-model-name", "m", *options, model=model, **more)


def answers(model, *options, lines=ALL, np=1):
    """All answers of a model that must have them all; the model's name is not in them."""
    return ask(model, lines, *options, np=np, status=0)[0]


def refusal(model, *options, np=1, status=3):
    """What is said of a model that isn't run: one error, whatever the number of ranks."""
    _, _, stderr = ask(model, ALL, *options, np=np, status=status)
    assert sum("error: " in line for line in stderr.splitlines()) == 1, stderr
    assert not (WORK / "case" / "completions.jsonl").exists()
    return stderr


def echo(custom_id, prompt): return {"custom_id": custom_id, "prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0}
