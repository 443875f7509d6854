/* hf.h - tasks of Hugging Face's inference API on the path `/`, as huggingface_hub's
 * InferenceClient sends them: {"inputs": ..., "parameters": {...}}.
 *
 * Answers are those of transformers' pipelines. Places in a text are in characters. Worker thread;
 * errors as in struct route. */
#ifndef ROUTER_API_HF_HF_H
#define ROUTER_API_HF_HF_H
#include "router/call/embed_body.h"
#include "router/call/embed_windows.h"

/* True if member `key` of the body is an object: a form that only such clients send. */
bool hf_object(const struct call *c, const char *key);

int hf_classify(struct call *c, struct err *e); /* labels of texts; with `candidate_labels` */
/* Labels of the request, by entailment; b: the body of hf_classify(). */
int hf_zero_shot(struct call *c, struct body *b, struct err *e);
int hf_tokens(struct call *c, struct err *e); /* labels of tokens, or of groups of them */
int hf_fill(struct call *c, struct err *e);   /* words in place of masks */
int hf_answer(struct call *c, struct err *e); /* places of a context that answer a question */

/* Member `key` of o, a positive number; `usual` if it is absent. */
uint32_t hf_positive(struct body *b, struct object o, const char *key, uint32_t usual);
/* Fails b if one of the n `inputs` is a list of ids. */
void hf_only_texts(struct body *b, const struct text_input *in, uint32_t n);

/* Appends {"label": ..., "score": ...}. */
void hf_label(struct buf *out, const char *label, float score);
/* The name of label i of the model. `spare`: room for one that the files do not name. */
enum { HF_LABEL_CAP = 24 };
const char *hf_label_name(const struct call *c, uint32_t i, char spare[HF_LABEL_CAP]);
#endif
