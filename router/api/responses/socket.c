/* The Responses API over WebSocket: what a socket keeps of its last response, so that the next one
 * can continue it although nothing is stored. */
#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/responses/conversations.h"
#include <stdlib.h>
#include <string.h>

enum { MEMORY_BYTES = CONVERSATION_BYTES / 4 };
enum { REMEMBERED = 8 }; /* streams of one socket (`stream_id`) continue each its own */

struct last { /* one response that can be continued */
    char id[STORE_ID];
    bool stored; /* it is in the store, too, whose chain goes on */
    char *items; /* the conversation up to it, as JSON; NULL: none */
};
struct memory { /* the value of c->shared */
    struct last last[REMEMBERED];
    uint32_t next; /* the oldest, which the next response replaces */
};

static void free_memory(void *value)
{
    struct memory *m = value;
    for (int i = 0; i < REMEMBERED; i++)
        free(m->last[i].items);
    free(m);
}

static const struct last *find(const struct call *c, const char *id)
{
    const struct memory *m = c->shared->value;
    for (int i = 0; m && i < REMEMBERED; i++)
        if (m->last[i].items && !strcmp(m->last[i].id, id))
            return &m->last[i];
    return NULL;
}

/* Input for a response that is being made is not taken; the client sends it with the next one. */
static int refuse_steering(struct call *c, struct err *e)
{
    cJSON *body = json_parse_exact(c->body.p, c->body.len, e), *steer;
    cJSON *answer = body ? cJSON_CreateObject() : NULL;
    if (!body)
        return -1;
    cJSON_AddStringToObject(answer, "type", "response.steer.failed");
    cJSON_AddNumberToObject(answer, "sequence_number", 0);
    cJSON *why = cJSON_AddObjectToObject(answer, "error");
    cJSON_AddStringToObject(why, "type", "invalid_request_error");
    cJSON_AddStringToObject(why, "code", "steering_not_supported");
    cJSON_AddStringToObject(why, "message", "a response takes no input while it is made");
    steer = cJSON_AddObjectToObject(answer, "steer");
    static const char *const given[] = {"previous_response_id", "input"};
    for (int i = 0; i < 2; i++)
        cJSON_AddItemToObject(steer, given[i],
                              cJSON_DetachItemFromObjectCaseSensitive(body, given[i]));
    json_print_exact(&c->out, answer);
    cJSON_Delete(answer);
    cJSON_Delete(body);
    return c->out.oom ? err_nomem(e) : 1;
}

int socket_message(struct call *c, struct err *e)
{
    const char *type = body_text(c->body.p, c->body.len, "type", &c->arena);
    c->lane = body_text(c->body.p, c->body.len, "stream_id", &c->arena);
    if (type && !strcmp(type, "response.processed")) /* Codex acknowledges what it has read */
        return 1;
    if (type && !strcmp(type, "response.steer"))
        return refuse_steering(c, e);
    if (!type || !strcmp(type, "response.create")) /* none: the parser says what is missing */
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "`type` of a message must be `response.create`, with the members of a request "
                   "beside it. Given: `%.60s`",
                   type);
}

static void free_items(void *arg) { cJSON_Delete(arg); }

int socket_recall(struct call *c, const char *id, struct responses *p, struct err *e)
{
    const struct last *l = find(c, id);
    if (!l || (l->stored && c->owner))
        return 0;
    const cJSON **list = ARENA_NEW(&c->arena, const cJSON *, 1);
    cJSON *items = json_parse_exact(l->items, strlen(l->items), e);
    if (!items)
        return -1;
    if (!list || arena_defer(&c->arena, free_items, items) != 0) {
        cJSON_Delete(items);
        return err_nomem(e);
    }
    *list = items;
    p->history = list;
    p->n_history = 1;
    p->remembered = true;
    return 0;
}

/* The items of the history and of the request. NULL: out of memory. */
static const char *join(struct call *c, const struct responses *p)
{
    struct buf all = BUF_INIT, earlier = BUF_INIT;
    const struct last *l = p->remembered ? find(c, p->previous) : NULL;
    const char *text = NULL;
    bool ok = true;
    buf_str(&earlier, l ? l->items : "[");
    for (uint32_t i = 0; !l && i < p->n_history; i++)
        for (const cJSON *k = json_first(p->history[i]); k; k = k->next) {
            buf_str(&earlier, earlier.len > 1 ? "," : "");
            json_print_exact(&earlier, k);
        }
    buf_str(&earlier, l ? "" : "]");
    ok = !earlier.oom && conversation_join(earlier.p, p->input, &all) == 0;
    text = ok ? arena_strdup(&c->arena, all.p, all.len) : NULL;
    buf_free(&earlier);
    buf_free(&all);
    return text;
}

void socket_read(struct call *c, struct body *b, struct object root, struct openai *o,
                 struct responses *p)
{
    (void)body_str(b, root, "type", true);
    p->lane = c->lane;
    o->stream = true;
    p->warm = !body_opt_bool(b, root, "generate", true);
    if (p->background)
        body_fail(b, root, "background", "`background` is not supported on a WebSocket");
    if (!b->failed && !(p->whole = join(c, p)))
        body_nomem(b, root, "input");
    /* what it continues is not stored, so that its own items are the whole conversation */
    if (p->store && p->remembered)
        p->input = p->whole;
}

void socket_keep(struct call *c)
{
    const struct responses *p = ((struct openai *)c->state)->responses;
    struct memory *m = c->shared->value ? c->shared->value : calloc(1, sizeof(*m));
    struct buf output = BUF_INIT, all = BUF_INIT;
    if (!m)
        return;
    c->shared->value = m;
    c->shared->free = free_memory;
    struct last *l = &m->last[m->next++ % REMEMBERED];
    free(l->items);
    l->items = NULL;
    l->stored = p->store;
    snprintf(l->id, sizeof(l->id), "%s", p->id);
    responses_output(&output, c);
    if (!output.oom && strlen(p->whole) + output.len <= MEMORY_BYTES &&
        conversation_join(p->whole, output.p, &all) == 0)
        l->items = buf_take(&all);
    buf_free(&output);
    buf_free(&all);
}
