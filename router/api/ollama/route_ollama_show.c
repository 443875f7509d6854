#include "common/json/json.h"
#include "router/api/ollama/ollama.h"
#include "router/body/body.h"
#include "router/chat/chat.h"
#include "router/chat/fim.h"
#include "router/http/route.h"
#include <inttypes.h>
#include <string.h>

static void capabilities(struct buf *out, const struct edge *g)
{
    const struct infer_limits *l = edge_limits(g);
    const struct chat_style with_tools = chat_style(g->chat, true);
    if (l->task == TASK_EMBED) {
        buf_str(out, "\"embedding\"");
        return;
    }
    buf_str(out, "\"completion\"");
    buf_str(out, with_tools.tools ? ",\"tools\"" : "");
    buf_str(out, fim_style(g->tokenizer) ? ",\"insert\"" : "");
    buf_str(out, chat_style(g->chat, false).reasoning ? ",\"thinking\"" : "");
    buf_str(out, l->takes_images && g->vision ? ",\"vision\"" : "");
}

/* Members are named by the family, as in a GGUF file. */
static void model_info(struct buf *out, const struct edge *g)
{
    const struct infer_limits *l = edge_limits(g);
    const char *family = *l->family ? l->family : "model";
    buf_str(out, ",\"model_info\":{\"general.architecture\":");
    buf_json_str(out, family, strlen(family));
    buf_str(out, ",\"general.basename\":");
    buf_json_str(out, g->model_id, strlen(g->model_id));
    if (l->parameters)
        buf_fmt(out, ",\"general.parameter_count\":%" PRIu64, l->parameters);
    buf_fmt(out, ",\"%s.context_length\":%u,\"%s.embedding_length\":%u,\"%s.vocab_size\":%u}",
            family, l->max_total_tokens, family, l->hidden_size, family, l->vocab_size);
}

static int work(struct call *c, struct err *e)
{
    struct body b;
    if (body_open(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    b.plain = true;
    body_str(&b, body_root(&b), "model", false);
    if (b.failed)
        return -1;
    const char *info = chat_tokenizer_info(c->edge->chat);
    cJSON *j = json_parse(info, strlen(info), e);
    if (!j)
        return -1;
    const char *template = json_str(j, "chat_template", "");
    struct buf *out = &c->out;
    buf_str(out, "{\"modelfile\":\"\",\"parameters\":\"\",\"license\":\"\",\"template\":");
    buf_json_str(out, template, strlen(template));
    buf_str(out, ",\"modified_at\":");
    buf_json_time(out, c->edge->started_unix);
    ollama_details(out, c->edge);
    model_info(out, c->edge);
    buf_str(out, ",\"capabilities\":[");
    capabilities(out, c->edge);
    buf_str(out, "]}");
    cJSON_Delete(j);
    return 0;
}

const struct route route_ollama_show = {
    .method = "POST",
    .paths = {"/api/show"},
    .errors = ERRORS_OLLAMA,
    .any_type = true,
    .summary = "What Ollama's clients ask of a model: `capabilities` (completion, tools, insert, "
               "thinking, "
               "vision, embedding), the chat template, and the length of the context, family, "
               "number of parameters and format of the weights.",
    .body = "`model`",
    .takes = "OllamaShow",
    .example = "{\"model\": \"demo\"}",
    .gives = "OllamaModel",
    .work = work,
};
