/* Masks against the automaton itself, token by token; and the bytes of real vocabularies. */
#include "common/constraint/constraint.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/unit/test.h"
#include <string.h>

enum { VOCAB = 700, WORDS = (VOCAB + 31) / 32, END = 3 };

struct vocabulary {
    char bytes[VOCAB][136];
    struct token_text text[VOCAB];
    struct token_set *set;
};

/* All single bytes, pieces of JSON, random pieces, long runs; some texts twice, some empty. */
static void make_vocabulary(struct vocabulary *v)
{
    static const char *const pieces[] = {"{\"",  "\":",  "\",\"", "\"}",  "true",
                                         "null", "\n  ", "\\\"",  "\\u00"};
    static const char letters[] = "ab01\"\\{}[]:, \xc3\xa9\xf0\x9f";
    for (int i = 0; i < VOCAB; i++) {
        size_t n = i % 37 == 36 ? 0 : 1 + (size_t)rand() % 6;
        for (size_t k = 0; k < n; k++)
            v->bytes[i][k] = letters[(size_t)rand() % (sizeof(letters) - 1)];
        if (i >= 256 && i < 256 + 9)
            n = strlen(strcpy(v->bytes[i], pieces[i - 256]));
        if (i >= VOCAB - 24) {
            n = 20 + 5 * (size_t)(i - (VOCAB - 24));
            memset(v->bytes[i], i % 2 ? 'a' : 'b', n);
            v->bytes[i][n - 1] = "ab\""[i % 3];
        }
        if (i < 256)
            v->bytes[i][0] = (char)i, n = 1;
        v->text[i] = (struct token_text){v->bytes[i], (uint32_t)n};
    }
    v->text[END].n = 0;
    v->set = token_set_new(v->text, VOCAB, (uint32_t[]){END, VOCAB + 5}, 2);
    assert_non_null(v->set);
}

static void check_state(struct constraint *c, constraint_state s, const struct vocabulary *v,
                        const uint32_t *mask)
{
    for (uint32_t i = 0; i < VOCAB; i++) {
        const struct token_text *t = &v->text[i];
        bool want = i == END ? constraint_may_end(c, s)
                             : t->n && constraint_next(c, s, t->bytes, t->n) != CONSTRAINT_DEAD;
        if (want != (mask[i / 32] >> i % 32 & 1))
            fail_msg("token %u (%.*s): %d", i, (int)t->n, t->bytes, want);
    }
}

TEST(masks_say_what_the_automaton_says)
{
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":"
        "\"integer\",\"maximum\":10}},\"required\":[\"a\"],"
        "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":4}}",
        "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2000}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[ab]*1$\"}}", "true",
        /* counts of which the masks are put together from coarser ones */
        "{\"type\":\"string\",\"pattern\":\"^[ab]*$\",\"maxLength\":400}",
        "{\"type\":\"string\",\"pattern\":\"^[ab]*$\",\"minLength\":150,\"maxLength\":700}",
        "{\"type\":\"string\",\"pattern\":\"^(a{3}b?)*$\",\"maxLength\":270}",
        "{\"type\":\"string\",\"pattern\":\"^(a{200}|[ab]{90,120}b*)$\",\"maxLength\":199}",
        "{\"type\":\"string\",\"pattern\":\"^[ab]*a{9}$\",\"maxLength\":150}",
        "{\"type\":\"string\",\"maxLength\":140}",
        "{\"type\":\"object\",\"patternProperties\":{\"^a{70,90}\":{\"maxLength\":3}},"
        "\"additionalProperties\":{\"type\":\"null\"}}"};
    static struct vocabulary v;
    srand(test_seed(3));
    make_vocabulary(&v);
    for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++) {
        struct err e = ERR_INIT;
        struct constraint *c =
            constraint_new(CONSTRAINT_JSON_SCHEMA, schemas[i], strlen(schemas[i]), &e);
        if (!c)
            fail_msg("%s: %s", schemas[i], e.msg);
        for (int walk = 0; walk < 6; walk++) {
            constraint_state s = CONSTRAINT_START;
            for (int k = 0; k < 25; k++) {
                uint32_t mask[WORDS], pick;
                assert_int_equal(constraint_mask(c, s, v.set, mask, &e), 0);
                check_state(c, s, &v, mask);
                do
                    pick = (uint32_t)rand() % VOCAB;
                while (!(mask[pick / 32] >> pick % 32 & 1));
                if (pick == END)
                    break;
                s = constraint_next(c, s, v.text[pick].bytes, v.text[pick].n);
            }
        }
        constraint_unref(c);
    }
    token_set_free(v.set);
}

/* Two characters are more than any token has here, and yet decide what the pattern lets come. */
TEST(lengths_and_patterns_are_seen_together)
{
    static const char schema[] = "{\"type\":\"string\",\"pattern\":\"Of+$\",\"maxLength\":2}";
    struct err e = ERR_INIT;
    uint32_t mask[1];
    struct token_set *set =
        token_set_new((struct token_text[]){{"\"", 1}, {"O", 1}, {"f", 1}, {"a", 1}}, 4, NULL, 0);
    struct constraint *c = constraint_new(CONSTRAINT_JSON_SCHEMA, schema, sizeof(schema) - 1, &e);
    assert_non_null(c);
    constraint_state s = CONSTRAINT_START;
    static const uint32_t come[] = {1, 2, 4, 1}; /* the quote, O, f, the quote */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(constraint_mask(c, s, set, mask, &e), 0);
        assert_int_equal(mask[0], come[i]);
        s = constraint_next(c, s, &"\"Of\""[i], 1);
    }
    assert_true(constraint_may_end(c, s));
    constraint_unref(c);
    token_set_free(set);
}

TEST(a_state_that_no_token_leaves_is_an_error)
{
    struct err e = ERR_INIT;
    uint32_t mask[1];
    struct token_set *set = token_set_new((struct token_text[]){{"a", 1}, {"bc", 2}}, 2, NULL, 0);
    struct constraint *c = constraint_new(CONSTRAINT_REGEX, "a+b", 3, &e);
    assert_int_equal(constraint_mask(c, CONSTRAINT_START, set, mask, &e), 0);
    assert_int_equal(mask[0], 1); /* "bc" is one byte too many */
    assert_int_equal(constraint_mask(c, CONSTRAINT_DEAD, set, mask, &e), -1);
    assert_int_equal(e.kind, ERR_GENERATION);
    constraint_unref(c);
    token_set_free(set);
}

/* What would keep everybody waiting is given up, in compiling or at a mask; and stays given up. */
TEST(too_much_work_is_an_error)
{
    static const char *const patterns[] = {"((a{0,30}){0,30}){0,30}b", "(\\w+\\s*){1,100}\\d{5}"};
    static struct vocabulary v;
    struct err e = ERR_INIT;
    uint32_t mask[WORDS];
    make_vocabulary(&v);
    for (int i = 0; i < 2; i++) {
        struct constraint *c =
            constraint_new(CONSTRAINT_REGEX, patterns[i], strlen(patterns[i]), &e);
        if (!c)
            continue;
        constraint_state s = CONSTRAINT_START;
        for (int k = 0; k < 60 && s && !constraint_mask(c, s, v.set, mask, &e); k++)
            s = constraint_next(c, s, "a", 1);
        if (e.kind) {
            assert_int_equal(e.kind, ERR_VALIDATION);
            assert_non_null(strstr(e.msg, "too complex"));
        }
        constraint_unref(c);
    }
    struct err why = ERR_INIT;
    struct buf many = BUF_INIT;
    for (int i = 0; i < 8; i++)
        buf_fmt(&many, "%s{\"anyOf\":[{\"minLength\":%d},{\"pattern\":\"a{%d}\"}]}",
                i ? "," : "{\"type\":\"string\",\"allOf\":[", i, i);
    buf_str(&many, "]}");
    assert_null(constraint_new(CONSTRAINT_JSON_SCHEMA, many.p, many.len, &why));
    buf_free(&many);
    assert_string_equal(why.msg, "JSON schema: too complex at `#`");
    token_set_free(v.set);
}

/* The texts of a pattern alone are texts of a string. As an intersection with all of these, each
 * state would cost a search for an end that is thousands of characters away. */
TEST(a_pattern_alone_needs_no_search)
{
    static const struct {
        const char *pattern, *more, *text;
    } of[] = {
        {"^a{3000}b{3000}$", "", "a"},
        {"^(.{0,200}x){5}$", "", "ab x"},
        {"^[ab]*a[ab]{200}$", "", "ab"},
        {"^(.{1,7},){300}$", "", "ab,"},
        {"^a{10000}b{10000}$", "", "a"},
        {"^(a|b){3000}\\n$", ",\"minLength\":1", "ab"},
        {"^([ab]+[0-9]+|[ab0-9]+x){1,200}$", ",\"minLength\":1", "a1b0"},
    };
    static struct vocabulary v;
    uint32_t mask[WORDS];
    make_vocabulary(&v);
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        char schema[120];
        struct err e = ERR_INIT;
        snprintf(schema, sizeof(schema), "{\"type\":\"string\",\"pattern\":\"%s\"%s}",
                 of[i].pattern, of[i].more);
        struct constraint *c = constraint_new(CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &e);
        assert_non_null(c);
        constraint_state s = constraint_next(c, CONSTRAINT_START, "\"", 1);
        for (size_t k = 0; k < 400; k++) {
            assert_int_equal(constraint_mask(c, s, v.set, mask, &e), 0);
            if (k % 100 == 0)
                check_state(c, s, &v, mask);
            s = constraint_next(c, s, &of[i].text[k % strlen(of[i].text)], 1);
        }
        assert_true(s != CONSTRAINT_DEAD && s != CONSTRAINT_SPENT);
        constraint_unref(c);
    }
    token_set_free(v.set);
}

/* Bytes of ids, one behind the other, are what decoding them says (which may trim the start). */
static void token_bytes_of(const char *name)
{
    struct err e = ERR_INIT;
    char file[128];
    snprintf(file, sizeof(file), "tokenizers/%s/tokenizer.json", name);
    const char *path = test_data(file);
    if (!path) {
        TEST_SKIPPED(1, "no reference tokenizers");
        return;
    }
    static const char text[] = "Hello, w\xc3\xb6rld!\n  if x == 10:\t\xe4\xbd\xa0\xe5\xa5\xbd "
                               "\xf0\x9f\x98\x80\xf0\x9f\x8f\xbd {\"a\": [1]}";
    struct tokenizer *t = tokenizer_load(path, &e);
    assert_non_null(t);
    struct buf bytes = BUF_INIT, joined = BUF_INIT, decoded = BUF_INIT;
    size_t *end = calloc(tokenizer_vocab_size(t), sizeof(*end));
    assert_int_equal(tokenizer_token_bytes(t, &bytes, end), 0);
    struct tok_ids ids = {0};
    struct tok_scratch *scratch = NULL;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &scratch, &ids, &e), 0);
    for (uint32_t i = 0; i < ids.n; i++) {
        size_t from = ids.id[i] ? end[ids.id[i] - 1] : 0;
        buf_add(&joined, bytes.p + from, end[ids.id[i]] - from);
    }
    tokenizer_decode(t, ids.id, ids.n, true, &decoded);
    size_t trim = joined.len - decoded.len;
    assert_in_range(trim, 0, 1);
    if (strcmp(joined.p + trim, decoded.p) != 0)
        fail_msg("%s: <%s>, not <%s>", name, joined.p, decoded.p);
    tok_scratch_free(scratch);
    tok_ids_free(&ids);
    buf_free(&bytes);
    buf_free(&joined);
    buf_free(&decoded);
    free(end);
    tokenizer_free(t);
}

TEST(token_bytes_make_up_the_text)
{
    static const char *const names[] = {
        "gpt2",   "llama3",      "qwen2_5", "llama2",          "mistral_v3",           "phi3",
        "falcon", "stories260k", "cohere",  "synthetic_gemma", "synthetic_deepseek_v3"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        token_bytes_of(names[i]);
}

/* A pattern in which almost every text leads to another state. */
TEST(one_whose_memory_is_used_up_says_so)
{
    static const char text[] = "([a-z ]*[a-m][a-z ]{100}){4}[0-9]";
    static uint32_t mask[WORDS];
    struct vocabulary v = {0};
    struct err e = ERR_INIT;
    make_vocabulary(&v);
    struct constraint *c = constraint_new(CONSTRAINT_REGEX, text, strlen(text), &e);
    assert_non_null(c);
    assert_false(constraint_full(c));
    for (int i = 0; i < 4000 && !constraint_full(c); i++) {
        constraint_state s = CONSTRAINT_START;
        for (int n = 0; n < 300 && s != CONSTRAINT_DEAD; n++) {
            const char letter = (char)('a' + rand() % 26);
            s = constraint_next(c, s, &letter, 1);
        }
    }
    assert_true(constraint_full(c));
    const char unknown[] = "zq zq";
    const constraint_state s = constraint_next(c, CONSTRAINT_START, unknown, strlen(unknown));
    assert_int_equal(constraint_mask(c, s, v.set, mask, &e), -1);
    constraint_unref(c);
    assert_non_null(c = constraint_new(CONSTRAINT_REGEX, text, strlen(text), &e));
    assert_int_equal(constraint_mask(c, CONSTRAINT_START, v.set, mask, &e), 0);
    constraint_unref(c);
    token_set_free(v.set);
}

int main(void) { return tests_run(NULL, NULL); }
