#include "router/api/cohere/embed.h"

static int work(struct call *c, struct err *e) { return cohere_embed(c, 2, e); }

const struct route route_cohere_embed = {
    .method = "POST",
    .paths = {"/v2/embed"},
    .errors = ERRORS_COHERE,
    .summary = "Cohere's vectors of texts and images, of a model that embeds; others answer 400.",
    .body = "`texts`, `inputs` (texts and images) or `images`, `input_type`, `embedding_types` "
            "(`float`, `binary`, "
            "`ubinary`, `base64`), `truncate` (`END`), `output_dimension`, `max_tokens`",
    .takes = "CohereEmbed",
    .gives = "CohereEmbedAnswer",
    .task = TASK_EMBED,
    .example = "{\"texts\": [\"Once upon a time\", \"there was a ball\"], \"input_type\": "
               "\"search_document\", \"embedding_types\": [\"float\"]}",
    .work = work,
};
