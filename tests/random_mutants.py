#!/usr/bin/env python3
"""Random mutants: do the quick tests notice when an operator is another one?

    tests/random_mutants.py [--count N] [--seed N] [--jobs N] [--out DIR]

Of all operators, conditions, whole numbers, assignments and calls in the functions of averaging,
gossip, peer, replica, kernels/cpu, distill and testnet some are drawn. All of them are put into one
copy of the sources as a choice that is made while the program runs (mutant schemata: Untch, Offutt,
Harrold 1993), so there is one build: MUTANT=7 in the environment makes the seventh one wrong. A
first run of each quick test notes which of them it comes by; a mutant is then tried on the tests
that come by it, fastest first, until one fails or hangs.

Prints a line for each mutant, and what share was killed of each folder. It says nothing of mistakes
that no test could tell from the truth (a longer timeout, a larger buffer), so there is no number to
reach; look at what survived. Needs python3-clang-14 besides what building needs. Not part of the
gate; docs/campaigns.md has the last result. `tests/mutants.sh` breaks promises one by one instead.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import shutil
import signal
import subprocess
import sys

try:
    from clang import cindex
    from clang.cindex import CursorKind as Kind
except ImportError:
    sys.exit("random_mutants.py: python3-clang-14 is not installed: apt-get install it")

FOLDERS = ["averaging", "gossip", "peer", "replica", "kernels/cpu", "distill", "testnet"]
OTHER = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "*": "+", "/": "*",
         "%": "/", "&&": "||", "||": "&&", "&": "|", "|": "&", "^": "&", "<<": ">>", ">>": "<<"}
ASSIGNMENTS = (Kind.COMPOUND_ASSIGNMENT_OPERATOR,)
NO_CHOICE = (Kind.ENUM_CONSTANT_DECL, Kind.CASE_STMT, Kind.STATIC_ASSERT, Kind.FIELD_DECL)
RUNTIME = r'''
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static int mutant_wanted = -2;
static unsigned char *mutant_reached;
int mutant_is_on(int number);
int mutant_is_on(int number)
{
    if (mutant_wanted == -2) {
        const char *text = getenv("MUTANT"), *path = getenv("MUTANTS_REACHED");
        int fd = path == NULL ? -1 : open(path, O_RDWR);
        mutant_wanted = text == NULL ? -1 : atoi(text);
        if (fd >= 0) {
            void *map = mmap(NULL, MUTANTS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            close(fd);
            if (map != MAP_FAILED) mutant_reached = map;
        }
    }
    if (mutant_reached != NULL) mutant_reached[number] = 1;
    return number == mutant_wanted;
}
'''


def log(text):
    print(text, file=sys.stderr, flush=True)


# ---- the sites: where a mutant could be, as (first byte, end, text of its choice) ----


def bytes_of(cursor):
    return cursor.extent.start.offset, cursor.extent.end.offset


def is_of(cursor, path):
    file = cursor.location.file
    return file is not None and file.name == path


def operator_site(cursor, source):
    children = list(cursor.get_children())
    if len(children) != 2:
        return None
    (first, first_end), (second, second_end) = map(bytes_of, children)
    begin, end = bytes_of(cursor)
    if not (begin <= first < first_end < second < second_end <= end):
        return None  # a macro's
    operator = source[first_end:second].strip()
    other = OTHER.get(operator)
    if other is None:
        return None
    pointers = any(child.type.get_canonical().kind in (cindex.TypeKind.POINTER, cindex.TypeKind.INCOMPLETEARRAY,
                                                       cindex.TypeKind.CONSTANTARRAY) for child in children)
    if pointers and operator in "+-":
        return None
    left, right = source[begin:first_end], source[second:end]
    if cursor.type.get_canonical().kind in (cindex.TypeKind.FLOAT, cindex.TypeKind.DOUBLE) and other in "&|<<>>":
        return None
    return begin, end, "(mutant_is_on(@) ? (%s %s %s) : (%s))" % (left, other, right, source[begin:end]), \
        "%s -> %s" % (operator, other)


def condition_site(cursor, source):
    children = list(cursor.get_children())
    begin, end = bytes_of(children[0])
    if begin >= end or source[begin - 1] != "(":
        return None
    text = source[begin:end]
    return begin, end, "(mutant_is_on(@) ? !(%s) : (%s))" % (text, text), "if not"


def statement_site(cursor, source):
    begin, end = bytes_of(cursor)
    if begin >= end or source[end:end + 1] != ";":
        return None
    return begin, end + 1, "if (!mutant_is_on(@)) { %s; }" % source[begin:end], "left out"


def number_site(cursor, source):
    begin, end = bytes_of(cursor)
    text = source[begin:end]
    if not text.isdigit():
        return None
    return begin, end, "(mutant_is_on(@) ? %s + 1 : %s)" % (text, text), "%s + 1" % text


def sites_below(cursor, source, found, is_statement):
    kind = cursor.kind
    if kind in NO_CHOICE:
        if kind == Kind.CASE_STMT:
            for child in list(cursor.get_children())[1:]:
                sites_below(child, source, found, True)
        return
    if kind == Kind.VAR_DECL:
        if cursor.storage_class == cindex.StorageClass.STATIC:
            return
        children = list(cursor.get_children())
        if "[" in cursor.type.spelling and len(children) < 2:
            return  # its length
        if children and "=" in source[cursor.location.offset:bytes_of(cursor)[1]]:
            sites_below(children[-1], source, found, False)
        return
    site = None
    if kind == Kind.BINARY_OPERATOR:
        site = operator_site(cursor, source)
    elif kind == Kind.IF_STMT:
        site = condition_site(cursor, source)
    elif is_statement and kind in ASSIGNMENTS + (Kind.CALL_EXPR,):
        site = statement_site(cursor, source)
    elif kind == Kind.INTEGER_LITERAL:
        site = number_site(cursor, source)
    if site is not None:
        found.append((cursor.location.line,) + site)
    for child in cursor.get_children():
        sites_below(child, source, found, kind == Kind.COMPOUND_STMT)


def sites_of(path, flags):
    unit = cindex.Index.create().parse(path, args=flags)
    for fault in unit.diagnostics:
        if fault.severity >= cindex.Diagnostic.Error:
            sys.exit("random_mutants.py: cannot read %s: %s" % (path, fault.spelling))
    source = open(path, encoding="latin-1").read()
    found = []
    for cursor in unit.cursor.get_children():
        if cursor.kind != Kind.FUNCTION_DECL or not cursor.is_definition() or not is_of(cursor, path):
            continue
        body = list(cursor.get_children())[-1]
        sites_below(body, source, found, False)
    return found


# ---- the copy with all of them ----


def run(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def copy_sources(top, scratch):
    shutil.rmtree(scratch, ignore_errors=True)
    # with times of now, or objects of an earlier run would be taken for theirs
    files = run(["git", "ls-files", "-z"], cwd=top).stdout.split("\0")
    for name in filter(None, files):
        os.makedirs(os.path.dirname(os.path.join(scratch, name)), exist_ok=True)
        shutil.copy(os.path.join(top, name), os.path.join(scratch, name), follow_symlinks=False)


def configure(scratch, build):
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    run(["cmake", "-S", scratch, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGRAPEVINE_USE_CUDA=OFF",
         "-DGRAPEVINE_WERROR=OFF", "-DCMAKE_C_FLAGS=-w", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"] + launcher)


def make(build):
    made = subprocess.run(["ninja", "-C", build], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit("random_mutants.py: it does not build:\n" + made.stdout[-4000:])


def draw(scratch, build, count, seed):
    """Of all sites some, none within another, as {path: [(number, site)]}."""
    sites = []
    for entry in json.load(open(os.path.join(build, "compile_commands.json"))):
        path = entry["file"]
        name = os.path.relpath(path, scratch)
        if not name.endswith(".c") or not any(name.startswith(folder + "/") for folder in FOLDERS):
            continue
        words = entry["command"].split()
        flags = [word for word in words if word.startswith(("-I", "-D", "-isystem", "-std"))]
        sites += [(path, site) for site in sites_of(path, flags)]
    sites = sorted(set(sites))
    log("%d places in %d files" % (len(sites), len({path for path, _ in sites})))
    random.Random(seed).shuffle(sites)
    drawn = collections.defaultdict(list)
    number = 0
    for path, site in sites:
        if any(site[1] < other[2] and other[1] < site[2] for _, other in drawn[path]):
            continue
        drawn[path].append((number, site))
        number += 1
        if number == count:
            break
    return drawn, number


def put_in(scratch, drawn, count):
    for path, chosen in drawn.items():
        source = open(path, encoding="latin-1").read()
        for number, (_, begin, end, text, _) in sorted(chosen, key=lambda item: -item[1][1]):
            source = source[:begin] + text.replace("@", str(number)) + source[end:]
        with open(path, "w", encoding="latin-1") as file:
            file.write("int mutant_is_on(int number);\n#line 1\n" + source)
    with open(os.path.join(scratch, "base/rc.c"), "a") as file:
        file.write(RUNTIME.replace("MUTANTS,", "%d," % count))


# ---- the tests ----


class Test:
    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry["properties"]}
        self.name, self.command = entry["name"], entry["command"]
        self.directory = properties.get("WORKING_DIRECTORY")
        self.environment = dict(word.split("=", 1) for word in properties.get("ENVIRONMENT", []))
        self.seconds, self.limit, self.reached = 0.0, properties.get("TIMEOUT", 300.0), b""

    def run(self, extra, limit):
        """Seconds that it took; negative: it failed or hung."""
        begun = os.times().elapsed
        process = subprocess.Popen(self.command, cwd=self.directory, env=dict(os.environ, **self.environment, **extra),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = 1
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        seconds = max(os.times().elapsed - begun, 1e-3)
        return seconds if code in (0, 77) else -seconds


def look_around(test, out, count):
    path = os.path.join(out, "reached." + test.name)
    with open(path, "wb") as file:
        file.write(bytes(count))
    test.seconds = test.run({"MUTANTS_REACHED": path}, test.limit)
    test.reached = open(path, "rb").read()
    os.remove(path)
    return test


def try_mutant(number, tests):
    """The test that killed it, or how many let it pass."""
    reached = [test for test in tests if test.reached[number]]
    for test in sorted(reached, key=lambda test: test.seconds):
        if test.run({"MUTANT": str(number)}, 10 + 5 * test.seconds) < 0:
            return test.name, len(reached)
    return None, len(reached)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=200, help="how many mutants (default 200)")
    words.add_argument("--seed", type=int, default=1, help="which of them are drawn (default 1)")
    words.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests at once (default: one a core)")
    words.add_argument("--out", default="build/random_mutants", help="the copy, its build and rows.jsonl")
    options = words.parse_args()
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    out = os.path.abspath(options.out)
    scratch, build = os.path.join(out, "source"), os.path.join(out, "b")
    os.makedirs(out, exist_ok=True)
    copy_sources(top, scratch)
    configure(scratch, build)
    log("building without mutants: headers are made by that, and it shows that all is well")
    make(build)
    drawn, count = draw(scratch, build, options.count, options.seed)
    put_in(scratch, drawn, count)
    log("building with them")
    make(build)
    listed = run(["ctest", "--test-dir", build, "-L", "quick", "--show-only=json-v1"]).stdout
    tests = [Test(entry) for entry in json.loads(listed)["tests"]]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tests = list(pool.map(lambda test: look_around(test, out, count), tests))
        for test in tests:
            if test.seconds < 0:
                log("%s fails without any mutant, and is left out" % test.name)
        tests = [test for test in tests if test.seconds > 0]
        log("%d tests, %.0f s" % (len(tests), sum(test.seconds for test in tests)))
        where = {number: (os.path.relpath(path, scratch), site) for path, sites in drawn.items() for number, site in sites}
        results = pool.map(lambda number: (number,) + try_mutant(number, tests), sorted(where))
        totals = collections.Counter()
        with open(os.path.join(out, "rows.jsonl"), "w") as rows:
            for number, killer, reached in results:
                path, (line, _, _, _, what) = where[number]
                folder = next(name for name in FOLDERS if path.startswith(name + "/"))
                verdict = "killed" if killer else "SURVIVED" if reached else "NOT RUN"
                totals[folder, verdict] += 1
                print("%-8s %s:%d: %s (%s)" % (verdict, path, line, what, killer or "%d tests" % reached), flush=True)
                rows.write(json.dumps({"file": path, "line": line, "what": what, "verdict": verdict, "by": killer}) + "\n")
    for folder in FOLDERS:
        print("%-12s %d killed, %d survived, %d not run by any quick test" %
              (folder, totals[folder, "killed"], totals[folder, "SURVIVED"], totals[folder, "NOT RUN"]))
    killed = sum(number for (_, verdict), number in totals.items() if verdict == "killed")
    print("%d of %d killed (%.0f %%)" % (killed, count, 100 * killed / count))


if __name__ == "__main__":
    main()
