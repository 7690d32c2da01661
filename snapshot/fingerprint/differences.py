"""Differences between two descriptions, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tundish.snapshot.fingerprint.keys import JSON, inner, text_of

_LONG = 60
_REFERENCES = {"function", "class"}


def differences(old: JSON, new: JSON) -> list[str]:
    """Return the differences between two descriptions, one line each.

    Parameters
    ----------
    old, new : JSON
        Descriptions, of pipelines or of values.

    Returns
    -------
    list of str
        Empty if nothing that counts has changed.

    Examples
    --------
    >>> old = [{"op": "range", "args": {"stop": 3}}, {"op": "batch", "args": {"size": 2}}]
    >>> new = [{"op": "range", "args": {"stop": 5}}, {"op": "batch", "args": {"size": 2}}]
    >>> differences(old, new)
    ['range#0 stop: 3 -> 5']
    """
    olds, news = _entries(old), _entries(new)
    found: list[str] = []
    if [e["op"] for e in olds] != [e["op"] for e in news]:
        found.append(f"operators: {_chain(olds)}, now {_chain(news)}")
        # The functions that both have may have changed, too.
        found += _code_changes(_all_code(olds), _all_code(news), _used(news))
        return found
    used = _used(news)
    for at, (mine, theirs) in enumerate(zip(olds, news, strict=True)):
        where = f"{mine['op']}#{at}"
        for part in ("version", "inputs", "random"):
            found += _changes(f"{where} {part}", mine.get(part), theirs.get(part))
        for name in sorted({*mine["args"], *theirs["args"]}):
            found += _changes(f"{where} {name}", mine["args"].get(name), theirs["args"].get(name))
        found += _code_changes(mine.get("code", {}), theirs.get("code", {}), used)
    return list(dict.fromkeys(found))


def written(description: JSON) -> list[JSON]:
    """Return the times at which a pipeline's input files were written, one list for each operator that reads files.

    Of files at URLs it is the sizes, of many files a digest for each folder. They do not change the key.
    """
    return [each.get("about", {}).get("written", []) for each in _file_lists(description)]


def touched(before: Sequence[JSON], description: JSON) -> list[str]:
    """Return the files that were rewritten since with the same key, as lines for people.

    Parameters
    ----------
    before : sequence
        The result of `written` for an earlier description with the same key.
    description : JSON
        The description now.
    """
    found = []
    for times, files in zip(before, _file_lists(description), strict=False):
        kind = "files" if "files" in files else "folders"
        nows = files.get("about", {}).get("written", [])
        for (name, *_), then, now in zip(files[kind], times, nows, strict=False):
            if then == now or None in (then, now):
                continue
            what = f"file {name}" if kind == "files" else f"files in {name or '.'}"
            sizes = kind == "files" and "://" in name
            how = f"{then} -> {now} bytes" if sizes else "written since, with the same size"
            found.append(f"{what}: {how}")
    return found


def are_alike(before: Sequence[JSON], now: Sequence[JSON]) -> bool:
    """Return True unless a file was rewritten between two results of `written`; an unknown time equals any other."""
    return len(before) == len(now) and all(
        len(then) == len(later)
        and all(a == b or None in (a, b) for a, b in zip(then, later, strict=True))
        for then, later in zip(before, now, strict=True)
    )


def moved(old: JSON, new: JSON) -> list[str]:
    """Return the folders of input files that differ from before, as lines for people; they do not change the key."""
    pairs = zip(_file_lists(old), _file_lists(new), strict=False)
    folders = [tuple(each.get("about", {}).get("folder") for each in pair) for pair in pairs]
    return [
        f"files in {now}, before in {then}"
        for then, now in folders
        if None not in (then, now) and then != now
    ]


def _entries(description: JSON) -> list[JSON]:
    if isinstance(description, list) and all(
        isinstance(entry, dict) and "op" in entry and "args" in entry for entry in description
    ):
        return description
    value, code = description, {}
    if isinstance(description, dict) and description.keys() == {"value", "code"}:
        value, code = description["value"], description["code"]
    return [{"op": "value", "args": {"it": value}, "code": code}]


def _chain(entries: list[JSON]) -> str:
    return " -> ".join(entry["op"] for entry in entries) or "none"


def _all_code(entries: list[JSON]) -> dict[str, JSON]:
    return {name: each for e in entries for name, each in e.get("code", {}).items()}


def _used(entries: list[JSON]) -> dict[str, str]:
    """Return the names of functions that are arguments themselves; others are helpers."""
    found: dict[str, str] = {}
    for at, entry in enumerate(entries):
        for kind, name in _references(list(entry["args"].values())):
            found.setdefault(name, f"{entry['op']}#{at} {kind} {name}")
    return found


def _references(description: JSON) -> Iterator[tuple[str, str]]:
    if isinstance(description, dict):
        for kind in _REFERENCES & description.keys():
            if isinstance(description[kind], str):
                yield kind, description[kind]
    for part in inner(description):
        yield from _references(part)


def _code_changes(old: dict[str, JSON], new: dict[str, JSON], used: dict[str, str]) -> list[str]:
    found = []
    for name, definition in new.items():
        what = used.get(name) or f"helper {_full_name(name, definition)}"
        if name in old:
            found += _definition_changes(what, old[name], definition)
    return found


def _full_name(name: str, definition: JSON) -> str:
    module = definition.get("about", {}).get("module")
    return name if module in (None, "__main__") else f"{module}.{name}"


def _definition_changes(what: str, old: JSON, new: JSON) -> list[str]:
    """Return the differences between two definitions of a function, class or module."""
    if old.get("code") != new.get("code") or old.get("digest") != new.get("digest"):
        return [f"{what}: code changed"]
    found = _constant_changes(what, old.get("constants", []), new.get("constants", []))
    for part, word in (
        ("defaults", "default"),
        ("captured", "captured"),
        ("globals", "global"),
        ("attributes", "attribute"),
        ("members", "member"),
    ):
        mine, theirs = old.get(part, {}), new.get(part, {})
        for name in sorted({*mine, *theirs}):
            found += _changes(f"{what}: {word} {name}", mine.get(name), theirs.get(name))
    for part in ("bases", "metaclass", "imports", "installed", "version"):
        found += _changes(f"{what}: {part}", old.get(part), new.get(part))
    return found


def _constant_changes(what: str, old: list[JSON], new: list[JSON]) -> list[str]:
    found = []
    for mine, theirs in zip(old, new, strict=False):
        if (
            isinstance(mine, dict)
            and isinstance(theirs, dict)
            and "code" in mine
            and "code" in theirs
        ):
            found += _definition_changes(what, mine, theirs)
        elif mine != theirs or type(mine) is not type(theirs):
            found.append(f"{what}: constant {_shown(mine)} -> {_shown(theirs)}")
    return found


def _changes(what: str, old: JSON, new: JSON) -> list[str]:
    """Return the differences between two values, none if they are equal."""
    if text_of(old) == text_of(new):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        kind = next(iter(old.keys() & new.keys() & _BY_NAME.keys()), None)
        if kind is not None:
            return _BY_NAME[kind](what, old, new)
        if old.keys() == new.keys() and old.keys().isdisjoint(_WHOLE):
            return [line for k in old for line in _changes(_within(what, k), old[k], new[k])]
        if "array" in old and old.get("array") == new.get("array"):
            return [f"{what}: other contents of the same dtype and shape"]
        if old.keys() == new.keys() and all(old[k] == new[k] for k in old if k != "digest"):
            return [f"{what}: other contents"]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for n, (a, b) in pairs for line in _changes(f"{what}[{n}]", a, b)]
    return [f"{what}: {_shown(old)} -> {_shown(new)}"]


def _within(what: str, name: str) -> str:
    return what if name in _WRAPPERS else f"{what}.{name}"


def _pair_changes(what: str, old: JSON, new: JSON) -> list[str]:
    mine, theirs = old["dict"], new["dict"]
    if not isinstance(mine, list) or not isinstance(theirs, list):
        return [f"{what}: {_shown(old)} -> {_shown(new)}"]
    before = {text_of(key): (key, value) for key, value in mine}
    after = {text_of(key): (key, value) for key, value in theirs}
    if list(before) == list(after):
        pairs = zip(before.values(), after.values(), strict=True)
        return [line for (k, a), (_, b) in pairs for line in _changes(f"{what}[{_shown(k)}]", a, b)]
    if before.keys() == after.keys():
        return [f"{what}: the same keys in another order"]
    gone = [_shown(before[key][0]) for key in before if key not in after]
    come = [_shown(after[key][0]) for key in after if key not in before]
    return [f"{what}: keys {', '.join(gone) or 'none'} gone, {', '.join(come) or 'none'} new"]


def _file_changes(what: str, old: JSON, new: JSON) -> list[str]:
    before = dict(old["files"])
    after = dict(new["files"])
    found = [f"file {name}: gone" for name in before if name not in after]
    found += [
        f"file {name}: new, {size} bytes" for name, size in after.items() if name not in before
    ]
    found += [
        f"file {name}: {before[name]} -> {size} bytes"
        for name, size in after.items()
        if name in before and before[name] != size
    ]
    return found or [f"{what}: files in another order"]


def _folder_changes(what: str, old: JSON, new: JSON) -> list[str]:
    before = {name: rest for name, *rest in old["folders"]}
    after = {name: rest for name, *rest in new["folders"]}
    found = []
    for name in sorted({*before, *after}):
        mine, theirs = before.get(name), after.get(name)
        if mine == theirs:
            continue
        told = [f"{part[0]} files, {part[1]} bytes" if part else "none" for part in (mine, theirs)]
        same = told[0] == told[1]
        change = "other names or sizes" if same else f"{told[0]} -> {told[1]}"
        found.append(f"files in {name or '.'}: {change}")
    return found or [f"{what}: files in another order"]


_BY_NAME = {"dict": _pair_changes, "files": _file_changes, "folders": _folder_changes}
_WRAPPERS = {"tuple", "fields", "attributes", "state", "method", "self"}
_WHOLE = {"digest", "set", "frozenset", *_REFERENCES}


def _file_lists(description: JSON) -> Iterator[JSON]:
    if isinstance(description, dict) and ("files" in description or "folders" in description):
        yield description
        return
    for part in inner(description):
        yield from _file_lists(part)


def _shown(description: JSON) -> str:
    """Return a value as one would write it, shortened."""
    text = _written(description)
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


def _written(description: JSON) -> str:
    if isinstance(description, list):
        return f"[{', '.join(map(_written, description))}]"
    if not isinstance(description, dict):
        return repr(description)
    kind, *_ = description or [""]
    held = description.get(kind)
    if kind == "tuple" and isinstance(held, list):
        return f"({', '.join(map(_written, held))})"
    if kind in ("set", "frozenset") and isinstance(held, list):
        return f"{{{', '.join(map(_written, held))}}}"
    if kind == "dict" and isinstance(held, list):
        return f"{{{', '.join(f'{_written(k)}: {_written(v)}' for k, v in held)}}}"
    if kind in ("function", "class", "module"):
        return f"{kind} {held}"
    if kind == "installed":
        return f"{held} {description.get('version', '')}".rstrip()
    if kind == "path":
        return repr(held)
    if kind == "array":
        return f"array {held}"
    if isinstance(held, int) and "digest" in description:
        return f"a {kind} of {held}"
    return ", ".join(
        f"{name} {_written(part)}" for name, part in description.items() if name != "about"
    )
