#!/bin/sh
# Once, and after each update: the buckets of the store, and the deployments that Prefect knows.
set -eu
for bucket in dvc mlflow; do
    python -c '
import sys, boto3
store, bucket = boto3.client("s3"), sys.argv[1]
if bucket not in [one["Name"] for one in store.list_buckets()["Buckets"]]:
    store.create_bucket(Bucket=bucket)
' "$bucket"
done
python -m flows.provision
