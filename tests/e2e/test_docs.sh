#!/bin/bash
# What the pages say exists: each flag in them is one, each flag is in them, and the files they name
# are there.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
root=$(realpath "$(dirname "$0")/../..")
begin "$1"

pages=("$root"/README.md "$root"/docs/*.md "$root"/averaging/*.md "$root"/gossip/*.md)
for command in $("$gv" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$gv" "$command" --help >"help.$command" || bad "$command --help"
done
cat help.* | grep -oE '^  --[a-z0-9-]+' | tr -d ' ' | sort -u >flags
# Flags of cmake, of the scripts, and of those that start peers for others.
printf -- '--%s\n' preset build target install test-dir yes format from-file build-arg build-only all runs quick module \
    array hostfile no-kill nodes now signal no-build-isolation break-system-packages cflags libs static component prefix >others
# Not the arrows of state machines: "IDLE --begin--> READY", "NONE --begin: SHARE-->".
grep -hv -e '[-]->' "${pages[@]}" | grep -oP '(?<![-\w>])--[a-z][a-z0-9]*(-[a-z0-9]+)*(?![-\w>])' | sort -u >named

checks=$((checks + 1))
[ "$(wc -l <flags)" -gt 80 ] && [ "$(wc -l <named)" -gt 80 ] || bad "too few flags were found to compare"
while read -r flag; do bad "a page names $flag, which is no flag"; done < <(sort -u flags others | comm -13 - named)
for flag in --help --config --print-config --version --man; do echo "$flag"; done | sort -u >everywhere
while read -r flag; do bad "$flag is on no page"; done < <(sort -u named everywhere | comm -23 flags -)

# Keys of results, and names of metrics.
cat "${pages[@]}" >all
while read -r key; do
    grep -qF "\`$key\`" all || bad "the key $key of a result is on no page"
    checks=$((checks + 1))
done < <(cd "$root" && grep -ohE 'json_set[a-z_]*\([a-z_]+, "[a-z_0-9]+"' peer/node/watch.c peer/node/rounds/push.c peer/{session,cli,commands}/*.c \
    peer/bench/{train,kernels,codecs,network,averaging}.c testnet/{summary,command_simulate}.c distill/{comparison,compact,distill_result,generations,lineup}.c | sed 's/.*"\(.*\)"/\1/' | sort -u)
while read -r key; do
    grep -qF "\`$key\`" all || bad "the metric grapevine_$key is on no page"
done < <(sed -n 's/^ *{"[a-z_]*", "\([a-z_]*\)", "\(gauge\|counter\)".*/\1/p' "$root/peer/watch/metrics_text.c")
# Paths in backquotes: those that begin with a folder of ours.
while read -r path; do
    compgen -G "$root/$path" >/dev/null || bad "a page names $path, which is not there"
    checks=$((checks + 1))
done < <(grep -hoE '`(docs|deploy|tests|testnet|peer|gossip|averaging|base|kernels|replica|distill)/[A-Za-z0-9_./*-]+' "${pages[@]}" |
    tr -d '`' | sort -u)
# Functions of the map: "`name()`, `other()` in `path`", each defined there, in pages of lines as in tables.
while read -r name path; do
    grep -qE "^[A-Za-z].*\\b$name\\(" "$root/$path" || bad "docs/architecture.md: $path has no $name()"
    checks=$((checks + 1))
    functions=$((${functions:-0} + 1))
done < <(grep -oE '(`[a-z_0-9]+\(\)`, )*`[a-z_0-9]+\(\)` in `[a-z/_.]+`' "$root/docs/architecture.md" |
    sed -E 's/ in `([^`]*)`$/ \1/; s/[`(),]//g' | awk '{ for (i = 1; i < NF; i++) print $i, $NF }')
[ "${functions:-0}" -ge 15 ] || bad "docs/architecture.md names too few functions"
# The page of the library's calls is what the header says.
checks=$((checks + 1))
python3 "$root/library/reference.py" --check || bad "a page is not made anew"
# Links.
while read -r link; do
    [ -e "$root/$link" ] || [ -e "$root/docs/$link" ] || bad "a page links to $link, which is not there"
done < <(grep -hoE '\]\([^)#]+' "${pages[@]}" | sed 's/^](//' | grep -v '^[a-z]*:' | sort -u)
finish
