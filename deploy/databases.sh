#!/bin/sh
# Run by the image of Postgres when it begins with an empty folder.
set -eu
for name in prefect mlflow mlflow_auth; do
    createdb --username "$POSTGRES_USER" "$name"
done
