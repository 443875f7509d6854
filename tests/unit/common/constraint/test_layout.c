/* White space between the tokens of a constrained JSON text. */
#include "tests/unit/common/constraint/texts.h"

#define J CONSTRAINT_JSON_SCHEMA
#define C CONSTRAINT_JSON_COMPACT
#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":"          \
    "\"integer\"}},\"b\":{\"type\":\"boolean\"}},\"required\":[\"a\",\"b\"],"                      \
    "\"additionalProperties\":false}"
#define TREE                                                                                       \
    "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":"            \
    "\"#/$defs/t\"}}}}"

TEST(a_line_break_comes_with_its_indentation)
{
    static const struct row rows[] = {
        {J,
         SCHEMA,
         {"{\"a\":[1,2],\"b\":true}", "{\"a\": [1, 2], \"b\": true}", "{ \"a\": [ ], \"b\": true }",
          "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": true\n}",
          "{\n    \"a\": [\n        1\n    ],\n    \"b\": true\n}",
          "{\n\t\"a\": [\n\t\t1\n\t],\n\t\"b\": true\n}"},
         {"{\n     \"a\":[1],\"b\":true}", "{\n\t \"a\":[1],\"b\":true}",
          "{\n\n  \"a\":[1],\"b\":true}", "{  \"a\":[1],\"b\":true}",
          "{\n      \"a\":[1],\"b\":true}", "{\"a\":  [1],\"b\":true}",
          "{\"a\":[1\n     ],\"b\":true}", "{\"a\":[1],\"b\":true\n }", "{\"a\":[1],\"b\":true}\n",
          " {\"a\":[1],\"b\":true}"}},
        {C,
         SCHEMA,
         {"{\"a\":[1,2],\"b\":true}", "{\"a\":[],\"b\":false}"},
         {"{\"a\": [1],\"b\":true}", "{\"a\":[1, 2],\"b\":true}", "{\n  \"a\":[1],\"b\":true}",
          "{\"a\":[1],\"b\":true }"}},
        /* each level its own indentation, though it is one rule */
        {J,
         TREE,
         {"[]", "[\n  [\n    []\n  ]\n]", "[[[[[[[[[[]]]]]]]]]]"},
         {"[\n  [\n         []\n  ]\n]", "[\n\n]"}},
        {C, TREE, {"[[],[]]"}, {"[[], []]", "[ ]"}},
    };
    check_texts(ROWS(rows));
}

int main(void) { return tests_run(NULL, NULL); }
