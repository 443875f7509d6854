#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/responses/stored.h"
#include "router/http/route.h"
#include <stdlib.h>
#include <string.h>

enum argument { ORDER, LIMIT, AFTER };
enum { LIMIT_MOST = 100, LIMIT_USUAL = 20 };

struct items {
    cJSON *all; /* all items in one list */
    uint32_t n;
};

static int append(struct items *to, const char *json, const char *member, struct err *e)
{
    cJSON *tree = json_parse_exact(json, strlen(json), e);
    cJSON *list = member ? cJSON_DetachItemFromObjectCaseSensitive(tree, member) : tree;
    for (cJSON *k; list && (k = cJSON_DetachItemFromArray(list, 0)); to->n++)
        cJSON_AddItemToArray(to->all, k);
    if (member)
        cJSON_Delete(tree);
    cJSON_Delete(list);
    return list ? 0 : -1;
}

static void write_id(struct buf *out, const char *name, const cJSON *item)
{
    const char *id = json_str(item, "id", NULL);
    buf_fmt(out, ",\"%s\":", name);
    if (id)
        buf_json_str(out, id, strlen(id));
    else
        buf_str(out, "null");
}

/* A page of the list, newest first by default. */
static int write_page(struct call *c, const struct items *all, struct err *e)
{
    const char *after = c->arguments[AFTER], *limit = c->arguments[LIMIT];
    const char *order = c->arguments[ORDER] ? c->arguments[ORDER] : "desc";
    const bool down = !strcmp(order, "desc");
    const unsigned long most = limit ? strtoul(limit, NULL, 10) : LIMIT_USUAL;
    if (!down && strcmp(order, "asc") != 0)
        return err_set(e, ERR_VALIDATION, "`order` must be `asc` or `desc`");
    if (most < 1 || most > LIMIT_MOST)
        return err_set(e, ERR_VALIDATION, "`limit` must be between 1 and %d", LIMIT_MOST);
    const cJSON *end = all->all->child, *first = NULL, *last = NULL, *k;
    const cJSON *k0 = end && down ? end->prev : end;
    bool begun = !after;
    uint32_t n = 0, left = all->n;
    buf_str(&c->out, "{\"object\":\"list\",\"data\":[");
    for (k = k0; k && left > 0 && n < most; left--, k = down ? k->prev : k->next) {
        if (begun) {
            buf_str(&c->out, n++ ? "," : "");
            json_print_exact(&c->out, k);
            first = first ? first : k;
            last = k;
        }
        begun |= after && !strcmp(json_str(k, "id", ""), after);
    }
    if (!begun)
        return err_set(e, ERR_VALIDATION, "`after`: there is no item `%.70s`", after);
    buf_ch(&c->out, ']');
    write_id(&c->out, "first_id", first);
    write_id(&c->out, "last_id", last);
    buf_fmt(&c->out, ",\"has_more\":%s}", left ? "true" : "false");
    return 0;
}

/* All input items: the earlier conversation, and the request's own. */
static int write_items(struct call *c, const struct store_job *j, struct err *e)
{
    struct items all = {cJSON_CreateArray(), 0};
    int rc = 0;
    for (uint32_t i = 0; i < j->n_found && rc == 0; i++) {
        rc = append(&all, j->found[i].input, NULL, e);
        if (rc == 0 && i + 1 < j->n_found)
            rc = append(&all, j->found[i].response, "output", e);
    }
    rc = rc ? rc : write_page(c, &all, e);
    cJSON_Delete(all.all);
    return rc;
}

static int work(struct call *c, struct err *e)
{
    const bool items = strchr(c->path + strlen("/v1/responses/"), '/') != NULL;
    const struct store_job *j;
    const int rc =
        stored_find(c, items ? "/input_items" : "", items ? STORE_CHAIN : STORE_GET, &j, e);
    if (rc != 0)
        return rc;
    if (items)
        return write_items(c, j, e);
    stored_write(&j->found[0], &c->out);
    return 0;
}

const struct route route_responses_get = {
    .method = "GET",
    .paths = {"/v1/responses/*"},
    .errors = ERRORS_OPENAI,
    .arguments = {"order", "limit", "after"},
    .summary = "A stored response (with `--response-store`), also while it is made in the "
               "background; with `/input_items` behind it, what the model was given, as a list "
               "(`order`, `limit`, `after`).",
    .work = work,
};
