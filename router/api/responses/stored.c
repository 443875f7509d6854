#include "router/api/responses/stored.h"
#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/responses/conversations.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- look-ups */

/* Store thread. */
static void on_answer(struct store_job *j)
{
    struct call *c = j->arg;
    workers_submit(edge_home(c->edge)->workers, &c->job);
}

static void clear_job(void *arg) { store_job_clear(arg); }

int stored_ask(struct call *c, const struct store_job *what, struct err *e)
{
    struct store_job *j = ARENA_NEW(&c->arena, struct store_job, 1);
    if (!j) {
        struct store_job given = *what;
        store_job_clear(&given);
        return err_nomem(e);
    }
    *j = *what;
    if (arena_defer(&c->arena, clear_job, j) != 0) {
        store_job_clear(j);
        return err_nomem(e);
    }
    j->done = on_answer;
    j->arg = c;
    snprintf(j->owner, sizeof(j->owner), "%s", c->owner);
    c->state = j;
    store_submit(edge_home(c->edge)->store, j);
    return CALL_LATER;
}

bool stored_answer(struct call *c, const struct store_job **out, int *rc, struct err *e)
{
    struct store_job *j = c->state;
    if (!j)
        return false;
    c->state = NULL;
    *out = j;
    *rc = j->err.kind == ERR_NONE ? 0 : -1;
    if (*rc != 0)
        *e = j->err;
    return true;
}

int stored_can(const struct call *c, const char *id, struct err *e)
{
    if (!c->owner)
        return err_set(e, ERR_NOT_FOUND, "nothing is stored here: see --response-store");
    return strlen(id) < STORE_ID ? 0 : store_missing(id, e);
}

static int ask_store(struct call *c, enum store_kind kind, const char *id,
                     const struct store_job **out, struct err *e)
{
    int rc = 0;
    if (stored_answer(c, out, &rc, e))
        return rc;
    if (stored_can(c, id, e) != 0)
        return -1;
    struct store_job j = {.kind = kind};
    snprintf(j.what.id, sizeof(j.what.id), "%s", id);
    return stored_ask(c, &j, e);
}

/* The id in the path, of *n bytes. */
static const char *id_in_path(const struct call *c, size_t *n)
{
    const char *id = c->path + strlen("/v1/responses/");
    *n = strcspn(id, "/");
    return id;
}

int stored_find(struct call *c, const char *rest, enum store_kind kind,
                const struct store_job **out, struct err *e)
{
    size_t n;
    const char *from = id_in_path(c, &n);
    if (strcmp(from + n, rest) != 0)
        return err_set(e, ERR_NOT_FOUND, "there is no such path");
    const char *id = arena_strdup(&c->arena, from, n);
    if (id && store_is_conversation(id))
        return err_set(e, ERR_NOT_FOUND, "Response with id '%.70s' not found.", id);
    return id ? ask_store(c, kind, id, out, e) : err_nomem(e);
}

void stored_write(const struct stored *v, struct buf *out)
{
    struct err ignored;
    cJSON *r = v->state == STORED_LOST
                   ? json_parse_exact(v->response, strlen(v->response), &ignored)
                   : NULL;
    if (!r) {
        buf_str(out, v->response);
        return;
    }
    cJSON *why = cJSON_CreateObject();
    cJSON_AddStringToObject(why, "code", "server_error");
    cJSON_AddStringToObject(why, "message",
                            "the server was restarted meanwhile, or could not store the response");
    cJSON_ReplaceItemInObjectCaseSensitive(r, "error", why);
    cJSON_ReplaceItemInObjectCaseSensitive(r, "status", cJSON_CreateString("failed"));
    json_print_exact(out, r);
    cJSON_Delete(r);
}

/* ---------------------------------------------------------------- conversations */

struct history {
    cJSON *v[2 * STORE_CHAIN_MAX];
    uint32_t n;
};

static void free_history(void *arg)
{
    struct history *h = arg;
    for (uint32_t i = 0; i < h->n; i++)
        cJSON_Delete(h->v[i]);
    free(h);
}

/* The id of what the body continues, a response or a conversation, before the body is parsed; NULL:
 * none. With both the response's: the parser refuses that. */
static const char *continued(struct call *c)
{
    static const char previous[] = "\"previous_response_id\"", talk[] = "\"conversation\"";
    struct err ignored;
    if (!c->body.len || (!memmem(c->body.p, c->body.len, previous, sizeof(previous) - 1) &&
                         !memmem(c->body.p, c->body.len, talk, sizeof(talk) - 1)))
        return NULL;
    cJSON *body = json_parse(c->body.p, c->body.len, &ignored);
    const char *id = json_str(body, "previous_response_id", NULL);
    id = id ? id : stored_conversation(json_get(body, "conversation"));
    id = id ? arena_strdup(&c->arena, id, strlen(id)) : NULL;
    cJSON_Delete(body);
    return id;
}

static int read_history(struct call *c, const struct store_job *j, struct responses *p,
                        struct err *e)
{
    struct history *h = calloc(1, sizeof(*h));
    if (!h || arena_defer(&c->arena, free_history, h) != 0) {
        free(h);
        return err_nomem(e);
    }
    for (uint32_t i = 0; i < j->n_found; i++) {
        const struct stored *v = &j->found[i];
        if (v->state == STORED_RUNNING)
            return err_set(e, ERR_VALIDATION,
                           "`previous_response_id`: the response '%.70s' is still in progress",
                           v->id);
        cJSON *input = json_parse_exact(v->input, strlen(v->input), e);
        h->v[h->n++] = input;
        if (input && store_is_conversation(v->id))
            continue;
        cJSON *response = input ? json_parse_exact(v->response, strlen(v->response), e) : NULL;
        cJSON *output = cJSON_DetachItemFromObjectCaseSensitive(response, "output");
        cJSON_Delete(response);
        h->v[h->n++] = output;
        if (!input || !output)
            return err_wrap(e, "the stored response %s", v->id);
    }
    p->history = (const cJSON *const *)h->v;
    p->n_history = h->n;
    return 0;
}

int stored_recall(struct call *c, struct responses *p, struct err *e)
{
    const struct store_job *j = NULL;
    const char *id = (c->owner || c->shared) && !c->state ? continued(c) : NULL;
    if (!c->state && !id)
        return 0;
    if (c->shared && id && !store_is_conversation(id)) {
        if (socket_recall(c, id, p, e) != 0)
            return -1;
        if (!p->remembered && !c->owner)
            return err_set(e, ERR_NO_PREVIOUS,
                           "`previous_response_id`: Response with id '%.70s' not found.", id);
    }
    if (p->remembered || !c->owner)
        return 0;
    const int rc = ask_store(c, STORE_CHAIN, id ? id : "", &j, e);
    if (rc == -1 && e->kind == ERR_NOT_FOUND &&
        !store_is_conversation(j    ? j->what.id
                               : id ? id
                                    : "")) {
        struct err why = *e;
        return err_set(e, ERR_NO_PREVIOUS, "`previous_response_id`: %.200s", why.msg);
    }
    return rc ? rc : read_history(c, j, p, e);
}

/* ---------------------------------------------------------------- loop thread */

static struct responses *own(const struct call *c)
{
    return ((struct openai *)c->state)->responses;
}

/* NULL: out of memory. */
static struct store_job *put_job(const struct call *c, const char *status, const struct err *why)
{
    struct responses *p = own(c);
    const struct openai *o = c->state;
    struct store_job *j = calloc(1, sizeof(*j));
    struct buf out = BUF_INIT;
    responses_object(&out, c, status, why);
    char *input = strdup(p->input);
    if (!j || !input || out.oom) {
        free(j), free(input), buf_free(&out);
        return NULL;
    }
    j->kind = STORE_PUT;
    snprintf(j->owner, sizeof(j->owner), "%s", c->owner);
    snprintf(j->what.id, sizeof(j->what.id), "%s", o->id);
    const char *previous = p->previous && !p->remembered ? p->previous : "";
    snprintf(j->what.previous, sizeof(j->what.previous), "%s", previous);
    j->what.state = !strcmp(status, "in_progress") ? STORED_RUNNING : STORED_ENDED;
    j->what.response = buf_take(&out);
    j->what.input = input;
    return j;
}

void stored_keep(struct call *c, const char *status, const struct err *why)
{
    struct store_job *j = put_job(c, status, why);
    if (j)
        store_submit(edge_home(c->edge)->store, j);
}

void stored_extend(struct call *c)
{
    struct responses *p = own(c);
    struct store_job *j = calloc(1, sizeof(*j));
    struct buf items = BUF_INIT, output = BUF_INIT;
    responses_output(&output, c);
    const bool ok = !output.oom && conversation_join(p->input, output.p, &items) == 0;
    buf_free(&output);
    if (!j || !ok) {
        free(j), buf_free(&items);
        return;
    }
    j->kind = STORE_EDIT;
    j->edit = conversation_append;
    snprintf(j->owner, sizeof(j->owner), "%s", c->owner);
    snprintf(j->what.id, sizeof(j->what.id), "%s", p->conversation);
    j->what.input = buf_take(&items);
    store_submit(edge_home(c->edge)->store, j);
}

/* Store thread. */
static void on_begun(struct store_job *j) { call_resume(j->arg); }

/* -1: the response was not stored, and could not be read. */
static int read_begun(struct call *c, struct store_job *j)
{
    const struct err why = j->err;
    store_job_clear(j);
    free(j);
    if (why.kind == ERR_NONE)
        return 0;
    return err_set(&c->err, why.kind, "the response cannot be stored: %.300s", why.msg);
}

/* Before the answer, which has the id, the response is in the store. */
bool stored_begin(struct call *c)
{
    struct edge *home = edge_home(c->edge);
    struct responses *p = own(c);
    if (!p->begun && (p->begun = put_job(c, "in_progress", NULL))) {
        p->begun->done = on_begun;
        p->begun->arg = c;
        c->busy = true;
        c->detached = true;
        store_submit(home->store, p->begun);
        return false;
    }
    if ((p->begun ? read_begun(c, p->begun) : err_nomem(&c->err)) != 0) {
        c->failed = true;
        c->detached = false;
        return true;
    }
    p->call = c;
    p->next = home->background;
    home->background = p;
    if (!c->stream)
        responses_object(&c->out, c, "queued", NULL);
    return true;
}

void stored_end(struct call *c)
{
    struct responses **at = &edge_home(c->edge)->background;
    while (*at && (*at)->call != c)
        at = &(*at)->next;
    if (*at)
        *at = (*at)->next;
}

struct call *stored_running(const struct call *c)
{
    size_t n;
    const char *id = id_in_path(c, &n);
    for (struct responses *p = edge_home(c->edge)->background; p; p = p->next)
        if (strlen(p->id) == n && !memcmp(p->id, id, n) && !strcmp(p->call->owner, c->owner))
            return p->call;
    return NULL;
}
