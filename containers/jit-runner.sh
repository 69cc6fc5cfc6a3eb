#!/usr/bin/env bash
# Takes one job of GitHub Actions, on a runner that GitHub knows for this job only. systemd starts it again and again, as
# root: see docs/self-hosted.md. The token stays with root, and each job begins with a fresh copy of the Actions runner.
set -euo pipefail
missing="is not set: see docs/self-hosted.md, /etc/attnmatrix/machine"
: "${SCOPE:?$missing}" "${LABEL:?$missing}" "${ARCH:?$missing}"
fresh=${RUNNER_SOURCE:-/opt/actions-runner} # as GitHub's archive has it, owned by root
place=${RUNNER_PLACE:-/srv/actions}
hook=${HOOK:-/opt/attnmatrix/admit.sh}
python=${PYTHON:-/opt/attnmatrix/bin/python}
token=$(<"${TOKEN_FILE:-/etc/attnmatrix/token}")

[[ "$SCOPE" =~ ^(repos/[A-Za-z0-9_.-]+|orgs)/[A-Za-z0-9_.-]+$ ]] || {
    echo "SCOPE is neither repos/OWNER/NAME nor orgs/OWNER: correct /etc/attnmatrix/machine" >&2
    exit 2
}
[[ "$LABEL" == gpu-pr || "$LABEL" == gpu-release ]] || {
    echo "LABEL is neither gpu-pr nor gpu-release: correct /etc/attnmatrix/machine" >&2
    exit 2
}
[[ -x "$fresh/run.sh" ]] || {
    echo "$fresh has no run.sh: unpack GitHub's Actions runner there" >&2
    exit 2
}
[[ -x "$hook" ]] || {
    echo "$hook is no script that can be run: without it this machine takes any job" >&2
    exit 2
}

[[ -x "$python" ]] || {
    echo "$python is not there: install the project, see docs/self-hosted.md" >&2
    exit 2
}

# A machine that is not well asks for no job, so that another one takes it. A driver that hangs is killed, if it can be.
[[ ! -e "$place/_work/unwell" ]] || {
    echo "the last job here ended by this machine's trouble: others come first for ${REST_S:-600} seconds" >&2
    sleep "${REST_S:-600}"
}
timeout --kill-after=10 120 "$python" -I -m runner ci fit --arch "$ARCH" || {
    echo "this machine is not well and takes no job; it is looked at again in ${UNFIT_S:-300} seconds" >&2
    sleep "${UNFIT_S:-300}"
    exit 3
}

asked=$(python3 - "$(hostname)-$(date +%s)-$$" "${GROUP:-1}" self-hosted "$LABEL" "$ARCH" <<'PYTHON'
import json, sys
name, group, *labels = sys.argv[1:]
print(json.dumps({"name": name[-64:], "runner_group_id": int(group), "labels": labels, "work_folder": "_work"}))
PYTHON
)
# The header comes by standard input: what stands on a command line, every process of the machine can read.
answer=$(curl --silent --show-error --fail --max-time 60 --config - --data "$asked" \
    "${GITHUB_API_URL:-https://api.github.com}/$SCOPE/actions/runners/generate-jitconfig" <<CURL
header = "Accept: application/vnd.github+json"
header = "X-GitHub-Api-Version: 2022-11-28"
header = "Authorization: Bearer $token"
CURL
) || {
    echo "GitHub gives no runner of $SCOPE: the token needs the right to write its administration (self-hosted runners)" >&2
    exit 3
}
unset token
config=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["encoded_jit_config"])' "$answer")

rm -rf --one-file-system -- "$place"
cp -a -- "$fresh" "$place"
mkdir -p "$place/_work"
rm -f -- "$place/.env" "$place/.path" # else they could name another hook
as=()
if ((EUID == 0)); then
    user=${RUNNER_USER:-actions}
    chown -R "$user" "$place"
    as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups --no-new-privs)
fi
cd "$place"
exec "${as[@]}" env -i "HOME=$place" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
    ${ATTNMATRIX_CUDA_PYTHON:+"ATTNMATRIX_CUDA_PYTHON=$ATTNMATRIX_CUDA_PYTHON"} \
    "ACTIONS_RUNNER_HOOK_JOB_STARTED=$hook" ./run.sh --jitconfig "$config"
