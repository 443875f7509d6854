/* The models thread: loads one model after the other; the launcher starts the shards. */
#include "common/clock.h"
#include "common/gguf/projector.h"
#include "common/log/log.h"
#include "common/vision/vision.h"
#include "router/chat/chat.h"
#include "router/models/registry.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE_MAX = 4096, LOOK_AGAIN_MS = 50 };

/* ---------------------------------------------------------------- the launcher */

static void on_message(struct models *m, const char *text)
{
    char word[16];
    unsigned slot = 0;
    int at = 0;
    if (sscanf(text, "%15s %u %n", word, &slot, &at) < 2 || slot >= m->n_slots)
        return;
    struct slot *s = &m->slots[slot];
    bool ready = !strcmp(word, "ready");
    if (s->state == SLOT_FREE || (ready && s->state == SLOT_UNLOADING)) /* too late */
        return;
    snprintf(s->detail, sizeof(s->detail), "%s", text + at);
    s->state = ready                        ? SLOT_READY
               : !strcmp(word, "gone")      ? SLOT_FREE
               : s->state == SLOT_UNLOADING ? SLOT_FREE /* it failed while it was unloaded */
                                            : SLOT_FAILED;
}

/* Reads the launcher's messages; waits for one, or for the bell, at most timeout_ms. */
static void listen_to(struct models *m, int timeout_ms)
{
    struct pollfd fds[] = {{m->fd, POLLIN, 0}, {m->bell_fd, POLLIN, 0}};
    char text[MESSAGE_MAX];
    uint64_t count;
    ssize_t n;
    if (poll(fds, 2, timeout_ms) < 0)
        return;
    if (fds[1].revents && read(m->bell_fd, &count, sizeof(count)) < 0) {
        /* The counter is only reset. */
    }
    while ((n = recv(m->fd, text, sizeof(text) - 1, MSG_DONTWAIT)) > 0) {
        text[n] = 0;
        on_message(m, text);
    }
}

static int send_command(struct models *m, const char *what, uint32_t slot, const char *folder,
                        struct err *e)
{
    char text[MESSAGE_MAX];
    int n = snprintf(text, sizeof(text), "%s %u %s", what, slot, folder);
    if (n >= (int)sizeof(text))
        return err_set(e, ERR_VALIDATION, "too long a path: %s", folder);
    return send(m->fd, text, (size_t)n, MSG_NOSIGNAL) == n ? 0 : err_sys(e, "the launcher");
}

static bool stopping(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    bool stop = m->stop;
    pthread_mutex_unlock(&m->lock);
    return stop;
}

/* ---------------------------------------------------------------- unloading */

/* Its shards have ended, or no request can wait for that any more. */
static void clear_slot(struct models *m, uint32_t slot)
{
    struct err e = ERR_INIT;
    struct slot *s = &m->slots[slot];
    if (s->state == SLOT_FAILED) /* the launcher has already stopped it */
        s->state = SLOT_FREE;
    if (s->state == SLOT_FREE)
        return;
    s->state = SLOT_UNLOADING;
    if (send_command(m, "unload", slot, "", &e) != 0)
        return;
    while (s->state != SLOT_FREE && !stopping(m))
        listen_to(m, LOOK_AGAIN_MS);
}

static void drop_parts(struct model *q)
{
    fleet_stop(q->fleet);
    sentence_free(&q->edge.sentence);
    defaults_free(&q->edge.defaults);
    chat_free(q->chat);
    vision_free(q->vision);
    tokenizer_free(q->tokenizer);
    q->fleet = NULL;
    q->chat = NULL;
    q->vision = NULL;
    q->tokenizer = NULL;
}

static void model_free(struct model *q)
{
    free(q->name);
    free(q->folder);
    free(q);
}

/* Unloads a model that no request holds. */
static void leave(struct models *m, struct model *q)
{
    LOG(LOG_INFO, "Unloading model", LOGS("model", q->name));
    drop_parts(q);
    clear_slot(m, q->slot);
    pthread_mutex_lock(&m->lock);
    struct model **at = &m->list;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    pthread_mutex_unlock(&m->lock);
    model_free(q);
}

/* A lost model is unloaded once no request holds it; `spare`: also the least recently used one. It
 * is returned in the state LEAVING, owned by the caller. */
static struct model *take_leaver(struct models *m, bool spare)
{
    struct model *out = NULL;
    pthread_mutex_lock(&m->lock);
    for (struct model *q = m->list; q; q = q->next) {
        if (q->state == MODEL_LOADED && (q->lost || m->slots[q->slot].state == SLOT_FAILED)) {
            q->state = MODEL_LEAVING;
            fleet_drain(q->fleet, "they are not started again");
        }
        if (q->users || (q->state != MODEL_LEAVING && (q->state != MODEL_LOADED || !spare)))
            continue;
        if (!out || q->state == MODEL_LEAVING || q->used_ms < out->used_ms)
            out = q;
        if (q->state == MODEL_LEAVING)
            break;
    }
    if (out)
        out->state = MODEL_LEAVING;
    pthread_mutex_unlock(&m->lock);
    return out;
}

/* ---------------------------------------------------------------- loading */

static void on_lost(void *arg, const char *why)
{
    struct model *q = arg; /* the next request loads it again */
    LOG(LOG_ERROR, "Model lost", LOGS("model", q->name), LOGS("why", why));
    pthread_mutex_lock(&q->models->lock);
    q->lost = true;
    models_ring(q->models);
    pthread_mutex_unlock(&q->models->lock);
}

static void build_edge(struct models *m, struct model *q)
{
    const struct edge *home = m->home;
    struct edge *g = &q->edge;
    g->home = m->home;
    g->config = home->config;
    g->metrics = home->metrics;
    g->traffic = home->traffic;
    g->tracer = home->tracer;
    g->workers = home->workers;
    g->http = home->http;
    g->lmtp = home->lmtp;
    g->compute_type = home->compute_type;
    g->started_unix = home->started_unix;
    g->has_keys = home->has_keys;
    memcpy(g->fingerprint, home->fingerprint, sizeof(g->fingerprint));
    edge_set_text(g, q->tokenizer, q->chat);
    g->vision = q->vision;
    g->model_id = q->name;
    admission_init(&g->admission, home->config->max_concurrent_requests);
    edge_open(g, q->fleet);
}

/* Its shards were lost in the router's warm-up. The launcher starts others, and says if not. */
static bool shards_return(void *arg)
{
    struct model *q = arg;
    listen_to(q->models, LOOK_AGAIN_MS);
    return q->models->slots[q->slot].state == SLOT_READY && !stopping(q->models);
}

static int start_shards(struct models *m, struct model *q, struct err *e)
{
    struct slot *s = &m->slots[q->slot];
    char target[512];
    s->state = SLOT_LOADING;
    if (send_command(m, "load", q->slot, q->folder, e) != 0) {
        s->state = SLOT_FREE;
        return -1;
    }
    /* as the shards find it */
    if (!(q->folder = gguf_with_projector(q->folder, NULL, e)))
        return -1;
    /* The tokenizer and template load while the shards load their weights. */
    if (!(q->tokenizer = tokenizer_load(q->folder, e)) ||
        sentence_load(&q->edge.sentence, q->folder, e) ||
        edge_load_defaults(&q->edge, m->home->config, q->folder, e) ||
        !(q->chat = edge_load_chat(m->home->config, q->folder, NULL, q->tokenizer, e)) ||
        edge_load_vision(q->folder, q->tokenizer, q->chat, &q->vision, e) != 0)
        return -1;
    while (s->state == SLOT_LOADING && !stopping(m))
        listen_to(m, LOOK_AGAIN_MS);
    if (s->state != SLOT_READY)
        return err_set(e, ERR_GENERATION, "the model cannot be loaded: %.400s",
                       s->state == SLOT_FAILED ? s->detail : "the server is shutting down");
    snprintf(target, sizeof(target), "unix:%s", s->detail);
    struct fleet_config c = {.infer = edge_infer_config(m->home),
                             .targets = (const char *[]){target},
                             .n_targets = 1,
                             .returns = shards_return,
                             .returns_arg = q};
    c.infer.watchdog = m->home->watchdog;
    if (!(q->fleet = fleet_start(&c, e)))
        return s->state == SLOT_FAILED
                   ? err_set(e, ERR_GENERATION, "the model cannot be loaded: %.400s", s->detail)
                   : -1;
    fleet_on_lost(q->fleet, on_lost, q);
    return 0;
}

static void load(struct models *m, struct model *q, uint32_t slot)
{
    struct err e = ERR_INIT;
    int64_t t = clock_ms();
    q->slot = slot;
    LOG(LOG_INFO, "Loading model", LOGS("model", q->name));
    bool ok = start_shards(m, q, &e) == 0;
    if (ok)
        build_edge(m, q);
    else
        LOG(LOG_ERROR, "Model not loaded", LOGS("model", q->name), LOGS("why", e.msg));
    pthread_mutex_lock(&m->lock);
    q->used_ms = clock_ms();
    q->state = ok ? MODEL_LOADED : MODEL_LEAVING;
    models_notify(m, q, ok ? NULL : &e);
    pthread_mutex_unlock(&m->lock);
    if (ok)
        LOG(LOG_INFO, "Model loaded", LOGS("model", q->name), LOGI("ms", clock_ms() - t));
}

static struct model *take_load_request(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    struct model *q = m->list;
    while (q && q->state != MODEL_WANTED)
        q = q->next;
    pthread_mutex_unlock(&m->lock);
    return q;
}

static int free_slot(const struct models *m)
{
    for (uint32_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].state == SLOT_FREE)
            return (int)i;
    return -1;
}

static void *run(void *arg)
{
    struct models *m = arg;
    while (!stopping(m)) {
        struct model *load_request = take_load_request(m);
        int slot = free_slot(m);
        struct model *leaver = take_leaver(m, load_request && slot < 0);
        if (leaver)
            leave(m, leaver);
        else if (load_request && slot >= 0) {
            pthread_mutex_lock(&m->lock);
            load_request->state = MODEL_LOADING;
            pthread_mutex_unlock(&m->lock);
            load(m, load_request, (uint32_t)slot);
        } else {
            listen_to(m, load_request ? LOOK_AGAIN_MS : -1);
        }
    }
    for (struct model *q = m->list; q; q = q->next)
        drop_parts(q); /* the launcher stops the shards */
    return NULL;
}

/* ---------------------------------------------------------------- life */

/* It may be mounted later: a warning only. */
static void look_at_folder(const char *folder)
{
    char why[64];
    if (access(folder, R_OK | X_OK) != 0)
        LOG(LOG_WARN, "the folder of --models-folder cannot be read", LOGS("folder", folder),
            LOGS("error", strerror_r(errno, why, sizeof(why))));
}

struct models *models_new(struct edge *first, struct err *e)
{
    const struct router_config *c = first->config;
    if (!c->launcher_fd) {
        err_set(e, ERR_VALIDATION, "--models-folder needs the launcher, which starts the shards");
        return NULL;
    }
    struct models *m = calloc(1, sizeof(*m));
    if (m)
        m->slots = calloc(c->max_loaded_models, sizeof(*m->slots));
    if (!m || !m->slots) {
        free(m);
        err_nomem(e);
        return NULL;
    }
    m->home = first;
    m->folder = c->models_folder;
    look_at_folder(m->folder);
    m->fd = (int)c->launcher_fd;
    m->n_slots = c->max_loaded_models;
    m->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&m->lock, NULL);
    if (m->bell_fd >= 0 && pthread_create(&m->thread, NULL, run, m) == 0)
        return m;
    err_sys(e, "eventfd, thread of the models");
    pthread_mutex_destroy(&m->lock);
    free(m->slots);
    free(m);
    return NULL;
}

void models_stop(struct models *m)
{
    if (!m)
        return;
    models_close(m);
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_mutex_unlock(&m->lock);
    models_ring(m);
    pthread_join(m->thread, NULL);
}

void models_free(struct models *m)
{
    if (!m)
        return;
    for (struct model *q; (q = m->list);) {
        m->list = q->next;
        model_free(q);
    }
    close(m->bell_fd);
    pthread_mutex_destroy(&m->lock);
    free(m->slots);
    free(m);
}
