"""Applies the patch of the payload "change": reads a change from standard input, and prints the object that it makes of old."""

import json
import sys

import jsonpatch


def apply(old, patch):
    if isinstance(patch, dict):  # patch: merge, RFC 7386
        return merge(old, patch)
    return jsonpatch.apply_patch(old, patch)  # patch: json, RFC 6902


def merge(old, patch):
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


if __name__ == "__main__":
    change = json.load(sys.stdin)
    print(json.dumps(apply(change["old"], change["patch"])))
