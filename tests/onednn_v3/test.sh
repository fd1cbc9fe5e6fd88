#!/bin/bash
# onednn_v3: all that calls oneDNN compiles against its version 3, too, whichever is installed: against our own
# declarations of it, beside this. And a call that is not version 3's is an error, or else this would prove nothing.
#   tests/onednn_v3/test.sh [CC]
set -euo pipefail
cd "$(dirname "$0")/../.."
cc=${1:-cc}
declarations=tests/onednn_v3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

mapfile -t sources < <(grep -l 'kernels/cpu/onednn.h"' -r kernels --include='*.c' | sort)
compile() { # compile FOLDER-OF-DECLARATIONS SOURCE...
    local folder=$1
    shift
    "$cc" -std=c11 -D_GNU_SOURCE -DGRAPEVINE_HAS_DNNL=1 -I"$folder" -I. -fsyntax-only \
        -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror "$@"
}

[[ " ${sources[*]} " == *" kernels/cpu/onednn_v3.c "* ]] || { echo "where is kernels/cpu/onednn_v3.c?"; exit 1; }
compile "$declarations" "${sources[@]}"
echo "compiled against version 3: ${sources[*]}"

# As another version might have them: a parameter less, of another kind, in another place, and a name that is gone. Two of
# one type that change places are not found so.
unlike() { # unlike NAME SED
    mkdir -p "$scratch/$1/oneapi/dnnl"
    sed -Ez "$2" "$declarations/oneapi/dnnl/dnnl.h" >"$scratch/$1/oneapi/dnnl/dnnl.h"
    if cmp -s "$declarations/oneapi/dnnl/dnnl.h" "$scratch/$1/oneapi/dnnl/dnnl.h"; then
        echo "$1: its change no longer finds its text"
        exit 1
    fi
    if compile "$scratch/$1" kernels/cpu/onednn_v3.c 2>/dev/null; then
        echo "$1: wrong declarations compiled"
        exit 1
    fi
    echo "refused, as it should be: $1"
}
unlike 'a sum without its type' 's/(append_sum[^;]*zero_point),\s*dnnl_data_type_t type/\1/'
unlike 'a result by value' 's/(query\(const_dnnl_memory_desc_t form, dnnl_query_t what,\s*)void \*answer/\1int answer/'
unlike 'an engine behind the direction' 's/(dnnl_engine_t engine), (dnnl_prop_kind_t direction)/\2, \1/'
unlike 'a name that is gone' 's/dnnl_memory_desc_create_with_tag/dnnl_memory_desc_init_by_tag/'
