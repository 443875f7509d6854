#include "router/chat/call_ids.h"
#include "common/json/json.h"
#include <stdio.h>
#include <string.h>

enum { IDS = 100000, MOST_LOOKED_AT = 512 }; /* no message has so many calls */

/* Appends an id to a list, which is created. NULL: out of memory. */
static const char *append(cJSON **list, const char *id, const char *function)
{
    cJSON *entry = cJSON_CreateObject();
    if (!*list)
        *list = cJSON_CreateArray();
    if (!cJSON_AddStringToObject(entry, "id", id) ||
        !cJSON_AddStringToObject(entry, "function", function) ||
        !cJSON_AddItemToArray(*list, entry)) {
        cJSON_Delete(entry);
        return NULL;
    }
    return json_str(entry, "id", "");
}

const char *call_ids_open(struct call_ids *c, const char *given, const char *function)
{
    char id[16];
    snprintf(id, sizeof(id), "call%05u", c->n++ % IDS);
    const char *kept = append(&c->waiting, given ? given : id, function);
    return kept ? kept : "";
}

/* The oldest entry whose member is `value`; NULL: any. */
static cJSON *find(const struct call_ids *c, const char *member, const char *value)
{
    cJSON *k = c->waiting ? c->waiting->child : NULL;
    for (int i = 0; k && i < MOST_LOOKED_AT; i++, k = k->next)
        if (!value || !strcmp(json_str(k, member, ""), value))
            return k;
    return NULL;
}

const char *call_ids_answer(struct call_ids *c, const char *given, const char *function)
{
    cJSON *entry = given ? find(c, "id", given) : find(c, "function", function);
    if (!entry && !given)
        entry = find(c, NULL, NULL);
    if (!c->answered)
        c->answered = cJSON_CreateArray();
    if (entry && c->answered)
        cJSON_AddItemToArray(c->answered, cJSON_DetachItemViaPointer(c->waiting, entry));
    return given ? given : json_str(entry, "id", "");
}

void call_ids_free(struct call_ids *c)
{
    cJSON_Delete(c->waiting);
    cJSON_Delete(c->answered);
    *c = (struct call_ids){0};
}
