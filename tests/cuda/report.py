#!/usr/bin/env python3
"""The table of tests/cuda/run_all.sh, from what its parts left in a folder: report.md and report.json there, and
Markdown on standard output. What was not measured is shown as such.

    report.py FOLDER
"""
import csv
import json
import os
import statistics
import sys


def lines(folder, name):
    """Rows of a file of JSON lines; those that are none are left out."""
    rows = []
    try:
        with open(os.path.join(folder, name)) as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
    except OSError:
        pass
    return rows


def text(folder, name):
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read().strip()
    except OSError:
        return ""


def parts(folder):
    rows = []
    for line in text(folder, "status.tsv").splitlines():
        name, verdict, seconds, note = (line.split("\t") + [""] * 4)[:4]
        rows.append({"part": name, "verdict": verdict, "seconds": int(seconds), "note": note})
    return rows


def training(folder):
    """One row a model and precision: both sides, the ratio, and what PyTorch was fastest with."""
    rows = {}
    for line in lines(folder, "train.jsonl"):
        key = (line["model"], line["batch"], line["precision"])
        rows.setdefault(key, {"ours": [], "theirs": []})[line["side"]].append(line)
    result = []
    for (model, batch, precision), sides in rows.items():
        row = {"model": model, "batch": batch, "precision": precision}
        for side, found in sides.items():
            if found:
                row[side] = statistics.median(line["per_s"] for line in found)
                row["unit"] = found[0]["unit"]
        if len(sides["ours"]) == 2:
            first, last = (line["per_s"] for line in sides["ours"])
            row["drift"] = last / first - 1
        if sides["theirs"]:
            best = sides["theirs"][0]
            row |= {"setting": best["setting"], "tried": best["tried"], "failed": best["failed"],
                    "version": best["version"]}
            same = [tried for name, tried in best["tried"].items() if not name.startswith("pure")]
            row["theirs_same_numbers"] = max(same, default=None)
            if sides["ours"] and best["parameters"] != sides["ours"][0]["parameters"]:
                row["wrong"] = f"NOT THE SAME MODEL: {sides['ours'][0]['parameters']} parameters, PyTorch's {best['parameters']}"
        if "ours" in row and "theirs" in row:
            row["ratio"] = row["ours"] / row["theirs"]
        result.append(row)
    return result


def kernels(folder):
    return [dict(row, precision=precision) for precision in ("bf16", "f32")
            for row in lines(folder, f"kernels-{precision}.jsonl")]


def find(rows, kernel, shape=""):
    for row in rows:
        if row["kernel"] == kernel and shape in row["shape"] and row["precision"] == "f32":
            return row["per_s"]
    return None


def averaging(folder):
    rows = lines(folder, "averaging.jsonl")
    for row in rows:
        row["overhead"] = 1 - row["together_steps_per_s"] / row["alone_steps_per_s"]
    return rows


def profiles(folder):
    """Time by kernel, where ncu was there: profile-MODEL.csv, its rows of gpu__time_duration.sum."""
    out = []
    for name in sorted(os.listdir(folder)):
        if not (name.startswith("profile-") and name.endswith(".csv")):
            continue
        times = {}
        for row in csv.DictReader(line for line in text(folder, name).splitlines() if line.startswith('"')):
            try:
                time = float(row["Metric Value"].replace(",", ""))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            kernel = times.setdefault(row["Kernel Name"].split("(")[0], [0, 0.0])
            kernel[0] += 1
            kernel[1] += time
        total = sum(time for _, time in times.values())
        out += [f"Time by kernel, {name[len('profile-'):-len('.csv')]}:", "", "| kernel | launches | share |", "|---|---|---|"]
        out += [f"| {kernel[:80]} | {count} | {time / total:.1%} |" for kernel, (count, time) in
                sorted(times.items(), key=lambda item: -item[1][1])[:25] if total > 0]
        out += [""]
    return out


def number(value, form="{:,.0f}"):
    return "not measured" if value is None else form.format(value)


def markdown(report):
    out = [f"GPU: {report['card'] or 'none'}. Measured {report['date']}, revision {report['revision']}.", ""]
    out += ["| part | | seconds | |", "|---|---|---|---|"]
    out += [f"| {row['part']} | {row['verdict']} | {row['seconds']} | {row['note']} |" for row in report["parts"]]
    out += ["", "Training, samples or tokens a second (medians):", "",
            "| model | batch | precision | grapevine | PyTorch | ratio | against PyTorch with float32 parameters | "
            "PyTorch was fastest with | without a figure |", "|---|---|---|---|---|---|---|---|---|"]
    for row in report["training"]:
        same, ours = row.get("theirs_same_numbers"), row.get("ours")
        ratio = ours / same if same and ours else None
        out.append(f"| {row['model']} | {row['batch']} | {row['precision']} | {number(ours)} | "
                   f"{number(row.get('theirs'))} | {number(row.get('ratio'), '{:.2f}')} | {number(ratio, '{:.2f}')} | "
                   f"{row.get('setting', '')} | "
                   f"{'; '.join(f'{name} ({why})' for name, why in row.get('failed', {}).items())} |")
    out += ["", *profiles(report["folder"])]
    rows = report["kernels"]
    bus, plain = find(rows, "copy to page-locked memory"), find(rows, "snapshot", "f32")
    out += ["", f"A snapshot of 500 MB leaves the device at {number(plain, '{:.1f}')} GB/s; the bus does "
            f"{number(bus, '{:.1f}')} GB/s" + (f" ({plain / bus:.0%})." if bus and plain else ".")]
    out += ["", "Averaging about every 100 steps with a peer on the processor, beside training alone (steps a second):", "",
            "| model | batch | alone | averaging | steps a round | overhead |", "|---|---|---|---|---|---|"]
    out += [f"| {row['model']} | {row['batch']} | {row['alone_steps_per_s']:.1f} | {row['together_steps_per_s']:.1f} | "
            f"{number(row['steps'] / row['rounds'] if row['rounds'] else None)} | {row['overhead']:.1%} |" for row in report["averaging"]]
    out += ["", "Operations (medians of `grapevine bench kernels --device cuda`):", "",
            "| operation | shape | by | bf16 | f32 | a second |", "|---|---|---|---|---|---|"]
    seen = {}
    for row in rows:
        seen.setdefault((row["kernel"], row["shape"]), {})[row["precision"]] = row
    for (kernel, shape), found in seen.items():
        any_row = next(iter(found.values()))
        cells = [number(found[p]["per_s"]) if p in found else "" for p in ("bf16", "f32")]
        out.append(f"| {kernel} | {shape} | {any_row['by']} | {cells[0]} | {cells[1]} | {any_row['unit']} |")
    out += [""] + [f"{row['model']} {row['precision']}: {row['wrong']}" for row in report["training"] if "wrong" in row]
    return "\n".join(out).rstrip() + "\n"


def main():
    folder = sys.argv[1]
    when = text(folder, "when").splitlines() + ["", ""]
    report = {
        "date": when[0], "revision": when[1], "card": text(folder, "card"), "parts": parts(folder),
        "folder": folder, "training": training(folder), "averaging": averaging(folder), "kernels": kernels(folder),
    }
    table = markdown(report)
    with open(os.path.join(folder, "report.md"), "w") as file:
        file.write(table)
    with open(os.path.join(folder, "report.json"), "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    print(table, end="")


if __name__ == "__main__":
    main()
