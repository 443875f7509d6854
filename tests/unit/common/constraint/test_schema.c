/* Keywords of JSON Schema, one after the other: instances that must pass, and texts that must not.
 */
#include "tests/unit/common/constraint/quoted_rows.h"

TEST(numbers_are_exact)
{
    static const struct row rows[] = {
        {"{'const':1234567890123456789}",
         {"1234567890123456789"},
         {"1234567890123456788", "1.2345678901234568e+18"}},
        {"{'enum':[9007199254740993,9007199254740992]}",
         {"9007199254740993", "9007199254740992"},
         {"9007199254740994", "9007199254740991"}},
        {"{'type':'integer','const':12345678901234567890123}",
         {"12345678901234567890123"},
         {"12345678901234567890124"}},
        {"{'type':'integer','minimum':9007199254740993}",
         {"9007199254740993", "9007199254740994", "10000000000000000"},
         {"9007199254740992", "0"}},
        {"{'type':'integer','exclusiveMaximum':-9007199254740993}",
         {"-9007199254740994"},
         {"-9007199254740993", "0"}},
        {"{'type':'integer','maximum':1e20,'minimum':99999999999999999999}",
         {"99999999999999999999", "100000000000000000000"},
         {"100000000000000000001", "99999999999999999998"}},
        {"{'const':0.1234567890123456789}", {"0.1234567890123456789"}, {"0.12345678901234568"}},
        {"{'type':'number','minimum':0.12345678901234567}",
         {"0.12345678901234567", "1"},
         {"0.12345678901234566"}},
        {"{'type':'integer','const':1e3}", {"1000"}, {"1e3", "100"}},
        {"{'const':-2.0}", {"-2", "-2.0"}, {"2", "-20"}},
        {"{'type':'integer','const':-2.0}", {"-2"}, {"-2.0", "-20"}},
        {"{'type':'number','multipleOf':0.01}",
         {"0", "0.3", "-19.99", "4.350", "7"},
         {"0.001", "19.995"}},
        {"{'type':'number','multipleOf':2.5}", {"7.5", "10", "-2.50"}, {"1", "0.5", "7.55"}},
        {"{'type':'number','multipleOf':1.5e1}", {"30", "45.0"}, {"31", "30.5"}},
        {"{'type':'integer','multipleOf':0.00000001}", {"12391239123"}, {"0.5"}},
        {"{'type':'number','minimum':5,'exclusiveMinimum':true}", {"5.1", "6"}, {"5", "5.0"}},
    };
    CHECK(rows);
}

TEST(a_nul_is_data)
{
    static const struct row rows[] = {
        {"{'const':'a\\u0000b'}", {"'a\\u0000b'"}, {"'a'", "'ab'", "'a\\u0000'"}},
        {"{'enum':['hello\\u0000there','x']}", {"'hello\\u0000there'", "'x'"}, {"'hello'"}},
        {"{'type':'string','pattern':'^a\\u0000+$'}", {"'a\\u0000\\u0000'"}, {"'a'", "'a0'"}},
        {"{'type':'object','properties':{'a\\u0000':{'const':1}},'required':['a\\u0000']}",
         {"{'a\\u0000':1}"},
         {"{'a':1}", "{'a\\u0000':2}", "{}"}},
        {"{'const':'\\\\u0000'}", {"'\\\\u0000'"}, {"'\\u0000'"}},
    };
    CHECK(rows);
}

TEST(formats_are_those_of_their_rfcs)
{
    static const struct row rows[] = {
        {"{'type':'string','format':'date'}",
         {"'2024-02-29'", "'2000-02-29'", "'0999-12-31'", "'0004-02-29'", "'2023-02-28'"},
         {"'2023-02-29'", "'1900-02-29'", "'0000-01-01'", "'2024-02-30'", "'2024-1-1'"}},
        {"{'type':'string','format':'date-time'}",
         {"'2024-02-29T12:00:00Z'", "'1963-06-19t08:30:06.283185z'", "'2020-01-01T00:00:00+14:00'",
          "'2020-01-01T00:00:00.123456789012-23:59'", "'1998-12-31T23:59:60Z'"},
         {"'2020-01-01'", "'2020-01-01 00:00:00Z'", "'2020-01-01T24:00:00Z'",
          "'2020-01-01T00:00:00'", "'2020-01-01T00:00:00+24:00'", "'1998-12-31T22:59:60Z'"}},
        {"{'type':'string','format':'email'}",
         {"'te.s.t@example.com'", "'tilde~a@x.org'", "'a+b/c=d@x'", "'joe@[127.0.0.1]'",
          "'joe@[IPv6:::1]'", "'\\'a b\\'@x.org'"},
         {"'.a@x.org'", "'a..b@x.org'", "'a.@x.org'", "'a@-x.org'", "'a@'", "'a b@x.org'"}},
        {"{'type':'string','format':'hostname'}",
         {"'a.b.c.d.e.f.example.com'", "'x'", "'EXAMPLE-1.com'"},
         {"'-a'", "'a-'", "'a..b'", "'a_b'", "''"}},
        {"{'type':'string','format':'ipv6'}",
         {"'::1'", "'::'", "'fe80::1:2'", "'1:2:3:4:5:6:7:8'", "'d6::'", "'::ffff:192.168.0.1'",
          "'1::d6:192.168.0.1'", "'1:2:3:4:5:6:7::'"},
         {"'1:2:3:4:5:6:7'", "'1::2::3'", "':1'", "'12345::'", "'1:2:3:4:5:6:7:8:9'",
          "'::1.2.3.256'"}},
        {"{'type':'string','format':'uri'}",
         {"'http://x.org:65535/a?b=c#d'", "'HTTP://user:pw@X.ORG'", "'mailto:a@b.org'",
          "'urn:isbn:0451450523'", "'file:///etc/hosts'", "'http://[::1]/'", "'tel:+1-816'",
          "'ldap://[2001:db8::7]/c=GB?objectClass?one'"},
         {"'//x.org'", "'a b'", "'http://x.org/a b'", "'1http://x'", "'http://[::1'", "'x'",
          "'http://x/\\\\'", "'http://x/<>'"}},
        {"{'type':'string','format':'uri-reference'}",
         {"'abc'", "'/a/b'", "'//x.org/a'", "'#f'", "''", "'../a:b'", "'?q'"},
         {"'a b'", "'\\\\a'"}},
        {"{'type':'string','format':'iri'}",
         {"'http://\xc6\x92.org/\xcf\x80#\xc3\xbc'"},
         {"'\xc6\x92'", "'http://x/ '"}},
        {"{'type':'string','format':'uri-template'}",
         {"'http://x/{+path,y}/a{?q*,r:3}'"},
         {"'{'", "'{a'", "'}'", "'{}'"}},
        {"{'type':'string','format':'relative-json-pointer'}",
         {"'0'", "'1/a~0b'", "'12#'"},
         {"'/a'", "'01/a'", "'1/~2'", "'-1/a'"}},
        {"{'type':'string','format':'regex'}",
         {"'^(a|[a-z]+)*$'", "'\\\\d{3}'"},
         {"'('", "'[z-a]'", "'a)'", "'*'"}},
        {"{'type':'string','format':'duration'}",
         {"'P3Y6M4DT12H30M5S'", "'PT5M'"},
         {"'P'", "'PT'"}},
        {"{'type':'string','format':'color'}", {"'anything'"}, {"1"}},
    };
    /* \' inside a string is an escaped quote of JSON */
    CHECK(rows);
    struct err e = ERR_INIT;
    static const char schema[] = "{\"format\":\"email\"}", mail[] = "\"o'neill@x.org\"";
    struct constraint *c = constraint_new(CONSTRAINT_JSON_SCHEMA, schema, sizeof(schema) - 1, &e);
    assert_true(c && takes(c, mail, sizeof(mail) - 1));
    constraint_unref(c);
}

/* Characters are counted, however many bytes their spelling has. */
TEST(patterns_with_a_length)
{
    static const struct row rows[] = {
        {"{'type':'string','pattern':'^[\\n\\u0001\\u00e9\\u6f22a]*$','minLength':2,'maxLength':3}",
         {"'\\n\\n'", "'\\u0001\\n\\u0001'", "'é漢a'", "'aa'"},
         {"'\\n'", "'a'", "'\\n\\n\\n\\n'", "'é漢aa'", "'aaaa'", "''"}},
        {"{'type':'string','pattern':'^(ab|cde)*$','minLength':4,'maxLength':5}",
         {"'abab'", "'abcde'", "'cdeab'"},
         {"'ab'", "'cde'", "'ababab'", "'cdecde'"}},
        {"{'type':'string','pattern':'^(aaa)+$','minLength':4,'maxLength':7}",
         {"'aaaaaa'"},
         {"'aaa'", "'aaaaaaaaa'"}},
        {"{'type':'string','pattern':'\\\\\\\\','maxLength':2}",
         {"'\\\\'", "'a\\\\'", "'\\\\\\n'"},
         {"'aa'", "'aa\\\\'"}},
        {"{'type':'string','pattern':'^(x|.{3})$','maxLength':2}", {"'x'"}, {"'abc'", "'xx'"}},
        /* any text behind a letter is no length */
        {"{'type':'string','allOf':[{'pattern':'^b'},{'pattern':'^(a|bc)$'}],'maxLength':3}",
         {"'bc'"},
         {"'a'", "'b'", "'ac'"}},
        {"{'properties':{'a':{'type':'null'}},'required':['a'],'patternProperties':{'^b':false}}",
         {"{'a':null}", "{'a':null,'c':1}"},
         {"{'a':null,'b':1}"}},
    };
    CHECK(rows);
}

TEST(what_says_nothing_is_passed_over)
{
    static const struct row rows[] = {
        {"{'type':'null','title':'t','x-vendor':{'a':1},'nonsense':[1],'markdownDescription':'x',"
         "'contentSchema':{'type':'x'},'$comment':'c'}",
         {"null"},
         {"1"}},
        {"{'type':'string','nullable':true}", {"null", "'a'"}, {"1"}},
        {"{'type':'string','nullable':false}", {"'a'"}, {"null"}},
        {"{'enum':['a'],'nullable':true}", {"null", "'a'"}, {"'b'"}},
        {"{'properties':{'a':{'$ref':'#/$defs/x','nullable':true}},'required':['a'],"
         "'$defs':{'x':{'type':'integer'}}}",
         {"{'a':1}", "{'a':null}"},
         {"{'a':'x'}"}},
    };
    CHECK(rows);
}

TEST(objects_are_open_and_keywords_have_no_type)
{
    static const struct row rows[] = {
        {"{'properties':{'a':{'type':'integer'}}}",
         {"{}", "{'a':1}", "{'a':1,'z':[]}", "{'z':1}", "12", "[]"},
         {"{'a':'x'}"}},
        {"{'maxLength':1}", {"'a'", "12"}, {"'ab'"}},
        {"{'x-closed':true,'properties':{'a':{'type':'integer'}}}",
         {"{}", "{'a':1}"},
         {"{'a':1,'z':[]}", "12", "[]"}},
        {"{'x-closed':true,'maxLength':1}", {"'a'"}, {"12"}},
        {"{'x-closed':true,'type':'object','properties':{'a':true},'not':{'required':['b']},"
         "'if':{'properties':{'a':{'const':1}}},'then':{'minProperties':1}}",
         {"{'a':1}", "{'a':2}"},
         {"{'c':1}", "{'b':1}", "{}"}},
        /* a free order where none is given */
        {"{'allOf':[{'properties':{'a':{'type':'null'}},'required':['a']},{'properties':{'b':{"
         "'type':'null'}},'required':['b']}],'type':'object'}",
         {"{'a':null,'b':null}", "{'b':null,'a':null}", "{'b':null,'a':null,'c':1}"},
         {"{'a':null}", "{'a':null,'b':null,'a':null}"}},
    };
    CHECK(rows);
}

TEST(negations)
{
    static const struct row rows[] = {
        {"{'not':{'type':'integer'}}", {"1.5", "'a'", "null", "{}"}, {"1", "-3"}},
        {"{'not':{'type':['string','null']}}", {"1", "true"}, {"'a'", "null"}},
        {"{'type':'string','not':{'const':'a'}}", {"'b'", "''", "'aa'"}, {"'a'", "'\\u0061'", "1"}},
        {"{'type':'integer','not':{'enum':[1,3]}}", {"0", "2", "13"}, {"1", "3"}},
        {"{'type':'boolean','not':{'const':true}}", {"false"}, {"true"}},
        {"{'type':'array','not':{'const':[1,'a']}}",
         {"[]", "[1]", "[1,'b']", "[2,'a']", "[1,'a',3]"},
         {"[1,'a']", "[1, 'a']"}},
        {"{'type':'object','not':{'const':{'a':1}}}",
         {"{}", "{'a':2}", "{'a':1,'b':2}"},
         {"{'a':1}", "{ 'a': 1 }"}},
        {"{'type':'number','not':{'minimum':3}}", {"2.9", "-7"}, {"3", "3.0", "4"}},
        {"{'type':'integer','not':{'multipleOf':3}}", {"1", "-2"}, {"0", "3", "-6"}},
        {"{'type':'string','not':{'pattern':'^a'}}", {"''", "'ba'"}, {"'a'", "'ab'"}},
        {"{'type':'string','not':{'minLength':2}}", {"''", "'a'"}, {"'ab'"}},
        {"{'type':'object','not':{'required':['a']}}", {"{}", "{'b':1}"}, {"{'a':1}"}},
        {"{'type':'object','not':{'properties':{'a':{'type':'integer'}}}}",
         {"{'a':'x'}", "{'a':1.5,'b':2}"},
         {"{}", "{'a':1}"}},
        {"{'type':'object','not':{'additionalProperties':{'type':'integer'}}}",
         {"{'a':'x'}", "{'a':1,'b':null}"},
         {"{}", "{'a':1}", "{'a':'x','a':1}"}},
        {"{'type':'object','not':{'patternProperties':{'^x':{'type':'integer'}}}}",
         {"{'x':'a'}", "{'b':1,'xy':null}"},
         {"{'x':1}", "{'b':'a'}"}},
        {"{'type':'object','not':{'propertyNames':{'maxLength':2}}}",
         {"{'abc':1}"},
         {"{}", "{'ab':1}"}},
        {"{'type':'array','not':{'items':{'type':'integer'}}}",
         {"['a']", "[1,'a',2]"},
         {"[]", "[1,2]"}},
        {"{'type':'array','not':{'contains':{'type':'integer'}}}",
         {"[]", "['a']"},
         {"[1]", "['a',1]"}},
        {"{'not':{'anyOf':[{'type':'string'},{'minimum':3},{'type':['array','object','null',"
         "'boolean']}]}}",
         {"2", "-1.5"},
         {"3", "'a'", "null"}},
        {"{'not':{'not':{'type':'string'}}}", {"'a'"}, {"1"}},
        {"{'not':{'type':'string','nullable':true}}", {"1", "[]"}, {"null", "'a'"}},
        {"{'$defs':{'l':{'type':'object','properties':{'n':{'$ref':'#/$defs/l'}}}},'type':'object',"
         "'not':{'$ref':'#/$defs/l'}}",
         {"{'n':1}", "{'n':{'n':{'n':null}}}"},
         {"{}", "{'n':{'n':{}}}"}},
    };
    CHECK(rows);
}

TEST(conditions_and_dependencies)
{
    static const struct row rows[] = {
        {"{'type':'object','properties':{'k':{'enum':['a','b']},'n':{'type':'integer'}},"
         "'required':['k'],'if':{'properties':{'k':{'const':'a'}}},'then':{'required':['n']},"
         "'else':{'properties':{'n':false}}}",
         {"{'k':'a','n':1}", "{'k':'b'}"},
         {"{'k':'a'}", "{'k':'b','n':1}"}},
        {"{'enum':['a','b',1],'not':{'enum':['a',2]}}", {"'b'", "1"}, {"'a'", "2"}},
        {"{'type':'integer','if':{'minimum':10},'then':{'multipleOf':10}}",
         {"3", "10", "20"},
         {"11"}},
        {"{'type':'object','dependentRequired':{'a':['b']}}",
         {"{}", "{'b':1}", "{'a':1,'b':2}", "{'b':2,'a':1}"},
         {"{'a':1}"}},
        {"{'type':'object','dependentSchemas':{'a':{'properties':{'b':{'type':'null'}}}}}",
         {"{'b':1}", "{'a':1}", "{'a':1,'b':null}"},
         {"{'a':1,'b':1}"}},
        {"{'type':'object','dependencies':{'a':['b'],'c':{'required':['d']}}}",
         {"{}", "{'b':1}", "{'a':1,'b':1}"},
         {"{'a':1}", "{'c':1}"}},
        {"{'type':'object','propertyNames':{'pattern':'^[a-c]+$'}}",
         {"{}", "{'abc':1}"},
         {"{'d':1}", "{'a':1,'ad':1}"}},
        {"{'type':'object','properties':{'abc':{},'x':{}},'propertyNames':{'enum':['x','y']}}",
         {"{'x':1}", "{'y':2}"},
         {"{'abc':1}", "{'z':1}"}},
    };
    CHECK(rows);
}

TEST(alternatives_that_overlap)
{
    static const struct row rows[] = {
        {"{'oneOf':[{'type':'integer'},{'minimum':2}]}", {"1", "2.5", "'a'"}, {"3", "1.5"}},
        {"{'type':'string','oneOf':[{'minLength':2},{'maxLength':4}]}",
         {"'a'", "'abcde'"},
         {"'abc'"}},
        {"{'oneOf':[{'required':['a','b']},{'required':['a','c']}],'type':'object'}",
         {"{'a':1,'b':2}", "{'a':1,'c':2}"},
         {"{'a':1,'b':2,'c':3}", "{'a':1}"}},
        {"{'oneOf':[{'properties':{'t':{'const':'a'}},'required':['t']},{'properties':{'t':{"
         "'const':'b'}},'required':['t']}]}",
         {"{'t':'a'}", "{'t':'b','z':1}"},
         {"{'t':'c'}", "1"}},
    };
    CHECK(rows);
}

TEST(lists)
{
    static const struct row rows[] = {
        {"{'type':'array','contains':{'type':'integer'}}",
         {"[1]", "['a',1]", "[1,2,'a']", "[ null, 3 ]"},
         {"[]", "['a']"}},
        {"{'type':'array','contains':{'const':1},'minContains':2,'maxContains':3}",
         {"[1,1]", "[1,2,1]", "[1,1,1,'a']"},
         {"[1]", "[1,1,1,1]", "[2,3]"}},
        {"{'type':'array','contains':{'const':1},'maxContains':1,'items':{'type':'integer'},"
         "'maxItems':2}",
         {"[1]", "[2,1]"},
         {"[1,1]", "[2]", "[1,'a']", "[1,2,3]"}},
        {"{'type':'array','contains':{'const':1},'minContains':0}", {"[]", "[2]"}, {"1"}},
        {"{'type':'array','items':{'enum':['a','b',3]},'uniqueItems':true}",
         {"[]", "['b','a']", "[3,'a','b']"},
         {"['a','a']", "['a','b','a']", "['c']"}},
        {"{'type':'array','items':{'enum':['a','b',3]},'uniqueItems':true,'minItems':2}",
         {"['b','a']"},
         {"[3]", "[3,3]"}},
        {"{'type':'array','maxItems':1,'uniqueItems':true}", {"[]", "[1]"}, {"[1,1]"}},
        {"{'type':'array','items':{'type':['boolean','null']},'uniqueItems':true}",
         {"[]", "[true,null,false]", "[false]"},
         {"[true,true]", "[null,false,null]", "[1]"}},
        {"{'type':'array','items':{'const':'a'},'uniqueItems':true}",
         {"[]", "['a']"},
         {"['a','a']"}},
        {"{'type':'array','prefixItems':[{'type':'boolean'},{'type':'boolean'}],'items':false,"
         "'uniqueItems':true}",
         {"[]", "[true]", "[false,true]", "[true,false]"},
         {"[true,true]", "[false,false]", "[true,false,null]"}},
        {"{'type':'array','prefixItems':[{'enum':['a','b']},{'const':'b'}],'items':{'enum':[1,'a']}"
         ","
         "'uniqueItems':true}",
         {"['a','b']", "['a','b',1]", "['b']"},
         {"['b','b']", "['a','b','a']", "['a','b',1,1]", "['a',1]"}},
    };
    CHECK(rows);
}

TEST(what_is_not_evaluated)
{
    static const struct row rows[] = {
        {"{'type':'object','properties':{'a':true},'unevaluatedProperties':false}",
         {"{}", "{'a':1}"},
         {"{'b':1}"}},
        {"{'type':'object','allOf':[{'properties':{'a':true}}],'unevaluatedProperties':{'type':"
         "'null'}}",
         {"{'a':1}", "{'a':1,'b':null}"},
         {"{'b':1}"}},
        {"{'type':'object','anyOf':[{'properties':{'a':{'const':1}},'required':['a']},{'properties'"
         ":{'b':{'const':2}},'required':['b']}],'unevaluatedProperties':false}",
         {"{'a':1}", "{'b':2}", "{'a':1,'b':2}"},
         {"{}", "{'a':1,'c':3}", "{'a':1,'b':3}"}},
        {"{'type':'object','not':{'not':{'properties':{'a':true}}},'unevaluatedProperties':false}",
         {"{}"},
         {"{'a':1}"}},
        {"{'type':'array','prefixItems':[true],'unevaluatedItems':false}",
         {"[]", "[1]"},
         {"[1,2]"}},
        {"{'type':'array','allOf':[{'prefixItems':[true,{'type':'null'}]}],'unevaluatedItems':{"
         "'type':'integer'}}",
         {"['a',null,3]"},
         {"['a',null,'b']", "['a',1]"}},
    };
    CHECK(rows);
}

TEST(references)
{
    static const struct row rows[] = {
        {"{'$id':'http://x/root.json','$defs':{'a':{'$id':'inner/a.json','$defs':{'b':{'type':"
         "'null'}},'type':'integer'}},'properties':{'p':{'$ref':'inner/a.json'},'q':{'$ref':"
         "'http://x/inner/a.json#/$defs/b'}}}",
         {"{'p':1,'q':null}"},
         {"{'p':null}", "{'q':1}"}},
        {"{'$defs':{'a':{'$id':'a','$defs':{'n':{'$anchor':'n','type':'null'}},'$ref':'#n'},"
         "'n':{'$anchor':'n','type':'string'}},'$ref':'a'}",
         {"null"},
         {"'a'", "1"}},
        {"{'$defs':{'f':{'$dynamicAnchor':'node','type':'integer'}},'$dynamicRef':'#node'}",
         {"1"},
         {"'a'"}},
        {"{'enum':[{'$ref':'#/x','b':1}]}",
         {"{'$ref':'#/x','b':1}", "{ 'b': 1, '$ref': '#/x' }"},
         {"{'b':1}"}},
    };
    CHECK(rows);
}

/* The text of the grammar is written as a JSON string. */
TEST(strings_of_a_grammar)
{
    static const struct row rows[] = {
        {"{'type':'string','x-grammar':{'syntax':'regex','definition':'[a\\\\n\\\\\\'\\\\\\\\]+'}}",
         {"'a'", "'a\\n\\'\\\\'"},
         {"''", "'b'", "'\\t'", "a", "'a", "'\n'"}},
        {"{'x-closed':true,'type':'object','properties':{'s':{'$ref':'#/$defs/g'},'n':{'type':"
         "'null'}},'required':['s','n'],'$defs':{'g':{'type':'string','x-grammar':{'syntax':'lark',"
         "'definition':'start: \\'<\\' start* \\'>\\' | /[ä\\\\n]/'}}}}",
         {"{'s':'<>','n':null}", "{'s':'<<\\n><ä>>','n':null}"},
         {"{'s':'<','n':null}", "{'s':'<<>','n':null}", "{'s':'','n':null}", "{'n':null}",
          "{'s':'<>'}"}},
    };
    CHECK(rows);
    struct err e = ERR_INIT;
    static const char wrong[] =
        "{\"type\":\"string\",\"x-grammar\":{\"syntax\":\"lark\",\"definition\":\"start: x\"}}";
    assert_null(constraint_new(CONSTRAINT_JSON_SCHEMA, wrong, strlen(wrong), &e));
    assert_non_null(strstr(e.msg, "undefined rule `x`"));
}

int main(void) { return tests_run(NULL, NULL); }
