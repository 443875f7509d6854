/* Milliseconds of preprocessing: a picture in memory to the numbers of a vision tower.
 *
 *   pixels FAMILY WIDTH HEIGHT [THREADS]
 *   pixels show FOLDER WIDTH HEIGHT IN OUT
 *
 * show: the picture is the bytes of the file IN, [HEIGHT][WIDTH][3], and FOLDER has the files of a
 * model. Writes the numbers to OUT; status 3 with a message: it is refused.
 *
 * FAMILY is a model_type of common/vision/vision.h; its sizes are the hub's. The picture is noise
 * over a gradient. Prints "pixels <family> <width> <height> <features> <ms>", the best of several
 * runs, and the same without kernels for this CPU as "plain". */
#include "model-server/encoder/pixels.h"
#include "common/json/json.h"
#include "model-server/encoder/resample_kernels.h"
#include "tests/bench/timing.h"
#include <string.h>
#include <unistd.h>

enum { RUNS = 15 };

/* Everything but the family is the family's own. */
static struct vision *load(const char *family)
{
    char dir[] = "/tmp/pixels-XXXXXX", path[64];
    struct err e = ERR_INIT;
    struct vision *v = NULL;
    if (!mkdtemp(dir))
        exit(1);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    if (!f)
        exit(1);
    fprintf(f, "{\"model_type\": \"%s\", \"vision_config\": {}}", family);
    fclose(f);
    int rc = vision_load(dir, NULL, &v, &e);
    unlink(path);
    rmdir(dir);
    if (rc)
        die(&e);
    if (!v) {
        fprintf(stderr, "%s is no family of pictures\n", family);
        exit(2);
    }
    return v;
}

static void paint(struct image *p)
{
    uint32_t state = 1;
    for (uint32_t y = 0; y < p->height; y++)
        for (uint32_t x = 0; x < p->width; x++)
            for (uint32_t c = 0; c < 3; c++) {
                state = state * 1664525u + 1013904223u;
                p->rgb[3 * ((size_t)y * p->width + x) + c] =
                    (uint8_t)((x * 128 / p->width + y * 64 / p->height) + (state >> 26));
            }
}

static int refuse(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    return 3;
}

static int show(char **argv)
{
    struct err e = ERR_INIT;
    struct vision *v = NULL;
    struct vision_plan plan;
    size_t n = 0;
    const struct image given = {(uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]), NULL, 0, 0};
    if (vision_load(argv[2], NULL, &v, &e))
        return refuse(&e);
    if (!v || vision_plan(v, given.width, given.height, &plan, &e))
        return refuse(&e);
    const struct vision_format *f = vision_format(v);
    const size_t count = pixels_count(f, &plan, f->layout);
    struct image p = given;
    float *out = malloc(count * sizeof(float));
    p.rgb = (uint8_t *)file_read(argv[5], 1 << 28, &n, &e);
    FILE *to = fopen(argv[6], "wb");
    if (!out || !p.rgb || !to || n != 3 * (size_t)p.width * p.height)
        die(&e);
    if (pixels_make(f, &plan, &p, f->layout, NULL, out, &e))
        die(&e);
    printf("%u features, %u crops\n", plan.n_features, plan.n_crops);
    const bool whole = fwrite(out, sizeof(float), count, to) == count;
    fclose(to);
    free(out), free(p.rgb);
    vision_free(v);
    return whole ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "show") == 0)
        return show(argv);
    struct err e = ERR_INIT;
    struct vision_plan plan;
    if (argc < 4) {
        fprintf(stderr, "usage: pixels FAMILY WIDTH HEIGHT [THREADS]\n");
        return 2;
    }
    struct vision *v = load(argv[1]);
    struct image p = {(uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), NULL, 0, 0};
    if (vision_plan(v, p.width, p.height, &plan, &e))
        die(&e);
    const struct vision_format *f = vision_format(v);
    const struct device_options o = {.threads = argc > 4 ? atoi(argv[4]) : 1, .features = ~0ull};
    struct device *dev = backend_cpu.open(&o, &e);
    float *out = malloc(pixels_count(f, &plan, f->layout) * sizeof(float));
    p.rgb = malloc(3 * (size_t)p.width * p.height);
    if (!dev || !out || !p.rgb)
        die(&e);
    paint(&p);
    struct pixels_workers w = {backend_cpu.host_threads(dev), backend_cpu.host_run, dev,
                               resample_features()};
    const double fast = BEST(RUNS, pixels_make(f, &plan, &p, f->layout, &w, out, &e));
    w.features = 0;
    const double plain = BEST(3, pixels_make(f, &plan, &p, f->layout, &w, out, &e));
    printf("pixels %s %u %u %u %.2f plain %.2f\n", argv[1], p.width, p.height, plan.n_features,
           fast * 1e3, plain * 1e3);
    free(p.rgb);
    free(out);
    backend_cpu.close(dev);
    vision_free(v);
    return 0;
}
