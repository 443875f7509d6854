/* hf.h - tasks of Hugging Face's inference API on the path `/`, as huggingface_hub's
 * InferenceClient sends them: {"inputs": ..., "parameters": {...}}.
 *
 * Answers are those of transformers' pipelines. Places in a text are in characters. Worker thread;
 * errors as in struct route. */
#ifndef ROUTER_API_HF_HF_H
#define ROUTER_API_HF_HF_H
#include "router/call/embed_body.h"
#include "router/call/embed_windows.h"

extern const struct texts_row row_hf_classify, /* labels of texts */
    row_hf_zero_shot,                          /* labels of the request, by entailment */
    row_hf_image,                              /* the same of an image, by cosines */
    row_hf_tokens,                             /* labels of tokens, or of groups of them */
    row_hf_fill,                               /* words in place of masks */
    row_hf_answer;                             /* places of a context that answer a question */
/* The form of `/` for a model that computes values of texts, as texts_work_form(): one above, or
 * TEI's. */
const struct texts_row *hf_form(const struct call *c, const struct body *b);

/* Member `key` of o, a positive number; `usual` if it is absent. */
uint32_t hf_positive(struct body *b, struct object o, const char *key, uint32_t usual);
/* What a request's labels are: `candidate_labels` of o, a list, or one text with commas between
 * them; 1 to 1024. NULL: b was failed. */
const char *const *hf_labels(struct body *b, struct object o, uint32_t *n);
/* The hypotheses: `hypothesis_template` of o, or `usual`, with each label in place of its {}. [n]
 * in the arena; NULL: b was failed. */
const char **hf_hypotheses(struct body *b, struct object o, const char *usual,
                           const char *const *labels, uint32_t n);
/* Fails b if one of the n `inputs` is a list of ids. */
void hf_only_texts(struct body *b, const struct text_input *in, uint32_t n);

/* Appends {"label": ..., "score": ...}. */
void hf_label(struct buf *out, const char *label, float score);
/* The name of label i of the model. `spare`: room for one that the files do not name. */
enum { HF_LABEL_CAP = 24 };
const char *hf_label_name(const struct call *c, uint32_t i, char spare[HF_LABEL_CAP]);
#endif
