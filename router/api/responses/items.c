#include "router/api/responses/items.h"
#include "common/json/exact.h"
#include "common/json/json.h"
#include <stdlib.h>
#include <string.h>

enum argument { ORDER, LIMIT, AFTER }; /* ITEM_ARGUMENTS */
enum { LIMIT_MOST = 100, LIMIT_USUAL = 20 };

int items_append(struct item_list *to, const char *json, const char *member, struct err *e)
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

/* At most `most` items behind `after` (NULL: from the start), from the end on if `down`. -1: no
 * item has that id. */
static int write_list(struct call *c, const struct item_list *all, bool down, unsigned long most,
                      const char *after)
{
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
    buf_ch(&c->out, ']');
    write_id(&c->out, "first_id", first);
    write_id(&c->out, "last_id", last);
    buf_fmt(&c->out, ",\"has_more\":%s}", left ? "true" : "false");
    return begun ? 0 : -1;
}

void items_whole(struct call *c, const struct item_list *all)
{
    (void)write_list(c, all, false, all->n, NULL);
}

int items_page(struct call *c, const struct item_list *all, struct err *e)
{
    const char *after = c->arguments[AFTER], *limit = c->arguments[LIMIT];
    const char *order = c->arguments[ORDER] ? c->arguments[ORDER] : "desc";
    const bool down = !strcmp(order, "desc");
    const unsigned long most = limit ? strtoul(limit, NULL, 10) : LIMIT_USUAL;
    if (!down && strcmp(order, "asc") != 0)
        return err_set(e, ERR_VALIDATION, "`order` must be `asc` or `desc`");
    if (most < 1 || most > LIMIT_MOST)
        return err_set(e, ERR_VALIDATION, "`limit` must be between 1 and %d", LIMIT_MOST);
    if (write_list(c, all, down, most, after) != 0)
        return err_set(e, ERR_VALIDATION, "`after`: there is no item `%.70s`", after);
    return 0;
}
