#!/bin/bash
# collect: what an image of a peer holds: the installed program, its CUDA module if there is one, the libraries that they load,
# and a folder that the image's user may write to. Run where it was built (deploy/Containerfile).
#   deploy/collect.sh FOLDER
set -euo pipefail
to=$1
libraries=/lib/$(gcc -print-multiarch)
user=65532

shopt -s nullglob
loaded=(/usr/bin/grapevine /usr/lib/grapevine/*.so "/usr$libraries"/grapevine/*.so)
# Opened by name while it runs (dlopen), so that ldd of the program does not show them.
loaded+=("/usr$libraries"/libmicrohttpd.so.1[2] "/usr$libraries"/libnccl.so.[2]) # if they are there
while read -r path; do # cuDNN opens its parts so
    loaded+=("${path%/*}"/libcudnn_*.so.[0-9])
done < <(ldd "${loaded[@]}" | sed -n 's/.* => \(\/.*libcudnn\.so[^ ]*\) .*/\1/p' | sort -u)

mkdir -p "$to/usr/bin" "$to$libraries" "$to/etc" "$to/tmp" "$to/data"
for path in "${loaded[@]}"; do # where each is looked for
    if [[ $path == /usr/bin/* || $path == */grapevine/* ]]; then cp -L --parents "$path" "$to"; else cp -L "$path" "$to$libraries"; fi
done
ldd "${loaded[@]}" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | xargs cp -L -t "$to$libraries"
ldd /usr/bin/grapevine | sed -n 's/^\s*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' | xargs cp -L --parents -t "$to"
printf 'root:x:0:0::/:/none\ngrapevine:x:%s:%s::/data:/none\n' "$user" "$user" >"$to/etc/passwd"
printf 'root:x:0:\ngrapevine:x:%s:\n' "$user" >"$to/etc/group"
printf 'hosts: files dns\n' >"$to/etc/nsswitch.conf"
chmod 1777 "$to/tmp"
chown "$user:$user" "$to/data"
chmod 0700 "$to/data"
