#include "common/tokenizer/filter.h"
#include "common/json/exact.h"
#include "common/tokenizer/tokenizer.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

struct filter {
    struct tokenizer *t;
    struct tok_scratch *scratch;
    struct tok_ids ids;
    struct buf text; /* of the current line */
};
typedef int line_fn(struct filter *f, const cJSON *line, struct buf *out, struct err *e);

static int flag(const cJSON *j, const char *key, bool *v, struct err *e)
{
    const cJSON *x = json_get(j, key);
    if (x && !cJSON_IsBool(x))
        return err_set(e, ERR_VALIDATION, "%s: expected true or false", key);
    if (x)
        *v = cJSON_IsTrue(x);
    return 0;
}

static int tokenize(struct filter *f, const cJSON *line, struct buf *out, struct err *e)
{
    const char *text = json_str(line, "text", NULL);
    bool special = true;
    if (!text)
        return err_set(e, ERR_VALIDATION, "text: expected a string");
    buf_reset(&f->text);
    json_text_exact(&f->text, text); /* with U+0000 */
    if (f->text.oom)
        return err_nomem(e);
    if (flag(line, "add_special_tokens", &special, e) != 0 ||
        tokenizer_encode(f->t, f->text.p ? f->text.p : "", f->text.len,
                         TOK_OFFSETS | (special ? TOK_ADD_SPECIAL : 0), &f->scratch, &f->ids,
                         e) != 0)
        return -1;
    buf_str(out, "{\"ids\":[");
    for (uint32_t i = 0; i < f->ids.n; i++) {
        if (i)
            buf_ch(out, ',');
        buf_u64(out, f->ids.id[i]);
    }
    buf_str(out, "],\"offsets\":[");
    for (uint32_t i = 0; i < f->ids.n; i++) {
        buf_str(out, i ? ",[" : "[");
        buf_u64(out, f->ids.at[i].start);
        buf_ch(out, ',');
        buf_u64(out, f->ids.at[i].end);
        buf_ch(out, ']');
    }
    buf_str(out, "]}");
    return 0;
}

static int detokenize(struct filter *f, const cJSON *line, struct buf *out, struct err *e)
{
    const cJSON *ids = json_get(line, "ids"), *v;
    struct buf list = BUF_INIT;
    bool skip = false;
    int rc = flag(line, "skip_special_tokens", &skip, e);
    if (rc == 0 && !cJSON_IsArray(ids))
        rc = err_set(e, ERR_VALIDATION, "ids: expected a list of token ids");
    cJSON_ArrayForEach(v, ids)
    {
        uint32_t id = cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < UINT32_MAX
                          ? (uint32_t)v->valuedouble
                          : UINT32_MAX;
        if (rc == 0 && (id == UINT32_MAX || (double)id != v->valuedouble))
            rc = err_set(e, ERR_VALIDATION, "ids: expected a list of token ids");
        buf_add(&list, &id, sizeof id);
    }
    if (rc == 0 && list.oom)
        rc = err_nomem(e);
    if (rc == 0) {
        buf_reset(&f->text);
        tokenizer_decode(f->t, (const uint32_t *)(const void *)list.p, list.len / 4, skip,
                         &f->text);
        rc = f->text.oom ? err_nomem(e) : 0;
        buf_str(out, "{\"text\":");
        buf_json_str(out, f->text.p ? f->text.p : "", f->text.len);
        buf_ch(out, '}');
    }
    buf_free(&list);
    return rc;
}

static void work_line(struct filter *f, line_fn *fn, const char *s, size_t n, struct buf *out)
{
    struct err e = ERR_INIT;
    cJSON *j = json_parse_exact(s, n, &e);
    int rc = j ? fn(f, j, out, &e) : -1;
    cJSON_Delete(j);
    if (rc != 0) {
        buf_reset(out);
        buf_str(out, "{\"error\":");
        buf_json_str(out, e.msg, strlen(e.msg));
        buf_ch(out, '}');
    }
    buf_ch(out, '\n');
}

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", s[i]))
            return false;
    return true;
}

static int run(const char *dir, line_fn *fn, FILE *in, FILE *out, struct err *e)
{
    struct filter f = {.t = tokenizer_load(dir, e)};
    struct buf answer = BUF_INIT;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    if (!f.t)
        return -1;
    while (rc == 0 && (n = getline(&line, &cap, in)) >= 0) {
        if (n && line[n - 1] == '\n')
            n--;
        if (blank(line, (size_t)n))
            continue;
        buf_reset(&answer);
        work_line(&f, fn, line, (size_t)n, &answer);
        if (answer.oom)
            rc = err_nomem(e);
        else if (fwrite(answer.p, 1, answer.len, out) != answer.len || fflush(out) != 0)
            rc = err_sys(e, "write");
    }
    if (rc == 0 && ferror(in))
        rc = err_sys(e, "read");
    free(line);
    buf_free(&answer);
    buf_free(&f.text);
    tok_ids_free(&f.ids);
    tok_scratch_free(f.scratch);
    tokenizer_free(f.t);
    return rc;
}

int tokenize_filter(const char *dir, FILE *in, FILE *out, struct err *e)
{
    return run(dir, tokenize, in, out, e);
}

int detokenize_filter(const char *dir, FILE *in, FILE *out, struct err *e)
{
    return run(dir, detokenize, in, out, e);
}
