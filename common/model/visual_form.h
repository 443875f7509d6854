/* visual_form.h - the prompts of models that retrieve images of pages by late interaction (ColPali,
 * arXiv 2407.01449), as the processors of transformers 5 and of colpali-engine 0.3.18 write them.
 *
 * Such a model is a vision-language model and a matrix, which makes a vector of each token's row. A
 * document is an image in a fixed prompt. A query is a text, behind which are tokens that only add
 * vectors. */
#ifndef COMMON_VISUAL_FORM_H
#define COMMON_VISUAL_FORM_H
#include <stdbool.h>

enum { VISUAL_FILLERS = 10 };

struct visual_form {
    const char *class; /* first of `architectures` in config.json */
    const char *query; /* before a query */
    /* the prompt of an image, with its placeholder, or what follows the image; NULL: the class is
     * known, and not supported */
    const char *page;
    const char *filler; /* VISUAL_FILLERS of it follow a query; NULL: the tokenizer's pad_token */
    const char *end;    /* of a query, behind those */
    const char *matrix; /* name of the tensors .weight and .bias */
    bool configured;    /* processor_config.json may have other words for `query` and `page` */
    bool bare;          /* bos_token precedes a text, and the tokenizer adds nothing */
    bool both_ways;     /* all tokens of a text attend to each other (PaliGemma's prefix) */
};
/* The form of a class; NULL: it is none of these. */
const struct visual_form *visual_form_of(const char *class);
#endif
