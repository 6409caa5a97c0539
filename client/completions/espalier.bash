# bash completion of espalier; made by `espalier completion bash`
_espalier() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= words= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then command=${COMP_WORDS[i]}; break; fi
  done
  if [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W 'run plan inspect verify submit watch runs workers report param mask save finish cancel delete health completion --help --version' -- "$cur")
    return
  fi
  # The value of an option.
  case $command:$prev in
    run:--model) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    run:--output) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    run:--workers) return ;;
    run:--max-shard-size) return ;;
    run:--format) mapfile -t COMPREPLY < <(compgen -W 'hf dcp' -- "$cur"); return ;;
    run:--listen) return ;;
    run:--state-dir) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    run:--metrics-listen) return ;;
    run:--lease) return ;;
    run:--device) return ;;
    plan:--model) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    plan:--worker-kind) mapfile -t COMPREPLY < <(compgen -W 'checkpoint attached' -- "$cur"); return ;;
    plan:--steps-per-epoch) return ;;
    submit:--model) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    submit:--output) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    submit:--workers) return ;;
    submit:--max-shard-size) return ;;
    submit:--format) mapfile -t COMPREPLY < <(compgen -W 'hf dcp' -- "$cur"); return ;;
    submit:--coordinator) return ;;
    watch:--from) return ;;
    watch:--coordinator) return ;;
    runs:--limit) return ;;
    runs:--coordinator) return ;;
    workers:--coordinator) return ;;
    report:--mode) mapfile -t COMPREPLY < <(compgen -W 'shard-counts gather' -- "$cur"); return ;;
    report:--coordinator) return ;;
    param:--output|param:-o) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    param:--coordinator) return ;;
    mask:--output|mask:-o) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    mask:--coordinator) return ;;
    save:--max-shard-size) return ;;
    save:--format) mapfile -t COMPREPLY < <(compgen -W 'hf dcp' -- "$cur"); return ;;
    save:--coordinator) return ;;
    finish:--coordinator) return ;;
    cancel:--reason) return ;;
    cancel:--coordinator) return ;;
    delete:--coordinator) return ;;
    health:--coordinator) return ;;
  esac
  case $command in
    run) words='--help -h --model --output --workers --hold --overwrite --ignore-stored-masks --max-shard-size --format --json --listen --state-dir --metrics-listen --lease --device' ;;
    plan) words='--help -h --model --worker-kind --steps-per-epoch --ignore-stored-masks --json' ;;
    inspect) words='--help -h --json' ;;
    verify) words='--help -h --json' ;;
    submit) words='--help -h --model --output --workers --hold --overwrite --ignore-stored-masks --max-shard-size --format --coordinator --validate-only --no-queue --wait --json' ;;
    watch) words='--help -h --json --from --coordinator' ;;
    runs) words='--help -h --limit --json --coordinator' ;;
    workers) words='--help -h --json --coordinator' ;;
    report) words='--help -h --mode --json --coordinator' ;;
    param) words='--help -h --output -o --float32 --coordinator' ;;
    mask) words='--help -h --output -o --coordinator' ;;
    save) words='--help -h --overwrite --max-shard-size --format --no-wait --coordinator' ;;
    finish) words='--help -h --wait --coordinator' ;;
    cancel) words='--help -h --reason --coordinator' ;;
    delete) words='--help -h --coordinator' ;;
    health) words='--help -h --json --coordinator' ;;
    completion) words='--help -h' ;;
  esac
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    return
  fi
  case $command in
    run) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    plan) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    inspect) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    verify) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    submit) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    save) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    completion) mapfile -t COMPREPLY < <(compgen -W 'bash zsh' -- "$cur") ;;
  esac
}
complete -o filenames -F _espalier espalier
