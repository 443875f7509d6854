/* Grammars in GBNF and in Lark's notation. */
#include "common/buf.h"
#include "tests/unit/common/constraint/texts.h"
#include <pthread.h>
#include <stdlib.h>

#define G CONSTRAINT_GBNF
#define L CONSTRAINT_LARK

TEST(gbnf_as_llama_cpp_writes_it)
{
    static const struct row rows[] = {
        {G, "root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "yesno", "maybe"}},
        {G, "root ::= [0-9]{2,3} # digits\n", {"12", "123"}, {"1", "1234"}},
        {G,
         "# arithmetic\nroot  ::= (expr \"=\" ws term \"\\n\")+\n"
         "expr  ::= term ([-+*/] term)*\nterm  ::= ident | num | \"(\" ws expr \")\" ws\n"
         "ident ::= [a-z] [a-z0-9_]* ws\nnum   ::= [0-9]+ ws\nws    ::= [ \\t\\n]*\n",
         {"a+b=c\n", "(1 *(2+x)) = 3\n", "a=b\nc=d\n"},
         {"a+b", "(1=2\n", "+a=b\n"}},
        {G, "root ::= \"(\" root \")\" |", {"", "()", "((()))"}, {"(", "(()", "())"}},
        {G,
         "root ::= a-b+\na-b ::= [^\\]\"\\x41] .?\n",
         {"b", "bA", "\xe2\x82\xac\xc3\xa9"},
         {"A", "", "]"}},
        {G, "root ::= \"\\u00e9\" \"\\\"\" \"\\\\\"", {"\xc3\xa9\"\\"}, {"e"}},
        {G, "root ::=\n  \"a\" |\n  \"b\" (\n \"c\"\n)*\n", {"a", "b", "bcc"}, {"ac"}},
        {G, "root ::= root \"a\" | \"b\"", {"b", "baa"}, {"a", "ab"}},
        {G, "root ::= x{,2} x{3}\nx ::= \"x\"", {"xxx", "xxxxx"}, {"xx", "xxxxxx"}},
        /* llama.cpp's json.gbnf, in short */
        {G,
         "root ::= value\nvalue ::= (object | array | string | number | \"null\") ws\n"
         "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\"\n"
         "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\"\n"
         "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" "
         "[0-9a-fA-F]{4}))* \"\\\"\" ws\n"
         "number ::= \"-\"? [0-9]+ (\".\" [0-9]+)? ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
         {"{\"a\": [1, -2.5, {}]}", "[[[]]]", "\"\\u00e9\""},
         {"{", "[1,]", "{a:1}"}},
    };
    check_texts(ROWS(rows));
}

TEST(lark_as_vllm_takes_it)
{
    static const struct row rows[] = {
        {L, "start: \"yes\" | \"no\"", {"yes", "no"}, {"maybe", ""}},
        {L,
         "?start: sum\n?sum: product | sum \"+\" product -> add | sum \"-\" product -> sub\n"
         "?product: atom | product \"*\" atom\n?atom: NUMBER | \"(\" sum \")\"\n"
         "%import common.NUMBER\n%import common.WS_INLINE\n%ignore WS_INLINE\n",
         {"1+2", " 1 + 2 * (3-4) ", "((1.5))"},
         {"1+", "()", "1 2", ""}},
        {L,
         "// select\nstart: \"SELECT \"i COLUMN (\", \" COLUMN)~0..2 [\" WHERE \" COND]\n"
         "COLUMN: /[a-z_]+/\nCOND.2: COLUMN \"=\" /\\d+/\n",
         {"SELECT a", "select a, b, c", "Select a WHERE x=12"},
         {"SELECT", "SELECT a, b, c, d"}},
        {L,
         "start: LETTER+ \"!\"?\nLETTER: \"a\"..\"c\" | \"\\u00e9\"\n",
         {"abc", "\xc3\xa9!"},
         {"d", "!", ""}},
        {L,
         "start: /a\\/b/i\n     | \"x\"\n     | [\"y\"] \"z\"\n",
         {"A/b", "x", "z", "yz"},
         {"y", "a/"}},
        {L, "start: \"(\" start \")\" | \"x\"\n", {"x", "((x))"}, {"(x"}},
        {L,
         "%import common (INT, CNAME -> NAME)\nstart: NAME \"=\" INT\n%ignore /[ \\t]/\n",
         {"a=1", " a1 =  22 "},
         {"1=a"}},
        /* as guidance 0.3.1 sends them */
        {L,
         "%llguidance {}\n\nstart: o\no[capture]: O\n\nO: \"red\"\n     | \"green\"\n\n",
         {"red", "green"},
         {"blue", ""}},
        {L,
         "%llguidance {}\n\nstart: list\nlist: (o \",\")+\n"
         "o[capture=\"__LIST_APPEND:o\"]: O\nO: /[ab]/\n",
         {"a,", "b,a,"},
         {"a", "c,"}},
        {L,
         "%llguidance {}\nstart: o \"!\"\no[capture, suffix=\"\\n\"]: O\nO: /(?s:.*)/\n",
         {"ab\n!", "\n!"},
         {"ab!", "a\nb\n!", "a\n", "a\n\n!"}},
        {L,
         "start: (o \",\")+\no[suffix=\";;\"]: /[a-z;]*/ | \"x\"\n",
         {"ab;;,", ";;,", "a;b;;,x;;,"},
         {"ab;,", "a;;;,", ";;"}},
        {L, "start: a\na [ capture , capture = \"x\" ] : \"y\"\n", {"y"}, {"x"}},
    };
    check_texts(ROWS(rows));
}

TEST(what_they_cannot_say_is_refused_by_name)
{
    static const struct refused rows[] = {
        {G, "root ::= a", "undefined rule `a`"},
        {G, "a ::= \"x\"", "undefined rule `root`"},
        {G, "", "undefined rule `root`"},
        {G, "root ::= \"a", "a string without end on line 1"},
        {G, "root ::= [a", "a class without end"},
        {G, "root ::= (\"a\"", "a group without end"},
        {G, "\n\nroot = \"a\"", "on line 3"},
        {G, "root ::= \"a\"{3,1}", "counts"},
        {G, "root ::= a\na ::= b\nb ::= a \"x\" | \"y\"", "left recursion"},
        {G, "root ::= \"a\"? root \"b\" | \"c\"", "left recursion"},
        {G, "root ::= \"a\" root", "no text"},
        {G, "root ::= <|tool|>", "token"},
        {G, "root ::= \"a\")", "an unmatched closing parenthesis"},
        {G, "root ::= \"\\xZZ\"", "hexadecimal"},
        {L, "start: a", "undefined rule `a`"},
        {L, "start: /(/", "pattern"},
        {L, "start: \"a\"\nstart: \"b\"", "two rules"},
        {L, "%declare X\nstart: X", "directive"},
        {L, "start: f{a}\n", "template"},
        {L, "%import python.X\nstart: X", "common"},
        {L, "start: \"b\"..\"a\"", "range"},
        {L, "A: b\nb: \"x\"\nstart: A", "terminal"},
        {L, "start: o\no[capture, max_tokens=5]: /a/", "not supported: `max_tokens` on line 2"},
        {L, "start: o\no[stop=\"x\"]: /a/", "not supported: `stop`"},
        {L, "start: o\no[suffix=\"\"]: /a/", "a `suffix` is"},
        {L, "start: o\no[suffix]: /a/", "a `suffix` is"},
        {L, "start: o\no[suffix=\"b\"]: /abc/", "no text"},
        {L, "start: o\no[capture: /a/", "attributes of a rule without end"},
        {L, "start: o\no[capture=x]: /a/", "a string"},
        {L, "start: %json {\"type\": \"object\"}", "not supported: `%json`"},
        {L, "%llguidance {\"no_forcing\": true}\nstart: \"a\"", "options of %llguidance"},
    };
    check_refused(ROWS(rows));
}

/* Nested groups, ten thousand rules, a rule that multiplies: an answer soon, whatever it is. */
TEST(large_ones_are_taken_or_refused)
{
    size_t n = 200000, at = 0;
    char *text = malloc(n + 64);
    struct err e = ERR_INIT;
    assert_non_null(text);
    at = (size_t)sprintf(text, "root ::= ");
    memset(text + at, '(', n - at);
    assert_null(constraint_new(G, text, n, &e));
    for (at = 0; at + 40 < n;)
        at += (size_t)sprintf(text + at, "r%zu ::= r%zu r%zu\n", at, at + 1, at + 2);
    assert_null(constraint_new(G, text, at, &e));
    at = (size_t)sprintf(text, "root ::= \"a\"");
    for (int i = 0; i < 90; i++)
        at += (size_t)sprintf(text + at, "{9}");
    constraint_unref(constraint_new(G, text, at, &e));
    at = (size_t)sprintf(text, "root ::= \"x\"");
    for (int i = 0; i < 3000; i++)
        at += (size_t)sprintf(text + at, " | \"word%d\"", i);
    struct constraint *c = constraint_new(G, text, at, &e);
    assert_non_null(c);
    assert_true(takes(c, "word2999") && !takes(c, "word3000"));
    constraint_unref(c);
    free(text);
}

/* e = e op e: a state does not grow with the operators before it. */
TEST(ambiguous_recursion_has_few_states)
{
    enum { OPERATORS = 2000 };
    static const char *const of[] = {
        "root ::= e\ne ::= e \"+\" e | e \"*\" e | \"(\" e \")\" | [0-9]",
        "root ::= root root | [0-9]", /* a list of digits */
    };
    for (int k = 0; k < 2; k++) {
        struct err e = ERR_INIT;
        struct constraint *c = constraint_new(G, of[k], strlen(of[k]), &e);
        char text[2 * OPERATORS + 2];
        assert_non_null(c);
        for (int i = 0; i < OPERATORS; i++)
            memcpy(text + 2 * i, k ? "12" : i % 3 ? "1+" : "2*", 2);
        strcpy(text + 2 * OPERATORS, "3");
        assert_true(takes(c, text));
        text[2 * OPERATORS] = '+';
        assert_false(takes(c, text));
        constraint_unref(c);
    }
}

/* What is too deep ends with an error, in a thread's usual stack. Sanitizers need more of it. */
static void in_a_stack_of_4_mib(void *(*run)(void *), void *arg)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const size_t stack = 128 << 20;
#else
    const size_t stack = 4 << 20;
#endif
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, stack), 0);
    assert_int_equal(pthread_create(&thread, &attr, run, arg), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

static void *nest_a_text(void *arg)
{
    static const char grammar[] = "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"";
    struct err e = ERR_INIT;
    struct constraint *c = constraint_new(G, grammar, sizeof(grammar) - 1, &e);
    constraint_state at = CONSTRAINT_START;
    assert_non_null(c);
    for (int i = 0; i < 1000; i++)
        at = constraint_next(c, at, "a", 1);
    assert_int_not_equal(at, CONSTRAINT_SPENT);
    for (int i = 0; i < 20000; i++)
        at = constraint_next(c, at, "a", 1);
    assert_int_equal(at, CONSTRAINT_SPENT);
    constraint_unref(c);
    return arg;
}

TEST(a_nested_text_needs_no_stack) { in_a_stack_of_4_mib(nest_a_text, NULL); }

static void *nest_counts(void *text)
{
    struct err e = ERR_INIT;
    assert_null(constraint_new(G, text, strlen(text), &e));
    assert_non_null(strstr(e.msg, "too complex"));
    return NULL;
}

/* Rules, groups and counts multiply. */
TEST(nested_counts_need_no_stack)
{
    enum { RULES = 8, DEEP = 99 };
    struct buf b = BUF_INIT;
    for (int r = 0; r < RULES; r++) {
        buf_fmt(&b, r ? "\nr%d ::= " : "root ::= ", r);
        for (int i = 0; i < DEEP; i++)
            buf_ch(&b, '(');
        buf_fmt(&b, r + 1 < RULES ? "r%d" : "\"a\"", r + 1);
        for (int i = 0; i < DEEP; i++) {
            buf_ch(&b, ')');
            for (int k = 0; k < DEEP; k++)
                buf_str(&b, "{2}");
        }
    }
    in_a_stack_of_4_mib(nest_counts, b.p);
    buf_free(&b);
}

int main(void) { return tests_run(NULL, NULL); }
