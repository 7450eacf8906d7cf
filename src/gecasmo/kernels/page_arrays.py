"""Kernels that put pages in order: copy them, tell equal ones, number what stands on them.

All of them write into the arrays they get and can be run over parts of these on threads. Integers
are taken modulo 2**64 when they are hashed, on purpose.
"""

from __future__ import annotations

import numpy as np

# mypy: ignore-errors


def copy_pages(first, last, pages, starts, source, target_start, target):
    """The results of some pages, one page after the other."""
    for i in range(first, last):
        begin = np.uint64(starts[pages[i]])
        at = np.uint64(target_start[i])
        for k in range(np.uint64(target_start[i + 1] - target_start[i])):
            target[at + np.uint64(k)] = source[begin + np.uint64(k)]


def hash_pages(first, last, pages, starts, values, salt, hashes):
    """Mix the values of each page, in order, into its hash."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    other = np.uint64(0xBF58476D1CE4E5B9)
    half = np.uint64(32)
    for i in range(first, last):
        total = hashes[i]
        place = salt
        for k in range(starts[pages[i]], starts[pages[i] + 1]):
            place += other
            x = (np.uint64(values[np.uint64(k)]) + place) * odd
            x = (x ^ (x >> half)) * other
            total += x ^ (x >> half)
        hashes[i] = total


def compare_pages(first, last, likes, starts, values, differs):
    """Whether each page differs from the one it is said to be like."""
    for i in range(first, last):
        if likes[i] == i:
            continue
        here = starts[i]
        there = starts[likes[i]]
        length = starts[i + 1] - here
        if length != starts[likes[i] + 1] - there:
            differs[i] = 1
            continue
        for k in range(length):
            if values[np.uint64(here + k)] != values[np.uint64(there + k)]:
                differs[i] = 1
                break


def number_within(first, last, run_start, values, numbers, first_at, n_distinct):
    """Number the distinct values of each run 0, 1, ... as they appear, by a small hash table.

    `first_at[run_start[run] + number]` is where a number appears first.
    """
    odd = np.uint64(0x9E3779B97F4A7C15)
    one = np.uint64(1)
    room = 256
    keys = np.empty(room, values.dtype)
    number = np.empty(room, np.uint32)
    stamps = np.zeros(room, np.int64)  # which entries are of this run, and of this size of table
    stamp = 0
    for run in range(first, last):
        size = 256
        stamp += 1
        mask = np.uint64(size - 1)
        shift = np.uint64(56)
        n = 0
        for k in range(run_start[run], run_start[run + 1]):
            place = np.uint64(k)
            value = values[place]
            slot = (np.uint64(value) * odd) >> shift
            while stamps[slot] == stamp and keys[slot] != value:
                slot = (slot + one) & mask
            if stamps[slot] == stamp:
                numbers[place] = number[slot]
                continue
            numbers[place] = n
            first_at[run_start[run] + n] = k
            keys[slot] = value
            number[slot] = n
            stamps[slot] = stamp
            n += 1
            if 2 * n > size:
                # Half full: begin again with twice the room.
                size *= 2
                shift -= one
                stamp += 1
                mask = np.uint64(size - 1)
                if size > room:
                    room = size
                    keys = np.empty(room, values.dtype)
                    number = np.empty(room, np.uint32)
                    stamps = np.zeros(room, np.int64)
                for j in range(n):
                    value = values[np.uint64(first_at[run_start[run] + j])]
                    slot = (np.uint64(value) * odd) >> shift
                    while stamps[slot] == stamp:
                        slot = (slot + one) & mask
                    keys[slot] = value
                    number[slot] = j
                    stamps[slot] = stamp
        n_distinct[run] = n


def last_clicks(first, last, page_start, click, rank, above):
    """The rank of the last click above each result, 0 for none."""
    for i in range(first, last):
        seen = 0
        for k in range(page_start[i], page_start[i + 1]):
            above[k] = seen
            if click[k]:
                seen = rank[k]


def clicks_above(first, last, page_start, click, above):
    """How many results above each were clicked."""
    for i in range(first, last):
        seen = 0
        for k in range(page_start[i], page_start[i + 1]):
            above[k] = seen
            seen += click[k] != 0


def mark(values, low, seen):
    """Which values there are, counted from the lowest."""
    for k in range(len(values)):
        seen[np.uint64(values[k] - low)] = 1


def look_up(first, last, values, low, table, found):
    """The entry of a table for each value, counted from the lowest."""
    for k in range(first, last):
        found[np.uint64(k)] = table[np.uint64(values[np.uint64(k)] - low)]
