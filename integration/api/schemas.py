"""Random JSON schemas with a fixed seed: `shapes(n)` returns n of them."""

import random

WORDS = ["name", "age", "tags", "a b", "city/zip", "x~y", "größe", 'say "hi"', "id", "kind", "left", "right"]
PATTERNS = [r"^[a-z]{1,8}$", r"^\d{2}-\d{4}$", r"^(red|green|blue)+$", r"[A-Z]", r"^[^x]{0,6}$", r"^a.?c$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname", "duration"]


class Shapes:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = {}

    def pick(self, *of):
        return self.r.choice(of)

    def string(self):
        kind = self.pick("free", "length", "pattern", "format", "both")
        low = self.r.randint(0, 4)
        return {
            "free": {"type": "string"},
            "length": {"type": "string", "minLength": low, "maxLength": low + self.r.randint(0, 9)},
            "pattern": {"type": "string", "pattern": self.pick(*PATTERNS)},
            "format": {"type": "string", "format": self.pick(*FORMATS)},
            "both": {"type": "string", "pattern": "^[a-f]*$", "minLength": low, "maxLength": low + 5},
        }[kind]

    def number(self):
        schema = {"type": self.pick("integer", "number")}
        low = self.r.choice([-1000, -3, 0, 1, 17]) + (self.pick(0, 0.5) if schema["type"] == "number" else 0)
        if self.r.random() < 0.6:
            schema[self.pick("minimum", "exclusiveMinimum")] = low
        if self.r.random() < 0.6:
            schema[self.pick("maximum", "exclusiveMaximum")] = low + self.r.randint(2, 5000)
        if schema["type"] == "integer" and self.r.random() < 0.2:
            schema["multipleOf"] = self.pick(2, 5, 7)
            schema.pop("exclusiveMaximum", None)
            schema["maximum"] = low + 5000
        return schema

    def values(self):
        some = ["red", 3, -0.5, True, None, 'q"\\', [1, "a"], {"k": 1}, "é", ""]
        self.r.shuffle(some)
        return {"const": some[0]} if self.r.random() < 0.3 else {"enum": some[: self.r.randint(1, 6)]}

    def array(self, depth):
        schema = {"type": "array", "items": self.any(depth - 1)}
        if self.r.random() < 0.3:
            schema["prefixItems"] = [self.any(depth - 1) for _ in range(self.r.randint(1, 3))]
            schema["items"] = self.pick(False, {"type": "integer"})
        else:
            schema["minItems"] = self.r.randint(0, 2)
            schema["maxItems"] = schema["minItems"] + self.r.randint(0, 3)
        return schema

    def object(self, depth):
        names = self.r.sample(WORDS, self.r.randint(0, 4))
        schema = {"type": "object", "properties": {n: self.any(depth - 1) for n in names}}
        if names and self.r.random() < 0.8:
            schema["required"] = self.r.sample(names, self.r.randint(1, len(names)))
        more = self.r.random()
        if more < 0.4:
            schema["additionalProperties"] = False
        elif more < 0.55:
            schema["additionalProperties"] = self.any(0)
        elif more < 0.65:
            schema["patternProperties"] = {"^p_[a-z]{1,4}$": self.any(0)}
            schema["additionalProperties"] = False
        if not names and more < 0.4:
            schema["maxProperties"] = self.r.randint(0, 2)
        return schema

    def union(self, depth):
        of = [self.any(depth - 1) for _ in range(self.r.randint(2, 3))]
        kind = self.r.random()
        if kind < 0.2:
            return {"allOf": [{"type": "object", "properties": {"u": of[0]}, "required": ["u"]}, {"properties": {"v": of[1]}}]}
        if kind < 0.4:
            tagged = [
                {"type": "object", "properties": {"kind": {"const": f"k{i}"}, "v": s}, "required": ["kind", "v"]} for i, s in enumerate(of)
            ]
            return {"oneOf": tagged}
        return {"anyOf": of}

    def reference(self, depth):
        name = f"d{len(self.defs)}"
        self.defs[name] = True  # its place; a definition may refer to others, and a tree to itself
        if self.r.random() < 0.3:
            kid = {"anyOf": [{"type": "null"}, {"$ref": f"#/$defs/{name}"}]}
            self.defs[name] = {"type": "object", "properties": {"v": self.any(0), "next": kid}, "required": ["v", "next"]}
        else:
            self.defs[name] = self.any(depth - 1)
        return {"$ref": f"#/$defs/{name}"}

    def any(self, depth):
        flat = [self.string, self.number, self.values, lambda: {"type": "boolean"}, lambda: {"type": ["string", "null"], "maxLength": 5}]
        deep = [self.array, self.object, self.object, self.union, self.reference]
        if depth <= 0 or self.r.random() < 0.35:
            return self.r.choice(flat)()
        return self.r.choice(deep)(depth)

    def whole(self):
        schema = self.object(3) if self.r.random() < 0.7 else self.any(3)
        return {**schema, "$defs": self.defs} if self.defs else schema


def shapes(n, seed=1):
    return [Shapes(seed * 1000 + i).whole() for i in range(n)]
