/* items.h - lists of items as clients read them, in pages. */
#ifndef ROUTER_API_RESPONSES_ITEMS_H
#define ROUTER_API_RESPONSES_ITEMS_H
#include "router/call/call.h"
#include <cjson/cJSON.h>

/* The query arguments that items_page() reads: route.arguments. */
#define ITEM_ARGUMENTS                                                                             \
    {                                                                                              \
        "order", "limit", "after"                                                                  \
    }

struct item_list {
    cJSON *all; /* the caller deletes it */
    uint32_t n;
};

/* Appends the items in `json`, a list, or an object whose `member` is the list. -1: it is none. */
int items_append(struct item_list *to, const char *json, const char *member, struct err *e);
/* Writes a page of the list to c->out, newest first unless the query says otherwise.
 * ERR_VALIDATION. */
int items_page(struct call *c, const struct item_list *all, struct err *e);
/* Writes the whole list, in its order. */
void items_whole(struct call *c, const struct item_list *all);
#endif
