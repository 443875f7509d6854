#include "common/model/pair_form.h"
#include <stddef.h>
#include <string.h>

/* The texts are those of the models' authors. */
#define JUDGE                                                                                      \
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "    \
    "and "                                                                                         \
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"       \
    "<|im_start|>user\n" PAIR_PART
#define FLAG_EMBEDDING                                                                             \
    .text = PAIR_BOS "A: " PAIR_QUERY PAIR_PART "\n" PAIR_PART "B: " PAIR_DOCUMENT PAIR_PART       \
                     "\n" PAIR_PART PAIR_TASK,                                                     \
    .task = "Given a query A and a passage B, determine whether the passage contains an answer "   \
            "to the query by providing a prediction of either 'Yes' or 'No'.",                     \
    .before_task = "", .after_task = ""
static const struct pair_form forms[] = {
    {.family = "qwen3", /* Qwen3-Reranker, with its own chat template */
     .text = JUDGE "<Instruct>: " PAIR_TASK "\n<Query>: " PAIR_QUERY
                   "\n<Document>: " PAIR_DOCUMENT PAIR_PART
                   "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
     .task = "Given a web search query, retrieve relevant passages that answer the query",
     .before_task = "",
     .after_task = "",
     .yes = "yes",
     .no = "no"},
    {.family = "qwen3_vl_text", /* Qwen3-VL-Reranker without its own chat template */
     .text = JUDGE "<Instruct>: " PAIR_TASK "<Query>:" PAIR_QUERY
                   "\n<Document>:" PAIR_DOCUMENT PAIR_PART "<|im_end|>\n<|im_start|>assistant\n",
     .task = "Given a search query, retrieve relevant candidates that answer the query.",
     .before_task = "",
     .after_task = "",
     .yes = "yes",
     .no = "no"},
    {.family = "qwen2", /* mxbai-rerank 2 */
     .text = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
             "assistant.<|im_end|>\n<|im_start|>user\n" PAIR_PART PAIR_TASK
             "query: " PAIR_QUERY PAIR_PART "\n" PAIR_PART "document: " PAIR_DOCUMENT PAIR_PART
             "\n" PAIR_PART
             "You are a search relevance expert who evaluates how well documents match search "
             "queries. For each query-document pair, carefully analyze the semantic relationship "
             "between them, then provide your binary relevance judgment (0 for not relevant, 1 "
             "for relevant).\nRelevance:" PAIR_PART "<|im_end|>\n<|im_start|>assistant\n",
     .task = "",
     .before_task = "instruction: ",
     .after_task = "\n",
     .yes = "1",
     .no = "0"},
    {.family = "gemma", FLAG_EMBEDDING, .yes = "Yes"}, /* bge-reranker-v2-gemma */
    {.family = PAIR_LAYERWISE, FLAG_EMBEDDING},        /* bge-reranker-v2-minicpm-layerwise */
    {.family = "llama_bidirec",                        /* Llama Nemotron Rerank */
     .text = PAIR_BOS "question:" PAIR_QUERY " \n \n passage:" PAIR_DOCUMENT,
     .task = ""},
};

const struct pair_form *pair_form_of(const char *family, bool classifier)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (!strcmp(forms[i].family, family) && !forms[i].yes == classifier)
            return &forms[i];
    return classifier ? NULL : &forms[0];
}
