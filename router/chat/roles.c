#include "router/chat/roles.h"
#include "common/buf.h"
#include "common/json/json.h"
#include "router/chat/pictures.h"
#include <string.h>

static const char GAP[] = "\n\n";

static bool is_of(const cJSON *message, const char *role)
{
    return message && !strcmp(json_str(message, "role", ""), role);
}

static int set_role(cJSON *message, const char *role)
{
    return json_put(message, "role", cJSON_CreateString(role)) ? 0 : -1;
}

int roles_rename_developer(cJSON *message)
{
    return is_of(message, "developer") ? set_role(message, "system") : 0;
}

static int join_texts(cJSON *to, const char *more)
{
    const char *text = json_str(to, "content", "");
    struct buf b = BUF_INIT;
    buf_fmt(&b, "%s%s%s", text, *text && *more ? GAP : "", more);
    cJSON *joined = b.oom ? NULL : cJSON_CreateString(b.p);
    buf_free(&b);
    return json_put(to, "content", joined) ? 0 : -1;
}

/* Moves the parts of `from`, whose content is a list, behind those of `to`. */
static int join_parts(cJSON *to, cJSON *from)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(to, "content");
    cJSON *more = cJSON_GetObjectItemCaseSensitive(from, "content"), *part;
    cJSON *gap = picture_text_part(GAP);
    if (!gap || !cJSON_AddItemToArray(list, gap)) {
        cJSON_Delete(gap);
        return -1;
    }
    while ((part = cJSON_DetachItemFromArray(more, 0)))
        cJSON_AddItemToArray(list, part);
    return 0;
}

/* Appends the content of `from`, which the caller then deletes, to that of `to`. */
static int join(cJSON *to, cJSON *from)
{
    const cJSON *a = json_get(to, "content"), *b = json_get(from, "content");
    if (!b)
        return 0;
    if (!a)
        return cJSON_AddItemToObject(to, "content",
                                     cJSON_DetachItemViaPointer(
                                         from, cJSON_GetObjectItemCaseSensitive(from, "content")))
                   ? 0
                   : -1;
    if (cJSON_IsString(a) && cJSON_IsString(b))
        return join_texts(to, b->valuestring);
    return pictures_as_parts(to) && pictures_as_parts(from) ? join_parts(to, from) : -1;
}

static void drop(cJSON *messages, cJSON *m)
{
    cJSON_Delete(cJSON_DetachItemViaPointer(messages, m));
}

/* All system messages become one, at the front. */
static int one_system(cJSON *messages)
{
    cJSON *first = NULL, *next;
    int changed = 0;
    for (cJSON *m = messages->child; m; m = next) {
        next = m->next;
        if (!is_of(m, "system"))
            continue;
        if (first) {
            if (join(first, m) != 0)
                return -1;
            drop(messages, m);
            changed = 1;
            continue;
        }
        first = m;
        if (m == messages->child)
            continue;
        cJSON_InsertItemInArray(messages, 0, cJSON_DetachItemViaPointer(messages, m));
        changed = 1;
    }
    return changed;
}

/* Beside calls only that text is joined which stands for calls. */
static bool joins(const cJSON *a, const cJSON *b, bool calls)
{
    if (!b || (calls && (json_get(a, "tool_calls") || json_get(b, "tool_calls"))))
        return false;
    return (is_of(a, "user") && is_of(b, "user")) ||
           (is_of(a, "assistant") && is_of(b, "assistant"));
}

static int alternate(cJSON *messages, bool calls)
{
    int changed = 0;
    for (cJSON *m = messages->child; m && !calls; m = m->next) {
        if (!is_of(m, "tool"))
            continue;
        if (set_role(m, "user") != 0)
            return -1;
        changed = 1;
    }
    for (cJSON *m = messages->child; m;) {
        if (!joins(m, m->next, calls)) {
            m = m->next;
            continue;
        }
        if (join(m, m->next) != 0)
            return -1;
        drop(messages, m->next);
        changed = 1;
    }
    return changed;
}

/* After one_system(): the system message precedes the user's first one, or becomes one. */
static int no_system(cJSON *messages)
{
    cJSON *system = messages->child;
    if (!is_of(system, "system"))
        return 0;
    if (set_role(system, "user") != 0)
        return -1;
    if (is_of(system->next, "user")) {
        if (join(system, system->next) != 0)
            return -1;
        drop(messages, system->next);
    }
    return 1;
}

int roles_fit(cJSON *messages, enum roles_fit how, bool calls)
{
    int changed = 0, rc = 0;
    if (how >= ROLES_ONE_SYSTEM)
        changed |= rc = one_system(messages);
    if (rc >= 0 && how >= ROLES_ALTERNATE)
        changed |= rc = alternate(messages, calls);
    if (rc >= 0 && how >= ROLES_NO_SYSTEM)
        changed |= rc = no_system(messages);
    return rc < 0 ? -1 : changed;
}
