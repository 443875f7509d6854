#include "router/api/cohere/rerank.h"

static int work(struct call *c, struct err *e) { return texts_work(c, &row_cohere_rerank, e); }

const struct route route_rerank_documents = {
    .method = "POST",
    .paths = {"/v1/rerank", "/v2/rerank"},
    .errors = ERRORS_OPENAI,
    .summary =
        "Cohere's, Jina's and vLLM's rerank: documents by how well they answer a query, best "
        "first, of a reranker; of a model that embeds texts or tokens by their cosines; others "
        "answer 400. What is too "
        "long is cut.",
    .body = "`query`, `documents` (texts, or objects with `text`; of a model that takes images "
            "also with `image` or `content`), `top_n`, `return_documents`, "
            "`max_tokens_per_doc`, `instruction`, `raw_scores`; with `top_k` or `truncation` the "
            "answer is Voyage's: `data` in place of `results`",
    .takes = "RerankDocuments",
    .gives = "RerankDocumentsAnswer",
    .task = TASK_RERANK,
    .example =
        "{\"query\": \"What is it?\", \"documents\": [\"A ball.\", \"A cat.\"], \"top_n\": 1}",
    .work = work,
};
