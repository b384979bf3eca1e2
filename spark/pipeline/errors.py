"""The error that the user of the pipeline reads."""

from __future__ import annotations


class PipelineError(Exception):
    """A fact that the user of the pipeline must know or decide about.

    `message` describes what happened, `advice` what to do about it. A program prints both, without a traceback.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}\n{advice}" if advice else message)
        self.message = message
        self.advice = advice


class DoesNotFitError(PipelineError):
    """The checkpoint and the topics do not belong together, or records between them are gone."""
