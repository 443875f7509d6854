#!/bin/sh
# rootfs.sh BIN_DIR DEST [PLUGIN [NCCL]] - writes everything that an image holds into the empty folder DEST.
#
# The programs, the libraries that ldd finds for them, the loader, CA certificates, a user, the demo model and the
# licences of all of it; no shell, no package manager. PLUGIN is backend-cuda.so of the CUDA variant, NCCL the library that
# several GPUs need; the driver's libraries (libcuda) come from the host. Runs on the Debian that the programs were built on.
set -eu
bin=$1 dest=$2 plugin=${3:-} nccl=${4:-}
here=$(cd "$(dirname "$0")/.." && pwd)
product=$(sed -n 's/^PRODUCT *:= *//p' "$here/Makefile")
version=$(cat "$here/VERSION")
libexec=$dest/usr/libexec/$product
share=$dest/usr/share/$product

mkdir -p "$dest/usr/bin" "$dest/usr/lib" "$dest/usr/lib64" "$libexec" "$share/models/demo" "$dest/etc/ssl/certs" \
    "$dest/tmp" "$dest/data" "$dest/proc" "$dest/sys" "$dest/dev"
ln -s usr/lib "$dest/lib"
ln -s usr/lib64 "$dest/lib64"
ln -s usr/bin "$dest/bin"
chmod 1777 "$dest/tmp" "$dest/data" # any user: sockets, and the cache of the hub

for p in launcher router model-server; do install -m 755 "$bin/$p" "$libexec/"; done
[ -z "$plugin" ] || install -m 755 "$plugin" "$libexec/backend-cuda.so"
strip "$libexec"/*
for p in launcher router; do ln -s "../libexec/$product/$p" "$dest/usr/bin/text-generation-$p"; done
ln -s "../libexec/$product/model-server" "$dest/usr/bin/text-generation-server"
for f in config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json; do
    install -m 644 "$here/models/demo/$f" "$share/models/demo/"
done

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

# Of the programs and of every library's package.
install -D -m 644 "$here/LICENSE" "$dest/usr/share/doc/$product/copyright"
packages=$dest/usr/share/doc/$product/packages
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
