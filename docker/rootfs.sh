#!/bin/sh
# rootfs.sh SLIM_DIR DEST [PLUGIN [NCCL]] - writes everything that an image holds into the empty folder DEST.
#
# The program of `make slim` with its three names, the libraries that ldd finds for it, the loader, CA certificates, a user,
# the demo model in 8 bits and the licences of all of it; no shell, no package manager. PLUGIN is backend-cuda.so of the CUDA
# variant, NCCL the library that several GPUs need; the driver's libraries (libcuda) come from the host. Runs on the Debian
# that the program was built on.
set -eu
slim=$1 dest=$2 plugin=${3:-} nccl=${4:-}
here=$(cd "$(dirname "$0")/.." && pwd)
product=$(sed -n 's/^PRODUCT *:= *//p' "$here/Makefile")
version=$(cat "$here/VERSION")
libexec=$dest/usr/libexec/$product
share=$dest/usr/share/$product

mkdir -p "$dest/usr/bin" "$dest/usr/lib" "$dest/usr/lib64" "$libexec" "$share/models" "$dest/etc/ssl/certs" \
    "$dest/tmp" "$dest/data" "$dest/proc" "$dest/sys" "$dest/dev"
ln -s usr/lib "$dest/lib"
ln -s usr/lib64 "$dest/lib64"
ln -s usr/bin "$dest/bin"
chmod 1777 "$dest/tmp" "$dest/data" # any user: sockets, and the cache of the hub

install -m 755 "$slim/$product" "$libexec/launcher"
[ -z "$plugin" ] || install -m 755 "$plugin" "$libexec/backend-cuda.so"
strip "$libexec"/*
for p in router model-server; do ln "$libexec/launcher" "$libexec/$p"; done # links of files: /proc tells which one runs
for p in launcher router; do ln -s "../libexec/$product/$p" "$dest/usr/bin/text-generation-$p"; done
ln -s "../libexec/$product/model-server" "$dest/usr/bin/text-generation-server"
"$libexec/model-server" quantize --method rtn --bits 8 "$here/models/demo" "$share/models/demo" >"$dest/quantize.log" 2>&1 || {
    cat "$dest/quantize.log" >&2
    exit 1
}
rm "$dest/quantize.log" "$share/models/demo/expected.json" "$share/models/demo/README.md" # those of 16 bits

# Libraries keep the folder that the loader looks for them in; /lib and /usr/lib are one.
libraries=$(for p in "$libexec"/*; do ldd "$p"; done | sed -n 's|.*[ \t]\(/[^ ]*\) (0x.*|\1|p' | sort -u)
if ldd "$libexec"/* | grep 'not found' | grep -v libcuda; then
    echo "rootfs.sh: libraries are missing" >&2
    exit 1
fi
for lib in $libraries; do
    case $lib in
    /usr/*) to=$lib ;;
    *) to=/usr$lib ;;
    esac
    install -D -m 755 "$(readlink -f "$lib")" "$dest$to"
done

[ -z "$nccl" ] || install -D -m 755 "$(readlink -f "$nccl")" "$dest/usr/lib/x86_64-linux-gnu/libnccl.so.2"

install -m 644 /etc/ssl/certs/ca-certificates.crt "$dest/etc/ssl/certs/"
cat >"$dest/etc/passwd" <<END
root:x:0:0:root:/:/none
server:x:10001:0:$product:/data:/none
END
printf 'root:x:0:\n' >"$dest/etc/group"
printf 'hosts: files dns\n' >"$dest/etc/nsswitch.conf"
printf 'ID=%s\nVERSION_ID=%s\nPRETTY_NAME="%s %s"\n' "$product" "$version" "$product" "$version" >"$dest/etc/os-release"

# Of the program and of every library's package, of those as well that it was linked with.
install -D -m 644 "$here/LICENSE" "$dest/usr/share/doc/$product/copyright"
packages=$dest/usr/share/doc/$product/packages
linked=$(sed -n 's|^(*\(/[^()]*\.a\).*|\1|p' "$slim/$product.files" | sort -u | xargs realpath | sort -u)
libraries="$libraries $linked"
for lib in $libraries; do # dpkg may know it with /usr or without
    printf '%s\n/usr%s\n' "${lib#/usr}" "${lib#/usr}"
done | xargs dpkg -S 2>/dev/null >"$packages.found" || true
for lib in $libraries; do
    grep -q "${lib#/usr}\$" "$packages.found" || {
        echo "rootfs.sh: $lib is of no package" >&2
        exit 1
    }
done
sed 's/:.*//' "$packages.found" | sort -u >"$packages"
rm "$packages.found"
echo ca-certificates >>"$packages"
while read -r package; do
    mkdir -p "$dest/usr/share/doc/$package"
    gzip -9nc "/usr/share/doc/$package/copyright" >"$dest/usr/share/doc/$package/copyright.gz"
done <"$packages"

# The same files give the same image.
find "$dest" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
