#!/usr/bin/env python3
"""Compare common/template with Python's jinja2 as transformers sets it up, on generated templates.

    python tests/golden/jinja_oracle.py [--seed N] [--random N] [--verbose]

Run by hand, with jinja2 and transformers installed. Cases: every operator on every pair of values,
every filter, test and method on every value, hand-written lists for arguments and statements, and
random templates for white space control. Both sides must give the same text or both fail; where both
fail, the messages are compared and counted, but may differ.
"""
import argparse
import ctypes
import glob
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import warnings

warnings.simplefilter("ignore")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# ------------------------------------------------------------------ the C side, through ctypes
class Err(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("sys", ctypes.c_int), ("msg", ctypes.c_char * 480)]


class Buf(ctypes.Structure):
    _fields_ = [("p", ctypes.c_void_p), ("len", ctypes.c_size_t), ("cap", ctypes.c_size_t), ("oom", ctypes.c_bool)]


class Limits(ctypes.Structure):
    _fields_ = [("max_steps", ctypes.c_uint64), ("max_memory", ctypes.c_size_t), ("max_output", ctypes.c_size_t),
                ("now", ctypes.c_int64), ("bare", ctypes.c_bool)]


def build():
    out = os.path.join(ROOT, "build", "oracle.so")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    src = glob.glob(f"{ROOT}/common/template/*.c") + [f"{ROOT}/common/{n}.c" for n in ("arena", "buf", "err", "json/json", "json/exact", "json/reader", "utf8")]
    src += [f"{ROOT}/common/tokenizer/{n}.c" for n in ("regex", "regex_translate", "unicode")]
    cc = os.environ.get("CC", "cc").split()
    subprocess.check_call([*cc, "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-g", f"-I{ROOT}", "-shared", "-fPIC", *src,
                           "-o", out, "-lcjson", "-lutf8proc", "-lpcre2-8", "-lm"])
    lib = ctypes.CDLL(out)
    for name in ("template_compile", "json_parse"):
        getattr(lib, name).restype = ctypes.c_void_p
    return lib


class Ours:
    def __init__(self, variables):
        self.lib = build()
        self.text = json.dumps(variables, ensure_ascii=False).encode()
        e = Err()
        self.vars = self.lib.json_parse(self.text, ctypes.c_size_t(len(self.text)), ctypes.byref(e))
        assert self.vars, e.msg
        self.lib.template_keep_numbers(ctypes.c_void_p(self.vars), self.text, ctypes.c_size_t(len(self.text)))

    def compile(self, src, e):
        src = src.encode()
        return self.lib.template_compile(src, ctypes.c_size_t(len(src)), ctypes.byref(e))

    def render(self, src):
        e, out = Err(), Buf()
        t = self.compile(src, e)
        if not t:
            msg = e.msg.decode(errors="replace")
            return False, msg.removeprefix("syntax error: ").rsplit(" (in <string>", 1)[0]
        limits = Limits(0, 0, 0, 0, True)
        rc = self.lib.template_render(ctypes.c_void_p(t), ctypes.c_void_p(self.vars), ctypes.byref(limits),
                                      ctypes.byref(out), ctypes.byref(e))
        self.lib.template_free(ctypes.c_void_p(t))
        text = ctypes.string_at(out.p, out.len).decode() if rc == 0 and out.p else ""
        self.lib.buf_free(ctypes.byref(out))
        return (True, text) if rc == 0 else (False, e.msg.decode(errors="replace"))


# ------------------------------------------------------------------ the Python side
class Theirs:
    def __init__(self, variables):
        from transformers.utils import chat_template_utils as c
        self.env = c._cached_compile_jinja_template("").environment
        self.text = json.dumps(variables)

    def render(self, src):
        def stop(*_):
            raise TimeoutError("takes too long")
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            return True, self.env.from_string(src).render(**json.loads(self.text))  # fresh: |indent changes a list
        except Exception as e:  # any failure of a template is one outcome
            return False, str(e)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


# ------------------------------------------------------------------ what to try
VARS = {
    "s": "Hello, World", "u": "naïve 😀 Straße ÉCOLE", "w": "  pad ded\t\n", "num": "42", "e": "",
    "lines": "one\ntwo\r\n\n  three\n", "i": 7, "n": -3, "z": 0, "f": 2.5, "g": 1e-07, "h": 1e16, "t": True,
    "x": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "m": [1, "a", None, 2.0, True], "el": [],
    "d": {"b": 1, "A": 2, "c": None}, "ed": {}, "big": 12345678901234567890, "two": 2.0,
    "users": [{"name": "Zoe", "age": 30, "tags": ["x"]}, {"name": "adam", "age": 25, "tags": []},
              {"name": "Bob", "age": 30, "addr": {"city": "Rome"}}],
    "html": "<a href=\"x\">'&'</a>", "items": {"items": 1, "keys": 2, "_p": 3}, "nested": [[1, 2], [3, [4]]],
}
VALUES = ["s", "u", "num", "e", "i", "n", "z", "f", "g", "h", "t", "false", "x", "l", "ls", "m", "el", "d", "ed", "two",
          "missing", "(1, 2)", "()", "(1,)", "range(3)", "users", "w", "lines", "html", "big", "nested", "d.items()", "d.keys()",
          "html|e", "'<b>'|safe"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = """abs batch(2)|list batch(2,'x')|list capitalize center(20) count d('q') default('q') default('q',true) dictsort
 dictsort(true) dictsort(by='value') dictsort(false,'key',true) e escape first float float(9) forceescape groupby(0)|list indent
 indent(2) indent(2,true) indent(2,true,true) indent('>>') indent(width=1,first=true) int int(5) int(base=16) items|list join join(',')
 last length list lower map('upper')|list map('string')|join('|') map(attribute='name')|list map(attribute='age',default=1)|list max min
 reject|list reject('none')|list reject('odd')|list rejectattr('name')|list replace('l','L') replace('l','L',1) replace('','-')
 reverse|list reverse round round(1) round(-1) round(0,'ceil') round(1,'floor') safe select|list select('string')|list
 select('gt',1)|list selectattr('name')|list selectattr('age','equalto',30)|list selectattr('age','gt',26)|map(attribute='name')|join
 slice(2)|list slice(2,'f')|list sort sort(true) sort(reverse=true,case_sensitive=true) sort(attribute='age') sort(attribute='age,name')
 string sum sum(start=10) title tojson tojson(indent=2) tojson(true) tojson(indent=0) tojson(separators=(',',':')) tojson(sort_keys=true)
 tojson(indent='--') trim trim('H ') truncate(5) truncate(5,true) truncate(6,false,'!') truncate(3,true,'',0) unique|list
 unique(true)|list upper urlencode wordcount string|upper attr('upper') attr('items') xyz format filesizeformat filesizeformat(true)
 list|length list|tojson map('tojson')|list sum(attribute='age') max(attribute='age') min(attribute='name') unique(attribute='age')|list
 groupby('age')|list groupby('age')|map(attribute='list')|list groupby('name')|map('first')|list map('first')|list map('length')|list
 join(', ',attribute='name') first|upper last|upper map(attribute='addr.city')|list map(attribute='tags.0',default='none')|list
 select('in',[1,2])|list select('mapping')|list select('undefined')|list map('int')|sum map('replace','a','b')|list
 map('default','D')|list tojson|length string|length reverse|join('.') list|last items|first dictsort|first select selectattr""".split()
TESTS = """defined undefined none boolean true false integer float number string mapping sequence iterable callable escaped lower upper
 odd even divisibleby(2) divisibleby(0) filter test in([1,2,'b']) in('abc') eq(1) ==(1) ne(1) lt(2) le(2) gt(2) ge(2) equalto('b')
 sameas(none) sameas(true) lessthan(3) greaterthan(3)""".split()
METHODS = """upper() lower() title() capitalize() swapcase() casefold() strip() lstrip() rstrip() strip('H') lstrip(' p') rstrip('d')
 split() split(',') split(',',1) split('l',1) split(' ',-1) rsplit('l',1) rsplit(none,1) split(none,1) split(maxsplit=1) split('')
 splitlines() splitlines(true) join(['a','b']) join('xyz') join([1]) partition(',') rpartition('o') replace('l','L') replace('l','L',1)
 replace('','-') replace('o','') startswith('H') startswith(('x','H')) endswith('d') endswith(('d',)) startswith('e',1)
 startswith(1) removeprefix('He') removesuffix('ld') removesuffix('') find('o') find('o',5) find('zz') find('') rfind('o') rfind('')
 index('o') index('zz') rindex('l') count('l') count('') count('o',5) count('l',0,4) center(20) center(15,'*') center(14,'-') ljust(20) rjust(20,'.')
 zfill(15) expandtabs(4) isalpha() isdigit() isdecimal() isnumeric() isalnum() isspace() isprintable() isascii() islower() isupper()
 istitle() items() keys() values() get('b') get('zz') get('zz',5) get('c','d') copy() append(1) pop() update({}) clear() sort()
 setdefault('q',1) index(1) index(99) count(1) format(1,2) extend([1]) insert(0,1) remove(1) popitem() __class__ _x upper
 items()|list values()|list keys()|list nope nope.nope get get() b A name items keys _p 0 1 -1""".split()
SUBSCRIPTS = ["0", "-1", "1", "5", "-9", "'b'", "'A'", "'items'", "'upper'", "none", "missing", "1.0", "true", ":", "1:", ":1", ":-1",
              "::2", "::-1", "-2:", "1:3", "5:1", "3:0:-1", "::0", "'a':", "-100:100", "100:-100:-1", ":0:-1", "[1]", "(1,2)", "'__class__'",
              "'_p'", "9999999999:", ":-9999999999:-1", "::9223372036854775807", "::-9223372036854775807", "1:2,3"]
FORMATS = ["'%s'", "'%d'", "'%5d|'", "'%-5d|'", "'%05d'", "'%+d'", "'% d'", "'%x %X %o'", "'%#x'", "'%e'", "'%.2f'", "'%g'", "'%10.3f|'", "'%-10s|'",
           "'%10s|'", "'%.2s'", "'%r'", "'%c'", "'%%'", "'%s %s'", "'%(b)s'", "'%(zz)s'", "'%'", "'%z'", "'%*d'", "'%5%'", "'none'", "'%i'", "'%s%'",
           "'%.0f'", "'%.3d'", "'%G'", "'%#.3g'", "'%a'"]
FORMAT_ARGS = ["s", "i", "n", "f", "(1, 2)", "(1,)", "()", "d", "l", "x", "missing", "(5, 3)", "65", "h", "g", "t", "big", "u", "(1,2,3)", "html"]
STR_FORMATS = ["{}", "{0}", "{1}", "{} {}", "{0} {}", "{a}", "{a.b}", "{0[0]}", "{0[b]}", "{:5}|", "{:<5}|", "{:>8}|", "{:^9}|", "{:*^9}|", "{:05}", "{:+}",
               "{:,}", "{:_}", "{:x}", "{:#x}", "{:b}", "{:o}", "{:c}", "{:e}", "{:.2f}", "{:.3}", "{:g}", "{:%}", "{:.1%}", "{:n}", "{!r}", "{!s:>10}",
               "{{}}", "{", "}", "{:{}}", "{0!r:^20}", "{0.upper}", "{0.__class__}", "{:d}", "{:s}", "{:=+8}", "{:08.3f}", "{:,.2f}", "{:.0f}", "{:q}"]
STR_FORMAT_ARGS = ["s", "i", "n", "f", "h", "l", "d", "x", "missing", "t", "i, 10", "a=5", "'é'", "12345678", "123456.789", "0.0", "html|e", "1e300"]
EXPRESSIONS = r"""
1 + 2 * 3 - 4 // 3 % 2|||2 ** 3 ** 2|||-2 ** 2|||(-2) ** 2|||2 ** -1|||0 ** 0|||0 ** -1|||7 // -2|||-7 // 2|||-7 % 3|||7 % -3|||7.5 // 2|||-7.5 % 2
1 / 3|||10 / 5|||1e3|||1_000|||0x1F|||0b101|||0o17|||1.5e-3|||1e22|||1e21|||123456789.123456789|||0.1 + 0.2|||1e100|||5e-324|||1.7976931348623157e308
100000000000000000000.0|||1e15|||1e16|||123456789012345680.0|||0.0001|||0.00001|||-0.0|||1.0|||1e5|||2.50
1 < 2 < 3|||1 < 3 < 2|||1 == 1.0 == true|||'a' < 'b'|||[1,2] < [1,3]|||(1,) < (1,2)|||1 < 'a'|||none < 1|||1 in [1] == true|||not 1 in [2]|||'a' not in 'b'
true and 'x' or 'y'|||none or 0|||0 or ''|||'' and missing|||1 if true else 2|||1 if false|||(1 if false) is defined|||1 if false else 2 if false else 3|||'x' if missing else 'y'
[1, 2, 3][1]|||[1,2,3][-1]|||{'a': 1}.a|||{'a': 1}['a']|||{1: 2}[1]|||{'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c|||(1, 2)[0]|||'abc'[1]|||users[0].name|||users.0.name|||users[-1].addr.city
users[0].nope|||users[0].nope.nope|||missing.a|||missing['a']|||missing()|||missing + 1|||1 + missing|||missing ~ 'x'|||missing == missing|||missing == none|||missing is defined|||missing|list|||missing|length
missing|tojson|||[missing]|tojson|||[missing]|||missing|upper|||missing|int|||missing|float|||missing|first|||missing|last|||missing|join|||missing|sort|||missing|default('d')|upper|||not missing|||missing in 'abc'|||missing in [1]
'a' in missing|||missing < 1|||-missing|||missing.a|default('x')|||users[9].x|default('x')|||users[0].q|default('x')|||d.zz is defined|||d.b is defined|||d['c'] is none|||x is none|||x.y is defined|||x.y
x.y.z|||x|length|||x|list|||x + 'a'|||'a' + x|||'a' + 1|||1 + 'a'|||[1] + [2]|||[1] + (2,)|||(1,) + (2,)|||{} + {}|||l + missing|||'a' * 3|||3 * 'a'|||'a' * -1|||[0] * 3|||'a' * 'b'|||'a' * 1.5
'%s-%s' % ('a', 1)|||'%s' % l|||'%s' % [1]|||'abc' % [1]|||'abc' % 1|||'%d' % 'x'|||'%s' % (l,)|||'%(a)s' % {'a': 1}|||'a' 'b' "c"|||'a\nb\t\x41\u00e9\\ \' \q'|||'\101'|||"\U0001F600"|||'a\
b'
u[0]|||u[2]|||u[6]|||u[::-1]|||u[-5:]|||u|length|||u|upper|||u|lower|||u|title|||u|capitalize|||u.find('S')|||u|list|||u|reverse|||u.split()|||u|tojson|||u|tojson(ensure_ascii=true)|||u|e|||[u]|||u.center(30, 'é')
'straße'|upper|||'ﬁx'|upper|||'ΑΣ'|lower|||'İ'|lower|||'ǆ'|title|||'\x00\x7f\x80\xa0\u200b\ufeff'|list|||'\x1b\x07'|tojson|||['it\'s', 'say "x"', 'both \' "']|||'tab\t nl\n'|tojson
range(5)|list|||range(1, 10, 3)|list|||range(5, 0, -2)|list|||range(0)|list|||range(3)|||range(1,5)|||range(1,9,2)|||range(10)[2:5]|||range(10)[::-1]|list|||range(10)[-1]|||range(100001)|||range(1, 2, 0)|||range('a')|||range(3) == range(3)|||3 in range(5)|||range()|||range(2.0)
dict(a=1, b=2)|||dict({'a': 1}, b=2)|||dict([('a', 1)])|||dict(1)|||dict()|||dict(a=1).items()|list|||namespace(a=1).a|||namespace(a=1)|||namespace().b|||namespace(a=1)['a']|||namespace({'a': 1}, b=2).b
cycler('a', 'b').next()|||cycler()|||joiner('x')()|||lipsum is defined|||raise_exception('boom')|||raise_exception()|||strftime_now('%%')|||strftime_now('')|||strftime_now(1)|||range.__class__|||''.__class__|||''.__class__.__mro__|||'a'.__len__()|||[].__class__|||d._x|||items._p|||items['_p']|||items.items|||items['items']|||items.keys()|list|||d.__dict__ is defined|||'a'._y|||[].append|||[].append(1)|||{}.update({'a':1})|||{}.pop|||{}.pop is defined|||{}.pop|default('x')|||namespace(_a=1)._a
'a,b,c'.split(',')[1]|||'a b'.split()|map('upper')|join('-')|||'x'.join(['a','b'])|||','.join(l|map('string'))|||', '.join([1])|||'abc'.replace('b', 'X').upper()|||'{} {}'.format('a', 1)|||'{a[x]}'.format(a={'x': 1})|||'{0.name}'.format({'name': 'n'})|||'%s' | format('a')|||'%s %s'|format(1, 2)|||'%(a)s'|format(a=1)|||'%s'|format|||'%d %s'|format(1)
[1,2,3]|first|||[]|first|||[]|last|||[]|max|||[]|first|default('none')|||[3,1]|sort|||['b','A']|sort|||['b','A']|sort(case_sensitive=true)|||[1,'a']|sort|||[[2,1],[1,2]]|sort|||[none,1]|sort|||{'b':1,'a':2}|sort|||'hello'|sort|join|||[1,1.0,true]|unique|list|||['a','A']|unique|list|||[[1],[1]]|unique|list|||[1,2,3]|sum|||['a']|sum|||[[1],[2]]|sum(start=[])|||[1.5,2]|sum|||[]|sum|||users|sum(attribute='age')|||[0.1]*3|sum
users|selectattr('age', 'ge', 26)|map(attribute='name')|list|||users|rejectattr('addr', 'defined')|map(attribute='name')|join(',')|||users|map(attribute='addr')|list|||users|map(attribute='addr.city')|list|||users|map(attribute='addr.city', default='?')|list|||users|groupby('age')|map('first')|list|||users|map('upper')|list|||users|selectattr('nope.nope')|list|||users|map(attribute='name')|map('length')|list|||users|selectattr('tags')|list|length|||users|map('nope')|list|||users|select('nope')|list|||users|map|list|||users|map(foo='x')|list|||users|selectattr|list
(users|selectattr('age'))|length|||(users|selectattr('age'))[0]|||users|selectattr('zz') is defined|||(users|selectattr('zz')) and 'truthy'|||users|map(attribute='age')|first|||(users|map(attribute='age')|list)[0]|||[1,2]|map('string')|tojson|||(1,2)|tojson|||{'a':(1,)}|tojson|||{1:2,none:3,true:4,1.5:5}|tojson|||{(1,2):3}|tojson|||range(3)|tojson|||d.items()|tojson|||d.items()|||d.keys()|||d.values()|||d.keys()[0]|||d.items()|list|||d.items()|length|||namespace(a=1)|tojson|||[1,2]|tojson(indent=4)|||{'a':[],'b':{},'c':[1,{'d':2}]}|tojson(indent=2)|||{}|tojson(indent=2)|||1e400|tojson|||(1e308*10)|||(1e308*10)|tojson|||-(1e308*10)|||(1e308*10)|int|||((1e308*10)-(1e308*10))|tojson
'<b>'|e|||'<b>'|e|e|||('<b>'|safe) + '<i>'|||'<i>' + ('<b>'|safe)|||('<b>'|safe) ~ '<i>'|||('<b>'|e) * 2|||('<b>'|e)|upper|||('a'|safe).join(['<'])|||('%s'|safe) % '<'|||('{}'|safe).format('<')|||('<'|safe)|replace('<', '>')|||('<'|safe).replace('<', '>')|||['<b>'|safe]|||('a'|safe)[0]|||[('a b'|safe).split()]|||('<b>'|safe)|tojson|||'x'|safe is escaped|||(html|e)|length|||['a'|safe, '<']|join('&')|||('<'|e)|string|||('<'|e) == '&lt;'|||'a'|safe|trim|||('a'|safe)|indent
1.5|round|||2.5|round|||3.5|round|||2.675|round(2)|||1234.5|round(-2)|||15|round(-1)|||25|round(-1)|||1.23456|round(3)|||1.21|round(1,'ceil')|||1.29|round(1,'floor')|||'a'|round|||true|round|||1|round|||1e300|round(2)|||1.5|round(none)|||-0.4|round|||1.005|round(2)|||0.5|round|||1.5|round(method='nope')
'12'|int|||'12.7'|int|||' 12 '|int|||'1_000'|int|||'abc'|int|||'abc'|int(7)|||'0x1f'|int(base=16)|||'1f'|int(0,16)|||'0b11'|int(0,2)|||none|int|||12.9|int|||-12.9|int|||true|int|||[]|int|||'1e3'|int|||'inf'|int|||'nan'|float|||'1.5'|float|||' 1e3 '|float|||'x'|float|||'x'|float(2.5)|||'-inf'|float|||'1_0.5'|float|||'+5'|int|||'--5'|int|||''|int|||'٣'|int|||'0x10'|int|||'12abc'|int|||1e18|int
'hello world foo'|truncate(8)|||'hello world foo'|truncate(8, true)|||'hello world foo'|truncate(10, leeway=0)|||'hello'|truncate(2)|||'foo bar baz qux'|truncate(11)|||'foo bar baz qux'|truncate(11, False, '...', 0)|||'a b c'|wordcount|||"it's a-b"|wordcount|||'foo bar-baz (qux) [x] <y'|title|||"they're"|title|||"they're bill's".title()|||'a\nb\n\nc'|indent|||'a\nb\n\nc'|indent(2, true, true)|||'a\n'|indent(2)|||'\n'|indent(2)|||''|indent(2,true)|||5|indent|||'a\nb'|indent('--')
5|string|||5|string + 'a'|||none|string|||true|string|||[1]|string|||5|upper|||none|upper|||none|trim|||5|trim|||[1]|join|||'abc'|join('-')|||{'a':1}|join('-')|||[1,none,true]|join(',')|||5|join|||5|length|||5|list|||5|first|||5|replace(5,6)|||none|replace('N','x')|||'aaa'|replace('a','b',2)|||5|reverse|||'abc'|reverse|||[1,2]|reverse|list|||{'a':1,'b':2}|reverse|list|||(1,2)|reverse|list|||[1,2]|reverse
'a' is string|||1 is number|||true is number|||1.0 is float|||1 is integer|||true is integer|||true is boolean|||none is none|||[] is sequence|||{} is mapping|||{} is sequence|||'a' is iterable|||1 is iterable|||range is callable|||'a' is callable|||'upper' is filter|||'zz' is filter|||'odd' is test|||3 is odd|||'a' is odd|||3 is divisibleby 3|||3 is divisibleby(0)|||1 is in [1,2]|||1 is sameas 1|||none is sameas none|||1 is eq 1|||1 is not eq 1|||not 1 is eq 1|||'a' is lower|||'A' is upper|||'1' is lower|||1 is zz|||2 is even and 3 is odd|||1 is defined is defined|||3 is not odd or true|||1 is lt 2|||'a' is in 'abc'|||[1] is eq [1]
[1,2,3] | map('string') | join(', ') | upper|||'a'|upper ~ 'b'|lower|||'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1]|||-1|abs|||(-1)|abs|||'a' + 'b' * 2|||not true == false|||1 + 1 ~ 2 * 3|||1, 2|||(1)|||((1))|||()|||(,)|||[,]|||{}|||{'a': 1,}|||[1,]|||{1}|||[1 2]|||1 +|||+ 1|||* 1|||a b|||1.|||.5|||1..real|||'unclosed|||"a' b"|||a.|||a[|||a[]|||f(|||f(1,)|||range(*[3])|list|||dict(**{'a':1})|||range(*3)|||dict(**3)|||dict(a=1, a=2)|||dict(a=1, 2)|||dict(*[], **{})|||x if|||if x|||not|||1 if 2 else|||in [1]|||1 in|||a|||true|||True|||TRUE|||None|||none|||NONE|||null|||false and|||1 |upper|||1|||1|||;|||1;2|||$|||@|||a!b|||a?b|||1 => 2|||1 <> 2|||1 === 2|||!true|||a && b|||`a`|||'a'|nope|||'a' is nope|||true and ('a'|nope)|||'a'|nope if false else 'ok'|||é|||日本 is defined|||_x is defined|||1a|||a1 is defined
1 + + 1|||1 - - 1|||--1|||-'a'|||+true|||-true|||true + true|||true / 2|||5 // 0|||5 % 0|||5.0 // 0|||5.0 % 0|||5 / 0|||5 / 0.0|||1e308 * 10|||2 ** 62|||2 ** 0.5|||(-8) ** 0.5|||2.0 ** 1024|||10 ** -2|||0.0 ** -1|||-5 // 2|||5 // -2.0|||-0.5 // 1|||5.5 % -2|||-5.5 % 2|||1e16 // 1|||3 % 0.1|||9007199254740993|||9223372036854775807|||-9223372036854775807|||9223372036854775808|||12345678901234567890 == big|||big > 5|||big|tojson|||big|string|||big ~ ''|||-big|||big is integer|||big|int|||big|abs|||[big]
"""
STATEMENTS = r"""
{% for i in l %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}
{% for i in l %}{{ loop.index }}/{{ loop.length }}:{{ loop.revindex }}:{{ loop.revindex0 }}:{{ loop.first }}:{{ loop.last }}:{{ loop.index0 }} {% endfor %}
{% for i in el %}a{% else %}empty{% endfor %}
{% for i in missing %}a{% else %}empty{% endfor %}
{% for i in none %}a{% endfor %}
{% for i in 5 %}a{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d %}{{ k }}{% endfor %}
{% for k in d %}{{ k }}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for c in u %}[{{ c }}]{% endfor %}
{% for i in range(10) if i is odd %}{{ loop.index }}:{{ i }}:{{ loop.last }} {% endfor %}
{% for i in range(10) if i > 20 %}x{% else %}none{% endfor %}
{% for i in range(5) if loop.index %}x{% endfor %}
{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1,2] %}{% for j in [3,4] %}{{ loop.index }}{{ i }}{{ j }}{% if j == 3 %}{% continue %}{% endif %}!{% endfor %}{{ loop.index }}{% endfor %}
{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}
{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}
{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for i in [1,1,2,2] %}{{ loop.changed(i) }}{% endfor %}
{% for i in l %}{{ loop.nope }}{% endfor %}
{% for i in l %}{{ loop }}{% endfor %}
{{ loop }}
{% for item in nested recursive %}{% if item is iterable %}[{{ loop(item) }}]{% else %}{{ item }}@{{ loop.depth }}{{ loop.depth0 }}{% endif %}{% endfor %}
{% for item in nested %}{{ loop(item) }}{% endfor %}
{% for i in l %}{% set q = i %}{% endfor %}{{ q }}
{% set q = 1 %}{% for i in l %}{% set q = i %}{{ q }}{% endfor %}{{ q }}
{% set q = 0 %}{% for i in l %}{{ q }}{% set q = i %}{% endfor %}
{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}
{% set ns = namespace() %}{% set ns.a.b = 1 %}
{% set d.x = 1 %}
{% set missing.x = 1 %}
{% set ns = namespace(a=1) %}{% set ns.a, z2 = 3, 4 %}{{ ns.a }}{{ z2 }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a, b = [1] %}{{ a }}
{% set (a, b) = (1, 2) %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set a %}x{{ i }}y{% endset %}{{ a }}|{{ a|length }}
{% set a | upper | replace('X', '-') %}xyx{% endset %}{{ a }}
{% set a %}{% set inner = 1 %}{% endset %}{{ inner is defined }}
{% set 1 = 2 %}
{% set 'a' = 2 %}
{% set a.b.c = 2 %}
{% set a[0] = 2 %}
{% set true = 2 %}
{% if i > 5 %}big{% elif i > 3 %}mid{% else %}small{% endif %}
{% if missing %}a{% elif missing is not defined %}b{% endif %}
{% if 1 %}{% set v = 5 %}{% endif %}{{ v }}
{% if 0 %}{% set v = 5 %}{% endif %}{{ v is defined }}
{% if i == 7 and l and not x %}y{% endif %}
{% if 1, 2 %}tuple{% endif %}
{% if %}{% endif %}
{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(b=5, a=4) }} {{ m() }} {{ m(1,2,3) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(4) }}
{% macro m() %}{{ q }}{% endmacro %}{% set q = 1 %}{{ m() }}{% set q = 2 %}{{ m() }}
{% for i in [1,2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% set ns = namespace(f=none) %}{% for i in [1,2] %}{% macro m() %}{{ i }}{% endmacro %}{% if i == 1 %}{% set ns.f = m %}{% endif %}{% endfor %}{{ ns.f() }}
{% for i in [1,2] %}{{ outer(i) }}{% endfor %}{% macro outer(x) %}{{ x }}{% endmacro %}
{% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}
{% macro m() %}{% set q = 5 %}{{ q }}{% endmacro %}{{ m() }}{{ q is defined }}
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ i }}{% endcall %}
{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}
{% macro m(a, b) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}
{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}
{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}
{% macro m(a) %} {{ a }} {% endmacro %}{{ m('x')|trim|upper }}{{ m('x')|length }}
{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m is callable }}
{% call i() %}{% endcall %}
{% call m %}{% endcall %}
{% filter upper %}abc {{ s }}{% endfilter %}
{% filter replace('a', 'b') | upper %}banana{% endfilter %}
{% filter indent(2) %}a
b{% endfilter %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}
{% with a, b = (1, 2) %}{{ a }}{{ b }}{% endwith %}
{% raw %}{{ x }}{% if %}{% endraw %}
{%- raw -%} a {%- endraw -%} b
a {# comment #} b
a {#- comment -#} b
{# multi
line #}x
{# unclosed
{% generation %}text{{ i }}{% endgeneration %}
{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}
{% for i in [1,2] %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}
{% print i %}{% print 1, 2 %}
{% do l.append(1) %}
{% include 'x' %}
{% break %}
{% unknown %}
{% endif %}
{% if 1 %}
{% if 1 %}{% endfor %}
{% for %}{% endfor %}
{% for x %}{% endfor %}
{% for x in %}{% endfor %}
{% for x in l %}
{% for 1 in l %}{% endfor %}
{% for x.y in l %}{% endfor %}
{% macro %}{% endmacro %}
{% macro m %}{% endmacro %}
{% set %}
{% set x %}
{% set x = %}
{% %}
{{ }}
{{
{%
{{ i
{% if i
{{ i }
{{ {'a': {'b': 1}}}}
{{ {'a': {'b': 1}} }}
{{ '}}' }}
{{ "%}" }}
{% if '%}' == '%}' %}y{% endif %}
{{ (1 }}
{{ 1) }}
{{ [1) }}
{% for i in l: %}{{ i }}{% endfor %}
{% if 1: %}y{% endif %}
{% set x = 1 -%}   y
a   {%- set x = 1 %} y
a   {{- i -}}   b
a   {{+ i }}   b
{%+ if 1 %}  a{%+ endif +%}
x
	{%+ if 1 %}a{% endif %}
x
   {% if 1 %}
   a
   {% endif %}
y
x {% if 1 %} a {% endif %} y
{{ i }}

{{ i }}


{% set x = 1 %}

z
{% if 1 -%}

a
{%- endif %}

b
   {# c #}
x
   {# c #} y
{{ 'a
b' }}{{ 'c\r\nd' }}
{{ namespace(a=1).a }}{% set ns = namespace({'x': 1}) %}{{ ns.x }}
{% autoescape false %}{{ html }}{% endautoescape %}
{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.current }}
{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}
{% set g = l|map('string') %}{{ g|list }}{{ g|list }}
{% set g = users|map(attribute='name') %}{{ g|first }}{{ g|join(',') }}
{% set g = l|select %}{% for i in g %}{% if loop.first %}{% break %}{% endif %}{% endfor %}{{ g|list }}
{% set g = l|map('nope') %}ok
{% set g = users|map(attribute='a.b.c') %}ok{{ g|list }}
{% for m in users if m.age == 30 %}{{ m.name }}{{ loop.length }}{% endfor %}
{% set ns = namespace(stop=false) %}{% for i in range(5) if not ns.stop %}{{ i }}{% if i == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}
{% for i in l %}{% set outer = loop %}{% for j in [1,2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for u2 in users|sort(attribute='name') %}{{ u2.name }}{% endfor %}
{% for age, list in users|groupby('age') %}{{ age }}:{{ list|length }} {% endfor %}
{% for g in users|groupby('age') %}{{ g.grouper }}:{{ g.list|length }}{{ g }}{% endfor %}
{% set x2 = 'a' if false %}{{ x2 is defined }}{{ x2 }}
{% set messages = [] %}{% if messages[0]['role'] == 'system' %}y{% else %}n{% endif %}
{% set messages = [] %}{% if messages and messages[0]['role'] == 'system' %}y{% else %}n{% endif %}
{% set l2 = l + [4] %}{{ l2 }}{{ l }}
{% if 'a' is nope %}{% endif %}ok
{% if true %}{{ 'a'|nope }}{% endif %}ok
{% if false %}{{ 'a'|nope }}{% endif %}ok
{% for q in [] %}{{ 'a'|nope }}{% endfor %}ok
{{ 1 if 1 else 'a'|nope }}
{% set loop = 5 %}{{ loop }}
{% for i in [1] %}{% set i = 9 %}{{ i }}{% endfor %}{{ i }}
{%set x=1%}{{x}}{%if x%}y{%endif%}
{{-i-}}{%-if 1-%} a {%-endif-%}
{{ true|tojson }}{{ none|tojson }}{{ true }}{{ none }}
{{ '%s' % 'a' if true else 'b' }}
{% for x in l|sort|reverse %}{{ x }}{% endfor %}
{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}
{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}
{% for x in 'a b'.split() %}{{ x }}{% endfor %}
{{ loop.index }}
{{ self }}
{{ caller() }}
{{ varargs }}
{% macro a() %}{% macro b() %}inner{% endmacro %}{{ b() }}{% endmacro %}{{ a() }}{{ b is defined }}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}
{% block x %}a{% endblock %}
"""


def cases(rng, n_random):
    for a, op, b in itertools.product(VALUES, BINARY, VALUES):
        if op == "**" and "big" in (a, b):
            continue  # Python would compute it
        yield f"{{{{ ({a}) {op} ({b}) }}}}"
    for v in VALUES:
        yield f"{{{{ {v} }}}}"
        yield f"{{{{ -({v}) }}}}{{{{ not ({v}) }}}}"
        for f in FILTERS:
            yield f"{{{{ ({v})|{f} }}}}"
        for t in TESTS:
            yield f"{{{{ ({v}) is {t} }}}}"
        for m in METHODS:
            yield f"{{{{ ({v}).{m} }}}}"
        for s in SUBSCRIPTS:
            yield f"{{{{ ({v})[{s}] }}}}"
    for f, a in itertools.product(FORMATS, FORMAT_ARGS):
        yield f"{{{{ {f} % {a} }}}}"
    for f, a in itertools.product(STR_FORMATS, STR_FORMAT_ARGS):
        yield f"{{{{ '{f}'.format({a}) }}}}"
    for line in EXPRESSIONS.strip().split("\n"):
        for x in line.split("|||"):
            yield "{{ " + x + " }}"
            yield "{% set v = " + x + " %}{{ v }}"
    for s in STATEMENTS.strip("\n").split("\n"):
        yield s
    yield from (s for s in "\n".join(STATEMENTS.strip("\n").split("\n")[-90:]).split("\n\n"))
    for _ in range(n_random):
        yield random_layout(rng)


def random_layout(rng):
    """Tags with all kinds of white space around them."""
    space = ["", " ", "  ", "\n", "\n\n", " \n", "\n ", "\t", "x", "x\n", "\r\n", "\u00a0", "y "]
    out, closers = [], []
    for _ in range(rng.randrange(1, 10)):
        out.append("".join(rng.choice(space) for _ in range(rng.randrange(0, 4))))
        a, b = rng.choice(["", "", "-", "+"]), rng.choice(["", "", "-", "+"])
        kind = rng.randrange(6)
        if kind == 0:
            out.append("{{" + a.replace("+", "") + " i " + b.replace("+", "") + "}}")
        elif kind == 1:
            out.append("{#" + a + " c\n " + b + "#}")
        elif kind == 2:
            out.append("{%" + a + " set q = 1 " + b + "%}")
        elif kind == 3:
            out.append("{%" + a + " raw " + b.replace("+", "") + "%}" + rng.choice(space) + "{{ r }}" + rng.choice(space) +
                       "{%" + rng.choice(["", "-", "+"]) + " endraw " + rng.choice(["", "-", "+"]) + "%}")
        elif kind == 4 or not closers:
            name = rng.choice(["if 1", "for j in [1, 2]", "filter upper", "generation"])
            closers.append("end" + name.split()[0])
            out.append("{%" + a + name + " " + b + "%}")
        else:
            out.append("{%" + a + closers.pop() + b + "%}")
    while closers:
        out.append(rng.choice(space) + "{%" + rng.choice(["", "-", "+"]) + closers.pop() + rng.choice(["", "-", "+"]) + "%}" + rng.choice(space))
    return "".join(out)


KNOWN = {
    "at 0x": "objects without a text of their own print no address",
    "<generator": "the same",
    "function": "the same",
    "bound method": "the same",
    "TemplateReference": "there is no self",
    "unhashable": "False where Python's `in` wants a hash",
    "'inf' is not defined": "jinja2 folds a constant infinity into a name",
    "'nan' is not defined": "the same",
    "underscore-prefixed": "only transformers 5 refuses such names of a namespace",
}


def by_design(src, ok, text, want_ok, want):
    """Where the two differ and are meant to (see docs/results/templates.md)."""
    if any(k in want for k in KNOWN) or (not ok and ("64 bit" in text or "complex" in text)):
        return True
    if not ok and want_ok and ("set()" in want or want[:1] == "{" and ": " not in want):
        return True  # differences of dict views are sets
    if "[" in src and ":" in src and not ok and want == "":
        return True  # jinja2 folds slices of constants at compile time and swallows the TypeError
    if any(f" {op} (d.{v}()) " in src for op in BINARY for v in ("keys", "items")):
        return True  # dict views as sets
    known = ("big)|round", "% big", "'%5%'", "'%a' % u", "|safe).join([1])", "html|e).join([1])", "lipsum", "round(none)",
             "775807]", ".__class__", "{% block", "include", "'٣'", "ns.f()")
    return any(k in src for k in known)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--random", type=int, default=3000)
    p.add_argument("--verbose", action="store_true", help="show messages that differ where both fail")
    args = p.parse_args()
    ours, python = Ours(VARS), Theirs(VARS)
    seen, n, bad, design, both_fail, same_message = set(), 0, 0, 0, 0, 0
    for src in cases(random.Random(args.seed), args.random):
        if src in seen:
            continue
        seen.add(src)
        n += 1
        ok, text = ours.render(src)
        want_ok, want = python.render(src)
        if not ok and not want_ok:
            both_fail += 1
            same_message += text == want
            if text != want and args.verbose:
                print(f"message  {src!r}\n  ours   {text}\n  theirs {want}")
        elif (ok, text) != (want_ok, want):
            if by_design(src, ok, text, want_ok, want):
                design += 1
                continue
            bad += 1
            print(f"DIFFERS  {src!r}\n  ours   {ok} {text!r}\n  theirs {want_ok} {want!r}")
    print(f"{n} templates: {n - bad - design - both_fail} with the same text, {both_fail} fail on both sides "
          f"({same_message} with the same message), {design} differ by design, {bad} differ")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
