#!/bin/sh
# The front command of an installation. `NAME serve` runs the launcher; the other programs have their own names here.
# The programs are in ../libexec/NAME, seen from the folder of this file, so that a whole installation can be moved.
set -eu
self=$(readlink -f "$0")
name=${self##*/}
libexec=${self%/*/*}/libexec/$name

usage() {
    cat <<END
Usage: $name COMMAND [OPTIONS]

Commands:
  serve          Serve a model: start its shards and a router, and watch them.
  router         Run the router alone, for shards that are already started.
  model-server   Run one shard, or one of bench, logits, quality, quantize, download-weights.
  health         Wait for a shard: $name health [ADDRESS [SECONDS]].
  lmtp           Send lines as LMTP requests and print the answers.

$name COMMAND --help lists the options of one. $name --version prints the version.
END
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
serve) exec "$libexec/launcher" "$@" ;;
router | model-server) exec "$libexec/$command" "$@" ;;
health | lmtp) exec "$libexec/launcher" "$command" "$@" ;;
-h | --help | help) usage ;;
-V | --version | version) "$libexec/launcher" --version | sed "s/^[^ ]*/$name/" ;;
'') usage >&2; exit 2 ;;
*)
    printf '%s: unknown command `%s`\n\n' "$name" "$command" >&2
    usage >&2
    exit 2
    ;;
esac
