/* The flag table and the log line. */
#include "common/flag/flag.h"
#include "common/log/log.h"
#include "common/nearest.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct cfg {
    bool quiet;
    uint32_t port, format;
    uint64_t seed, room;
    double ratio, share;
    const char *model;
    struct flag_list origins;
};
static const char *const formats[] = {"text", "json", "structured=json", NULL};
#define AT(field) .off = offsetof(struct cfg, field)
static const struct flag rows[] = {
    {.name = "model-id",
     .positional = true,
     .required = true,
     .type = FLAG_STR,
     AT(model),
     .help = "Model."},
    {.name = "port",
     .letter = 'p',
     .type = FLAG_U32,
     AT(port),
     .def = "3000",
     .min = 1,
     .max = 65535,
     .help = "Port."},
    {.name = "format",
     .type = FLAG_ENUM,
     AT(format),
     .def = "text",
     .choices = formats,
     .help = "Format."},
    {.name = "seed", .type = FLAG_U64, AT(seed), .help = "Seed."},
    {.name = "ratio",
     .type = FLAG_F64,
     AT(ratio),
     .def = "1.2",
     .min = 0,
     .max = 10,
     .help = "Ratio."},
    {.name = "room",
     .type = FLAG_U64,
     AT(room),
     .unit = "bytes",
     .min = 1,
     .max = 1e15,
     .help = "Room."},
    {.name = "share", .type = FLAG_F64, AT(share), .unit = "fraction or bytes", .help = "Share."},
    {.name = "quiet", .type = FLAG_BOOL, AT(quiet), .help = "Quiet."},
    {.name = "cors-allow-origin", .type = FLAG_LIST, AT(origins), .help = "Origins."},
    {0},
};
static const struct flag_command commands[] = {
    {"measure", "Measure."}, {"serve-all", "Serve."}, {0}};
static const struct flag_program program = {"tester serve", "A test: it's one.", rows, commands};

static int parse(struct cfg *c, struct err *e, char **envp, const char *line)
{
    static char words[512];
    char *argv[32] = {"tester"};
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    *c = (struct cfg){0};
    return flags_parse(&program, c, argc, argv, envp, e);
}

TEST(the_command_line_beats_the_environment_beats_the_default)
{
    struct cfg c;
    struct err e = ERR_INIT;
    char *envp[] = {"PORT=8080", "MODEL_ID=from-env", "CORS_ALLOW_ORIGIN=a,b", "RATIO=", NULL};
    assert_int_equal(parse(&c, &e, envp, "--format=json --seed 18446744073709551615"), 0);
    assert_int_equal(c.port, 8080);
    assert_string_equal(c.model, "from-env");
    assert_int_equal(c.format, 1);
    assert_true(c.seed == UINT64_MAX);
    assert_true(c.ratio == 1.2);
    assert_int_equal(c.origins.n, 2);
    flags_free(&program, &c);
    assert_int_equal(
        parse(&c, &e, envp, "m -p 9 --quiet --cors-allow-origin x --cors-allow-origin y,z"), 0);
    assert_string_equal(c.model, "m");
    assert_int_equal(c.port, 9);
    assert_true(c.quiet);
    assert_int_equal(c.origins.n, 3);
    assert_string_equal(c.origins.v[0], "x");
    flags_free(&program, &c);
}

TEST(bytes_are_counted_in_the_units_of_kubernetes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1", 1},           {"5000000001B", 5000000001}, {"64MiB", 64 << 20}, {"64Mi", 64 << 20},
        {"64M", 64000000},  {"2gb", 2000000000},         {"1.5KiB", 1536},    {"3k", 3000},
        {"1Ti", 1ull << 40}};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char line[64];
        struct cfg c;
        snprintf(line, sizeof(line), "m --room %s --share %s", cases[i].text, cases[i].text);
        assert_int_equal(parse(&c, &e, NULL, line), 0);
        assert_int_equal(c.room, cases[i].bytes);
        assert_true(c.share == (double)cases[i].bytes);
        flags_free(&program, &c);
    }
}

TEST(faults_name_the_option_and_what_was_expected)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"m --nope 1", "unexpected argument '--nope' found; see tester serve --help"},
        {"m n", "unexpected argument 'n' found; see tester serve --help"},
        {"m --prot 1",
         "unexpected argument '--prot' found; did you mean '--port'? See tester serve --help"},
        {"m --fromat=json", "unexpected argument '--fromat=json' found; did you mean "
                            "'--format'? See tester serve --help"},
        {"m --hepl",
         "unexpected argument '--hepl' found; did you mean '--help'? See tester serve --help"},
        {"m mesure",
         "unexpected argument 'mesure' found; did you mean 'measure'? See tester serve --help"},
        {"m -x", "unexpected argument '-x' found; see tester serve --help"},
        {"m --room 1.3", "--room: `1.3` is not a whole number"},
        {"m --room 64X", "--room: `64X` is not a number of bytes, as 67108864, 64MiB or 64M"},
        {"m --share 64iB", "--share: `64iB` is not a number of bytes, as 67108864, 64MiB or 64M"},
        {"m --room 2000TiB", "--room: 2000TiB is outside 1..1e+15"},
        {"m --seed 1M", "--seed: `1M` is not a number"},
        {"m --seed 18446744073709551616", "--seed: `18446744073709551616` is not a number"},
        {"m --port 0", "--port: 0 is outside 1..65535"},
        {"m --port x", "--port: `x` is not a number"},
        {"m --port 1.5", "--port: `1.5` is not a whole number"},
        {"m --seed -1", "--seed: `-1` is not a whole number"},
        {"m --format xml", "--format: `xml` is not one of text, json, structured"},
        {"m --quiet=maybe", "--quiet=maybe: `maybe` is not true or false"},
        {"m --port", "--port needs a value"},
        {"--port 1", "model-id is required; see tester serve --help"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cfg c;
        struct err e = ERR_INIT;
        assert_int_equal(parse(&c, &e, NULL, cases[i].line), -1);
        assert_string_equal(e.msg, cases[i].why);
        flags_free(&program, &c);
    }
}

static void all_help(const struct flag_program *p, FILE *out) { flags_help(p, NULL, out); }

TEST(every_row_is_on_every_page)
{
    void (*const pages[])(const struct flag_program *, FILE *) = {all_help, flags_markdown,
                                                                  flags_man};
    for (size_t i = 0; i < 3; i++) {
        char *text;
        size_t n;
        FILE *f = open_memstream(&text, &n);
        pages[i](&program, f);
        fclose(f);
        for (const struct flag *r = rows; r->name; r++) { /* man pages escape hyphens */
            const char *hyphen = strrchr(r->name, '-');
            assert_non_null(strstr(text, hyphen ? hyphen + 1 : r->name));
        }
        for (const struct flag_command *c = commands; c->name && i == 0; c++)
            assert_non_null(strstr(text, c->name));
        assert_non_null(strstr(text, "CORS_ALLOW_ORIGIN"));
        free(text);
    }
}

static char *help_of(const struct flag_program *p, const char *word)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    flags_help(p, word, f);
    fclose(f);
    return text;
}

TEST(help_has_headings_and_finds_words)
{
    static const char *const modes[] = {"fast", "slow", "quick=fast", NULL};
    static const struct flag few[] = {
        {.name = "alpha", .type = FLAG_STR, .heading = "First part", .help = "One of Them."},
        {.name = "beta", .type = FLAG_ENUM, .choices = modes, .help = "Another."},
        {.name = "gamma", .type = FLAG_STR, .heading = "Second part", .help = "The last."},
        {0}};
    const struct flag_program p = {"tester", "It works.", few, NULL, NULL};
    char *all = help_of(&p, NULL), *them = help_of(&p, "them"), *gamma = help_of(&p, "GAM");
    const char *first = strstr(all, "\nFirst part:\n"), *second = strstr(all, "\nSecond part:\n");
    assert_true(first && second && first < strstr(all, "--alpha") &&
                strstr(all, "--beta") < second && second < strstr(all, "--gamma"));
    assert_non_null(strstr(all, "[choices: fast, slow, quick]"));
    assert_true(strstr(them, "--alpha") && strstr(them, "First part") && !strstr(them, "--beta") &&
                !strstr(them, "Second part") && !strstr(them, "Usage"));
    assert_true(strstr(gamma, "Second part:") && !strstr(gamma, "First part"));
    char *none = help_of(&p, "delta");
    assert_string_equal(none, "No option of tester has `delta` in its name or description.\n");
    free(none);
    free(gamma);
    free(them);
    free(all);
}

TEST(another_word_for_a_choice_is_that_choice)
{
    struct cfg c;
    struct err e = ERR_INIT;
    assert_int_equal(parse(&c, &e, NULL, "m --format structured"), 0);
    assert_int_equal(c.format, 1);
    flags_free(&program, &c);
    assert_int_equal(parse(&c, &e, NULL, "m --format structured=json"), -1);
    flags_free(&program, &c);
}

TEST(words_are_near_by_their_edits)
{
    static const struct {
        const char *a, *b;
        uint32_t distance;
    } cases[] = {{"", "", 0},         {"", "abc", 3},           {"port", "port", 0},
                 {"prot", "port", 1}, {"prt", "port", 1},       {"poort", "port", 1},
                 {"pork", "port", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(nearest_distance(cases[i].a, strlen(cases[i].a), cases[i].b),
                         cases[i].distance);
        assert_int_equal(nearest_distance(cases[i].b, strlen(cases[i].b), cases[i].a),
                         cases[i].distance);
    }
    char longest[NEAREST_MAX + 2];
    memset(longest, 'a', sizeof(longest));
    longest[NEAREST_MAX + 1] = 0;
    assert_int_equal(nearest_distance(longest, NEAREST_MAX + 1, "a"), UINT32_MAX);
    assert_int_equal(nearest_distance(longest, NEAREST_MAX, longest + 1), 0);
    uint32_t best = UINT32_MAX;
    assert_false(nearest_is("nope", 4, "port", &best));
    assert_true(nearest_is("porz", 4, "port", &best));
    assert_false(nearest_is("porz", 4, "pory", &best)); /* no nearer than the first */
}

TEST(a_man_page_has_a_name_and_no_line_that_is_a_request)
{
    static const struct flag one[] = {
        {.name = "a-b", .type = FLAG_STR, .off = 0, .help = ".starts with a dot, has a \\."}, {0}};
    const struct flag_program p = {"tester serve", "It works: well.", one, commands};
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    flags_man(&p, f);
    fclose(f);
    assert_non_null(strstr(text, ".TH \"tester-serve\" 1 "));
    assert_non_null(strstr(text, ".SH NAME\ntester-serve \\- It works\n"));
    assert_non_null(strstr(text, ".SH COMMANDS\n.TP\n\\fBmeasure\\fR\nMeasure.\n"));
    assert_non_null(strstr(text, "\\fB\\-\\-a\\-b\\fR"));
    assert_non_null(strstr(text, "\n\\&.starts with a dot, has a \\e."));
    free(text);
}

static const char *logged(char *line, size_t cap, int fd)
{
    ssize_t n = read(fd, line, cap - 1);
    line[n < 0 ? 0 : n] = 0;
    return line;
}

TEST(log_lines_are_text_or_json_and_survive_a_relay)
{
    int p[2];
    char line[1024], again[1024];
    assert_int_equal(pipe(p), 0);
    log_init("shard", LOG_INFO, true, p[1]);
    LOG(LOG_INFO, "ready \"now\"", LOGI("rank", 1), LOGS("path", "/tmp/x"), LOGD("seconds", 0.5));
    LOG(LOG_DEBUG, "not this one", LOGI("rank", 1));
    logged(line, sizeof(line), p[0]);
    assert_non_null(
        strstr(line, "\"level\":\"INFO\",\"fields\":{\"message\":\"ready \\\"now\\\"\",\"rank\":1,"
                     "\"path\":\"/tmp/x\",\"seconds\":0.5},\"target\":\"shard\"}\n"));
    log_init("launcher", LOG_INFO, false, p[1]);
    log_relay("shard-1", line, strlen(line) - 1);
    logged(again, sizeof(again), p[0]);
    assert_non_null(
        strstr(again, "  INFO shard-1: ready \"now\" rank=1 path=/tmp/x seconds=0.5\n"));
    LOG(LOG_INFO, "x", LOGS("a", "b=c \n\"d"), LOGS("e", ""), LOGS("f", "g"));
    logged(again, sizeof(again), p[0]);
    assert_non_null(strstr(again, ": x a=\"b=c \\n\\\"d\" e=\"\" f=g\n"));
    log_relay("shard-1", "Segfault-like noise {", 21);
    logged(again, sizeof(again), p[0]);
    assert_non_null(strstr(again, "shard-1: Segfault-like noise {\n"));
    log_init("", LOG_INFO, false, STDERR_FILENO);
    close(p[0]);
    close(p[1]);
}

int main(void) { return tests_run(NULL, NULL); }
