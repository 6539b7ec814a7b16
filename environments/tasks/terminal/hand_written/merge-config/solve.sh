#!/bin/bash
python3 - <<'END'
import json
from configparser import ConfigParser

merged = {}
for name in ("default", "site", "local"):
    parser = ConfigParser(interpolation=None, delimiters=("=",), inline_comment_prefixes=None)
    parser.optionxform = str
    parser.read(f"config/{name}.ini")
    for section in parser.sections():
        for key, value in parser[section].items():
            merged.setdefault(section, {})[key] = value
words = {"yes": True, "no": False}
result = {}
for section, keys in sorted(merged.items()):
    kept = {key: words.get(value, int(value) if value.isdecimal() else value) for key, value in sorted(keys.items()) if value}
    if kept:
        result[section] = kept
with open("merged.json", "w") as file:
    json.dump(result, file, indent=2)
END
