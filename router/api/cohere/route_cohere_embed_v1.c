#include "router/api/cohere/embed.h"

static int work(struct call *c, struct err *e) { return cohere_embed(c, 1, e); }

const struct route route_cohere_embed_v1 = {
    .method = "POST",
    .paths = {"/v1/embed"},
    .errors = ERRORS_COHERE,
    .summary = "Cohere's vectors of texts, version 1 of its API: a list of vectors without "
               "`embedding_types`, of a model that embeds; others answer 400.",
    .body = "`texts`, `input_type`, `embedding_types` (`float`, `binary`, `ubinary`, `base64`), "
            "`truncate` (`END`), `output_dimension`, `max_tokens`",
    .takes = "CohereEmbed",
    .gives = "CohereEmbedAnswer",
    .task = TASK_EMBED,
    .example = "{\"texts\": [\"Once upon a time\", \"there was a ball\"], \"input_type\": "
               "\"search_document\", \"embedding_types\": [\"float\"]}",
    .work = work,
};
