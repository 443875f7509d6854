/* The bar of a start. */
#include "launcher/progress.h"
#include "tests/unit/test.h"
#include <string.h>

TEST(a_bar_fits_its_line)
{
    struct startup_view v = {.phase = STARTUP_WEIGHTS, .percent = 50, .left = 12};
    char out[80];
    progress_bar(&v, 79, out, sizeof(out));
    assert_string_equal(out,
                        "loading [###############               ] weights 50 %, about 12 s left");
    v.percent = 100;
    progress_bar(&v, 79, out, sizeof(out));
    assert_null(strstr(out, " ]"));
    v = (struct startup_view){.phase = STARTUP_RENDEZVOUS, .percent = -1, .left = -1};
    progress_bar(&v, 79, out, sizeof(out));
    assert_string_equal(out, "loading [                              ] rendezvous");
    progress_bar(&v, 12, out, sizeof(out));
    assert_int_equal(strlen(out), 12);
}

TEST(children_share_the_board)
{
    struct progress p;
    struct err e = ERR_INIT;
    assert_int_equal(progress_init(&p, 2, 2, &e), 0);
    startup_begin(p.board, 2, STARTUP_CONFIG);
    startup_begin(p.board, 3, STARTUP_CONFIG);
    startup_begin(p.board, 3, STARTUP_WEIGHTS);
    assert_int_equal(startup_look(p.board, p.first, p.n).phase, STARTUP_CONFIG);
    progress_free(&p);
}

int main(void) { return tests_run(NULL, NULL); }
