#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/tokenizer/regex.h"
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct regex {
    pcre2_code *code;
};

/* Jais 2 cuts a run of blanks into pieces of 512 at most, and before each searches the whole rest
 * of the run for a line break: quadratic. No blank but a break before it ends a match of the first
 * alternatives. So where one precedes, that search has failed before, and is left out. */
#define LETTERS                                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|"
static const char pieces_of_blanks[] = LETTERS "\\s*[\\r\\n]+|\\s{";

/* As regex_translate(), with equal matches in linear time where that is known. */
static int translate(const char *pattern, size_t n, struct buf *out, struct err *e)
{
    const size_t known = sizeof(pieces_of_blanks) - 1, at = sizeof(LETTERS) - 1;
    struct buf b = BUF_INIT;
    if (n < known || memcmp(pattern, pieces_of_blanks, known) != 0)
        return regex_translate(pattern, n, out, e);
    buf_add(&b, pattern, at);
    buf_str(&b, "(?<![^\\S\\r\\n])");
    buf_add(&b, pattern + at, n - at);
    int rc = b.oom ? err_nomem(e) : regex_translate(b.p, b.len, out, e);
    buf_free(&b);
    return rc;
}

struct regex *regex_compile(const char *pattern, size_t n, struct err *e)
{
    struct buf text = BUF_INIT;
    struct regex *r = NULL;
    pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
    int code = 0;
    PCRE2_SIZE at = 0;
    if (translate(pattern, n, &text, e) != 0)
        goto out;
    if (!ctx || !(r = calloc(1, sizeof *r))) {
        err_nomem(e);
        goto out;
    }
    pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(ctx, 1 << 20);
    /* in Ruby's dialect ^ and $ always match at lines */
    r->code = pcre2_compile((PCRE2_SPTR)(text.p ? text.p : ""), text.len,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, ctx);
    if (!r->code) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        err_set(e, ERR_VALIDATION, "regular expression: %s", why);
        free(r);
        r = NULL;
        goto out;
    }
    pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without JIT pcre2_match() interprets */
out:
    pcre2_compile_context_free(ctx);
    buf_free(&text);
    return r;
}

bool regex_is_script(const char *name, size_t n)
{
    char text[64];
    int code = 0;
    PCRE2_SIZE at = 0;
    if (n < 3 || n > 48) /* names of one or two letters are categories */
        return false;
    int len = snprintf(text, sizeof text, "\\p{sc:%.*s}", (int)n, name);
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)text, (PCRE2_SIZE)len, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(c);
    return c != NULL;
}

void regex_free(struct regex *r)
{
    if (r)
        pcre2_code_free(r->code);
    free(r);
}

/* Only what a match needs is committed. A loop of a group takes about 40 bytes for each round,
 * unless it is possessive. */
enum { STACK_MAX = 32 << 20 };

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *ctx;
    pcre2_jit_stack *stack;
};

void *regex_match_new(void)
{
    struct regex_scratch *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->data = pcre2_match_data_create(1, NULL);
    m->ctx = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 << 10, STACK_MAX, NULL);
    if (!m->data || !m->ctx) {
        regex_match_free(m);
        return NULL;
    }
    if (m->stack)
        pcre2_jit_stack_assign(m->ctx, NULL, m->stack);
    return m;
}

void regex_match_free(void *match)
{
    struct regex_scratch *m = match;
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->ctx);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

struct regex_iter regex_iter(const struct regex *r, const char *s, size_t n, void *match)
{
    return (struct regex_iter){.r = r, .s = s, .n = n, .last_end = SIZE_MAX, .match = match};
}

/* An empty match directly after the last match is skipped by one character. */
int regex_next(struct regex_iter *it, size_t *start, size_t *end)
{
    struct regex_scratch *m = it->match;
    while (it->at <= it->n) {
        int rc = pcre2_match(it->r->code, (PCRE2_SPTR)it->s, it->n, it->at, PCRE2_NO_UTF_CHECK,
                             m->data, m->ctx);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc < 0)
            return -1;
        PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
        *start = v[0];
        *end = v[1] < v[0] ? v[0] : v[1]; /* \K in a look-ahead can reverse them */
        if (*end == *start && *end == it->last_end) {
            it->at++;
            while (it->at < it->n && ((unsigned char)it->s[it->at] & 0xC0) == 0x80)
                it->at++;
            continue;
        }
        it->at = it->last_end = *end;
        return 1;
    }
    return 0;
}
