/* uv_env: what only real sockets and threads can show. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"
#include "peer/env/env.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURNS = 20000 };

struct told {
    struct env *env;
    uint64_t accepted, connected, lost;
    unsigned accepted_count, connected_count, lost_count, frames_count, wakes_count;
    char remote[ADDRESS_BYTES_MAX], why[128];
    enum rc lost_rc;
    bool must_stop_on_wake, must_hang_up_on_accept;
};

static void on_accepted(void *context, uint64_t link, const char *remote)
{
    struct told *told = context;

    told->accepted = link;
    told->accepted_count++;
    snprintf(told->remote, sizeof told->remote, "%s", remote);
    if (told->must_hang_up_on_accept) told->env->ops->hangup(told->env, link);
}

static void on_connected(void *context, uint64_t link)
{
    struct told *told = context;

    told->connected = link;
    told->connected_count++;
}

static void on_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    (void)link, (void)frame, (void)count;
    ((struct told *)context)->frames_count++;
}

static void on_drain(void *context, uint64_t link)
{
    (void)context, (void)link;
}

static void on_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    struct told *told = context;

    told->lost = link;
    told->lost_rc = rc;
    told->lost_count++;
    snprintf(told->why, sizeof told->why, "%s", why);
}

static void on_wake(void *context)
{
    struct told *told = context;

    told->wakes_count++;
    if (told->must_stop_on_wake) told->env->ops->stop(told->env);
}

static struct told *told_open(void)
{
    struct told *told = calloc(1, sizeof *told);
    struct uv_env_options options = {.folder = NULL};
    struct env_events events = {.context = told,
                                .on_accepted = on_accepted,
                                .on_connected = on_connected,
                                .on_frame = on_frame,
                                .on_drain = on_drain,
                                .on_lost = on_lost,
                                .on_wake = on_wake};
    struct fault why;

    assert_non_null(told);
    assert_int_equal(uv_env_create(&options, &told->env, &why), RC_OK);
    told->env->ops->set_events(told->env, &events);
    return told;
}

static void told_close(struct told *told)
{
    uv_env_destroy(told->env);
    free(told);
    assert_int_equal(mem_blocks(), 0);
}

#define turn_until(told, condition)                                                                \
    do {                                                                                           \
        for (int turns_ = 0; !(condition); turns_++) {                                             \
            if (turns_ == TURNS) fail_msg("waited in vain: " #condition);                          \
            uv_env_poll((told)->env, NS_PER_MS);                                                   \
        }                                                                                          \
    } while (0)

static void listen_on(struct told *told, const char *address, char bound[ADDRESS_BYTES_MAX])
{
    struct fault why = {.text = ""};
    enum rc rc = told->env->ops->listen(told->env, address, bound, ADDRESS_BYTES_MAX, &why);

    if (rc != RC_OK) fail_msg("%s", why.text);
}

static void a_port_in_use_is_said_in_words_and_another_can_be_taken(void **state)
{
    /* RC_IO, "address already in use", and the same env may listen elsewhere afterwards. */
    struct told *first = told_open(), *second = told_open();
    char bound[ADDRESS_BYTES_MAX], other[ADDRESS_BYTES_MAX];
    struct fault why = {.text = ""};

    (void)state;
    listen_on(first, "127.0.0.1:0", bound);
    assert_int_equal(second->env->ops->listen(second->env, bound, other, sizeof other, &why),
                     RC_IO);
    assert_non_null(strstr(why.text, "address already in use"));
    assert_non_null(strstr(why.text, bound));
    listen_on(second, "127.0.0.1:0", other);
    assert_string_not_equal(bound, other);
    uv_env_destroy(first->env);
    free(first);
    told_close(second);
}

static void an_address_of_another_machine_cannot_be_listened_on(void **state)
{
    /* 192.0.2.1 is reserved for examples. */
    struct told *told = told_open();
    char bound[ADDRESS_BYTES_MAX];
    struct fault why = {.text = ""};

    (void)state;
    assert_int_equal(told->env->ops->listen(told->env, "192.0.2.1:0", bound, sizeof bound, &why),
                     RC_IO);
    assert_non_null(strstr(why.text, "does not have that address"));
    told_close(told);
}

static bool has_ip6(void)
{
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&name, sizeof name) == 0;

    if (fd >= 0) close(fd);
    return has;
}

static void ip6_addresses_work_in_brackets(void **state)
{
    /* Listening on [::1], dialling it, and being told of it in the same form. */
    struct told *told;
    char bound[ADDRESS_BYTES_MAX];
    uint64_t link;

    (void)state;
    if (!has_ip6()) {
        puts("skipped: this machine has no IPv6 loopback");
        skip();
    }
    told = told_open();
    listen_on(told, "[::1]:0", bound);
    assert_memory_equal(bound, "[::1]:", 6);
    assert_int_equal(told->env->ops->dial(told->env, bound, &link), RC_OK);
    turn_until(told, told->connected_count == 1 && told->accepted_count == 1);
    assert_memory_equal(told->remote, "[::1]:", 6);
    told_close(told);
}

static void names_are_looked_up_and_their_addresses_tried_in_turn(void **state)
{
    /* "localhost" may mean ::1 first, where nobody listens: the connection stands all the same. */
    struct told *told = told_open();
    char bound[ADDRESS_BYTES_MAX], address[ADDRESS_BYTES_MAX];
    uint64_t link;

    (void)state;
    listen_on(told, "127.0.0.1:0", bound);
    snprintf(address, sizeof address, "localhost%s", strchr(bound, ':'));
    assert_int_equal(told->env->ops->dial(told->env, address, &link), RC_OK);
    turn_until(told, told->connected_count == 1 && told->accepted_count == 1);
    assert_memory_equal(told->remote, "127.0.0.1:", 10);
    assert_int_equal(told->lost_count, 0);
    told_close(told);
}

static void a_name_that_does_not_exist_is_lost_with_words(void **state)
{
    /* Without a name server it may take until the dial's deadline. */
    struct told *told = told_open();
    uint64_t link;

    (void)state;
    assert_int_equal(told->env->ops->dial(told->env, "no-such-host.invalid:1", &link), RC_OK);
    turn_until(told, told->lost_count == 1);
    assert_int_equal(told->lost, link);
    assert_true(told->lost_rc == RC_NOT_FOUND || told->lost_rc == RC_TIMEOUT);
    assert_string_not_equal(told->why, "");
    told_close(told);
}

static void closing_down_in_the_middle_of_anything_leaves_nothing(void **state)
{
    /* Dials, queued frames, a refused one, a paused link: destroy frees it all. But for lookups,
     * see test_uv_dial.c. */
    static const char *const addresses[] = {"[::1]:9", "127.0.0.1:9", "192.0.2.1:9", "127.0.0.1:9"};
    struct told *told = told_open();
    char bound[ADDRESS_BYTES_MAX];
    struct blob *frame = blob_create(1024 * 1024);
    uint64_t link;

    (void)state;
    memset(frame->bytes, 0, frame->count);
    listen_on(told, "127.0.0.1:0", bound);
    assert_int_equal(told->env->ops->dial(told->env, bound, &link), RC_OK);
    turn_until(told, told->connected_count == 1 && told->accepted_count == 1);
    told->env->ops->link_pause(told->env, told->accepted, true);
    while (told->env->ops->send(told->env, link, frame) == RC_OK) {
        continue;
    }
    told->env->ops->link_pause(told->env, told->accepted, false);
    for (size_t i = 0; i < ARRAY_COUNT(addresses); i++) {
        uint64_t other;

        assert_int_equal(told->env->ops->dial(told->env, addresses[i], &other), RC_OK);
        if (i % 2 == 0) told->env->ops->hangup(told->env, other);
    }
    uv_env_destroy(told->env);
    assert_int_equal(frame->references, 1);
    blob_unref(frame);
    free(told);
    assert_int_equal(mem_blocks(), 0);
}

static void run_ends_with_stop_even_if_the_other_side_does_not_read(void **state)
{
    /* A plain socket connects and never reads; the farewell is cut off, run() returns. */
    struct told *told = told_open();
    char bound[ADDRESS_BYTES_MAX];
    struct sockaddr_in name = {.sin_family = AF_INET};
    struct blob *frame = blob_create(1024 * 1024);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    memset(frame->bytes, 0, frame->count);
    listen_on(told, "127.0.0.1:0", bound);
    name.sin_port = htons((uint16_t)strtoul(strchr(bound, ':') + 1, NULL, 10));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (const struct sockaddr *)&name, sizeof name), 0);
    turn_until(told, told->accepted_count == 1);
    for (int quiet = 0; quiet < 20; quiet++) {
        if (told->env->ops->send(told->env, told->accepted, frame) == RC_OK) quiet = 0;
        uv_env_poll(told->env, NS_PER_MS);
    }
    told->must_stop_on_wake = true;
    told->env->ops->wake_at(told->env, 0);
    uv_env_run(told->env);
    assert_int_equal(told->wakes_count, 1);
    assert_int_equal(told->lost_count, 0);
    blob_unref(frame);
    close(fd);
    told_close(told);
}

static void a_reset_while_writing_is_no_signal(void **state)
{
    /* The other side resets; writes go on failing quietly until on_lost; SIGPIPE does not kill us.
     */
    struct told *told = told_open();
    char bound[ADDRESS_BYTES_MAX];
    struct sockaddr_in name = {.sin_family = AF_INET};
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    struct blob *frame = blob_create(100000);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    memset(frame->bytes, 0, frame->count);
    listen_on(told, "127.0.0.1:0", bound);
    name.sin_port = htons((uint16_t)strtoul(strchr(bound, ':') + 1, NULL, 10));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (const struct sockaddr *)&name, sizeof name), 0);
    turn_until(told, told->accepted_count == 1);
    told->env->ops->link_pause(told->env, told->accepted, true); /* only writes can notice */
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    close(fd);
    for (int i = 0; i < 10 && told->lost_count == 0; i++) {
        (void)!told->env->ops->send(told->env, told->accepted, frame);
        uv_env_poll(told->env, NS_PER_MS);
    }
    turn_until(told, told->lost_count == 1);
    assert_int_equal(told->lost_rc, RC_CLOSED);
    blob_unref(frame);
    told_close(told);
}

static void hanging_up_at_once_on_whoever_comes_works(void **state)
{
    /* From inside on_accepted; a hundred in a row, more than may linger. */
    struct told *told = told_open();
    char bound[ADDRESS_BYTES_MAX];

    (void)state;
    told->must_hang_up_on_accept = true;
    listen_on(told, "127.0.0.1:0", bound);
    for (unsigned i = 0; i < 100; i++) {
        uint64_t link;

        assert_int_equal(told->env->ops->dial(told->env, bound, &link), RC_OK);
    }
    turn_until(told, told->accepted_count == 100 && told->lost_count == 100);
    told_close(told);
}

/* ---- jobs ---- */

struct meeting { /* two jobs that can only end together */
    pthread_barrier_t barrier;
    pthread_t loop;
    unsigned done_count;
};

struct meeting_job {
    struct job job;
    struct meeting *meeting;
    bool was_on_loop;
};

static void meeting_run(struct job *base)
{
    struct meeting_job *job = (struct meeting_job *)base;

    job->was_on_loop = pthread_equal(pthread_self(), job->meeting->loop) != 0;
    (void)pthread_barrier_wait(&job->meeting->barrier);
}

static void meeting_done(struct job *base)
{
    struct meeting_job *job = (struct meeting_job *)base;

    assert_true(pthread_equal(pthread_self(), job->meeting->loop));
    job->meeting->done_count++;
}

static void lanes_run_at_the_same_time_and_off_the_loop(void **state)
{
    /* Three jobs in three lanes wait for each other: in one thread they would hang. */
    struct told *told = told_open();
    struct meeting meeting = {.loop = pthread_self()};
    struct meeting_job jobs[LANE_COUNT];

    (void)state;
    assert_int_equal(pthread_barrier_init(&meeting.barrier, NULL, LANE_COUNT), 0);
    for (int i = 0; i < LANE_COUNT; i++) {
        jobs[i] = (struct meeting_job){.job = {.run = meeting_run, .done = meeting_done},
                                       .meeting = &meeting};
        told->env->ops->submit(told->env, (enum lane)i, &jobs[i].job);
    }
    turn_until(told, meeting.done_count == LANE_COUNT);
    for (int i = 0; i < LANE_COUNT; i++) {
        assert_false(jobs[i].was_on_loop);
    }
    pthread_barrier_destroy(&meeting.barrier);
    told_close(told);
}

static void jobs_not_begun_are_dropped_at_the_end(void **state)
{
    /* The first job runs to its end; destroy waits for it; no done() is called; nothing leaks. */
    struct told *told = told_open();
    struct meeting meeting = {.loop = pthread_self()};
    struct meeting_job jobs[3];

    (void)state;
    assert_int_equal(pthread_barrier_init(&meeting.barrier, NULL, 2), 0);
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct meeting_job){.job = {.run = meeting_run, .done = meeting_done},
                                       .meeting = &meeting,
                                       .was_on_loop = true};
    }
    told->env->ops->submit(told->env, LANE_STORE, &jobs[0].job);
    (void)pthread_barrier_wait(&meeting.barrier); /* it has begun */
    told_close(told);
    assert_int_equal(meeting.done_count, 0);
    assert_false(jobs[0].was_on_loop);
    pthread_barrier_destroy(&meeting.barrier);
}

/* ---- the rest ---- */

static void on_ready(void *context)
{
    int *fd = context;
    char byte;

    if (read(*fd, &byte, 1) == 1) *fd = -*fd;
}

static void a_watched_descriptor_is_told_of_until_unwatched(void **state)
{
    /* For libraries with descriptors of their own; at most eight at a time, and slots come back. */
    struct told *told = told_open();
    int pipes[9][2], ready[9];

    (void)state;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(pipe(pipes[i]), 0);
        ready[i] = pipes[i][0];
        assert_int_equal(uv_env_watch(told->env, pipes[i][0], on_ready, &ready[i]),
                         i < 8 ? RC_OK : RC_LIMIT);
    }
    assert_int_equal(write(pipes[3][1], "x", 1), 1);
    turn_until(told, ready[3] < 0);
    assert_true(ready[2] > 0);
    uv_env_unwatch(told->env, pipes[0][0]);
    uv_env_unwatch(told->env, 12345); /* not watched: nothing */
    uv_env_poll(told->env, 0);
    assert_int_equal(uv_env_watch(told->env, pipes[8][0], on_ready, &ready[8]), RC_OK);
    for (int i = 1; i < 9; i++) {
        uv_env_unwatch(told->env, pipes[i][0]);
    }
    for (int i = 0; i < 9; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    told_close(told);
}

static void without_a_folder_the_store_is_unsupported(void **state)
{
    /* All three calls, with a reason. */
    struct told *told = told_open();
    struct fault why = {.text = ""};
    void *bytes;
    size_t count;

    (void)state;
    assert_int_equal(told->env->ops->store_put(told->env, "a", NULL, 0, &why), RC_UNSUPPORTED);
    assert_int_equal(told->env->ops->store_get(told->env, "a", 1, &bytes, &count, &why),
                     RC_UNSUPPORTED);
    assert_int_equal(told->env->ops->store_append(told->env, "a", "b", 1, 0, &why), RC_UNSUPPORTED);
    assert_string_not_equal(why.text, "");
    told_close(told);
}

static void a_lack_of_memory_is_an_error_and_never_the_end(void **state)
{
    /* Creating, listening, dialling, accepting and sending with the n-th allocation failing. */
    struct uv_env_options options = {.folder = "/tmp"};
    struct env *env;
    struct told *told;
    struct fault why;
    char bound[ADDRESS_BYTES_MAX];
    struct blob *frame = blob_create(100);
    uint64_t link;

    (void)state;
    memset(frame->bytes, 0, frame->count);
    for (uint64_t i = 0; i < 2; i++) {
        mem_fail_after(i);
        assert_int_equal(uv_env_create(&options, &env, &why), RC_NOMEM);
    }
    mem_fail_after(UINT64_MAX);
    told = told_open();
    mem_fail_after(0);
    assert_int_equal(told->env->ops->listen(told->env, "127.0.0.1:0", bound, sizeof bound, &why),
                     RC_NOMEM);
    listen_on(told, "127.0.0.1:0", bound);
    mem_fail_after(0);
    assert_int_equal(told->env->ops->dial(told->env, bound, &link), RC_NOMEM);
    assert_int_equal(told->env->ops->dial(told->env, bound, &link), RC_OK);
    mem_fail_after(0); /* the accepting side has none */
    turn_until(told, told->lost_count == 1);
    assert_int_equal(told->lost, link);
    assert_int_equal(told->env->ops->dial(told->env, bound, &link), RC_OK);
    turn_until(told, told->accepted_count == 1 && told->connected == link);
    mem_fail_after(0);
    assert_int_equal(told->env->ops->send(told->env, link, frame), RC_NOMEM);
    assert_int_equal(told->env->ops->send(told->env, link, frame), RC_OK);
    mem_fail_after(0); /* nor is there any for the first bytes that are read */
    turn_until(told, told->lost_count == 3); /* both ends have lost it */
    mem_fail_after(UINT64_MAX);
    blob_unref(frame);
    told_close(told);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_port_in_use_is_said_in_words_and_another_can_be_taken),
        cmocka_unit_test(an_address_of_another_machine_cannot_be_listened_on),
        cmocka_unit_test(ip6_addresses_work_in_brackets),
        cmocka_unit_test(names_are_looked_up_and_their_addresses_tried_in_turn),
        cmocka_unit_test(a_name_that_does_not_exist_is_lost_with_words),
        cmocka_unit_test(closing_down_in_the_middle_of_anything_leaves_nothing),
        cmocka_unit_test(run_ends_with_stop_even_if_the_other_side_does_not_read),
        cmocka_unit_test(a_reset_while_writing_is_no_signal),
        cmocka_unit_test(hanging_up_at_once_on_whoever_comes_works),
        cmocka_unit_test(lanes_run_at_the_same_time_and_off_the_loop),
        cmocka_unit_test(jobs_not_begun_are_dropped_at_the_end),
        cmocka_unit_test(a_watched_descriptor_is_told_of_until_unwatched),
        cmocka_unit_test(without_a_folder_the_store_is_unsupported),
        cmocka_unit_test(a_lack_of_memory_is_an_error_and_never_the_end),
    };

    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
