/* The folder of packed weights: one writer a file, and a limit on all of them. */
#include "model-server/packed/folder.h"
#include "tests/unit/test.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 1 << 16 };
#define KEY_A "0123456789abcdef"
#define KEY_B "fedcba9876543210"

static char root[] = "/tmp/packed-dir-XXXXXX";

static const char *in_root(const char *name)
{
    static char path[2][200];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", root, name);
    return path[turn];
}

static bool is_there(const char *name) { return access(in_root(name), F_OK) == 0; }

static void add(const char *name, time_t used)
{
    static char bytes[SIZE];
    const int fd = open(in_root(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, bytes, SIZE) == SIZE && fsync(fd) == 0);
    const struct timespec t[2] = {{.tv_sec = used}, {.tv_sec = used}};
    assert_int_equal(futimens(fd, t), 0);
    close(fd);
}

static int empty_root(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s/*", root);
    return system(command);
}

TEST_WITH(other_contents_of_a_label_go, empty_root, NULL)
{
    add("m-1-" KEY_A ".packed", 100);
    add("m-1-" KEY_B ".packed", 100);
    add("m-12-" KEY_A ".packed", 100); /* another label */
    add("m-1-short.packed", 100);
    assert_true(packed_folder_trim(root, "m-1", "m-1-" KEY_B ".packed", 10, 1 << 30));
    assert_false(is_there("m-1-" KEY_A ".packed"));
    assert_true(is_there("m-1-" KEY_B ".packed"));
    assert_true(is_there("m-12-" KEY_A ".packed") && is_there("m-1-short.packed"));
}

TEST_WITH(what_was_used_longest_ago_makes_room, empty_root, NULL)
{
    add("a-1-" KEY_A ".packed", 300);
    add("b-1-" KEY_A ".packed", 100);
    add("c-1-" KEY_A ".packed", 200);
    add("of-the-user", 1);
    assert_true(packed_folder_trim(root, "n-1", "n-1-" KEY_A ".packed", SIZE, 2 * SIZE));
    assert_true(is_there("a-1-" KEY_A ".packed"));
    assert_false(is_there("b-1-" KEY_A ".packed") || is_there("c-1-" KEY_A ".packed"));
    assert_true(is_there("of-the-user"));
    /* more than there ever is: nothing has to go for it */
    assert_false(packed_folder_trim(root, "n-1", "n-1-" KEY_A ".packed", 3 * SIZE, 2 * SIZE));
    assert_true(is_there("a-1-" KEY_A ".packed"));
}

TEST_WITH(one_writes_and_the_others_do_not, empty_root, NULL)
{
    const int fd = packed_folder_begin(in_root("a.packed.tmp"));
    assert_true(fd >= 0);
    assert_int_equal(packed_folder_begin(in_root("a.packed.tmp")), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    (void)packed_folder_trim(root, "x-1", "x", 1, 1 << 30); /* it is not taken for a leftover */
    assert_true(is_there("a.packed.tmp"));
    assert_true(write(fd, "abc", 3) == 3);
    close(fd); /* killed: what is left is begun anew */
    const int again = packed_folder_begin(in_root("a.packed.tmp"));
    struct stat st;
    assert_true(again >= 0 && fstat(again, &st) == 0 && st.st_size == 0);
    close(again);
    (void)packed_folder_trim(root, "x-1", "x", 1, 1 << 30);
    assert_false(is_there("a.packed.tmp"));
}

TEST_WITH(a_link_is_not_followed, empty_root, NULL)
{
    add("target", 1);
    assert_int_equal(symlink("target", in_root("b.packed.tmp")), 0);
    assert_int_equal(packed_folder_begin(in_root("b.packed.tmp")), -1);
    struct stat st;
    assert_true(stat(in_root("target"), &st) == 0 && st.st_size == SIZE);
}

TEST_WITH(the_folder_is_made, empty_root, NULL)
{
    assert_true(packed_folder_make(in_root("new")) && packed_folder_make(in_root("new")));
    assert_false(packed_folder_make(in_root("no/such")));
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int clean_up(void **state) { return empty_root(state) || rmdir(root); }

int main(void) { return tests_run(set_up, clean_up); }
