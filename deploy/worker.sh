#!/bin/sh
# A worker of the work pool $1, for $2 runs at once (1): a clone of GIT_REMOTE in AGENTPRM_CHECKOUT that knows DVC_REMOTE, then Prefect's worker.
set -eu
if [ ! -e "$AGENTPRM_CHECKOUT/.git" ]; then
    git clone --quiet "$GIT_REMOTE" "$AGENTPRM_CHECKOUT"
fi
cd "$AGENTPRM_CHECKOUT"
git pull --quiet --ff-only
dvc remote add --quiet --force --local --default store "$DVC_REMOTE"
PYTHONPATH=$AGENTPRM_CHECKOUT${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
export PREFECT_WORKER_QUERY_SECONDS="${PREFECT_WORKER_QUERY_SECONDS:-1}"  # between two looks for a stage to run
exec prefect worker start --pool "$1" --limit "${2:-1}" --with-healthcheck
