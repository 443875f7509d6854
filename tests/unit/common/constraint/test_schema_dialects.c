/* Drafts of JSON Schema, and keywords whose languages are described by other languages: what
 * `contains` evaluates, negated formats, counts of unnamed properties. */
#include "tests/unit/common/constraint/quoted_rows.h"

/* `contains` evaluates the items that satisfy it. Expected as in the suite's unevaluatedItems.json.
 */
TEST(what_contains_evaluates)
{
    static const struct row rows[] = {
        {"{'prefixItems':[true],'contains':{'type':'string'},'unevaluatedItems':false}",
         {"[1,'a']", "['a']", "[1,'a','b']", "{}"},
         {"[1,2]", "[1,2,'a']", "[]", "[1]"}},
        {"{'type':'array','allOf':[{'contains':{'multipleOf':2}},{'contains':{'multipleOf':3}}],"
         "'unevaluatedItems':{'multipleOf':5}}",
         {"[2,3,4,5,6]", "[6]", "[5,2,9]"},
         {"[2,3,4,7,8]", "[2,4]", "[5]"}},
        {"{'type':'array','if':{'contains':{'const':'a'}},'then':{'if':{'contains':{'const':'b'}}},"
         "'unevaluatedItems':false}",
         {"[]", "['a','a']", "['a','b','a']"},
         {"['b']", "['a','c']", "['b','b']"}},
        {"{'type':'array','contains':{'type':'string'},'minContains':0,'maxContains':1,"
         "'unevaluatedItems':{'type':'null'}}",
         {"[]", "[null,'a',null]"},
         {"['a','a']", "[1]"}},
        {"{'type':'array','not':{'contains':{'const':1}},'unevaluatedItems':{'type':'integer'}}",
         {"[2]", "[]"},
         {"[1]", "['a']"}},
    };
    CHECK(rows);
}

/* `$schema` names the draft. Expected as by jsonschema 4.26 with that draft's validator. */
TEST(drafts)
{
    static const struct row rows[] = {
        /* up to draft 7 nothing beside `$ref` counts, not even its identifier */
        {"{'$schema':'http://json-schema.org/draft-07/"
         "schema#','definitions':{'a':{'type':'string'}},"
         "'$ref':'#/definitions/a','maxLength':1}",
         {"'ab'"},
         {"1"}},
        {"{'definitions':{'a':{'type':'string'}},'$ref':'#/definitions/a','maxLength':1}",
         {"'a'"},
         {"'ab'", "1"}},
        {"{'$schema':'http://json-schema.org/draft-07/"
         "schema#','definitions':{'a':{'type':'string'}},"
         "'type':['string','null'],'not':{'$ref':'#/definitions/a','maxLength':1}}",
         {"null"},
         {"'ab'", "'a'"}},
        {"{'$schema':'http://json-schema.org/draft-06/schema#','$id':'http://x/base/"
         "','definitions':{"
         "'foo':{'$id':'http://x/"
         "foo.json','type':'string'},'base':{'$id':'foo.json','type':'number'}},"
         "'allOf':[{'$id':'http://x/','$ref':'foo.json'}]}",
         {"1"},
         {"'a'"}},
        {"{'$schema':'http://json-schema.org/draft-07/schema#','$ref':'#/definitions/"
         "a','definitions':{"
         "'a':{'items':{'$ref':'#/definitions/a'},'type':'array'}}}",
         {"[]", "[[],[[]]]"},
         {"1", "[[1]]"}},
        /* an identifier with a fragment is an anchor */
        {"{'$schema':'http://json-schema.org/draft-07/schema#','allOf':[{'$ref':'#foo'}],"
         "'definitions':{'A':{'$id':'#foo','type':'integer'}}}",
         {"1"},
         {"'a'"}},
        {"{'$schema':'http://json-schema.org/draft-04/schema#','id':'http://x/"
         "tree','type':'object',"
         "'properties':{'n':{'items':{'$ref':'node'}}},'definitions':{'node':{'id':'http://x/node',"
         "'type':'object','properties':{'up':{'$ref':'tree'},'v':{'minimum':3,"
         "'exclusiveMinimum':true,'type':'integer'}}}}}",
         {"{'n':[{'v':4}]}", "{'n':[{'up':{'n':[]}}]}"},
         {"{'n':[{'v':3}]}", "{'n':[{'up':{'n':[1]}}]}"}},
        /* 2019-09: a reference to the root, or to the identifier around it */
        {"{'$schema':'https://json-schema.org/draft/2019-09/schema','properties':{'foo':"
         "{'$recursiveRef':'#'}},'additionalProperties':false}",
         {"{}", "{'foo':{'foo':{}}}"},
         {"{'bar':1}", "{'foo':{'bar':1}}"}},
        {"{'$schema':'https://json-schema.org/draft/2019-09/schema','$id':'http://x/a','anyOf':["
         "{'type':'integer'},{'$ref':'#/$defs/b'}],'$defs':{'b':{'$id':'http://x/"
         "b','type':'object',"
         "'additionalProperties':{'$recursiveRef':'#'}}}}",
         {"1", "{'a':{'b':{}}}"},
         {"'a'", "{'a':1}"}},
        {"{'$schema':'https://json-schema.org/draft/2019-09/schema','$recursiveAnchor':true,"
         "'type':'array','not':{'not':{'items':{'$recursiveRef':'#'}}}}",
         {"[[],[[]]]"},
         {"[1]", "[[{}]]"}},
        /* there `contains` evaluates nothing */
        {"{'$schema':'https://json-schema.org/draft/2019-09/schema','contains':{'const':1},"
         "'unevaluatedItems':{'type':'integer'},'items':[true]}",
         {"['a',1]", "[1,2]"},
         {"[1,'a']", "[2]"}},
    };
    CHECK(rows);
}

/* Strings that violate a format, as far as the format is exact. */
TEST(not_of_a_format)
{
    static const struct row rows[] = {
        {"{'type':'string','not':{'format':'ipv4'},'maxLength':8}",
         {"'1.2.3'", "''", "'1.2.3.04'"},
         {"'1.2.3.4'", "'123456789'", "1"}},
        {"{'not':{'format':'email','maxLength':5}}",
         {"'ab'", "'abcdef'", "'a@bcde'", "'@b'"},
         {"'a@b'", "1"}},
        {"{'type':['string','integer'],'not':{'anyOf':[{'format':'uuid'},{'type':'integer'}]}}",
         {"'a'"},
         {"1", "'2eb8aa08-aa98-11ea-b4aa-73b441d16380'"}},
        {"{'not':{'format':'date'}}", {"'today'", "'2024-1-1'"}, {"'2024-01-01'", "'0000-01-01'"}},
        {"{'not':{'format':'date-time'}}", {"'2024-01-01'"}, {"'2024-01-01t00:00:60z'"}},
        {"{'not':{'format':'time'}}", {"'12:00'"}, {"'23:59:60Z'"}},
        {"{'not':{'format':'duration'}}", {"'1D'"}, {"'P1D'", "'P12345678901D'"}},
        {"{'not':{'format':'hostname'}}", {"'a b'", "'a/b'"}, {"'a.b.c.d.e.f.g.h.i.j.k.l.m.n'"}},
        {"{'not':{'format':'idn-hostname'}}", {"'a b'"}, {"'\xd8\xa8\xd9\xa0.x'"}},
        {"{'not':{'format':'uri'}}", {"'//a'", "'a b'"}, {"'http://x/?q#f'", "'a:'"}},
        {"{'not':{'format':'iri-reference'}}", {"'a b'"}, {"'/\xc3\xa9'", "''"}},
        {"{'not':{'format':'json-pointer'}}", {"'a'", "'/~2'"}, {"'/a~0'", "''"}},
        {"{'not':{'format':'relative-json-pointer'}}", {"'/a'"}, {"'12345678901#'", "'0/a'"}},
        {"{'type':['null','string'],'not':{'format':'regex','maxLength':1}}", {"'(('"}, {"'('"}},
    };
    CHECK(rows);
}

/* Unnamed properties that are counted differ where their names may differ first. */
TEST(counts_of_unnamed_properties)
{
    static const struct row rows[] = {
        {"{'type':'object','minProperties':2}",
         {"{'a':1,'b':2}", "{'b':1,'a':2}", "{'':1,'a':2}", "{'a':1,'\xc3\xa9':2,'a':3}"},
         {"{}", "{'a':1}", "{'a':1,'a':2}", "{'a':1,'a':2,'b':3}"}},
        {"{'minProperties':2,'propertyNames':{'pattern':'^x_'},'type':'object'}",
         {"{'x_a':1,'x_b':2}", "{'x_b':1, 'x_':2}"},
         {"{'x_a':1}", "{'x_a':1,'x_a':2}", "{'a':1,'b':2}"}},
        {"{'type':'object','minProperties':3,'maxProperties':3,'properties':{'k':{'type':'integer'}"
         "},"
         "'additionalProperties':{'type':'string'}}",
         {"{'k':1,'a':'','b':''}", "{'a':'','b':'','c':''}", "{'c':'','b':'','a':''}"},
         {"{'k':1,'a':''}", "{'k':1,'a':'','a':''}", "{'k':1,'a':'','b':'','c':''}",
          "{'a':'','b':''}", "{'a':'','b':'','c':1}"}},
        {"{'type':'object','minProperties':2,'additionalProperties':{'type':'object',"
         "'minProperties':2}}",
         {"{'a':{'a':1,'b':2},'b':{'a':1,'b':2}}"},
         {"{'a':{'a':1,'b':2},'b':{'a':1}}"}},
    };
    CHECK(rows);
}

int main(void) { return tests_run(NULL, NULL); }
