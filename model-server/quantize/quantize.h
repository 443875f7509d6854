/* quantize.h - quantises a model to a checkpoint that other programs read.
 *
 * One layer is in memory at a time. A method (methods.c) is a row: the input statistics that it
 * needs, whether it transforms weights first, and how it rounds. A target is the output format: a
 * safetensors folder in a layout (layout.h), or a GGUF file. */
#ifndef MODEL_SERVER_QUANTIZE_QUANTIZE_H
#define MODEL_SERVER_QUANTIZE_QUANTIZE_H
#include "model-server/quantize/calibrate.h"
#include "model-server/quantize/gptq.h"
#include "model-server/quantize/layout.h"
#include "model-server/quantize/source.h"
#include "model-server/quantize/tap.h"

/* Strings are owned by the caller. */
struct quantize_options {
    const char *model, *out;
    const char *method;   /* a name of methods.c, or "gguf:" and a type */
    bool packed;          /* compressed-tensors' pack-quantized instead of the method's layout */
    uint32_t bits, group; /* 0: the method's default */
    bool row_group;       /* one scale per row */
    bool symmetric, asymmetric;
    enum gptq_order order;
    double damp;
    const char *calibration; /* a file; NULL: the built-in text; "none" */
    uint32_t context, tokens;
    bool report;          /* compare the result with the source */
    char *const *exclude; /* matrices whose name contains one of these are not quantised */
    uint32_t n_exclude;
};

struct run;
/* A tensor of the current layer. */
struct layer_tensor {
    const struct source_tensor *s;
    float *w;      /* its numbers, owned; NULL: not read */
    bool quantise; /* otherwise it is copied, or written from w in its stored type */
    const struct tap_input *in;
    const float *weight; /* [cols] mean squared inputs, the cost of errors; or NULL */
    float *weights;      /* owned */
    float *by;           /* [cols] divisors of its inputs after folding, owned; or NULL */
};
/* The tensors that are in memory together: those of a layer, or those outside all layers. */
struct layer_set {
    struct layer_tensor *t;
    uint32_t n;
    int layer;
};
/* Reads t->w unless it is set. */
int layer_tensor_read(struct layer_tensor *t, struct err *e);
struct layer_tensor *layer_set_find(const struct layer_set *s, enum role r, int expert,
                                    const char *suffix);

struct method {
    const char *name;
    unsigned needs;              /* input statistics, tap_needs */
    bool propagates;             /* the next layer's inputs come from the quantised layer */
    uint32_t bits, group;        /* defaults */
    bool symmetric;              /* default */
    const struct layout *layout; /* default; NULL: GGUF */
    int (*fold)(struct run *r, struct layer_set *s, struct err *e); /* or NULL */
    /* Computes codes and grids of an initialised matrix; t->w may be overwritten. */
    int (*round)(struct run *r, struct layer_tensor *t, struct grid_matrix *m, struct err *e);
};
/* Finds a method by name. NULL: ERR_VALIDATION lists the known ones. */
const struct method *method_find(const char *word, struct err *e);

/* An output format. declare() is called once, before the first unit; write() for each unit, which
 * is a layer or the tensors outside all layers; finish() once. 0, or -1 with an error. */
struct target {
    int (*declare)(struct run *r, struct err *e);                    /* and creates the files */
    int (*write)(struct run *r, struct layer_set *s, struct err *e); /* a unit */
    int (*finish)(struct run *r, struct err *e);                     /* small files */
};
extern const struct target target_folder, target_gguf;

/* One quantisation. Owned by quantize_model(); methods and targets read it. */
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
    void *state; /* private to the target */
    void (*free_state)(void *state);
    bool calibrated;
    /* The layer in progress, whose quantised matrices a propagating method runs with. */
    struct layer_set *at;
};

/* A matrix of a linear layer that no --exclude names. */
bool run_quantises(const struct run *r, const struct source_tensor *t);

/* Quantises a model. ops, dev: the CPU backend. The output is complete or absent. With o->report,
 * *c receives the comparison with the source over the held-out sequences. */
struct comparison;
int quantize_model(const struct quantize_options *o, const struct backend_ops *ops,
                   struct device *dev, struct comparison *c, struct err *e);

/* Compares `other` with `model` over the held-out sequences of the text. */
int quantize_compare(const char *model, const char *other, const struct token_text *t,
                     const struct backend_ops *ops, struct device *dev, struct comparison *c,
                     struct err *e);
#endif
