"""Measurements (`manage.py bench`): ours beside the database's own commit rate, in the same run. Never a test."""
