"""The error that a person reads."""

from __future__ import annotations


class PipelineError(Exception):
    """Something that whoever runs the pipeline has to know or decide.

    `message` says what happened, `advice` what to do about it. A program prints both, without a traceback.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}\n{advice}" if advice else message)
        self.message = message
        self.advice = advice


class DoesNotFitError(PipelineError):
    """The checkpoint and the topics do not belong together, or records between them are gone."""
