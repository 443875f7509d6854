#include "router/chat/guard.h"
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/chat/fim.h"
#include <stdlib.h>
#include <string.h>

void guard_free(struct guard *g)
{
    free(g->text);
    *g = (struct guard){0};
}

/* ---------------------------------------------------------------- the tokens */
static int add(struct guard *g, const char *text, struct err *e)
{
    if (!text || !*text)
        return 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (!strcmp(g->text[i], text))
            return 0;
    if (g->n == g->cap) {
        const uint32_t cap = g->cap ? g->cap * 2 : 16;
        const char **more = realloc(g->text, cap * sizeof(*more));
        if (!more)
            return err_nomem(e);
        g->text = more;
        g->cap = cap;
    }
    g->text[g->n++] = text;
    g->starts[(unsigned char)*text] = true;
    return 0;
}

int guard_learn(struct guard *g, const struct tokenizer *t, const char *source, struct err *e)
{
    static const char *const named[] = {"bos_token", "eos_token", "pad_token"};
    const char *const *fim = fim_style(t);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(named) / sizeof(named[0]); i++)
        rc = add(g, tokenizer_special(t, named[i]), e);
    for (int i = 0; rc == 0 && fim && i < FIM_N; i++)
        if (fim[i] && tokenizer_id(t, fim[i]) >= 0)
            rc = add(g, fim[i], e);
    for (uint32_t id = 0; rc == 0 && id < tokenizer_vocab_size(t); id++) {
        const char *text = tokenizer_is_special(t, id) ? tokenizer_token(t, id) : NULL;
        if (text && strstr(source, text))
            rc = add(g, text, e);
    }
    return rc;
}

/* ---------------------------------------------------------------- the text */
/* Does a token begin at `s`? At the end of the text its first bytes suffice: templates join the
 * parts of a message. */
static bool begins(const struct guard *g, const char *s, size_t n)
{
    if (!g->starts[(unsigned char)*s])
        return false;
    for (uint32_t i = 0; i < g->n; i++) {
        const size_t len = strlen(g->text[i]);
        if (!memcmp(s, g->text[i], len < n ? len : n))
            return true;
    }
    return false;
}

/* Appends the text with a guard behind the first character of each token. False: it has none. */
static bool put(const struct guard *g, const char *s, size_t n, struct buf *out)
{
    size_t done = 0;
    for (size_t at = 0; at < n; at++) {
        if (!begins(g, s + at, n - at))
            continue;
        const size_t len = utf8_valid_len(s + at, n - at), stop = at + (len ? len : 1);
        buf_add(out, s + done, stop - done);
        buf_str(out, TOK_GUARD);
        done = stop;
    }
    buf_add(out, s + done, n - done);
    return done > 0;
}

void guard_text(const struct guard *g, const char *s, size_t n, struct buf *out)
{
    put(g, s, n, out);
}

/* Puts guards into *text, whose memory is cJSON's. */
static int guard_owned(const struct guard *g, char **text)
{
    struct buf b = BUF_INIT;
    int rc = 0;
    if (put(g, *text, strlen(*text), &b) && !b.oom) {
        char *more = cJSON_malloc(b.len + 1);
        rc = more ? 0 : -1;
        if (more) {
            memcpy(more, b.p, b.len + 1);
            cJSON_free(*text);
            *text = more;
        }
    }
    rc = b.oom ? -1 : rc;
    buf_free(&b);
    return rc;
}

int guard_strings(const struct guard *g, cJSON *tree)
{
    int rc = g->n && cJSON_IsString(tree) ? guard_owned(g, &tree->valuestring) : 0;
    for (cJSON *k = g->n && tree ? tree->child : NULL; k && rc == 0; k = k->next)
        if (!k->string || (rc = guard_owned(g, &k->string)) == 0)
            rc = guard_strings(g, k);
    return rc;
}

static bool trusted(const char *role)
{
    return !strcmp(role, "assistant") || !strcmp(role, "system") || !strcmp(role, "developer");
}

static int guard_content(const struct guard *g, cJSON *content)
{
    int rc = 0;
    if (cJSON_IsString(content))
        return guard_strings(g, content);
    for (cJSON *p = cJSON_IsArray(content) ? content->child : NULL; p && rc == 0; p = p->next)
        rc = guard_strings(g, cJSON_GetObjectItemCaseSensitive(p, "text"));
    return rc;
}

/* Members that hold the text of a message. */
static bool is_text(const char *name)
{
    return !strcmp(name, "content") || !strcmp(name, "reasoning_content") ||
           !strcmp(name, "reasoning") || !strcmp(name, "thinking");
}

int guard_message(const struct guard *g, cJSON *message)
{
    const bool own = trusted(json_str(message, "role", ""));
    int rc = 0;
    for (cJSON *k = g->n ? message->child : NULL; k && rc == 0; k = k->next)
        if (!is_text(k->string))
            rc = guard_strings(g, k);
        else if (!own)
            rc = strcmp(k->string, "content") ? guard_strings(g, k) : guard_content(g, k);
    return rc;
}

void guard_drop(const char *s, size_t n, struct buf *out)
{
    const size_t len = strlen(TOK_GUARD);
    for (const char *at; (at = memmem(s, n, TOK_GUARD, len)); s = at + len) {
        buf_add(out, s, (size_t)(at - s));
        n -= (size_t)(at - s) + len;
    }
    buf_add(out, s, n);
}
