#!/bin/bash
# What was built can be installed, with the program alone built, too: it runs from where it lies, and
# its manual page, its completions and its pages are there.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
build=$(dirname "$(realpath "$1")")
begin "$1"
[ -e "$build/cmake_install.cmake" ] || skip "skipped: $build is no build folder"

# The list of what was installed is the real installation's: it is put back.
[ ! -e "$build/install_manifest.txt" ] || cp "$build/install_manifest.txt" manifest
cmake --install "$build" --prefix "$folder/there" >install.log 2>&1 || bad "$(tail -n 3 install.log)"
mv "$build/install_manifest.txt" installed
[ ! -e manifest ] || mv manifest "$build/install_manifest.txt"
for file in bin/grapevine share/man/man1/grapevine.1 share/bash-completion/completions/grapevine \
    share/zsh/vendor-completions/_grapevine share/fish/vendor_completions.d/grapevine.fish share/doc/grapevine/README.md \
    share/doc/grapevine/docs/training.md lib/systemd/system/grapevine@.service lib/systemd/system/grapevine.service \
    share/grapevine/deploy/kubernetes/job.yaml share/grapevine/deploy/prometheus/alerts.yml \
    share/grapevine/deploy/slurm/swarm.sbatch; do
    checks=$((checks + 1))
    [ -s "there/$file" ] || bad "not installed: $file"
done
accepted '^grapevine [0-9]' there/bin/grapevine version
grep -q '^\.SH FILES' there/share/man/man1/grapevine.1 || bad "the manual page is not today's"
xargs rm -f <installed
checks=$((checks + 1))
[ -z "$(find there -type f)" ] || bad "left behind: $(find there -type f | head -n 3)"
finish
