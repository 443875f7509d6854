/* What a constraint costs: compiling it, and the mask of each token of random answers to it.
 *
 *   constraint [tokenizer dir [word | @file]]
 *
 * The tokenizer defaults to TEST_DATA's llama3 (128,256 tokens). `word` picks rows; a file has a
 * schema a line, and is one row. Every answer
 * draws its tokens from the masks alone, at first as a model would (one of the longest allowed
 * among a few tries), so that states of all kinds are met; seeds are fixed. Times are of this
 * thread on the processor. A row is "row <name> compile <ms> masks <n> median <us> p99 <us> worst
 * <us>" or "row <name> compile <ms> refused: <why>". */
#include "common/buf.h"
#include "model-server/engine/grammars.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ANSWERS = 12, TOKENS = 160 };

static uint64_t rng_state = 42;

static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rng_state >> 33) % n);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---------------------------------------------------------------- what is asked for */

#define R CONSTRAINT_REGEX
#define J CONSTRAINT_JSON_SCHEMA

/* `text`, or `head`, then `part` `times` (%d is its number) joined by `glue`, then `tail`. */
static const struct row {
    const char *name;
    enum constraint_kind kind;
    const char *text, *part, *glue, *tail;
    int times;
} rows[] = {
    /* what people ask for */
    {"any_object", J, "{\"type\":\"object\"}"},
    {"person", J,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},\"age\":"
     "{"
     "\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"mail\":{\"type\":\"string\",\"format\":"
     "\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":5}},"
     "\"required\":[\"name\",\"age\",\"mail\",\"tags\"],\"additionalProperties\":false}"},
    {"tool_calls", J,
     "{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[{\"type\":\"object\",\"properties\":"
     "{"
     "\"name\":{\"const\":\"get_weather\"},\"arguments\":{\"type\":\"object\",\"properties\":{"
     "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},\"required\":[\"city\"]}},"
     "\"required\":[\"name\",\"arguments\"]},{\"type\":\"object\",\"properties\":{\"name\":{"
     "\"const\":\"now\"},\"arguments\":{\"type\":\"object\"}},\"required\":[\"name\",\"arguments\"]"
     "}]}}"},
    {"tree", J,
     "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"string\"},\"kids\":{"
     "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}},\"required\":[\"v\",\"kids\"]}},"
     "\"$ref\":\"#/$defs/n\"}"},
    {"date_regex", R, "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])"},
    {"letters_regex", R, "[a-z ]{1,400}"},
    /* pattern beside a length */
    {"pattern_4000", J, "{\"type\":\"string\",\"pattern\":\"^[a-z ]*$\",\"maxLength\":4000}"},
    {"pattern_100000", J, "{\"type\":\"string\",\"pattern\":\"^[a-z ]*$\",\"maxLength\":100000}"},
    {"pattern_least", J,
     "{\"type\":\"string\",\"pattern\":\"^[a-z ]*$\",\"minLength\":3000,\"maxLength\":100000}"},
    {"pattern_words", J,
     "{\"type\":\"string\",\"pattern\":\"^([A-Z][a-z]* ?)+$\",\"maxLength\":50000}"},
    {"pattern_search", J, "{\"type\":\"string\",\"pattern\":\"[0-9]{3}\",\"maxLength\":100000}"},
    {"pattern_dot", J, "{\"type\":\"string\",\"pattern\":\"^.*$\",\"maxLength\":100000}"},
    {"pattern_both_counts", J,
     "{\"type\":\"string\",\"pattern\":\"^[a-z]{1,9000}$\",\"maxLength\":8000,\"minLength\":10}"},
    {"two_patterns", J,
     "{\"type\":\"string\",\"pattern\":\"^[a-z ]*$\",\"allOf\":[{\"pattern\":\"^([a-m]|[k-z "
     "])*$\"}],\"maxLength\":20000}"},
    {"format_length", J, "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254}"},
    {"keys_patterns", J,
     "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"},\"y$\":{\"type\":"
     "\"integer\",\"minimum\":10}},\"additionalProperties\":{\"type\":\"string\"}}"},
    /* hostile */
    {"alternation", R, "((a|b|ab)*c){1000}"},
    {"counts_of_counts", R, "(((a|b|ab)*c){1000}){1000}"},
    {"optional_run", R, "(a?){1000}a{1000}"},
    {"nth_from_end", R, "(a|b)*a(a|b){40}"},
    {"many_tails", R, "(.*a){1,60}.*b"},
    {"nested_stars", R, "((((((a*)*b?)*c?)*d?)*e?)*f?)*g"},
    {"unicode", R, "(\\p{L}\\p{M}*[^\\p{Z}])+"},
    {"unicode_not", R, "[^\\p{L}\\p{N}\\p{P}]{1,9999}"},
    {"unicode_many", R, "", "[\\p{L}\\p{N}]?", "", "", 100},
    {"dots_100", R, "", ".{0,%d}x", "|", "", 100},
    {"literal_5000", R, "", "word%d", "|", "", 2500},
    {"enum_5000", J, "{\"enum\":[", "\"value %d of many\"", ",", "]}", 5000},
    {"enum_100000", J, "{\"enum\":[", "\"value %d of many\"", ",", "]}", 100000},
    {"any_of_1000", J, "{\"anyOf\":[",
     "{\"type\":\"object\",\"properties\":{\"k%d\":{\"type\":\"string\"}},\"required\":[\"k%1$d\"]"
     "}",
     ",", "]}", 1000},
    {"one_of_300", J, "{\"oneOf\":[",
     "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"k%d\"}},\"required\":[\"k\"]}", ",",
     "]}", 300},
    {"nested_any_of", J, "{\"type\":\"string\",\"allOf\":[",
     "{\"anyOf\":[{\"minLength\":%d},{\"pattern\":\"a{%1$d}\"}]}", ",", "]}", 8},
    {"patterns_and", J, "{\"type\":\"string\",\"allOf\":[", "{\"pattern\":\"[a-z].{%d}[0-9]\"}",
     ",", "]}", 12},
    {"properties_500", J, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{",
     "\"k%d\":{\"type\":\"string\"}", ",", "}}", 500},
    {"properties_3000", J, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{",
     "\"k%d\":{\"type\":\"string\"}", ",", "}}", 3000},
    {"properties_free", J, "{\"type\":\"object\",\"properties\":{", "\"k%d\":{\"type\":\"string\"}",
     ",", "},\"additionalProperties\":{\"type\":\"null\"}}", 500},
    {"properties_count", J, "{\"type\":\"object\",\"minProperties\":30,\"properties\":{",
     "\"k%d\":{\"type\":\"integer\"}", ",", "}}", 60},
    {"deep_400", J, "", "{\"type\":\"array\",\"items\":", "", "true", -400},
    {"deep_3000", J, "", "{\"type\":\"array\",\"items\":", "", "true", -3000},
    {"refs", J,
     "{\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/b\"}},{"
     "\"type\":\"null\"}]},\"b\":{\"anyOf\":[{\"type\":\"object\",\"additionalProperties\":{"
     "\"$ref\":\"#/$defs/a\"}},{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/$defs/b\"}"},
    {"ref_chain", J, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
     "\"d%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/d%1$d1\"},{\"type\":\"null\"}]},"
     "\"d%1$d1\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d0\"}}",
     ",", "}}", 2000},
    {"items_100000", J,
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-7},\"minItems\":2,"
     "\"maxItems\":100000}"},
    {"prefix_500", J, "{\"type\":\"array\",\"prefixItems\":[", "{\"const\":%d}", ",", "]}", 500},
    {"prefix_30000", J, "{\"type\":\"array\",\"prefixItems\":[", "{}", ",", "]}", 30000},
    {"required_2000", J, "{\"type\":\"object\",\"required\":[", "\"k%d\"", ",", "]}", 2000},
    {"groups_199", R, "", "(a(", "", "", -100},
    {"choices_deep", J, "",
     "{\"type\":\"array\",\"allOf\":[{\"anyOf\":[{}]},{\"anyOf\":[{}]},{\"anyOf\":[{}]},{"
     "\"anyOf\":[{}]},{\"anyOf\":[{}]},{\"anyOf\":[{}]}],\"items\":",
     "", "true", -400},
    {"multiples", J,
     "{\"type\":\"integer\",\"multipleOf\":9973,\"allOf\":[{\"multipleOf\":97},{\"multipleOf\":89}]"
     "}"},
    {"description_10MB", J, "{\"type\":\"object\",\"description\":\"", "0123456789%d", "", "\"}",
     600000},
    {"properties_10MB", J, "{\"type\":\"object\",\"properties\":{",
     "\"key number %d\":{\"type\":\"string\",\"maxLength\":9}", ",", "}}", 150000},
};

static void spell(const struct row *r, struct buf *b)
{
    int n = r->times < 0 ? -r->times : r->times;
    buf_reset(b);
    buf_str(b, r->text);
    for (int i = 0; i < n; i++) {
        char part[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
        snprintf(part, sizeof(part), r->part, i);
#pragma GCC diagnostic pop
        buf_str(b, i ? r->glue : "");
        buf_str(b, part);
    }
    buf_str(b, r->tail ? r->tail : "");
    for (int i = r->times; i < 0; i++)
        buf_str(b, r->kind == R ? "))" : "}");
}

/* ---------------------------------------------------------------- answers */

struct bench {
    struct grammars *g;
    const struct tokenizer *tok;
    uint32_t vocab, end, *mask;
    double us[ANSWERS * TOKENS];
    size_t n;
};

static bool allowed(const struct bench *x, uint32_t id) { return x->mask[id / 32] >> id % 32 & 1; }

/* One of the allowed tokens; the end last, so that answers get long. */
static uint32_t choose(const struct bench *x)
{
    uint32_t from = rnd(x->vocab);
    for (uint32_t i = 0; i < x->vocab; i++) {
        uint32_t id = (from + i) % x->vocab;
        if (id != x->end && allowed(x, id))
            return id;
    }
    return x->end;
}

/* Why the answer came to nothing, or NULL. */
static const char *answer(struct bench *x, struct constraint *c)
{
    static struct err e;
    constraint_state s = CONSTRAINT_START;
    e = (struct err)ERR_INIT;
    for (int i = 0; i < TOKENS; i++) {
        double t0 = now_us();
        int rc = constraint_mask(c, s, grammars_tokens(x->g), x->mask, &e);
        double t1 = now_us();
        x->us[x->n] = t1 - t0;
        if (rc) {
            x->n++;
            return e.msg;
        }
        uint32_t id = choose(x);
        if (id == x->end) {
            x->n++;
            return NULL;
        }
        t0 = now_us();
        s = grammars_next(x->g, c, s, id);
        x->us[x->n++] += now_us() - t0;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(struct bench *x, const struct row *r)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    char why[480] = "";
    spell(r, &b);
    double t0 = now_us();
    struct constraint *c = constraint_new(r->kind, b.p, b.len, &e);
    double ms = (now_us() - t0) / 1e3;
    if (!c) {
        printf("row %-20s compile %8.2f refused: %s\n", r->name, ms, e.msg);
        buf_free(&b);
        return;
    }
    int failed = 0;
    x->n = 0;
    for (int i = 0; i < ANSWERS; i++) {
        const char *because = answer(x, c);
        failed += because != NULL;
        if (because)
            snprintf(why, sizeof(why), "%s", because);
    }
    qsort(x->us, x->n, sizeof(*x->us), by_size);
    printf("row %-20s compile %8.2f masks %5zu median %8.1f p99 %8.1f worst %8.1f%s%s\n", r->name,
           ms, x->n, x->us[x->n / 2], x->us[x->n * 99 / 100], x->us[x->n - 1],
           failed ? " FAILED: " : "", why);
    fflush(stdout);
    constraint_unref(c);
    buf_free(&b);
}

/* Few answers to each schema of a file; what is refused is left out. */
static int run_file(struct bench *x, const char *path)
{
    enum { FEW = 3, MOST = 1 << 20 };
    double *us = malloc(MOST * sizeof(*us)), sum = 0, ms = 0;
    size_t n = 0, schemas = 0, refused = 0, failed = 0, cap = 0, slowest = 0;
    double worst = 0;
    FILE *f = fopen(path, "r");
    char *line = NULL;
    for (ssize_t len; f && us && (len = getline(&line, &cap, f)) > 0;) {
        struct err e = ERR_INIT;
        double t0 = now_us();
        struct constraint *c = constraint_new(CONSTRAINT_JSON_SCHEMA, line, (size_t)len, &e);
        ms += (now_us() - t0) / 1e3;
        refused += !c;
        schemas++;
        for (int i = 0; c && i < FEW; i++) {
            x->n = 0;
            failed += answer(x, c) != NULL;
            for (size_t k = 0; k < x->n && n < MOST; k++) {
                sum += us[n++] = x->us[k];
                slowest = x->us[k] > worst ? schemas : slowest;
                worst = x->us[k] > worst ? x->us[k] : worst;
            }
        }
        constraint_unref(c);
    }
    if (n) {
        qsort(us, n, sizeof(*us), by_size);
        printf("schemas %zu refused %zu failed answers %zu compile mean %.2f ms masks %zu mean "
               "%.1f median %.1f p99 %.1f worst %.1f us (line %zu)\n",
               schemas, refused, failed, ms / (double)schemas, n, sum / (double)n, us[n / 2],
               us[n * 99 / 100], us[n - 1], slowest);
    }
    free(line);
    free(us);
    if (f)
        fclose(f);
    return n ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    char path[1024];
    const char *data = getenv("TEST_DATA");
    snprintf(path, sizeof(path), "%s/tokenizers/llama3", data && *data ? data : TEST_DATA);
    struct tokenizer *t = tokenizer_load(argc > 1 ? argv[1] : path, &e);
    if (!t) {
        printf("skipped: %s\n", e.msg);
        return 0;
    }
    static struct bench x;
    x.tok = t;
    x.vocab = tokenizer_vocab_size(t);
    x.end = x.vocab - 1;
    x.mask = malloc((x.vocab / 32 + (size_t)1) * sizeof(*x.mask));
    x.g = grammars_new(t, x.vocab, &x.end, 1, SIZE_MAX);
    struct grammar_spec first = {.text = "a", .kind = CONSTRAINT_REGEX};
    if (!x.mask || !x.g)
        return 1;
    grammars_put(x.g, grammars_get(x.g, &first, &e)); /* lays the vocabulary out */
    if (argc > 2 && argv[2][0] == '@')
        return run_file(&x, argv[2] + 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (argc < 3 || strstr(rows[i].name, argv[2]))
            run(&x, &rows[i]);
    grammars_free(x.g);
    tokenizer_free(t);
    free(x.mask);
    return 0;
}
