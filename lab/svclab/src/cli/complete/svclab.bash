# Completion for bash. In contrast to the script of clap, it joins words that bash splits at the
# characters of COMP_WORDBREAKS: bash splits `lab/axis=value` into three words and replaces only
# `value`. Words without a blank between them are joined, and candidates lose the first part of the
# joined word.
_svclab() {
    local rest=$COMP_LINE words=() word
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -gt 0 && $rest != [[:space:]]* && -n $rest ]]; then
            words[${#words[@]}-1]+=$word
        else
            rest=${rest#"${rest%%[![:space:]]*}"}
            words+=("$word")
        fi
        rest=${rest#"$word"}
    done
    local index=$((${#words[@]} - 1)) prefix
    case ${words[index]} in
        [\'\"]*) words[index]=$2 prefix= ;;
        *) prefix=${words[index]%"$2"} ;;
    esac
    mapfile -t COMPREPLY < <(
        _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$index SVCLAB_COMPLETE=bash \
            svclab -- "${words[@]}" 2>/dev/null
    )
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace
    fi
}
complete -o bashdefault -o nosort -F _svclab svclab
