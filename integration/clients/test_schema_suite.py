"""JSON-Schema-Test-Suite (it lies in the source distribution of PyPI's jsonschema) and random schemas, judged by jsonschema itself and,
for OpenAPI 3.0's dialect, by openapi-schema-validator: what the compiler takes is valid, and little that is valid is refused."""

import collections
import glob
import json
import os
import random
import subprocess
import sys
import tarfile

import jsonschema
import pytest

TOOL = os.path.join(os.path.dirname(os.environ.get("BIN_DIR", "build/bin").rstrip("/")), "tests/tools/schema_cases")


def run(records):
    """("S", schema) or ("I", instance), as JSON texts -> a line for each."""
    data = b"".join(kind.encode() + b" %d\n%s\n" % (len(text), text) for kind, text in records)
    out = subprocess.run([TOOL], input=data, capture_output=True, check=True).stdout.decode("utf-8", "replace").splitlines()
    assert len(out) == len(records)
    return out


def dump(value, spaced=False):
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": ") if spaced else (",", ":"))
    return text.encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("suite"))
    got = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-binary", "jsonschema", "--no-deps", "-d", folder, "jsonschema"], capture_output=True, text=True
    )
    archives = glob.glob(folder + "/*.tar.gz")
    if not archives:
        pytest.skip(f"no source distribution of jsonschema: {got.stderr[-300:]}")
    with tarfile.open(archives[0]) as t:
        t.extractall(folder, filter="data")
    return glob.glob(folder + "/jsonschema-*/json/tests")[0]


def judge(tests, pattern, draft="draft2020-12", dialect=None):
    """`dialect`: the `$schema` of schemas without one; drafts before 2019-09 leave it to the runner."""
    folder = os.path.join(tests, draft)
    records, about = [], []
    for path in sorted(glob.glob(os.path.join(folder, pattern))):
        with open(path) as f:
            groups = json.load(f)
        for group in groups:
            if dialect and isinstance(group["schema"], dict):
                group["schema"].setdefault("$schema", dialect)
            records.append(("S", dump(group["schema"])))
            about.append(None)
            for test in group["tests"]:
                for spaced in (False, True):
                    records.append(("I", dump(test["data"], spaced)))
                    about.append((os.path.basename(path), group["description"], test["description"], test["valid"]))
    count, wrong, refused = collections.Counter(), set(), set()
    for line, what in zip(run(records), about):
        if what is None:
            count["groups"] += 1
            count["accepted"] += line.startswith("ok")
        elif line != "none":
            if (line == "yes") and not what[3]:
                wrong.add(what)
            if (line == "no") and what[3]:
                refused.add(what)
    print(draft, pattern, dict(count), "invalid taken", len(wrong), "valid refused", len(refused))
    return count, wrong, refused


def test_keywords(suite):
    count, wrong, refused = judge(suite, "*.json")
    assert not wrong
    assert count["accepted"] >= 324
    # a `format` is kept here, where the suite's files of keywords say that it is an annotation
    refused = {r for r in refused if r[0] != "format.json"}
    assert len(refused) <= 10, refused


def test_formats(suite):
    count, wrong, refused = judge(suite, "optional/format/*.json")
    assert not wrong
    assert count["accepted"] == count["groups"]
    assert len({r for r in refused if r[0] != "idn-hostname.json"}) <= 5, refused


def test_optional(suite):
    count, wrong, _ = judge(suite, "optional/*.json")
    assert not wrong
    assert count["accepted"] >= 46


SCHEMA = "http://json-schema.org/draft-0%d/schema#"


@pytest.mark.parametrize(
    "draft, dialect, least",
    [
        ("draft4", SCHEMA % 4, (145, 32, 7)),
        ("draft6", SCHEMA % 6, (205, 34, 10)),
        ("draft7", SCHEMA % 7, (228, 37, 19)),
        ("draft2019-09", None, (324, 44, 21)),
    ],
)
def test_other_drafts(suite, draft, dialect, least):
    for pattern, groups in zip(("*.json", "optional/*.json", "optional/format/*.json"), least):
        count, wrong, refused = judge(suite, pattern, draft, dialect)
        # draft 7 leaves it open whether the content of a string is checked; later ones say that it is not
        assert {w[0] for w in wrong} <= {"content.json"}, wrong
        assert count["accepted"] >= groups
        assert len({r for r in refused if r[0] not in ("format.json", "idn-hostname.json")}) <= 10, refused


# ---------------------------------------------------------------- random schemas

SCALARS = [None, True, False, 0, 1, 2, 3, -1, 1.5, 2.5, "", "a", "b", "ab", "abc"]
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LEAVES = ("type", "type", "const", "enum", "pattern", "required", "dependentRequired", "multipleOf", *COUNTS, *BOUNDS)
ONE = ("items", "contains", "additionalProperties", "propertyNames", "not", "unevaluatedProperties", "unevaluatedItems")
LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
NAMED = ("properties", "dependentSchemas")
TYPES = ["integer", "number", "string", "boolean", "null", "array", "object", ["string", "null"], ["integer", "array"], ["object", "array"]]


class Shapes:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def value(self, depth):
        kind = self.r.random()
        if depth <= 0 or kind < 0.55:
            return self.r.choice(SCALARS)
        if kind < 0.78:
            return [self.value(depth - 1) for _ in range(self.r.randint(0, 3))]
        return {k: self.value(depth - 1) for k in self.r.sample("abcd", self.r.randint(0, 3))}

    def keyword(self, s, key, depth):
        r = self.r
        if key == "type":
            s[key] = r.choice(TYPES)
        elif key == "const":
            s[key] = self.value(2)
        elif key == "enum":
            s[key] = [self.value(1) for _ in range(r.randint(1, 4))]
        elif key in BOUNDS:
            s[key] = r.choice([0, 1, 2, 1.5])
        elif key == "multipleOf":
            s[key] = r.choice([1, 2, 0.5, 1.5])
        elif key in COUNTS:
            s[key] = r.randint(0, 2)
        elif key == "pattern":
            s[key] = r.choice(["^a", "b", "^[ab]*$"])
        elif key == "required":
            s[key] = r.sample("abcd", r.randint(1, 2))
        elif key == "dependentRequired":
            s[key] = {r.choice("abcd"): r.sample("abcd", 1)}
        elif key in ONE:
            s[key] = self.schema(depth - 1)
        elif key in LISTS:
            s[key] = [self.schema(depth - 1) for _ in range(r.randint(1, 3))]
        elif key in NAMED:
            s[key] = {k: self.schema(depth - 1) for k in r.sample("abcd", r.randint(1, 2))}
        elif key == "patternProperties":
            s[key] = {k: self.schema(depth - 1) for k in r.sample(["^a", "b", "[cd]"], r.randint(1, 2))}
        elif key == "if":
            s |= {k: self.schema(depth - 1) for k in ("if", "then", "else")}
        elif key == "uniqueItems":
            s |= {key: True, "items": {"enum": [r.choice(SCALARS) for _ in range(3)]}}
        else:
            s |= {"contains": self.schema(depth - 1), key: r.randint(0, 2)}

    def schema(self, depth):
        if self.r.random() < 0.06:
            return self.r.random() < 0.7
        s = {}
        inner = ("not", "anyOf", "oneOf", "properties", "if", "patternProperties", "minContains", "maxContains", "uniqueItems", *ONE, *LISTS, *NAMED)
        for _ in range(self.r.choice([1, 1, 2, 2, 3])):
            self.keyword(s, self.r.choice(LEAVES + inner if depth > 0 else LEAVES), depth)
        return s


def judged(shapes, validator):
    """300 random schemas and 60 values of each, beside a validator: no accepted schema takes a value that it refuses."""
    pool = [shapes.value(2) for _ in range(120)]
    records, about = [], []
    for _ in range(300):
        schema = shapes.schema(3)
        records.append(("S", dump(schema)))
        about.append((schema, None))
        for value in shapes.r.sample(pool, 60):
            records.append(("I", dump(value, spaced=True)))
            about.append((schema, value))
    count, check = collections.Counter(), None
    for (kind, _), line, (schema, value) in zip(records, run(records), about):
        if kind == "S":
            count["accepted"] += line.startswith("ok")
            check = validator(schema)
        elif line != "none":
            valid = check.is_valid(value)
            assert valid or line == "no", f"{json.dumps(schema)} takes {json.dumps(value)}"
            count[valid, line] += 1
    assert count["accepted"] >= 220
    assert count[True, "no"] <= 0.05 * count[True, "yes"], count
    return count


@pytest.mark.parametrize("seed", range(4))
def test_random_schemas(seed):
    judged(Shapes(seed), jsonschema.Draft202012Validator)


# ---------------------------------------------------------------- OpenAPI 3.0


class OpenapiShapes(Shapes):
    """Its own keywords: `nullable` beside a `type`, bounds that are exclusive by a boolean; no lists of types, no `const`."""

    def keyword(self, s, key, depth):
        r = self.r
        if key == "type":
            s |= {key: r.choice([t for t in TYPES if isinstance(t, str) and t != "null"]), "nullable": r.random() < 0.4}
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            s |= {key: r.random() < 0.7, key.replace("exclusiveM", "m"): r.choice([0, 1, 2])}
        elif key in ("enum", "pattern", "required", "multipleOf", "minimum", "maximum", *COUNTS, "items", "additionalProperties", "not", "properties"):
            super().keyword(s, key, depth)
        elif key in ("allOf", "anyOf", "oneOf"):
            super().keyword(s, key, depth)

    def schema(self, depth):
        s = super().schema(depth)
        s = {} if s is True else {"not": {}} if s is False else s
        # whether null passes an `enum` or a combination beside `nullable` is read differently
        return {k: v for k, v in s.items() if k != "nullable" or not {"enum", "not", "allOf", "anyOf", "oneOf"} & set(s)}


@pytest.mark.parametrize("seed", range(2))
def test_openapi(seed):
    openapi = pytest.importorskip("openapi_schema_validator")
    print("OpenAPI 3.0", dict(judged(OpenapiShapes(seed), openapi.OAS30Validator)))
