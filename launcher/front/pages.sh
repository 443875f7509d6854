#!/bin/sh
# pages.sh NAME VERSION BIN_DIR SHARE_DIR - writes the man pages and the completions of an installation.
# The programs print both from their flag tables; here the pages get the names that the installation has.
set -eu
name=$1 version=$2 bin=$3 share=$4
here=$(dirname "$0")
man=$share/man/man1
completions=$share/bash-completion/completions
mkdir -p "$man" "$completions"

# man_page PAGE PROGRAM [COMMAND]: the title and the NAME line ("page \- what it does") are those of the installation.
man_page() {
    page=$1
    shift
    "$bin/$@" --help-man | awk -v page="$page" '
        { line[NR] = $0 }
        /^\.SH NAME/ { at = NR + 1 }
        /^\.SH DESCRIPTION/ { about = NR + 1 }
        END {
            sub(/"[^"]*"/, "\"" page "\"", line[1])
            what = line[at]
            if (!sub(/^.*\\- /, "", what)) {
                what = line[about]
                sub(/[.:,].*/, "", what)
            }
            line[at] = page " \\- " what
            for (i = 1; i <= NR; i++) print line[i]
        }' >"$man/$page.1"
}

flags() { "$bin/$@" --completion-bash | grep -oE -- '--[a-z0-9-]+' | sort -u | tr '\n' ' '; }

sed "s/@NAME@/$name/g; s/@VERSION@/$version/g" "$here/front.1" >"$man/$name.1"
man_page "$name-serve" launcher
man_page "$name-router" router
tools=$("$bin/model-server" --help | sed -n '/^Commands/,/^$/s/^  \([a-z-]*\)  .*/\1/p' | tr '\n' ' ')
for tool in $tools; do man_page "$name-model-server-$tool" model-server "$tool"; done
ln -sf "$name-serve.1" "$man/text-generation-launcher.1"
ln -sf "$name-router.1" "$man/text-generation-router.1"
ln -sf "$name-model-server-serve.1" "$man/text-generation-server.1"

# The words after the command, or after the command and the tool; files where there are none.
{
    printf '# bash completion of %s\n_%s() {\n' "$name" "$name"
    cat <<'END'
    local current=${COMP_WORDS[COMP_CWORD]} words at=1
    case ${COMP_WORDS[0]##*/} in text-generation-*) at=0 ;; esac
    local command=${COMP_WORDS[at]}
    case ${COMP_WORDS[0]##*/} in
    text-generation-launcher) command=serve ;;
    text-generation-router) command=router ;;
    text-generation-server) command=model-server ;;
    esac
    if [ "$COMP_CWORD" -eq "$at" ] && [ "$at" -eq 1 ]; then
        words='serve router model-server health lmtp --help --version'
    else
        case $command in
END
    printf "        serve) words='%s' ;;\n" "$(flags launcher)"
    printf "        router) words='%s' ;;\n" "$(flags router)"
    printf '        model-server)\n            if [ "$COMP_CWORD" -eq $((at + 1)) ]; then words="%s"; else\n' "$tools"
    printf '                case ${COMP_WORDS[at + 1]} in\n'
    for tool in $tools; do printf "                %s) words='%s' ;;\n" "$tool" "$(flags model-server "$tool")"; done
    cat <<'END'
                esac
            fi
            ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}
END
    printf 'complete -F _%s %s text-generation-launcher text-generation-router text-generation-server\n' "$name" "$name"
} >"$completions/$name"
for link in text-generation-launcher text-generation-router text-generation-server; do ln -sf "$name" "$completions/$link"; done
