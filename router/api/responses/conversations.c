#include "router/api/responses/conversations.h"
#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/generate/validate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METADATA_MOST = 16, METADATA_KEY = 64, METADATA_VALUE = 512 }; /* OpenAI's limits */

int conversation_path(struct call *c, const char **id, const char **rest, struct err *e)
{
    const char *from = c->path + strlen("/v1/conversations/");
    const size_t n = strcspn(from, "/");
    *rest = from + n;
    *id = arena_strdup(&c->arena, from, n);
    if (!*id)
        return err_nomem(e);
    if (!store_is_conversation(*id))
        return err_set(e, ERR_NOT_FOUND, "Conversation with id '%.70s' not found.", *id);
    return 0;
}

void conversation_new_id(const char *prefix, char out[STORE_ID])
{
    snprintf(out, STORE_ID, "%s%016llx%08x", prefix, (unsigned long long)seed_draw(),
             (unsigned)seed_draw());
}

int conversation_ask(struct call *c, enum store_kind kind, const char *id,
                     int (*edit)(struct stored *v, const char *with, struct err *e),
                     const char *with, struct err *e)
{
    struct store_job j = {.kind = kind, .edit = edit};
    if (stored_can(c, id, e) != 0)
        return -1;
    snprintf(j.what.id, sizeof(j.what.id), "%s", id);
    if (with && !(j.what.input = strdup(with)))
        return err_nomem(e);
    return stored_ask(c, &j, e);
}

/* ---------------------------------------------------------------- bodies */

const char *conversation_items(struct call *c, struct body *b, struct object root, const char *id)
{
    const cJSON *items = body_get(b, root, "items", false), *k;
    if (!items)
        return "[]";
    if (!cJSON_IsArray(items)) {
        body_mistyped(b, root, "items", items, "a sequence");
        return NULL;
    }
    cJSON_ArrayForEach(k, items)
    {
        if (!cJSON_IsObject(k))
            body_mistyped(b, root, "items", k, "an item");
    }
    if (!b->failed)
        responses_check_items(b, root, "items", items, edge_media(c->edge).vision != NULL);
    if (b->failed)
        return NULL;
    const char *text = stored_items(c, items, id);
    if (!text)
        body_nomem(b, root, "items");
    return text;
}

const char *conversation_metadata(struct body *b, struct object root)
{
    const cJSON *m = body_get(b, root, "metadata", false), *k;
    if (!m)
        return NULL;
    if (!cJSON_IsObject(m)) {
        body_mistyped(b, root, "metadata", m, "an object");
        return NULL;
    }
    if (cJSON_GetArraySize(m) > METADATA_MOST)
        body_fail(b, root, "metadata", "at most %d pairs", METADATA_MOST);
    cJSON_ArrayForEach(k, m)
    {
        if (!cJSON_IsString(k))
            body_mistyped(b, root, "metadata", k, "a string");
        else if (strlen(k->string) > METADATA_KEY || strlen(k->valuestring) > METADATA_VALUE)
            body_fail(b, root, "metadata", "keys of at most %d and values of at most %d bytes",
                      METADATA_KEY, METADATA_VALUE);
    }
    if (b->failed)
        return NULL;
    struct buf out = BUF_INIT;
    json_print_exact(&out, m);
    const char *text = out.oom ? NULL : arena_strdup(b->arena, out.p, out.len);
    buf_free(&out);
    if (!text)
        body_nomem(b, root, "metadata");
    return text;
}

/* ---------------------------------------------------------------- changes */

int conversation_join(const char *a, const char *b, struct buf *out)
{
    const bool both = strlen(a) > 2 && strlen(b) > 2;
    if (strlen(a) > 2)
        buf_add(out, a, strlen(a) - 1);
    buf_str(out, both ? "," : "");
    buf_str(out, strlen(a) > 2 && !both ? "]" : both ? b + 1 : b);
    return out->oom ? -1 : 0;
}

/* Takes over the text of `b`. */
static int set_text(char **text, struct buf *b, struct err *e)
{
    char *made = b->oom ? NULL : buf_take(b);
    buf_free(b);
    if (!made)
        return err_nomem(e);
    free(*text);
    *text = made;
    return 0;
}

int conversation_append(struct stored *v, const char *with, struct err *e)
{
    struct buf all = BUF_INIT;
    if (strlen(v->input) + strlen(with) > CONVERSATION_BYTES)
        return err_set(e, ERR_VALIDATION, "`items`: the conversation would be too long");
    (void)conversation_join(v->input, with, &all);
    return set_text(&v->input, &all, e);
}

int conversation_remove(struct stored *v, const char *with, struct err *e)
{
    struct buf left = BUF_INIT;
    cJSON *all = json_parse_exact(v->input, strlen(v->input), e), *k = all ? all->child : NULL;
    if (!all)
        return -1;
    while (k && strcmp(json_str(k, "id", ""), with) != 0)
        k = k->next;
    if (k) {
        cJSON_Delete(cJSON_DetachItemViaPointer(all, k));
        json_print_exact(&left, all);
    }
    cJSON_Delete(all);
    return k ? set_text(&v->input, &left, e)
             : err_set(e, ERR_NOT_FOUND, "Item with id '%.70s' not found.", with);
}

int conversation_describe(struct stored *v, const char *with, struct err *e)
{
    struct buf text = BUF_INIT;
    cJSON *object = json_parse_exact(v->response, strlen(v->response), e);
    cJSON *metadata = object ? json_parse_exact(with, strlen(with), e) : NULL;
    const bool ok = metadata && json_put(object, "metadata", metadata);
    if (ok)
        json_print_exact(&text, object);
    cJSON_Delete(object);
    return ok ? set_text(&v->response, &text, e) : -1;
}
