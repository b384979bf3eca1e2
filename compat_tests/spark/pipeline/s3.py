"""S3 on loopback, from moto's server in this process, so that it lives while drivers are killed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

from pipeline.lake import Lake

ACCESS_KEY, SECRET_KEY, REGION = "of-the-tests", "secret-of-the-tests", "eu-central-1"


class S3:
    """A server with one bucket, and the settings with which clients reach it."""

    bucket = "lakes"

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        self.client.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    def stop(self) -> None:
        self._server.stop()

    @property
    def hadoop(self) -> dict[str, str]:
        """Return the settings for S3A; a job's configuration has them with the prefix `spark.hadoop.`."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": REGION,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
        }

    @property
    def options(self) -> dict[str, str]:
        """Return the settings for deltalake and polars."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_region": REGION,
            "aws_allow_http": "true",
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
        }

    def names(self, folder: str) -> list[str]:
        """Return the keys that begin with `folder`, without this prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=folder)
        return [each["Key"].removeprefix(folder) for page in pages for each in page.get("Contents", [])]

    def read(self, key: str) -> str:
        """Return the object as text. Raises FileNotFoundError if there is no such key."""
        try:
            return str(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read().decode(errors="replace"))
        except self.client.exceptions.NoSuchKey:
            raise FileNotFoundError(key) from None


def before_each_request(patched: pytest.MonkeyPatch, act: Callable[[dict[str, Any]], None]) -> None:
    """Let `act` see, change or hold back what comes to the server. It gets the WSGI environment."""
    serve_it = DomainDispatcherApplication.__call__

    def acted(self: Any, environ: dict[str, Any], start_response: Any) -> Any:
        act(environ)
        return serve_it(self, environ, start_response)

    patched.setattr(DomainDispatcherApplication, "__call__", acted)


def stand_still(driver: Lake) -> None:
    """Make the driver stop the renewal of its lease without notice, as in a process that is stopped or cut off."""
    if driver._lease is not None and driver._lease._renewing is not None:
        driver._lease._ending.set()
        driver._lease._renewing.join()
