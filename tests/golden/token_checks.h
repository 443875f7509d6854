/* token_checks.h - compares a tokenizer with lines of TEST_DATA/expected/tokenizers: ids,
 * offsets, decode, and streamed decode. */
#ifndef TESTS_GOLDEN_TOKEN_CHECKS_H
#define TESTS_GOLDEN_TOKEN_CHECKS_H
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"
#include "common/utf8.h"
#include "tests/unit/test.h"
#include <string.h>

enum { CHECKS = 7, SHOW = 3 };
static const char *const check_name[CHECKS] = {"ids",  "ids_no_special", "offsets",    "decode",
                                               "skip", "stream",         "stream_rest"};

struct tally {
    const char *name;
    unsigned done[CHECKS], bad[CHECKS], strings;
};

static inline void judge(struct tally *y, unsigned check, bool ok, const char *id, const char *got)
{
    y->done[check]++;
    if (ok)
        return;
    if (y->bad[check]++ < SHOW)
        print_message("  %s %s %s: got %.300s\n", y->name, id, check_name[check], got);
}

/* A text field, or its "_hex" version if the text has NUL bytes. */
static inline char *text_field(const cJSON *j, const char *key, size_t *n)
{
    char hex_key[64];
    snprintf(hex_key, sizeof hex_key, "%s_hex", key);
    const char *hex = json_str(j, hex_key, NULL), *s = json_str(j, key, NULL);
    *n = hex ? strlen(hex) / 2 : s ? strlen(s) : 0;
    if (!hex && !s)
        return NULL;
    char *out = malloc(*n + 1);
    assert_non_null(out);
    for (size_t i = 0; hex && i < *n; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (char)byte;
    }
    if (!hex)
        memcpy(out, s, *n);
    out[*n] = 0;
    return out;
}

static inline bool same_ids(const cJSON *want, const struct tok_ids *got)
{
    uint32_t i = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, want)
    {
        if (i >= got->n || got->id[i] != (uint32_t)v->valuedouble)
            return false;
        i++;
    }
    return i == got->n;
}

/* Expected offsets count characters; ours count bytes. */
static inline bool same_offsets(const cJSON *want, const struct tok_ids *got, const char *s)
{
    uint32_t i = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, want)
    {
        if (i >= got->n)
            return false;
        if (utf8_count(s, got->at[i].start) != (size_t)cJSON_GetArrayItem(v, 0)->valuedouble ||
            utf8_count(s, got->at[i].end) != (size_t)cJSON_GetArrayItem(v, 1)->valuedouble)
            return false;
        i++;
    }
    return i == got->n;
}

static inline void show_ids(const struct tok_ids *ids, bool offsets, char *out, size_t cap)
{
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < ids->n && at + 40 < cap; i++) {
        at += (size_t)snprintf(out + at, cap - at, "%u ", ids->id[i]);
        if (offsets)
            at +=
                (size_t)snprintf(out + at, cap - at, "[%u,%u) ", ids->at[i].start, ids->at[i].end);
    }
}

static inline void check_decode(struct tally *y, unsigned check, const struct tokenizer *t,
                                const struct tok_ids *ids, bool skip, const cJSON *j,
                                const char *key)
{
    struct buf out = BUF_INIT;
    size_t n;
    char *want = text_field(j, key, &n);
    if (!want)
        return;
    tokenizer_decode(t, ids->id, ids->n, skip, &out);
    judge(y, check, out.len == n && (n == 0 || memcmp(out.p, want, n) == 0), json_str(j, "id", ""),
          out.p ? out.p : "");
    buf_free(&out);
    free(want);
}

static inline void check_stream(struct tally *y, unsigned check, const struct tokenizer *t,
                                const struct tok_ids *ids, uint32_t from, bool skip, const cJSON *j,
                                const char *key)
{
    const cJSON *want = json_get(j, key);
    struct detok d;
    struct buf out = BUF_INIT;
    bool ok = true;
    if (!want || strlen(json_str(j, "text_hex", "")))
        return;
    assert_int_equal(detok_init(&d, t, ids->id, from, skip), 0);
    for (uint32_t i = from; i < ids->n; i++) {
        const char *piece = cJSON_GetStringValue(cJSON_GetArrayItem(want, (int)(i - from)));
        size_t mark = out.len;
        detok_push(&d, ids->id[i], &out);
        const char *got = out.p ? out.p + mark : "";
        ok &= piece && strcmp(piece, got) == 0 && utf8_valid(got, strlen(got));
    }
    judge(y, check, ok, json_str(j, "id", ""), out.p ? out.p : "");
    detok_free(&d);
    buf_free(&out);
}

static inline void check_string(struct tally *y, const struct tokenizer *t,
                                struct tok_scratch **scratch, const cJSON *j)
{
    struct tok_ids ids = {0}, bare = {0};
    struct err e = ERR_INIT;
    char shown[4096];
    size_t n;
    const char *id = json_str(j, "id", "");
    char *text = text_field(j, "text", &n);
    assert_non_null(text);
    y->strings++;
    if (tokenizer_encode(t, text, n, TOK_ADD_SPECIAL | TOK_OFFSETS, scratch, &ids, &e) != 0)
        fail_msg("%s %s: %s", y->name, id, e.msg);
    show_ids(&ids, false, shown, sizeof shown);
    judge(y, 0, same_ids(json_get(j, "ids"), &ids), id, shown);
    show_ids(&ids, true, shown, sizeof shown);
    judge(y, 2, same_offsets(json_get(j, "offsets"), &ids, text), id, shown);
    assert_int_equal(tokenizer_encode(t, text, n, 0, scratch, &bare, &e), 0);
    const cJSON *want = json_get(j, "ids_no_special");
    judge(y, 1, same_ids(want ? want : json_get(j, "ids"), &bare), id, "");
    /* decode the expected ids from here on, whatever was encoded */
    ids.n = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, json_get(j, "ids"))
    {
        if (ids.n == ids.cap)
            ids.id = realloc(ids.id, (ids.cap = ids.cap * 2 + 64) * sizeof *ids.id);
        assert_non_null(ids.id);
        ids.id[ids.n++] = (uint32_t)v->valuedouble;
    }
    check_decode(y, 3, t, &ids, false, j, "decode");
    check_decode(y, 4, t, &ids, true, j, "decode_skip");
    check_stream(y, 5, t, &ids, 0, false, j, "stream");
    check_stream(y, 6, t, &ids, (uint32_t)json_int(j, "stream_from", 0), true, j, "stream_rest");
    tok_ids_free(&ids);
    tok_ids_free(&bare);
    free(text);
}

/* Every string of the file; prints a line of results, which the caller ends. */
static inline void check_strings(struct tally *y, const struct tokenizer *t, FILE *f)
{
    struct tok_scratch *scratch = NULL;
    struct err e = ERR_INIT;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, f)) > 0) {
        cJSON *j = json_parse(line, (size_t)n, &e);
        if (!j)
            fail_msg("%s: %s", y->name, e.msg);
        if (json_get(j, "id"))
            check_string(y, t, &scratch, j);
        cJSON_Delete(j);
    }
    print_message("  %-22s %4u strings;", y->name, y->strings);
    for (unsigned i = 0; i < CHECKS; i++)
        print_message(" %s %u/%u", check_name[i], y->done[i] - y->bad[i], y->done[i]);
    free(line);
    tok_scratch_free(scratch);
}
#endif
