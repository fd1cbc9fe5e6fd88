/* The address book: what comes back, and what is done about files that somebody has spoilt. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/env/sim/env.h"
#include "peer/files/address_book.h"

static void count_line(void *context, enum log_level level, const char *line)
{
    uint32_t *warnings = context;

    *warnings += level == LOG_WARN && strstr(line, "swarm.json") != NULL &&
                 strstr(line, "--bootstrap") != NULL;
}

/* A full book comes back as it went in, entry by entry. */
static void a_book_comes_back_as_it_went_in(void **state)
{
    struct address_book book = {.incarnation = UINT64_C(1) << 62}, back;
    struct fault why = {""};
    char address[ADDRESS_BYTES_MAX], *text;

    (void)state;
    for (unsigned i = 0; i < ADDRESS_BOOK_MAX; i++) {
        snprintf(address, sizeof address, i % 2 == 0 ? "peer-%u.example:7077" : "[2001:db8::%x]:1",
                 i);
        assert_true(address_book_add(&book, address));
        assert_false(address_book_add(&book, address));
    }
    assert_false(address_book_add(&book, "one.more:1"));
    assert_true(address_book_add_anchor(&book, "peer-0.example:7077"));
    assert_false(address_book_add_anchor(&book, "no address"));
    text = address_book_format(&book);
    assert_non_null(text);
    assert_int_equal(address_book_parse(text, strlen(text), &back, &why), RC_OK);
    assert_memory_equal(&back, &book, sizeof back);
    mem_free(text);
}

/* Whatever is wrong with a file, it is refused whole, with the reason, and nothing is taken. */
static void spoilt_files_are_refused_whole(void **state)
{
    static const char *const spoilt[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"incarnation\": -1}",
        "{\"incarnation\": 4611686018427387905}",
        "{\"incarnation\": \"7\"}",
        "{\"incarnation\": 7, \"addresses\": 1}",
        "{\"incarnation\": 7, \"addresses\": [\"a:1\", 2]}",
        "{\"incarnation\": 7, \"addresses\": [\"a:1\", \"b\"]}",
        "{\"incarnation\": 7, \"addresses\": [\"a:1\", \"-b:1\"]}",
        "{\"incarnation\": 7, \"addresses\": [\"a:1\", \"b:70000\"]}",
        "{\"incarnation\": 7, \"anchors\": [\"a:1\", \"b:1\", \"c:1\", \"d:1\", \"e:1\"]}",
        "{\"incarnation\": 7, \"incarnation\": 8}",
    };
    struct address_book book;

    (void)state;
    for (size_t i = 0; i < sizeof spoilt / sizeof spoilt[0]; i++) {
        struct fault why = {""};
        struct address_book before;

        memset(&book, 0x5a, sizeof book);
        before = book;
        assert_int_not_equal(address_book_parse(spoilt[i], strlen(spoilt[i]), &book, &why), RC_OK);
        assert_true(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
        assert_memory_equal(&book, &before, sizeof book);
    }
}

/* A damaged file costs a warning and its content; the peer starts, and the next save mends it. */
static void a_damaged_file_is_left_out(void **state)
{
    struct sim_options options = {.seed = 1, .hosts_max = 1};
    struct sim_world *world = sim_world_create(&options);
    struct address_book book;
    struct fault why = {""};
    uint32_t warnings = 0, host;
    struct log log = {LOG_DEBUG, count_line, &warnings};
    struct env *env = sim_host_create(world, &host);
    struct piece piece = {"{\"incarnation\": 3, \"addresses\": [", 33};

    (void)state;
    assert_int_equal(address_book_load(env, &log, &book, &why), RC_OK);
    assert_true(book.incarnation == 0 && book.count == 0 && warnings == 0);
    assert_int_equal(env->ops->store_put(env, ADDRESS_BOOK_FILE, &piece, 1, &why), RC_OK);
    assert_int_equal(address_book_load(env, &log, &book, &why), RC_OK);
    assert_true(book.incarnation == 0 && book.count == 0 && warnings == 1);
    book.incarnation = 9;
    assert_true(address_book_add(&book, "a.example:1"));
    assert_int_equal(address_book_store(env, &book, &why), RC_OK);
    assert_int_equal(address_book_load(env, &log, &book, &why), RC_OK);
    assert_true(book.incarnation == 9 && book.count == 1 && warnings == 1);
    sim_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_book_comes_back_as_it_went_in),
        cmocka_unit_test(spoilt_files_are_refused_whole),
        cmocka_unit_test(a_damaged_file_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
