#include "model-server/sample/stop.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct stop_match {
    char *text;
    uint32_t *fail; /* [len + 1]: longest proper border of each prefix */
    uint32_t len, at;
};

static int match_init(struct stop_match *m, const char *text, struct err *e)
{
    size_t n = strlen(text);
    if (n > UINT32_MAX / 8)
        return err_set(e, ERR_VALIDATION, "a stop sequence is too long");
    m->len = (uint32_t)n;
    m->text = strdup(text);
    m->fail = calloc(n + 1, sizeof(*m->fail));
    if (!m->text || !m->fail)
        return err_nomem(e);
    for (uint32_t i = 1, k = 0; i < m->len; i++) {
        while (k && text[i] != text[k])
            k = m->fail[k];
        k += text[i] == text[k];
        m->fail[i + 1] = k;
    }
    return 0;
}

int stop_init(struct stop *s, const struct stop_rules *r, char *const *texts, size_t n,
              struct err *e)
{
    *s = (struct stop){.rules = *r};
    s->m = n ? calloc(n, sizeof(*s->m)) : NULL;
    s->tokens = r->n_tokens ? calloc(r->n_tokens, sizeof(*s->tokens)) : NULL;
    if ((n && !s->m) || (r->n_tokens && !s->tokens)) {
        stop_free(s);
        return err_nomem(e);
    }
    for (size_t i = 0; i < r->n_tokens; i++)
        s->tokens[i] = r->tokens[i];
    s->rules.tokens = s->tokens;
    for (size_t i = 0; i < n; i++)
        if (*texts[i] && match_init(&s->m[s->n++], texts[i], e)) {
            stop_free(s);
            return -1;
        }
    return 0;
}

void stop_free(struct stop *s)
{
    for (size_t i = 0; s->m && i < s->n; i++) {
        free(s->m[i].text);
        free(s->m[i].fail);
    }
    free(s->m);
    free(s->tokens);
    s->m = NULL;
    s->rules.tokens = s->tokens = NULL;
    s->rules.n_tokens = 0;
    s->n = 0;
}

/* Bytes of `text` up to the end of the first match; 0: none ends here. */
static size_t match_push(struct stop_match *m, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        while (m->at && m->text[m->at] != text[i])
            m->at = m->fail[m->at];
        m->at += m->text[m->at] == text[i];
        if (m->at == m->len) {
            m->at = m->fail[m->at];
            return i + 1;
        }
    }
    return 0;
}

static bool is_eos(const struct stop_rules *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n_eos; i++)
        if (r->eos[i] == id)
            return true;
    return false;
}

static bool is_stop_token(const struct stop_rules *r, uint32_t id)
{
    for (size_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] == id)
            return true;
    return false;
}

static void forbid(float *row, size_t vocab, const uint32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (id[i] < vocab)
            row[id[i]] = -INFINITY;
}

void stop_forbidden(const struct stop *s, uint32_t generated, struct id_list out[2])
{
    const struct stop_rules *r = &s->rules;
    out[0] = out[1] = (struct id_list){NULL, 0};
    if (generated >= r->min_new_tokens)
        return;
    if (!r->ignore_eos)
        out[0] = (struct id_list){r->eos, r->n_eos};
    out[1] = (struct id_list){r->tokens, r->n_tokens};
}

void stop_forbid(const struct stop *s, uint32_t generated, float *row, size_t vocab)
{
    struct id_list never[2];
    stop_forbidden(s, generated, never);
    for (int i = 0; i < 2; i++)
        forbid(row, vocab, never[i].id, never[i].n);
}

bool stop_ends(const struct stop *s, uint32_t id)
{
    return (!s->rules.ignore_eos && is_eos(&s->rules, id)) || is_stop_token(&s->rules, id);
}

enum stop_reason stop_push(struct stop *s, uint32_t id, const char *text, size_t *len)
{
    size_t cut = 0;
    s->generated++;
    for (size_t i = 0; i < s->n; i++) {
        size_t end = match_push(&s->m[i], text, *len);
        if (end && (!cut || end < cut))
            cut = end;
    }
    if (s->generated >= s->rules.max_new_tokens)
        return STOP_LENGTH;
    if (!s->rules.ignore_eos && is_eos(&s->rules, id))
        return STOP_EOS;
    if (is_stop_token(&s->rules, id)) {
        *len = 0;
        return STOP_TOKEN;
    }
    if (!cut || s->generated < s->rules.min_new_tokens)
        return STOP_NOT;
    *len = cut;
    return STOP_SEQUENCE;
}
