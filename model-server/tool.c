#include "model-server/tool.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/shapes.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *const tool_dtypes[] = {"auto", "float32", "float16", "bfloat16", NULL};
const char *const tool_levels[] = {"error", "warn", "info", "debug", "trace", NULL};

static int load(struct tool *t, const struct tool_options *o, const char *config, struct err *e)
{
    const struct device_options d = {.threads = (int)o->threads,
                                     .features = ~(uint64_t)0,
                                     .arith = activations_plain(o->activations, (int)o->dtype - 1)};
    enum quant quant;
    if (quant_parse(o->quantize, &quant, e) || !(t->ops = backend_find(o->device, e)) ||
        (o->watch && !(t->ops = o->watch(t->ops))) || !(t->dev = t->ops->open(&d, e)))
        return -1;
    const struct model_options m = {.ops = t->ops,
                                    .dev = t->dev,
                                    .comm = comm_solo(),
                                    .dtype = (int)o->dtype - 1,
                                    .quant = quant,
                                    .activations = o->activations,
                                    .quantize = o->quantize,
                                    .random_config = config,
                                    .rope_scaling = o->rope_scaling,
                                    .rope_factor = o->rope_factor};
    int64_t start = clock_ns();
    if (!(t->model = model_load(config ? o->shape : o->model, &m, e)))
        return -1;
    if (model_info(t->model)->attends_text)
        return err_set(e, ERR_VALIDATION,
                       "a %s model attends to what an encoder reads: only `serve` runs it",
                       model_info(t->model)->type);
    t->load_s = (double)(clock_ns() - start) * 1e-9;
    t->kv_dtype = o->kv_dtype ? kv_dtype_chosen(o->kv_dtype) : model_kv_dtype(t->model);
    return 0;
}

int tool_open(struct tool *t, const struct tool_options *o, struct err *e)
{
    char *config = NULL;
    *t = (struct tool){0};
    if (!o->model == !o->shape)
        return err_set(e, ERR_VALIDATION,
                       o->model ? "a model and --shape: only one of the two"
                                : "the folder of a model is missing");
    if (o->shape && !(config = shape_config(o->shape, e)))
        return -1;
    int rc = load(t, o, config, e);
    free(config);
    return rc;
}

void tool_close(struct tool *t)
{
    model_free(t->model);
    if (t->dev)
        t->ops->close(t->dev);
    *t = (struct tool){0};
}

int tool_main(const struct flag_program *program, void *config, const struct tool_options *o,
              int (*run)(const void *config, struct err *e), int argc, char **argv)
{
    struct err e = ERR_INIT;
    int rc = flags_parse(program, config, argc, argv, environ, &e);
    int status = rc < 0 ? FLAGS_USAGE : 0;
    if (rc == 0) {
        log_init("model_server", (enum log_level)o->log_level, false, 2);
        rc = run(config, &e);
        status = rc < 0 ? 1 : 0;
    }
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", program->name, e.msg);
    flags_free(program, config);
    return status;
}
