#!/bin/bash
# The C library as its users have it: the header in C99 and C++, what the shared object gives away, and the example in processes of its
# own: two average, a third comes late, one is killed and the others go on, and one that was stopped resumes by its folder.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
root=$(realpath "$(dirname "$0")/../..")
begin "$1"
toy=$(dirname "$gv")/toy library=$(dirname "$gv")/libgrapevine.so

# The interface: a name that goes, or a struct that changes, breaks programs that are there. See GV_ABI.
calls="gv_abi gv_apply gv_apply_into gv_ask_state gv_close gv_json gv_last_error gv_leave gv_open gv_poll gv_restore gv_snapshot
gv_snapshot_from gv_start gv_state gv_status gv_step gv_values gv_version gv_wait"
checks=$((checks + 1))
[ "$(nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort | xargs)" = "$(xargs <<<"$calls")" ] ||
    bad "the shared object gives away: $(nm -D --defined-only "$library" | awk '{ print $3 }' | xargs)"
cat >sizes.c <<'C'
#include "grapevine.h"
#include <stdio.h>
int main(void)
{
    printf("%u %zu %zu %zu", (unsigned)GV_ABI, sizeof(gv_tensor), sizeof(gv_status_view), offsetof(gv_status_view, consensus_distance));
    return 0;
}
C
cc -std=c99 -pedantic -Wall -Werror -I "$root/include" sizes.c -o sizes || bad "the header in C99"
c++ -x c++ -std=c++11 -pedantic -Wall -Werror -fsyntax-only -I "$root/include" sizes.c || bad "the header in C++"
checks=$((checks + 3))
[ "$(./sizes)" = "1 48 248 80" ] || bad "structs of another size: $(./sizes)"

# Installed, moved elsewhere, and found there by pkg-config and by CMake: the example as a program of each kind. The archive gives
# away no more names than the shared object does.
installs() {
    local build prefix libs kind
    build=$(dirname "$gv") prefix=$folder/moved
    cmake --install "$build" --component library --prefix "$folder/there" >install.log 2>&1 || bad "$(tail -n 3 install.log)"
    mv there moved
    libs=$(dirname "$(find "$prefix" -name libgrapevine.a)")
    checks=$((checks + 1))
    [ "$(nm -g --defined-only "$libs/libgrapevine.a" | awk '$2 ~ /[A-Z]/ { print $3 }' | sort | xargs)" = "$(xargs <<<"$calls")" ] ||
        bad "the archive gives away: $(nm -g --defined-only "$libs/libgrapevine.a" | awk '$2 ~ /[A-Z]/ { print $3 }' | xargs)"
    found() { PKG_CONFIG_PATH=$libs/pkgconfig pkg-config --define-variable=prefix="$prefix" "$@" grapevine; }
    # shellcheck disable=SC2046
    {
        cc "$root/examples/c/toy.c" $(found --cflags --libs) -o of_pc_shared || bad "pkg-config, the shared library"
        cc "$root/examples/c/toy.c" $(found --static --cflags --libs | sed 's/-lgrapevine/-l:libgrapevine.a/') -o of_pc_static ||
            bad "pkg-config --static, the archive"
    }
    mkdir consumer
    cat >consumer/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(grapevine 0.1 REQUIRED)
foreach(kind grapevine static)
    add_executable(of_cmake_\${kind} $root/examples/c/toy.c)
    target_link_libraries(of_cmake_\${kind} PRIVATE grapevine::\${kind})
endforeach()
CMAKE
    if cmake -S consumer -B consumer/build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log 2>&1 && cmake --build consumer/build >>cmake.log 2>&1; then
        mv consumer/build/of_cmake_* .
    else
        bad "find_package(grapevine): $(tail -n 5 cmake.log)"
    fi
    for kind in pc_shared pc_static cmake_grapevine cmake_static; do
        checks=$((checks + 2))
        LD_LIBRARY_PATH=$libs "./of_$kind" 1 averaging=none steps=3 listen=127.0.0.1:0 >kind.out 2>&1 && grep -q '^ended' kind.out ||
            bad "$kind does not run: $(tail -n 2 kind.out)"
        case $kind in *static) [[ $(readelf -d "of_$kind") != *libgrapevine* ]] ;; *) [[ $(readelf -d "of_$kind") == *libgrapevine.so.1* ]] ;; esac ||
            bad "$kind is linked with another library"
    done
}
if [ -e "$(dirname "$gv")/libgrapevine.a" ]; then installs; else echo "not tried: installing, as this build has no libgrapevine.a"; fi

member() { # member NAME SLOPE SETTING...
    local name=$1
    shift
    start "$name" "$toy" "$@" averaging=allreduce out="$folder/$name" checkpoint-every=100ms
}
told() { # told NAME PATTERN: until it has said so
    local end=$((SECONDS + 60))
    until grep -q "$2" "$1.out"; do
        if ((SECONDS > end)) || ! kill -0 "$3" 2>/dev/null; then
            bad "$1 does not say '$2': $(tail -n 2 "$1.out" "$1.err")"
            return
        fi
        sleep 0.05
    done
    checks=$((checks + 1))
}

# One model, between those to which they would come alone.
member one 1 listen=127.0.0.1:0 start-with=2 steps=200 && first=$address one=$pid
member two 2 listen=127.0.0.1:0 start-with=2 steps=200 bootstrap="$first" && two=$pid
checks=$((checks + 1))
wait "$one" && wait "$two" || bad "a goal is not reached: $(tail -n 2 one.err two.err)"
awk '/^ended/ { n++; if ($2 < 1.4 || $2 > 1.6) apart = 1 } END { exit apart || n != 2 }' one.out two.out ||
    bad "not one model: $(grep -h '^ended' one.out two.out | xargs)"

member a 1 listen=127.0.0.1:0 start-with=2 && first=$address a=$pid
member b 2 listen=127.0.0.1:0 bootstrap="$first" start-with=2 && b=$pid
told a '^averaged' "$a"
told b '^averaged' "$b"
member c 2 listen=127.0.0.1:0 bootstrap="$first" && c=$pid
told c '^replaced' "$c"
told c '^averaged' "$c"
stop "$b"
lines=$(grep -c '^averaged' a.out)
told a "step" "$a"
for ((i = 0; i < 1200; i++)); do
    (($(grep -c '^averaged' a.out) > lines + 10)) && break
    sleep 0.05
done
checks=$((checks + 1))
(($(grep -c '^averaged' a.out) > lines + 10)) || bad "who is left averages no more once one was killed"
kill -TERM "$c"
checks=$((checks + 1))
wait "$c" || bad "who leaves ends with $?: $(tail -n 2 c.err)"
grep -q '^ended' c.out || bad "who leaves does not say how it ended"
was=$(awk '/^ended/ { print $4 }' c.out)
member c 2 listen=127.0.0.1:0 && c=$pid
told c '^replaced' "$c"
for ((i = 0; i < 1200; i++)); do
    kill -TERM "$c" 2>/dev/null || break
    sleep 0.05
done
wait "$c"
checks=$((checks + 1))
awk -v was="$was" '/^ended/ { ok = $4 >= was } END { exit !(ok && was > 0) }' c.out || bad "it does not go on where it was, step $was: $(cat c.out)"
kill -TERM "$a"
checks=$((checks + 1))
wait "$a" || bad "the first ends with $?: $(tail -n 2 a.err)"
finish
