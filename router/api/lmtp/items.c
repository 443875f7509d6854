#include "router/api/lmtp/items.h"
#include <math.h>
#include <string.h>

static const float least = -1e30f; /* lmql reads values below -3e38 as "cut off" */

static void put_logprob(struct buf *out, float v)
{
    buf_json_f32(out, isfinite(v) && v > least ? v : least);
}

static void put_top(struct buf *out, const struct lmtp_token *t)
{
    buf_str(out, ",\"top_logprobs\":{\"");
    buf_u64(out, t->token);
    buf_str(out, "\":");
    put_logprob(out, t->logprob);
    for (uint32_t i = 0; i < t->n_top; i++) {
        if (t->top[i].id == t->token)
            continue;
        buf_str(out, ",\"");
        buf_u64(out, t->top[i].id);
        buf_str(out, "\":");
        put_logprob(out, t->top[i].logprob);
    }
    buf_ch(out, '}');
}

void item_token(struct buf *out, const struct lmtp_token *t)
{
    buf_str(out, "{\"token\":");
    buf_u64(out, t->token);
    buf_str(out, ",\"stream_id\":");
    buf_str(out, t->id);
    buf_str(out, ",\"logprob\":");
    put_logprob(out, t->logprob);
    buf_str(out, ",\"finish_reason\":");
    if (t->finish) {
        buf_ch(out, '"');
        buf_str(out, t->finish);
        buf_ch(out, '"');
    } else {
        buf_str(out, "null");
    }
    if (t->alternatives)
        put_top(out, t);
    if (t->text) {
        buf_str(out, ",\"text\":");
        buf_json_str(out, t->text, t->n_text);
    }
    buf_ch(out, '}');
}

void item_message(struct buf *out, const char *id, const char *key, const char *text)
{
    buf_str(out, "{\"stream_id\":");
    buf_str(out, id && *id ? id : "null");
    buf_str(out, ",\"");
    buf_str(out, key);
    buf_str(out, "\":");
    buf_json_str(out, text, strlen(text));
    buf_ch(out, '}');
}

void item_error(struct buf *out, const char *id, const char *text)
{
    item_message(out, id, "error", text);
}
