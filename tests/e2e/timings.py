#!/usr/bin/env python3
"""timings.h5 as its users read it, against completions.jsonl and report.html. usage: timings.py WORK, as timings.sh left it."""
import html.parser
import json
import pathlib
import sys

import h5py
import numpy as np
import pandas as pd
import xarray as xr

WORK = pathlib.Path(sys.argv[1])
UNITS = {"admitted": "s", "first_token": "s", "done": "s", "start": "s", "duration": "s", "compute": "s", "communication": "s",
         "waiting": "s", "seconds": "s", "device": "s", "prompt_tokens": "tokens", "cached_tokens": "tokens", "generated_tokens": "tokens",
         "prefill_tokens": "tokens", "decode_tokens": "tokens", "time": "s", "power": "W", "temperature": "degC", "sm_clock": "MHz",
         "memory_clock": "MHz", "utilisation": "%", "memory_utilisation": "%", "memory_used": "bytes", "energy": "J"}
COLUMNS = {"requests": "line custom_id attempt replica admitted first_token done prompt_tokens cached_tokens generated_tokens finish_reason",
           "steps": "row attempt step replica stage tensor_rank start duration compute communication waiting prefill_tokens decode_tokens "
                    "sequences device pages",
           "gpu": "row attempt time power temperature sm_clock memory_clock utilisation memory_utilisation memory_used energy throttle_reasons",
           "phases": "row phase attempt rank start seconds"}


def records(out):
    return [json.loads(line) for line in (out / "completions.jsonl").read_text(encoding="utf-8").splitlines()]


def check_form(out):
    """Equal lengths, units, long names, dimension scales."""
    with h5py.File(out / "timings.h5") as f:
        assert set(f) == {"requests", "steps", "gpu", "phases"}, set(f)
        groups = [f["requests"], f["phases"], *f["steps"].values(), *f["gpu"].values()]
        for group in groups:
            scale, *others = COLUMNS[group.name.split("/")[1]].split()
            assert set(group) == {scale, *others}, group.name
            n = len(group[scale])
            assert n > 0 and group[scale].attrs["CLASS"] == b"DIMENSION_SCALE", group.name
            for name, column in group.items():
                assert column.shape == (n,), column.name
                assert column.attrs["units"] == UNITS.get(name, "1"), column.name
                assert len(column.attrs["long_name"]) > 2, column.name
                if name != scale:
                    assert len(column.dims[0]) == 1 and column.dims[0][0].name == group[scale].name, column.name


def frame(out, group):
    with h5py.File(out / "timings.h5") as f:
        return pd.DataFrame({name: column.asstr()[:] if column.dtype.kind == "O" else column[:] for name, column in f[group].items()})


def ranks(out):
    with h5py.File(out / "timings.h5") as f:
        return {int(name.removeprefix("rank_")): frame(out, f"steps/{name}") for name in f["steps"]}


def check_requests(out):
    """One row a line, in order; tokens as in the answers; times in order."""
    rows, answers = frame(out, "requests"), records(out)
    assert list(rows.custom_id) == [a["custom_id"] for a in answers]
    assert rows.line.is_monotonic_increasing and rows.line.is_unique
    for row, answer in zip(rows.itertuples(), answers):
        if answer["error"]:
            assert (row.finish_reason, row.prompt_tokens, row.generated_tokens) == ("error", 0, 0), row
            assert np.isnan(row.admitted) and np.isnan(row.done), row
            continue
        usage, choice = answer["response"]["body"]["usage"], answer["response"]["body"]["choices"][0]
        assert (row.prompt_tokens, row.generated_tokens) == (usage["prompt_tokens"], usage["completion_tokens"]), row
        assert row.finish_reason == choice["finish_reason"], row
        assert 0 <= row.admitted <= row.first_token <= row.done, row
        assert 0 <= row.cached_tokens < row.prompt_tokens, row
    return rows


def check_steps(rows):
    for rank, steps in ranks(rows.attrs["out"]).items():
        for _, attempt in steps.groupby("attempt"):
            assert attempt.step.is_monotonic_increasing and attempt.step.is_unique, rank
            ends = (attempt.start + attempt.duration).to_numpy()
            assert (attempt.start.to_numpy()[1:] >= ends[:-1] - 1e-9).all(), f"steps of rank {rank} overlap"
        assert (steps.duration > 0).all() and (steps.sequences > 0).all() and (steps.pages >= 0).all() and steps.pages.max() > 0, rank
        parts = steps[["compute", "communication", "waiting"]]
        assert (parts.to_numpy() >= -1e-9).all(), f"rank {rank}: a part of a step takes less than no time"
        assert np.allclose(parts.sum(axis=1), steps.duration), rank
        assert steps.attempt.is_monotonic_increasing, rank


def replica_steps(out):
    """The steps of every replica once: of its lowest rank."""
    every = pd.concat([steps.assign(rank=rank) for rank, steps in ranks(out).items()])
    return every[every["rank"] == every.groupby(["attempt", "replica"])["rank"].transform("min")]


def check_attempts(out, rows, layouts):
    """Rows of the first attempt stay; both attempts ran what they say, under their own layout."""
    assert set(rows.attempt) == {1, 2}, set(rows.attempt)
    for attempt, places in layouts.items():
        found = {(rank, *place) for rank, steps in ranks(out).items()
                 for place in steps[steps.attempt == attempt][["replica", "stage", "tensor_rank"]].drop_duplicates().itertuples(index=False)}
        assert found == places, (attempt, found)
    # The last attempt lost nothing, so its steps computed just the tokens of its requests: all but the cached ones and each last sample.
    mine, steps = rows[(rows.attempt == 2) & (rows.finish_reason != "error")], replica_steps(out)
    steps = steps[steps.attempt == 2]
    computed = (mine.prompt_tokens - mine.cached_tokens + mine.generated_tokens - 1).sum()
    assert steps.prefill_tokens.sum() + steps.decode_tokens.sum() == computed, (steps.prefill_tokens.sum(), computed)


def check_phases(out, n_ranks):
    phases = frame(out, "phases")
    last = phases[phases.attempt == 2]
    for rank in range(n_ranks):
        assert list(last[last["rank"] == rank].phase)[:3] == ["open", "load", "run"], phases
    assert list(last[last["rank"] == 0].phase)[-1] == "merge"
    of_rank_0 = last[last["rank"] == 0]
    assert np.allclose(of_rank_0.start, np.concatenate([[0], np.cumsum(of_rank_0.seconds)[:-1]]))


def check_gpus(out, attempts):
    """attempts: by attempt and rank the joules between two readings of the made-up GPU that it had."""
    with h5py.File(out / "timings.h5") as f:
        gpus = {int(name.removeprefix("rank_")): frame(out, f"gpu/{name}") for name in f["gpu"]}
    phases = frame(out, "phases")
    assert {(a, rank) for rank, rows in gpus.items() for a in rows.attempt} == set(attempts), gpus
    energy = {"load": 0, "run": 0}
    for (attempt, rank), joules in attempts.items():
        rows = gpus[rank][gpus[rank].attempt == attempt].reset_index(drop=True)
        assert len(rows) >= 2 and rows.time.is_monotonic_increasing and rows.time[0] > 0, rows
        assert np.allclose(rows.energy, joules * np.arange(len(rows))), rows
        first, later = rows.iloc[0], rows.iloc[1:]
        if joules == 2.5:
            assert (first.power, first.temperature, first.sm_clock, first.utilisation, first.throttle_reasons) == (100, 31, 345, 0, 1), rows
            assert (later.power == 350).all() and (later.memory_used == 70_000_000_000).all() and (later.memory_utilisation == 38).all(), rows
        else:  # what this one doesn't give is no number
            assert (rows.power == 120).all() and rows.temperature.isna().all() and rows.utilisation.isna().all(), rows
            assert (rows.memory_used == -1).all() and (rows.throttle_reasons == -1).all(), rows
        mine = phases[(phases.attempt == attempt) & (phases["rank"] == rank)].set_index("phase")
        if "run" not in mine.index:
            continue  # killed
        end = mine.start["run"] + mine.seconds["run"] + 0.01  # phases are put together without what passes between them
        assert rows.time[0] >= mine.start["load"] and (rows.time < end).all(), (rows, mine)
        began = rows.energy[rows.time >= mine.start["run"]].iloc[0]
        if attempt == 2:
            energy["load"] += began
            energy["run"] += rows.energy.iloc[-1] - began
    run = json.loads((out / "run.json").read_text())
    if (2, 0) not in attempts:  # run.json is of the last attempt
        assert not {"energy_j", "energy_gpus", "energy_source", "joules_per_token"} & set(run), run
        return
    assert (run["energy_gpus"], run["energy_source"]) == (2, "counter"), run
    assert abs(sum(run["energy_j"].values()) - sum(energy.values())) < 1e-6, (run["energy_j"], energy)
    assert abs(run["energy_j"]["run"] - energy["run"]) <= 6.5, (run["energy_j"], energy)  # a reading may come between clock and sample
    tokens = run["tokens"]
    assert np.isclose(run["joules_per_token"]["generated"] * tokens["generated"], run["energy_j"]["run"]), run
    assert np.isclose(run["joules_per_token"]["total"] * (tokens["generated"] + tokens["prompt"]), run["energy_j"]["run"]), run
    gpu = xr.open_dataset(out / "timings.h5", group="gpu/rank_0", engine="h5netcdf")
    assert gpu["power"].attrs["units"] == "W" and set(gpu.sizes) == {"row"}


def check_xarray(out, rows):
    requests = xr.open_dataset(out / "timings.h5", group="requests", engine="h5netcdf")
    assert dict(requests.sizes) == {"line": len(rows)}
    assert list(requests.indexes["line"]) == list(rows.line)
    assert requests["done"].attrs["units"] == "s" and requests["done"].dtype == float
    assert list(requests["custom_id"].values) == list(rows.custom_id)
    assert int(requests["generated_tokens"].sum()) == rows.generated_tokens.sum()
    late = requests.sel(line=slice(10, None)).where(requests["attempt"] == 2, drop=True)
    assert late.sizes["line"] == ((rows.line >= 10) & (rows.attempt == 2)).sum()
    steps = xr.open_dataset(out / "timings.h5", group="steps/rank_0", engine="h5netcdf")
    assert set(steps.sizes) == {"row"} and steps["start"].attrs["long_name"].startswith("start of the step")


class Page(html.parser.HTMLParser):
    """What a browser would run, load and read."""
    def __init__(self, text):
        super().__init__()
        self.tags, self.data, self.inside = [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = dict(attributes).get("id") if tag == "script" else None

    def handle_endtag(self, tag):
        self.inside = None if tag == "script" else self.inside

    def handle_data(self, data):
        if self.inside == "data":
            self.data += data


def check_report(path, rows):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 2_000_000, len(text)
    page = Page(text)
    assert [a.get("type") for t, a in page.tags if t == "script"] == ["application/json", None], "a script of somebody else"
    assert not [t for t, a in page.tags if t in ("img", "link", "iframe", "object", "embed") or {"src", "href"} & set(a)], "the page loads something"
    assert all("nonce" in a for t, a in page.tags if t == "style" or (t == "script" and "type" not in a))
    assert "script-src 'nonce-" in text and "default-src 'none'" in text
    data = json.loads(page.data)
    totals, out = data["totals"], rows.attrs["out"]
    assert totals["requests"] == len(rows) and totals["failed"] == (rows.finish_reason == "error").sum()
    for name in ("prompt_tokens", "cached_tokens", "generated_tokens"):
        assert totals[name] == rows[name].sum(), name
    steps = replica_steps(out)
    assert totals["steps"] == len(steps)
    assert totals["prefill_tokens"] == steps.prefill_tokens.sum() and totals["decode_tokens"] == steps.decode_tokens.sum()
    over = data["over_time"]
    for name, column in (("in_tokens_per_s", "prefill_tokens"), ("out_tokens_per_s", "decode_tokens")):
        drawn = sum(over[name]) * over["slice"]
        assert abs(drawn - steps[column].sum()) < 2e-3 * max(1, steps[column].sum()), (name, drawn)
    assert sum(c[3] for c in data["step_classes"]) == len(steps)
    assert max(over["pages_max"]) == steps.pages.max()
    whole = rows[(rows.done - rows.admitted) >= 1e-7]
    assert sum(data["whole"]["counts"]) == len(whole)
    assert [a["number"] for a in data["attempts"]] == sorted(set(steps.attempt))
    assert [r["rank"] for r in data["ranks"]] == sorted(ranks(out))
    for r in data["ranks"]:
        assert np.allclose(r["seconds"], ranks(out)[r["rank"]][["compute", "communication", "waiting"]].sum(), rtol=1e-3, atol=1e-3), r["rank"]
    with h5py.File(out / "timings.h5") as f:
        measured = sorted(int(name.removeprefix("rank_")) for name in f["gpu"])
    assert [g["rank"] for g in data["gpus"]] == measured == [0, 1], data["gpus"]
    assert {v for v in data["gpus"][0]["power"] if v != -1 and not 100 <= v <= 350} == set() and max(data["gpus"][0]["power"]) == 350
    assert max(data["gpus"][0]["temperature"]) == 64 and max(data["gpus"][1]["sm_clock"]) == 1980  # of rank 1 in the first attempt
    last = rows[rows.attempt == 2].dropna(subset=["done"]).sort_values("done", kind="stable").tail(20)
    assert [r["id"] for r in data["tail"]["last"]] == list(last.custom_id)
    assert any("<script>" in r["id"] for r in data["tail"]["last"]), "no hostile name was in the page: nothing was tested"


def main():
    for name, n_ranks, layouts, gpus in (("out", 2, {1: {(0, 0, 0, 0), (1, 0, 0, 1)}, 2: {(0, 0, 0, 0), (1, 1, 0, 0)}},
                                          {(1, 0): 2.5, (1, 1): 2.5, (2, 0): 2.5, (2, 1): 4}),
                                         ("killed", 1, {1: {(0, 0, 0, 0)}, 2: {(0, 0, 0, 0)}}, {(1, 0): 2.5})):
        out = WORK / name
        check_form(out)
        rows = check_requests(out)
        rows.attrs["out"] = out
        check_steps(rows)
        check_attempts(out, rows, layouts)
        check_phases(out, n_ranks)
        check_gpus(out, gpus)
        check_xarray(out, rows)
        if name == "out":
            check_report(out / "report.html", rows)
        print(name, dict(rows.attempt.value_counts()), "rows by attempt")


main()
