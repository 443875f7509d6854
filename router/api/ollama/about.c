/* Descriptions of a model in Ollama's format. Fields that exist only in Ollama's store (sizes,
 * families) are empty; the digest is the model's commit. */
#include "router/api/ollama/ollama.h"
#include <string.h>

void ollama_details(struct buf *out, const struct edge *g)
{
    const struct infer_limits *l = edge_limits(g);
    buf_fmt(out,
            ",\"details\":{\"parent_model\":\"\",\"format\":\"\",\"family\":\"\",\"families\":[],"
            "\"parameter_size\":\"\",\"quantization_level\":\"%s\"}",
            *l->quantize ? l->quantize : l->dtype);
}

void ollama_model(struct buf *out, const struct call *c, const char *name)
{
    const char *digest = c->edge->model_sha ? c->edge->model_sha : "";
    buf_str(out, "{\"name\":");
    buf_json_str(out, name, strlen(name));
    buf_str(out, ",\"model\":");
    buf_json_str(out, name, strlen(name));
    buf_str(out, ",\"modified_at\":");
    buf_json_time(out, c->edge->started_unix);
    buf_str(out, ",\"size\":0,\"digest\":");
    buf_json_str(out, digest, strlen(digest));
    ollama_details(out, c->edge);
}
