#!/usr/bin/env python3
"""The walls: which folder may include which, no cycle, no long file, every header compiles alone.
usage: layering_test.py ROOT includes | headers COMPILER [FLAGS...]"""
import pathlib, re, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(sys.argv[1])
MAY_INCLUDE = {  # README, "Layout of the code"
    "base": "", "tensor": "base", "mesh": "base tensor", "records": "base", "text": "base",
    "checkpoint": "base tensor", "comm": "base tensor mesh", "ops": "base tensor records", "ops/cpu": "base tensor records ops",
    "comm/cuda": "base tensor comm kernels", "ops/cuda": "base tensor records ops kernels", "sched": "base records", "journal": "base records",
    "telemetry": "base records", "model": "base tensor mesh records checkpoint comm ops",
    "engine": "base tensor mesh records text checkpoint comm ops sched model journal telemetry",
    "cli": "base", "commands": "*", "main": "*", "kernels": "kernels"}
MAX_LINES = 500


def folder_of(path):
    parts = path.parts[1:] if path.parts[0] == "src" else path.parts
    return "/".join(parts[:2]) if parts[0] in ("ops", "comm") and len(parts) > 2 else parts[0] if len(parts) > 1 else \
        "main" if parts[0].startswith("main") else "cli"


def sources():
    for pattern in ("src/**/*.h", "src/**/*.cpp", "src/**/*.inc", "kernels/*.h", "kernels/*.cu", "kernels/*.cuh"):
        for path in sorted(ROOT.glob(pattern)):
            yield path.relative_to(ROOT)


def check_includes():
    faults, edges = [], {}
    for path in sources():
        text = (ROOT / path).read_text()
        if text.count("\n") > MAX_LINES and "generated" not in text[:400]:
            faults.append(f"{path}: {text.count(chr(10))} lines, at most {MAX_LINES}")
        folder = folder_of(path)
        if folder not in MAY_INCLUDE:
            faults.append(f"{path}: folder '{folder}' has no rule")
            continue
        for include in re.findall(r'#include "([^"]+)"', text):
            target = pathlib.Path(include)
            if target.parts[0] == "kernels":
                other = "kernels"
            elif (ROOT / "src" / target).exists():
                other = folder_of(pathlib.Path("src") / target)
            elif (ROOT / path.parent / target).exists() and len(target.parts) == 1:
                other = folder
            else:
                faults.append(f"{path}: includes {include}, which is not there")
                continue
            allowed = MAY_INCLUDE[folder]
            if other != folder and allowed != "*" and other not in allowed.split():
                faults.append(f"{path}: {folder or 'src'} may not include {other} ({include})")
            edges.setdefault(folder, set()).add(other)

    def visit(node, trail):
        for other in sorted(edges.get(node, ())):
            if other == node:
                continue
            if other in trail:
                faults.append("cycle: " + " -> ".join(trail[trail.index(other):] + [other]))
            elif other not in done:
                visit(other, trail + [other])
        done.add(node)

    done = set()
    for node in sorted(edges):
        if node not in done:
            visit(node, [node])
    return faults


def check_headers(compiler):
    def compile_alone(path):
        source = f'#include "{path.relative_to("src")}"\n'
        result = subprocess.run(compiler + ["-fsyntax-only", "-x", "c++", "-"], input=source, text=True, capture_output=True)
        return f"{path}: does not compile alone\n{result.stderr[:600]}" if result.returncode else None

    headers = [p for p in sources() if p.suffix == ".h" and p.parts[0] == "src"]
    assert len(headers) > 20, "no headers found"
    cuda = subprocess.run(compiler + ["-fsyntax-only", "-x", "c++", "-"], input="#include <cuda_runtime.h>\n", text=True, capture_output=True)
    if cuda.returncode:  # a machine without CUDA builds nothing of these
        print("no CUDA here: the headers of folders named cuda are left out")
        headers = [p for p in headers if p.parts[-2] != "cuda"]
    with ThreadPoolExecutor(2) as pool:
        return [fault for fault in pool.map(compile_alone, headers) if fault]


faults = check_includes() if sys.argv[2] == "includes" else check_headers(sys.argv[3:])
print("\n".join(faults) or "no faults")
sys.exit(1 if faults else 0)
