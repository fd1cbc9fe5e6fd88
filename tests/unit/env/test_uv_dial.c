/*
 * uv_dial, uv_listen: names with many addresses, both families, and what is done when links or file
 * descriptors run out. Nothing here depends on how fast anything is.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "peer/env/uv/env.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 60000, STALLERS = 12 };

struct told {
    struct env *env;
    uint64_t accepted, connected, lost;
    unsigned accepted_count, connected_count, lost_count;
    char remote[ADDRESS_BYTES_MAX], why[128];
    enum rc lost_rc;
};

static void on_accepted(void *context, uint64_t link, const char *remote)
{
    struct told *told = context;

    told->accepted = link;
    told->accepted_count++;
    snprintf(told->remote, sizeof told->remote, "%s", remote);
}

static void on_connected(void *context, uint64_t link)
{
    struct told *told = context;

    told->connected = link;
    told->connected_count++;
}

static void on_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    (void)context, (void)link, (void)frame, (void)count;
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
    (void)context;
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

/* A port of 127.0.0.1 on which nobody listens, or somebody who never answers. */
struct port {
    int listener, stallers[STALLERS];
    struct sockaddr_storage target;
};

static void port_open(struct port *port, bool is_silent)
{
    struct sockaddr_in *four = (struct sockaddr_in *)&port->target;
    socklen_t bytes = sizeof *four;

    memset(port, 0, sizeof *port);
    four->sin_family = AF_INET;
    four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    port->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(port->listener >= 0);
    assert_int_equal(bind(port->listener, (struct sockaddr *)four, bytes), 0);
    assert_int_equal(getsockname(port->listener, (struct sockaddr *)four, &bytes), 0);
    for (int i = 0; i < STALLERS; i++) {
        port->stallers[i] = -1;
    }
    if (!is_silent) return; /* bound, not listening: connections are refused */
    assert_int_equal(listen(port->listener, 0), 0);
    for (int i = 0; i < STALLERS; i++) { /* fill what waits to be accepted: others get no answer */
        port->stallers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(port->stallers[i], (struct sockaddr *)four, bytes);
    }
}

static void port_close(struct port *port)
{
    for (int i = 0; i < STALLERS; i++) {
        if (port->stallers[i] >= 0) (void)close(port->stallers[i]);
    }
    (void)close(port->listener);
}

static struct sockaddr_storage listen_on(struct told *told)
{
    struct sockaddr_storage target;
    char bound[ADDRESS_BYTES_MAX];
    struct fault why;

    memset(&target, 0, sizeof target);
    assert_int_equal(told->env->ops->listen(told->env, "127.0.0.1:0", bound, sizeof bound, &why),
                     RC_OK);
    assert_int_equal(
        uv_ip4_addr("127.0.0.1", atoi(strrchr(bound, ':') + 1), (struct sockaddr_in *)&target), 0);
    return target;
}

static void an_address_that_does_not_answer_costs_no_deadline(void **state)
{
    /* The first address is silent, the second refuses, the third is there: it is connected to, one
     * link is made, and of the others nothing is left or heard. */
    struct told *told = told_open();
    struct port silent, refusing;
    struct sockaddr_storage targets[3];
    uint64_t link;

    (void)state;
    port_open(&silent, true);
    port_open(&refusing, false);
    targets[0] = silent.target;
    targets[1] = refusing.target;
    targets[2] = listen_on(told);
    assert_int_equal(tcp_dial_targets((struct uv_env *)told->env, targets, 3, &link), RC_OK);
    turn_until(told, told->connected_count == 1 && told->accepted_count == 1);
    assert_int_equal(told->connected, link);
    assert_int_equal(told->lost_count, 0);
    port_close(&silent);
    port_close(&refusing);
    for (int i = 0; i < 20; i++) {
        uv_env_poll(told->env, NS_PER_MS);
    }
    assert_int_equal(told->lost_count, 0);
    assert_int_equal(told->connected_count, 1);
    told_close(told);
}

static void when_all_refuse_it_is_said_once_and_why(void **state)
{
    /* Three addresses: one this machine has no way to, two that refuse. */
    struct told *told = told_open();
    struct port refusing;
    struct sockaddr_storage targets[3];
    uint64_t link;

    (void)state;
    port_open(&refusing, false);
    targets[0] = targets[2] = refusing.target;
    memset(&targets[1], 0, sizeof targets[1]);
    assert_int_equal(uv_ip4_addr("255.255.255.255", 9, (struct sockaddr_in *)&targets[1]), 0);
    assert_int_equal(tcp_dial_targets((struct uv_env *)told->env, targets, 3, &link), RC_OK);
    turn_until(told, told->lost_count == 1);
    assert_int_equal(told->lost, link);
    assert_int_equal(told->lost_rc, RC_REFUSED);
    assert_string_equal(told->why, "connection refused");
    port_close(&refusing);
    told_close(told);
}

static void a_dial_can_be_hung_up_in_the_middle(void **state)
{
    /* With two attempts under way, and with the env going away under it. */
    struct told *told = told_open();
    struct port silent;
    struct sockaddr_storage targets[2];
    uint64_t link;

    (void)state;
    port_open(&silent, true);
    targets[0] = targets[1] = silent.target;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tcp_dial_targets((struct uv_env *)told->env, targets, 2, &link), RC_OK);
        for (int turn = 0; turn < i * 200; turn++) {
            uv_env_poll(told->env, NS_PER_MS);
        }
        if (i < 2) told->env->ops->hangup(told->env, link);
    }
    assert_int_equal(told->lost_count + told->connected_count, 0);
    told_close(told);
    port_close(&silent);
}

static void families_take_turns_and_the_preferred_one_begins(void **state)
{
    /* Six of one, two of the other and one of a kind that is no use. */
    static const int families[9] = {AF_UNIX,  AF_INET6, AF_INET6, AF_INET6, AF_INET,
                                    AF_INET6, AF_INET,  AF_INET6, AF_INET6};
    static const uint16_t expected[8] = {1, 4, 2, 6, 3, 5, 7, 8};
    struct addrinfo found[9];
    struct sockaddr_in6 addresses[9];
    struct sockaddr_storage targets[LINK_TARGETS_MAX];

    (void)state;
    memset(found, 0, sizeof found);
    memset(addresses, 0, sizeof addresses);
    for (unsigned i = 0; i < 9; i++) { /* the port is at the same place in both families */
        addresses[i].sin6_family = (sa_family_t)families[i];
        addresses[i].sin6_port = (in_port_t)i;
        found[i].ai_family = families[i];
        found[i].ai_addr = (struct sockaddr *)&addresses[i];
        found[i].ai_addrlen =
            families[i] == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        found[i].ai_next = i < 8 ? &found[i + 1] : NULL;
    }
    assert_int_equal(tcp_targets_choose(found, targets, LINK_TARGETS_MAX), 8);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(((struct sockaddr_in6 *)&targets[i])->sin6_port, expected[i]);
    }
    assert_int_equal(tcp_targets_choose(found, targets, 3), 3);
    found[0].ai_next = NULL;
    assert_int_equal(tcp_targets_choose(found, targets, 3), 0);
    assert_int_equal(tcp_targets_choose(NULL, targets, 3), 0);
}

static bool has_ip6(void)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    bool is_there = probe >= 0 && bind(probe, (struct sockaddr *)&six, sizeof six) == 0;

    if (probe >= 0) (void)close(probe);
    return is_there;
}

static void one_listener_takes_both_families(void **state)
{
    /* Bound to [::], reached over IPv6 and over IPv4; each is called by its own kind of address. */
    struct told *told = told_open();
    char bound[ADDRESS_BYTES_MAX], address[ADDRESS_BYTES_MAX];
    static const char *const hosts[] = {"[::1]", "127.0.0.1", "localhost"};
    static const char *const seen[] = {"[::1]:", "127.0.0.1:", ""};
    struct fault why;
    uint64_t link;

    (void)state;
    if (!has_ip6()) {
        told_close(told);
        skip();
    }
    assert_int_equal(told->env->ops->listen(told->env, "[::]:0", bound, sizeof bound, &why), RC_OK);
    assert_int_equal(strncmp(bound, "[::]:", 5), 0);
    for (unsigned i = 0; i < ARRAY_COUNT(hosts); i++) {
        snprintf(address, sizeof address, "%s%s", hosts[i], strrchr(bound, ':'));
        assert_int_equal(told->env->ops->dial(told->env, address, &link), RC_OK);
        turn_until(told, told->connected == link && told->accepted_count == i + 1);
        assert_int_equal(strncmp(told->remote, seen[i], strlen(seen[i])), 0);
    }
    told_close(told);
}

static void the_last_descriptors_are_kept_for_files(void **state)
{
    /* However many call or are dialled, there are descriptors left for a checkpoint. */
    enum { CALLERS = 40, FREE = 20 };
    struct told *told = told_open();
    struct sockaddr_storage target = listen_on(told);
    struct rlimit before, low;
    int callers[CALLERS], files[FILES_KEPT - 1];
    uint64_t link;

    (void)state;
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_true(callers[i] >= 0);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)callers[CALLERS - 1] + FREE;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < CALLERS; i++) {
        unsigned accepted = told->accepted_count;
        char byte;

        (void)connect(callers[i], (struct sockaddr *)&target, sizeof(struct sockaddr_in));
        turn_until(told, told->accepted_count > accepted || recv(callers[i], &byte, 1, 0) >= 0 ||
                             errno == ECONNRESET);
    }
    assert_in_range(told->accepted_count, 1, FREE - FILES_KEPT);
    assert_int_equal(tcp_dial_targets((struct uv_env *)told->env, &target, 1, &link), RC_OK);
    turn_until(told, told->lost_count == 1);
    assert_string_equal(told->why, "too many open files");
    for (unsigned i = 0; i < ARRAY_COUNT(files); i++) {
        files[i] = open("/dev/null", O_RDONLY);
        assert_true(files[i] >= 0);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (unsigned i = 0; i < ARRAY_COUNT(files); i++) {
        (void)close(files[i]);
    }
    for (int i = 0; i < CALLERS; i++) {
        (void)close(callers[i]);
    }
    told_close(told);
}

static void without_file_descriptors_callers_are_shed_and_later_ones_come_in(void **state)
{
    /* Every descriptor is taken: who calls is let go, a dial says why it failed, and once there are
     * some again a call is accepted. */
    struct told *told = told_open();
    struct sockaddr_storage target = listen_on(told);
    struct rlimit before, low;
    int callers[3], fillers[64], fillers_count = 0;
    char byte;
    uint64_t link;

    (void)state;
    for (int i = 0; i < 3; i++) {
        callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_true(callers[i] >= 0);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)callers[2] + 20;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (fillers_count < 64) {
        int filler = open("/dev/null", O_RDONLY);

        if (filler < 0) break;
        fillers[fillers_count++] = filler;
    }
    assert_true(fillers_count < 64);
    for (int i = 0; i < 2; i++) {
        (void)connect(callers[i], (struct sockaddr *)&target, sizeof(struct sockaddr_in));
    }
    for (int i = 0; i < 2; i++) {
        turn_until(told, recv(callers[i], &byte, 1, 0) >= 0 || errno != EAGAIN);
    }
    assert_int_equal(told->accepted_count, 0);
    assert_int_equal(tcp_dial_targets((struct uv_env *)told->env, &target, 1, &link), RC_OK);
    turn_until(told, told->lost_count == 1);
    assert_string_equal(told->why, "too many open files");
    while (fillers_count > 0) {
        (void)close(fillers[--fillers_count]);
    }
    (void)connect(callers[2], (struct sockaddr *)&target, sizeof(struct sockaddr_in));
    turn_until(told, told->accepted_count == 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < 3; i++) {
        (void)close(callers[i]);
    }
    told_close(told);
}

static void with_every_link_taken_callers_wait_and_the_next_free_one_is_theirs(void **state)
{
    /* All links are members' (grown), so nobody makes room; one goes, and the caller that waits is
     * accepted or told, never forgotten: a new one comes in. */
    struct told *told = told_open();
    struct sockaddr_storage target = listen_on(told);
    uint64_t links[CONNECTIONS_MAX / 2], link;
    int caller;

    (void)state;
    for (unsigned i = 0; i < CONNECTIONS_MAX / 2; i++) {
        assert_int_equal(tcp_dial_targets((struct uv_env *)told->env, &target, 1, &links[i]),
                         RC_OK);
        turn_until(told, told->accepted_count == i + 1 && told->connected == links[i]);
        told->env->ops->link_set_frame_max(told->env, told->accepted, 70000);
        told->env->ops->link_set_frame_max(told->env, links[i], 70000);
    }
    assert_int_equal(tcp_dial_targets((struct uv_env *)told->env, &target, 1, &link), RC_LIMIT);
    caller = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(caller, (struct sockaddr *)&target, sizeof(struct sockaddr_in)), 0);
    for (int i = 0; i < 20; i++) {
        uv_env_poll(told->env, NS_PER_MS);
    }
    assert_int_equal(told->lost_count, 0);
    assert_int_equal(told->accepted_count, CONNECTIONS_MAX / 2);
    told->env->ops->hangup(told->env, links[0]);
    turn_until(told, told->lost_count == 1); /* both ends are free, and one is for the caller */
    (void)close(caller);
    caller = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(caller, (struct sockaddr *)&target, sizeof(struct sockaddr_in)), 0);
    turn_until(told, told->accepted_count > CONNECTIONS_MAX / 2);
    (void)close(caller);
    told_close(told);
}

/* A name server that never answers. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    while (host != NULL && strcmp(host, "never.example") == 0) {
        (void)pause();
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(host, service, hints, found);
}

/* Whether the loop is told to stop, or the env goes at once: neither it nor the end of the process
 * waits for a lookup. */
static void nobody_waits_for_a_lookup_at_the_end(void **state)
{
    enum { CODE = 7, PATIENCE_S = 60 };

    (void)state;
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0) {
            struct told *told;
            uint64_t link;

            (void)alarm(PATIENCE_S);
            told = told_open();
            CHECK(told->env->ops->dial(told->env, "never.example:80", &link) == RC_OK);
            uv_env_poll(told->env, NS_PER_MS);
            told->env->ops->stop(told->env);
            if (way == 0) uv_env_run(told->env);
            uv_env_destroy(told->env);
            exit(CODE);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), CODE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_for_a_lookup_at_the_end),
        cmocka_unit_test(an_address_that_does_not_answer_costs_no_deadline),
        cmocka_unit_test(when_all_refuse_it_is_said_once_and_why),
        cmocka_unit_test(a_dial_can_be_hung_up_in_the_middle),
        cmocka_unit_test(families_take_turns_and_the_preferred_one_begins),
        cmocka_unit_test(one_listener_takes_both_families),
        cmocka_unit_test(the_last_descriptors_are_kept_for_files),
        cmocka_unit_test(without_file_descriptors_callers_are_shed_and_later_ones_come_in),
        cmocka_unit_test(with_every_link_taken_callers_wait_and_the_next_free_one_is_theirs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
