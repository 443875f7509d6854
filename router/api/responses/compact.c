#include "router/api/responses/compact.h"
#include "common/image/data_url.h"
#include "common/json/exact.h"
#include "common/json/json.h"
#include "router/api/responses/stored.h"
#include <stdlib.h>
#include <string.h>

/* What our items begin with, before the base64 of the summary. */
static const char mark[] = "summary.1.";

const char compact_question[] =
    "Summarise this conversation for a model that will continue it and sees nothing of it but your "
    "summary and the messages of the user. Say what was asked for, what was done and found, what "
    "was decided and why, and what is left to do. Keep names, paths, numbers, code and errors that "
    "matter exactly as they are. Write the summary and nothing else.";

static const char introduction[] = "Summary of the conversation so far:\n";

static void keep(struct buf *out, const cJSON *items)
{
    for (const cJSON *k = json_first(items); k; k = k->next) {
        if (strcmp(json_str(k, "type", "message"), "message") != 0 ||
            strcmp(json_str(k, "role", ""), "user") != 0)
            continue;
        json_print_exact(out, k);
        buf_ch(out, ',');
    }
}

int compact_keep(struct call *c, struct object root, struct responses *p)
{
    struct err ignored;
    struct buf out = BUF_INIT;
    const char *own = stored_items(c, json_get(root.json, "input"), p->id);
    cJSON *items = own ? json_parse_exact(own, strlen(own), &ignored) : NULL;
    buf_reserve(&out, 0);
    for (uint32_t i = 0; i < p->n_history; i++)
        keep(&out, p->history[i]);
    keep(&out, items);
    p->kept = items && !out.oom ? arena_strdup(&c->arena, out.p, out.len) : NULL;
    cJSON_Delete(items);
    buf_free(&out);
    return p->kept ? 0 : -1;
}

char *compact_read(const cJSON *item)
{
    struct err ignored;
    const char *text = json_str(item, "encrypted_content", "");
    const size_t head = sizeof(introduction) - 1;
    size_t n = 0;
    if (strncmp(text, mark, strlen(mark)) != 0)
        return NULL;
    text += strlen(mark);
    char *out = malloc(head + strlen(text) / 4 * 3 + 4);
    if (!out)
        return NULL;
    memcpy(out, introduction, head);
    if (base64_decode_lenient(text, strlen(text), (uint8_t *)out + head, &n, &ignored) != 0 ||
        memchr(out + head, 0, n)) {
        free(out);
        return NULL;
    }
    out[head + n] = 0;
    return out;
}

void compact_write(struct call *c)
{
    const struct openai *o = c->state;
    const struct responses *p = o->responses;
    const struct buf *summary = &p->reply->content;
    buf_fmt(&c->out, "{\"id\":\"%s\",\"object\":\"response.compaction\",\"created_at\":%lld,",
            o->id, (long long)c->created_unix);
    buf_str(&c->out, "\"output\":[");
    buf_str(&c->out, p->kept);
    buf_fmt(&c->out, "{\"id\":\"cmp_%s\",\"type\":\"compaction\",\"encrypted_content\":\"%s",
            strchr(o->id, '_') + 1, mark);
    buf_base64(&c->out, summary->p ? summary->p : "", summary->len);
    buf_str(&c->out, "\"}],\"usage\":");
    responses_usage(&c->out, c);
    buf_ch(&c->out, '}');
}
