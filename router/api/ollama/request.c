/* From Ollama's bodies to OpenAI's. */
#include "common/json/exact.h"
#include "common/json/unread.h"
#include "router/api/ollama/ollama.h"
#include "router/chat/call_ids.h"
#include "router/chat/convert.h"
#include "router/chat/message.h"
#include "router/chat/pictures.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void copy(cJSON *to, const char *as, const cJSON *v)
{
    if (v)
        cJSON_AddItemToObject(to, as, cJSON_Duplicate(v, true));
}

/* Reads what only says how a model is run, which the server decides, and clients send always. */
static void pass_over(const cJSON *options)
{
    static const char
        *const names[] = {"num_ctx",     "num_batch", "num_gpu",    "num_thread", "main_gpu",
                          "numa",        "low_vram",  "use_mmap",   "use_mlock",  "f16_kv",
                          "num_keep",    "num_gqa",   "vocab_only", "logits_all", "mirostat_tau",
                          "mirostat_eta"}; /* these two of `mirostat`, which is refused */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        json_get(options, names[i]);
}

/* The names that differ. */
static void add_options(struct body *b, cJSON *to)
{
    const cJSON *options = json_get(b->root, "options");
    enum { DIGITS = 15 }; /* of a number that is printed exactly */
    static const char *const names[][2] = {
        {"temperature", "temperature"},
        {"top_k", "top_k"},
        {"top_p", "top_p"},
        {"min_p", "min_p"},
        {"typical_p", "typical_p"},
        {"seed", "seed"},
        {"stop", "stop"},
        {"repeat_penalty", "repeat_penalty"}, /* llama-server's names, too */
        {"repeat_last_n", "repeat_last_n"},
        {"presence_penalty", "presence_penalty"},
        {"frequency_penalty", "frequency_penalty"},
        {"mirostat", "mirostat"},
        {"tfs_z", "tfs"},
    };
    json_watch(options);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        copy(to, names[i][1], json_get(options, names[i][0]));
    if (options && !cJSON_IsObject(options))
        body_mistyped(b, body_root(b), "options", options, "an object");
    if (fabs(json_num(options, "seed", 0)) >= pow(10, DIGITS))
        body_fail(b, body_root(b), "options", "`seed` must have at most %d digits", DIGITS);
    const cJSON *most = json_get(options, "num_predict");
    if (cJSON_IsNumber(most) && most->valuedouble < 0) /* -1: endless; -2: what fits */
        cJSON_AddNumberToObject(to, "max_tokens", -1);
    else
        copy(to, "max_tokens", most);
    pass_over(options);
    body_unread(b, (struct object){options, "options"});
}

static void add_format(struct body *b, cJSON *to, const cJSON *format)
{
    const bool json = cJSON_IsString(format) && !strcmp(format->valuestring, "json");
    if (!format || (cJSON_IsString(format) && !*format->valuestring))
        return;
    if (!json && !cJSON_IsObject(format)) {
        body_fail(b, body_root(b), "format", "`format` must be `json` or a JSON schema");
        return;
    }
    cJSON *f = cJSON_AddObjectToObject(to, "response_format");
    cJSON_AddStringToObject(f, "type", json ? "json_object" : "json_schema");
    if (!json)
        copy(cJSON_AddObjectToObject(f, "json_schema"), "schema", format);
}

static void check_think(struct body *b, const cJSON *think)
{
    if (think && !cJSON_IsBool(think) && !cJSON_IsString(think))
        body_mistyped(b, body_root(b), "think", think, "a boolean or a string");
}

/* A boolean, or a word that some templates know. */
static void add_think(cJSON *to, const cJSON *think)
{
    if (cJSON_IsString(think))
        copy(to, "reasoning_effort", think);
    else if (cJSON_IsFalse(think))
        cJSON_AddStringToObject(to, "reasoning_effort", "none");
    else if (cJSON_IsTrue(think))
        convert_thinking(to, true);
}

/* ---------------------------------------------------------------- messages */

/* A text, then its images. They have no type in Ollama's bodies; the decoder reads it from the
 * file.
 */
static void add_content(struct body *b, cJSON *message, const char *text, const cJSON *images)
{
    if (!json_first(images)) {
        cJSON_AddStringToObject(message, "content", text);
        return;
    }
    cJSON *parts = cJSON_AddArrayToObject(message, "content");
    cJSON_AddItemToArray(parts, picture_text_part(text));
    for (const cJSON *k = images->child; k; k = k->next)
        if (cJSON_IsString(k))
            cJSON_AddItemToArray(parts, picture_part_base64("image/png", k->valuestring, NULL));
        else
            body_mistyped(b, body_root(b), "images", k, "images in base64");
}

/* Arguments are an object here, and a text there. */
static void add_calls(struct body *b, cJSON *message, const cJSON *calls, struct call_ids *all)
{
    cJSON *list = cJSON_AddArrayToObject(message, "tool_calls");
    for (const cJSON *k = json_first(calls); k; k = k->next) {
        const cJSON *f = json_get(k, "function"), *arguments = json_get(f, "arguments");
        struct buf text = BUF_INIT;
        if (arguments && !cJSON_IsString(arguments))
            json_print_exact(&text, arguments);
        cJSON *call = cJSON_CreateObject();
        cJSON_AddStringToObject(
            call, "id", call_ids_open(all, json_str(k, "id", NULL), json_str(f, "name", "")));
        cJSON_AddStringToObject(call, "type", "function");
        cJSON *function = cJSON_AddObjectToObject(call, "function");
        cJSON_AddStringToObject(function, "name", json_str(f, "name", ""));
        cJSON_AddStringToObject(function, "arguments",
                                text.p ? text.p : json_str(f, "arguments", "{}"));
        cJSON_AddItemToArray(list, call);
        buf_free(&text);
        if (!json_get(f, "name"))
            body_fail(b, body_root(b), "messages", "a call has no `name`");
    }
}

static cJSON *convert(struct body *b, const cJSON *m, struct call_ids *all)
{
    cJSON *to = cJSON_CreateObject();
    const struct object o = {m, "messages"};
    const char *content = body_str(b, o, "content", false);
    body_str(b, o, "role", true);
    copy(to, "role", json_get(m, "role"));
    add_content(b, to, content ? content : "", json_get(m, "images"));
    copy(to, "reasoning_content", json_get(m, "thinking"));
    if (json_first(json_get(m, "tool_calls")))
        add_calls(b, to, json_get(m, "tool_calls"), all);
    if (!strcmp(json_str(m, "role", ""), "tool")) {
        copy(to, "name", json_get(m, "tool_name"));
        cJSON_AddStringToObject(to, "tool_call_id",
                                call_ids_answer(all, json_str(m, "tool_call_id", NULL),
                                                json_str(m, "tool_name", NULL)));
    }
    return to;
}

static void add_messages(struct body *b, cJSON *to, const cJSON *messages)
{
    cJSON *list = cJSON_AddArrayToObject(to, "messages");
    struct call_ids all = {0};
    if (messages && !cJSON_IsArray(messages))
        body_mistyped(b, body_root(b), "messages", messages, "a sequence");
    uint32_t i = 0;
    for (const cJSON *m = json_first(messages); m; m = m->next) {
        body_item(b, "messages", i++);
        cJSON_AddItemToArray(list, convert(b, m, &all));
    }
    body_item(b, NULL, 0);
    call_ids_free(&all);
}

/* ---------------------------------------------------------------- the whole */

/* `logprobs` is true or false, beside `top_logprobs`; of OpenAI's completions it is their number.
 */
static void add_logprobs(struct body *b, struct object root, const struct ollama *o, cJSON *to)
{
    const bool wanted = body_opt_bool(b, root, "logprobs", false);
    const struct opt_u64 tops = body_u32(b, root, "top_logprobs");
    if (!wanted)
        return;
    if (o->raw) {
        cJSON_AddNumberToObject(to, "logprobs", (double)tops.v);
        return;
    }
    cJSON_AddTrueToObject(to, "logprobs");
    if (tops.set)
        cJSON_AddNumberToObject(to, "top_logprobs", (double)tops.v);
}

/* The rest of both; c->body becomes `to`, which is freed. */
static int rewrite(struct call *c, struct body *b, struct ollama *o, cJSON *to, struct err *e)
{
    const struct object root = body_root(b);
    copy(to, "model", json_get(b->root, "model"));
    add_logprobs(b, root, o, to);
    cJSON_AddBoolToObject(to, "stream", o->stream);
    add_options(b, to);
    add_format(b, to, json_get(b->root, "format"));
    call_unread(c, b);
    if (!b->failed) {
        buf_reset(&c->body);
        json_print_exact(&c->body, to);
    }
    cJSON_Delete(to);
    if (b->failed)
        return -1;
    return c->body.oom ? err_nomem(e) : 0;
}

static int open_body(struct call *c, struct body *b, struct ollama *o, struct err *e)
{
    if (body_open_prompt(b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    b->plain = true;
    const char *model = body_str(b, body_root(b), "model", false);
    o->model = model && *model ? model : c->edge->model_id;
    o->stream = body_bool(b, body_root(b), "stream", true);
    return b->failed ? -1 : 0;
}

int ollama_chat_body(struct call *c, struct ollama *o, struct err *e)
{
    struct body b;
    if (open_body(c, &b, o, e) != 0)
        return -1;
    cJSON *to = cJSON_CreateObject();
    const cJSON *messages = json_get(b.root, "messages");
    o->chat = true;
    o->load = !messages || (cJSON_IsArray(messages) && !messages->child);
    add_messages(&b, to, messages);
    copy(to, "tools", json_get(b.root, "tools"));
    check_think(&b, json_get(b.root, "think"));
    add_think(to, json_get(b.root, "think"));
    return rewrite(c, &b, o, to, e);
}

/* Of these the answer would be another one. */
static void refuse(struct body *b)
{
    static const char *const names[] = {"template", "context"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const cJSON *v = json_get(b->root, names[i]);
        if ((cJSON_IsString(v) && *v->valuestring) || (cJSON_IsArray(v) && v->child))
            body_fail(b, body_root(b), names[i], "`%s` is not supported", names[i]);
    }
}

int ollama_generate_body(struct call *c, struct ollama *o, struct err *e)
{
    struct body b;
    if (open_body(c, &b, o, e) != 0)
        return -1;
    const char *prompt = body_str(&b, body_root(&b), "prompt", false);
    const char *system = body_str(&b, body_root(&b), "system", false);
    cJSON *to = cJSON_CreateObject();
    const char *suffix = body_str(&b, body_root(&b), "suffix", false);
    const bool fill = suffix && *suffix; /* completion of code: no message */
    o->load = !fill && (!prompt || !*prompt);
    o->raw = body_opt_bool(&b, body_root(&b), "raw", false) || fill;
    check_think(&b, json_get(b.root, "think"));
    refuse(&b);
    if (fill && ((system && *system) || json_first(json_get(b.root, "images"))))
        body_fail(&b, body_root(&b), "suffix", "`suffix` cannot be used with `system` or `images`");
    else if (o->raw && json_first(json_get(b.root, "images")))
        body_fail(&b, body_root(&b), "raw", "`raw` cannot be used with `images`");
    if (o->raw) {
        cJSON_AddStringToObject(to, "prompt", prompt ? prompt : "");
        if (fill)
            cJSON_AddStringToObject(to, "suffix", suffix);
    } else {
        cJSON *list = cJSON_AddArrayToObject(to, "messages"), *m = cJSON_CreateObject();
        if (system && *system)
            message_add(list, "system", system);
        cJSON_AddStringToObject(m, "role", "user");
        add_content(&b, m, prompt ? prompt : "", json_get(b.root, "images"));
        cJSON_AddItemToArray(list, m);
        add_think(to, json_get(b.root, "think"));
    }
    return rewrite(c, &b, o, to, e);
}
