/* The Responses API over WebSocket: what a socket keeps of its last response, so that the next one
 * can continue it although nothing is stored. */
#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/responses/conversations.h"
#include <stdlib.h>
#include <string.h>

struct last {          /* the value of c->shared */
    char id[STORE_ID]; /* of the last response */
    bool stored;       /* it is in the store, too, whose chain goes on */
    char *items;       /* the conversation up to it, as JSON */
};

static void free_last(void *value)
{
    struct last *l = value;
    free(l->items);
    free(l);
}

int socket_message(struct call *c, struct err *e)
{
    const char *type = body_text(c->body.p, c->body.len, "type", &c->arena);
    if (type && !strcmp(type, "response.processed")) /* Codex acknowledges what it has read */
        return 1;
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
    const struct last *l = c->shared->value;
    if (!l || strcmp(l->id, id) != 0 || (l->stored && c->owner))
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
    const struct last *l = p->remembered ? c->shared->value : NULL;
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
    struct last *l = c->shared->value ? c->shared->value : calloc(1, sizeof(*l));
    struct buf output = BUF_INIT, all = BUF_INIT;
    if (!l)
        return;
    c->shared->value = l;
    c->shared->free = free_last;
    free(l->items);
    l->items = NULL;
    l->id[0] = 0;
    responses_output(&output, c);
    if (!output.oom && strlen(p->whole) + output.len <= CONVERSATION_BYTES &&
        conversation_join(p->whole, output.p, &all) == 0 && (l->items = buf_take(&all)))
        snprintf(l->id, sizeof(l->id), "%s", p->id);
    l->stored = p->store;
    buf_free(&output);
    buf_free(&all);
}
