/* pair_form.h - how a reranker that reads one text is asked about a query and a document.
 *
 * Such a model is a decoder. Its score is the logit of a token that follows the text, minus that of
 * another token. Or it has a classifier of one label, and expects its pairs in this form. */
#ifndef COMMON_PAIR_FORM_H
#define COMMON_PAIR_FORM_H
#include <stdbool.h>

/* Marks in pair_form.text. */
#define PAIR_PART     "\001" /* the text before it is tokenized apart from the text behind it */
#define PAIR_BOS      "\002" /* the token bos_token, at the start of a part */
#define PAIR_TASK     "\003"
#define PAIR_QUERY    "\004"
#define PAIR_DOCUMENT "\005"

/* In place of a family: rerankers with heads behind several layers (sentence.h, first_cut). */
#define PAIR_LAYERWISE "layerwise"

struct pair_form {
    const char *family; /* model_type of config.json, or a PAIR_ word below */
    const char *text;   /* with marks */
    const char *task;   /* the usual instruction */
    /* around the instruction of a request, which replaces the usual one */
    const char *before_task, *after_task;
    /* the tokens; no NULL: the logit of `yes` is the score; both NULL: there is a classifier */
    const char *yes, *no;
};
/* The form of a family, of a classifier if `classifier`. NULL: a family with a classifier that
 * expects no form; a family without one that is not known is asked as Qwen 3. */
const struct pair_form *pair_form_of(const char *family, bool classifier);
#endif
