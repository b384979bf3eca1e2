"""A copy knows how far it reaches, and when it has to begin anew."""

from __future__ import annotations

from pykbroker.storage.future_copy import FutureCopy


def test_a_new_folder_begins_at_offset_0_without_removing_anything() -> None:
    copy = FutureCopy("other/t-0", must_look=False)
    assert not copy.has_other_records(0)
    assert copy.has_other_records(5)
    copy.is_being_written()
    assert copy.has_other_records(0)


def test_a_folder_of_an_earlier_run_has_records_until_the_copy_is_known() -> None:
    copy = FutureCopy("other/t-0", must_look=True)
    assert copy.has_other_records(0)
    copy.was_written(7, 70)
    assert not copy.has_other_records(0)
    copy.begin_anew()
    assert copy.has_other_records(0)


def test_a_copy_is_clean_only_after_a_worker_has_ended_well() -> None:
    copy = FutureCopy("other/t-0", must_look=False)
    assert not copy.is_clean
    copy.was_written(7, 70)
    assert copy.is_clean
    copy.is_being_written()
    assert not copy.is_clean


def test_the_lag_counts_from_the_log_start_while_nothing_is_copied() -> None:
    copy = FutureCopy("other/t-0", must_look=False)
    assert copy.offset_lag(3, 10) == 7
    copy.was_written(8, 80)
    assert copy.offset_lag(3, 10) == 2
