/* quantize.h - a model in fewer bits, as a model of its own that other programs read.
 *
 * One layer is in memory at a time. A method (methods.c) is a row: what it wants to know of the
 * inputs of matrices, whether it changes weights before they are rounded, how it rounds. A target
 * is what is written: a folder of safetensors in a layout (layout.h), or a GGUF file. */
#ifndef MODEL_SERVER_QUANTIZE_QUANTIZE_H
#define MODEL_SERVER_QUANTIZE_QUANTIZE_H
#include "model-server/quantize/calibrate.h"
#include "model-server/quantize/layout.h"
#include "model-server/quantize/source.h"
#include "model-server/quantize/tap.h"

struct quantize_options {
    const char *model, *out;
    const char *method;   /* a word of methods.c; "gguf:" and a type */
    bool packed;          /* compressed-tensors' pack-quantized instead of the method's layout */
    uint32_t bits, group; /* 0: the method's own */
    bool row_group;       /* one scale for all of a row */
    bool symmetric, asymmetric, act_order;
    double damp;
    const char *calibration; /* a file, NULL: the text that is shipped, "none" */
    uint32_t context, tokens;
    bool report;          /* measure the result */
    char *const *exclude; /* matrices whose name has one of these words stay as they are */
    uint32_t n_exclude;
};

struct run;
/* What is loaded of a layer that is at hand. */
struct layer_tensor {
    const struct source_tensor *s;
    float *w;      /* its numbers; owned; NULL: not read */
    bool quantise; /* else it is copied, or written from w as it was stored */
    const struct tap_input *in;
    const float *weight; /* [cols] of squared inputs: what errors cost; or NULL */
    float *weights;      /* owned */
    float *by;           /* [cols] what its inputs were divided by when they were folded; owned, or
                            NULL */
};
struct layer_set {
    struct layer_tensor *t;
    uint32_t n;
    int layer;
};
/* Reads the numbers if they are not there. */
int layer_tensor_read(struct layer_tensor *t, struct err *e);
struct layer_tensor *layer_set_find(const struct layer_set *s, enum role r, int expert,
                                    const char *suffix);

struct method {
    const char *name;
    unsigned wants;              /* tap_wants */
    bool propagates;             /* the next layer reads what this one makes when it is quantised */
    uint32_t bits, group;        /* the usual ones */
    bool symmetric;              /* the usual grid */
    const struct layout *layout; /* the usual one; NULL: GGUF */
    int (*fold)(struct run *r, struct layer_set *s, struct err *e); /* or NULL */
    /* Codes and grids of an initialised matrix; t->w may be overwritten. */
    int (*round)(struct run *r, struct layer_tensor *t, struct grid_matrix *m, struct err *e);
};
/* NULL and ERR_VALIDATION, with the known ones, for another word. */
const struct method *method_find(const char *word, struct err *e);

struct target {
    int (*declare)(struct run *r, struct err *e);                    /* and creates the files */
    int (*write)(struct run *r, struct layer_set *s, struct err *e); /* a unit */
    int (*finish)(struct run *r, struct err *e);                     /* small files */
};
extern const struct target target_folder, target_gguf;

struct run {
    const struct quantize_options *o;
    const struct method *method;
    const struct target *target;
    const struct layout *layout; /* NULL: GGUF */
    struct layout_kind kind;
    struct workers workers;
    struct walk *walk;
    struct weights_source source;
    struct token_text text;
    struct calibration calibration;
    struct tap tap;
    struct out out;
    void *state; /* the target's own */
    void (*free_state)(void *state);
    bool calibrated;
    /* While a layer is done: what its matrices become, for a method that propagates. */
    struct layer_set *at;
};

bool run_quantises(const struct run *r, const struct source_tensor *t);

/* All of it. ops, dev: a CPU's. The result is complete or absent. *c, with o->report: how far it is
 * from the source over what is held out of the text. */
struct comparison;
int quantize_model(const struct quantize_options *o, const struct backend_ops *ops,
                   struct device *dev, struct comparison *c, struct err *e);

/* How far `other` is from `model` over the sequences of the text that are held out. */
int quantize_compare(const char *model, const char *other, const struct token_text *t,
                     const struct backend_ops *ops, struct device *dev, struct comparison *c,
                     struct err *e);
#endif
