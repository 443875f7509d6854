// fuzz-sources: common/tokenizer/likely*.c
// fuzz-sources: router/body/body*.c router/http/errors.c router/api/tgi/tgi.c
// fuzz-sources: router/api/openai/openai.c router/api/openai/prompt_logprobs.c
// fuzz-sources: router/api/openai/transfer.c common/net/peer_address.c
// fuzz-sources: router/api/openai/stop_trim.c router/request/answer.c router/chat/*.c
// fuzz-sources: router/api/openai/chat_*.c router/api/openai/fit.c router/api/openai/timings.c
// fuzz-sources: router/api/openai/completions_request.c router/api/anthropic/request.c
// fuzz-sources: router/api/anthropic/convert.c common/constraint/*.c router/api/responses/request.c
// fuzz-sources: router/api/responses/convert.c router/api/responses/echo.c
// fuzz-sources: router/api/responses/compact.c
// fuzz-sources: router/api/responses/stored_read.c router/api/responses/tools.c common/json/json.c
// fuzz-sources: common/json/reader.c common/err.c common/utf8.c common/buf.c common/arena.c
// fuzz-sources: common/log/log.c common/log/sink.c common/template/*.c common/tokenizer/unicode.c
// fuzz-sources: router/generate/constrain.c common/json/exact.c common/tokenizer/regex.c
// fuzz-sources: common/tokenizer/regex_translate.c common/model/model_file.c common/gguf/*.c
// fuzz-sources: common/tokenizer/gguf*.c common/tokenizer/vocab.c common/file/file_map.c
// fuzz-sources: common/tokenizer/longest.c
// fuzz-sources: common/tokenizer/scored.c common/tokenizer/folder*.c
// fuzz-sources: common/tokenizer/sentencepiece.c router/call/prompt.c common/model/thought_marks.c
// fuzz-sources: common/image/data_url.c router/api/gemini/request.c router/api/gemini/contents.c
// fuzz-sources: router/api/gemini/schema.c
// fuzz-sources: common/model/first_module.c
#include "common/net/peer_address.h"
#include "router/api/anthropic/messages.h"
#include "router/api/gemini/gemini.h"
#include "router/api/openai/chat_completion.h"
#include "router/api/openai/completions.h"
#include "router/api/responses/responses.h"
#include "router/api/tgi/tgi.h"
#include "router/call/accounting.h"
#include "router/call/tokens.h"
#include "router/chat/chat.h"
#include <stdlib.h>
#include <string.h>

/* What the parsers call but never reach, or need only the existence of. */
int call_generate(struct call *c, const struct ask *asks, uint32_t n_asks, uint32_t each,
                  struct err *e)
{
    (void)c, (void)asks, (void)n_asks, (void)each, (void)e;
    return 0;
}
void account_headers(struct call *c, uint32_t first, uint32_t n, bool compute_time)
{
    (void)c, (void)first, (void)n, (void)compute_time;
}
/* A token is four bytes. */
int tokens_count(struct call *c, const struct ask *q, bool add_special, uint32_t *count,
                 struct err *e)
{
    (void)c, (void)add_special, (void)e;
    *count = (uint32_t)(q->n_inputs / 4);
    return 0;
}
void socket_read(struct call *c, struct body *b, struct object root, struct openai *o,
                 struct responses *p)
{
    (void)c, (void)b, (void)root, (void)o, (void)p;
}
void responses_usage(struct buf *out, const struct call *c) { (void)out, (void)c; }
const char *edge_adapter(struct edge *g, const char *model) { return (void)g, (void)model, NULL; }
struct media edge_media(const struct edge *g) { return (void)g, (struct media){0}; }
bool vision_takes_videos(const struct vision *v) { return v != NULL; }
uint64_t seed_draw(void) { return 1; }
const struct infer_limits *edge_limits(const struct edge *g)
{
    static const struct infer_limits limits = {.max_input_tokens = 100, .takes_reasoning = true};
    return (void)g, &limits;
}
/* With tokens to fill in the middle, so that `suffix` is read. */
int64_t tokenizer_id(const struct tokenizer *t, const char *content)
{
    return (void)t, content[0] == '<' ? content[1] : -1;
}
/* Texts of control tokens, which messages may contain. */
uint32_t tokenizer_vocab_size(const struct tokenizer *t) { return (void)t, 3; }
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id) { return (void)t, id != 1; }
const char *tokenizer_token(const struct tokenizer *t, uint32_t id)
{
    static const char *const texts[] = {"<s>", "plain", "<|im_start|>"};
    return (void)t, texts[id];
}
const char *tokenizer_special(const struct tokenizer *t, const char *name)
{
    return (void)t, (void)name, "<s>";
}
void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip,
                      struct buf *out)
{
    (void)t, (void)ids, (void)skip;
    buf_fmt(out, "%zu ids", n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_ask(const struct ask *q)
{
    if (!q->inputs || strlen(q->inputs) != q->n_inputs)
        abort();
    for (uint32_t i = 0; i < q->n_stop; i++)
        if (strlen(q->stop[i]) > 1000000)
            abort();
}

static void check_transfer(const struct kv_transfer *t)
{
    if (t && t->exports == (t->host != NULL))
        abort();
    if (t && t->host &&
        (!peer_host_ok(t->host) || !t->port || t->port > 65535 ||
         t->n_blocks > TRANSFER_BLOCKS_MOST))
        abort();
}

/* The first byte picks the protocol. A refusal has a status and one line; what is accepted is
 * whole. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct router_config config = {
        .max_best_of = 2, .max_client_batch_size = 4, .kv_transfer_address = "127.0.0.1:5600"};
    static struct edge edge = {.config = &config, .model_id = "m"};
    struct err e = ERR_INIT;
    if (!edge.chat)
        edge.chat = chat_load("/nowhere", NULL, NULL, &e);
    struct call c = {.edge = &edge};
    arena_init(&c.arena, 64 << 20);
    if (n)
        buf_add(&c.body, data + 1, n - 1);
    bool ok = false;
    struct chat_request chat;
    const struct openai *o = NULL;
    if (n && data[0] == 'g') {
        c.path = "/v1beta/models/m:generateContent";
        if ((ok = gemini_parse(&c, false, &chat, &e) == 0))
            check_ask(chat.openai->asks);
    } else if (n && data[0] % 5 == 0) {
        struct tgi *t = tgi_parse(&c, true, &e);
        if ((ok = t != NULL))
            check_ask(&t->ask);
    } else if (n && data[0] % 5 == 1) {
        if ((ok = (o = completions_parse(&c, &e)) != NULL))
            for (uint32_t i = 0; i < o->n_asks; i++)
                check_ask(&o->asks[i]);
        if (ok)
            check_transfer(o->transfer);
    } else if (n && data[0] % 5 == 4) {
        struct responses p = {0};
        if ((ok = responses_parse(&c, &chat, &p, &e) == 0))
            check_ask(chat.openai->asks);
    } else if (n && data[0] % 5 == 3) {
        if ((ok = messages_parse(&c, data[0] & 4, &chat, &e) == 0))
            check_ask(chat.openai->asks);
    } else {
        ok = chat_request_parse(&c, &chat, &e) == 0;
    }
    if (!ok && (err_status(e.kind) < 400 || err_status(e.kind) >= 500 || !e.msg[0]))
        abort();
    buf_free(&c.body);
    arena_reset(&c.arena);
    return 0;
}
