#include "router/http/access.h"
#include "common/log/log.h"
#include <string.h>

/* A write(2) of a line up to PIPE_BUF is atomic in a pipe: long fields are truncated. */
enum { FIELDS_MAX = 24, PATH_MAX_LOGGED = 256, USER_MAX_LOGGED = 128 };

struct line {
    struct log_field f[FIELDS_MAX];
    size_t n;
};

static void text(struct line *l, const char *key, const char *v)
{
    if (v && *v)
        l->f[l->n++] = LOGS(key, v);
}

static void number(struct line *l, const char *key, uint64_t v)
{
    l->f[l->n++] = LOGI(key, (int64_t)v);
}

static void seconds(struct line *l, const char *key, int64_t ns)
{
    l->f[l->n++] = LOGD(key, (double)ns * 1e-9);
}

/* Copies what fits, without splitting a UTF-8 character. */
static const char *cut(char *out, size_t cap, const char *s)
{
    size_t n = s ? strlen(s) : 0;
    if (n >= cap)
        for (n = cap - 1; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80;)
            n--;
    if (n)
        memcpy(out, s, n);
    out[n] = 0;
    return out;
}

static int64_t since(int64_t from, int64_t to) { return from && to > from ? to - from : 0; }

static int64_t earlier(int64_t a, int64_t b) { return !a || (b && b < a) ? b : a; }
static int64_t later(int64_t a, int64_t b) { return b > a ? b : a; }

void access_add(struct access_work *w, const struct gen_request *r, uint32_t generated,
                const enum gen_finish *end)
{
    const struct gen_times *t = &r->times;
    int64_t inference = since(t->batched, t->ended);
    if (w->n == 0) {
        w->cache_miss = r->cache_miss;
        w->cache_miss_token = r->cache_miss_at;
    }
    if (!r->same) { /* requests that share a prompt count it once */
        w->input_tokens += r->n_input;
        w->cached_tokens += r->n_cached;
    }
    w->generated_tokens += generated;
    w->validation = later(w->validation, since(t->received, t->queued));
    w->queue = later(w->queue, since(t->queued, t->batched));
    w->first_token = earlier(w->first_token, since(t->received, t->first));
    w->inference = later(w->inference, inference);
    if (generated)
        w->per_token = later(w->per_token, inference / generated);
    if (w->n++ == 0 && end)
        w->finish = gen_finish_name(*end);
}

static void work_fields(struct line *l, const struct access_work *w)
{
    if (!w->n)
        return;
    if (w->n > 1)
        number(l, "generations", w->n);
    number(l, "input_tokens", w->input_tokens);
    number(l, "cached_tokens", w->cached_tokens);
    if (w->cache_miss) {
        text(l, "cache_miss", w->cache_miss);
        number(l, "cache_miss_token", w->cache_miss_token);
    }
    number(l, "generated_tokens", w->generated_tokens);
    text(l, "finish_reason", w->finish);
    seconds(l, "validation_time", w->validation);
    seconds(l, "queue_time", w->queue);
    if (w->first_token)
        seconds(l, "first_token_time", w->first_token);
    seconds(l, "inference_time", w->inference);
    if (w->per_token)
        seconds(l, "time_per_token", w->per_token);
    text(l, "seed", w->seed);
}

void access_log(const struct access *a)
{
    static const char *const words[] = {"Success", "Failed", "Dropped"};
    enum log_level level = a->quiet                             ? LOG_DEBUG
                           : a->end == ACCESS_FAILED && a->ours ? LOG_ERROR
                                                                : LOG_INFO;
    if (!log_on(level))
        return;
    char path[PATH_MAX_LOGGED], user[USER_MAX_LOGGED];
    struct line l = {.n = 0};
    text(&l, "method", a->method);
    text(&l, "path", cut(path, sizeof(path), a->path));
    if (a->status)
        number(&l, "status", (uint64_t)a->status);
    text(&l, "request_id", a->id);
    text(&l, "model", a->model);
    text(&l, "key", a->key);
    text(&l, "user", cut(user, sizeof(user), a->user));
    seconds(&l, "total_time", a->total);
    work_fields(&l, &a->work);
    if (a->end == ACCESS_FAILED)
        text(&l, "error", a->error);
    log_fields(level, words[a->end], l.n, l.f);
}
