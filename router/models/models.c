#include "common/clock.h"
#include "common/model/model_file.h"
#include "router/models/registry.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 200 };

void models_ring(struct models *m)
{
    (void)eventfd_write(m->bell_fd, 1); /* full: the thread is already awake */
}

/* ---------------------------------------------------------------- names */

bool models_own_name(const struct edge *g, const char *name)
{
    const struct flag_list *aliases = &g->config->lmtp_model_alias;
    if (!name || !*name || !strcmp(name, "tgi") || !strcmp(name, g->model_id) ||
        !strcmp(name, g->config->tokenizer_name))
        return true;
    for (uint32_t i = 0; i < aliases->n; i++)
        if (!strcmp(aliases->v[i], name) || !strcmp(aliases->v[i], "*"))
            return true;
    return false;
}

bool models_first(struct edge *g, const char *name)
{
    return models_own_name(g, name) || edge_has_adapter(g, name);
}

/* A relative path below the folder: no component is empty or begins with a dot. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > NAME_MAX_BYTES)
        return false;
    for (const char *part = name;; part++) {
        if (*part == '.' || *part == '/' || !*part)
            return false;
        part = strchr(part, '/');
        if (!part)
            return true;
    }
}

/* The model's folder or GGUF file, or NULL; caller frees. */
static char *folder_of(const struct models *m, const char *name)
{
    char *folder = NULL;
    if (!is_name(name) || asprintf(&folder, "%s/%s", m->folder, name) < 0)
        return NULL;
    if (model_is_one(folder))
        return folder;
    free(folder);
    return NULL;
}

static struct model *find(const struct models *m, const char *name)
{
    struct model *q = m->list;
    while (q && (q->state == MODEL_LEAVING || q->lost || strcmp(q->name, name) != 0))
        q = q->next;
    return q;
}

static void each_in(const struct models *m, const char *below, int depth,
                    void (*fn)(void *arg, const char *name), void *arg)
{
    char *path = NULL;
    DIR *d = asprintf(&path, "%s/%s", m->folder, below) < 0 ? NULL : opendir(path);
    for (const struct dirent *f;
         d && (f = readdir(d));) { // NOLINT(concurrency-mt-unsafe): own stream
        char *name = NULL, *folder = NULL;
        if (f->d_name[0] == '.' ||
            asprintf(&name, "%s%s%s", below, *below ? "/" : "", f->d_name) < 0)
            continue;
        if ((folder = folder_of(m, name)))
            fn(arg, name);
        else if (depth > 0)
            each_in(m, name, depth - 1, fn, arg);
        free(folder);
        free(name);
    }
    if (d)
        closedir(d);
    free(path);
}

bool models_known(const struct models *m, const char *name)
{
    char *folder = m ? folder_of(m, name) : NULL;
    free(folder);
    return folder != NULL;
}

void models_each(const struct models *m, void (*fn)(void *arg, const char *name), void *arg)
{
    if (m)
        each_in(m, "", 1, fn, arg);
}

/* ---------------------------------------------------------------- holding */

/* Adds a model at its first request; with the lock. */
static struct model *want(struct models *m, const char *name, struct err *e)
{
    char *folder = folder_of(m, name);
    struct model *q = folder ? calloc(1, sizeof(*q)) : NULL;
    if (!folder) {
        err_set(e, ERR_NO_MODEL, "The model `%.200s` does not exist", name);
        return NULL;
    }
    if (!q || !(q->name = strdup(name))) {
        err_nomem(e);
        free(q);
        free(folder);
        return NULL;
    }
    q->models = m;
    q->folder = folder;
    q->last = &q->first;
    struct model **end = &m->list;
    while (*end)
        end = &(*end)->next;
    *end = q;
    return q;
}

static int hold(struct models *m, const char *name, struct models_wait *w, struct edge **g,
                struct err *e)
{
    struct model *q = find(m, name);
    if (q && q->state == MODEL_LOADED) {
        q->users++;
        *g = &q->edge;
        return 1;
    }
    if (m->closed)
        return err_set(e, ERR_UNHEALTHY, "the server is shutting down");
    if (!q && !(q = want(m, name, e)))
        return -1;
    w->next = NULL;
    *q->last = w;
    q->last = &w->next;
    models_ring(m);
    return 0;
}

int models_hold(struct edge *first, const char *name, struct models_wait *w, struct edge **g,
                struct err *e)
{
    struct models *m = first->models;
    if (models_first(first, name)) {
        *g = first;
        return 1;
    }
    if (!m)
        return err_set(e, ERR_NO_MODEL, "model '%.200s' is not served here", name);
    pthread_mutex_lock(&m->lock);
    int rc = hold(m, name, w, g, e);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

struct edge *models_peek(struct edge *first, const char *name)
{
    struct models *m = first->models;
    if (models_first(first, name))
        return first;
    if (!m)
        return NULL;
    pthread_mutex_lock(&m->lock);
    struct model *q = find(m, name);
    bool loaded = q && q->state == MODEL_LOADED;
    if (loaded)
        q->users++;
    pthread_mutex_unlock(&m->lock);
    return loaded ? &q->edge : NULL;
}

void models_release(struct edge *g)
{
    if (edge_home(g) == g)
        return;
    struct model *q = (struct model *)g;
    struct models *m = q->models;
    pthread_mutex_lock(&m->lock);
    q->used_ms = clock_ms();
    if (--q->users == 0) /* a request may wait for its slot */
        models_ring(m);
    pthread_mutex_unlock(&m->lock);
}

static void end_wait(struct models_wait *w, struct edge *g, const struct err *why)
{
    for (struct models_wait *next; w; w = next) {
        next = w->next; /* a notified waiter may be freed */
        w->ready(w, g, why);
    }
}

void models_notify(struct models *m, struct model *q, const struct err *why)
{
    struct models_wait *w = q->first;
    q->first = NULL;
    q->last = &q->first;
    for (const struct models_wait *v = w; v && !why; v = v->next)
        q->users++;
    pthread_mutex_unlock(&m->lock);
    end_wait(w, why ? NULL : &q->edge, why);
    pthread_mutex_lock(&m->lock);
}

/* Calls `notify` for every scheduler that has requests or may get some. */
static void notify_loaded(struct models *m, void (*notify)(struct fleet *f, const char *why),
                          const char *why)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    for (struct model *q = m->list; q; q = q->next)
        if (q->state == MODEL_LOADED || (q->state == MODEL_LEAVING && q->users))
            notify(q->fleet, why);
    pthread_mutex_unlock(&m->lock);
}

void models_drain(struct models *m)
{
    notify_loaded(m, fleet_drain, "the server is shutting down");
}
void models_fail(struct models *m, const char *why) { notify_loaded(m, fleet_fail, why); }

void models_close(struct models *m)
{
    struct err e = ERR_INIT;
    if (!m)
        return;
    struct models_wait *all = NULL, **end = &all;
    err_set(&e, ERR_UNHEALTHY, "the server is shutting down");
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    for (struct model *q = m->list; q; q = q->next) {
        *end = q->first;
        end = q->first ? q->last : end;
        q->first = NULL;
        q->last = &q->first;
    }
    pthread_mutex_unlock(&m->lock);
    end_wait(all, NULL, &e);
}
