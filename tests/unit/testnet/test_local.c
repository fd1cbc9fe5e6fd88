/*
 * Tests of testnet/local with real child processes: this very program, which plays a peer when it
 * is called as one. How it behaves is said by --act=..., which local hands on like any peer's flag.
 */
#include "tests/scratch.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "peer/env/process.h"
#include "testnet/history.h"
#include "testnet/local_internal.h"

#include <math.h>
#include <signal.h>

enum { PATH_BYTES = 512 };

/* ---- the child's side: a peer that is played ---- */

struct part {
    char out[PATH_BYTES];
    const char *act;
    int peer;
    bool is_again; /* started before with the same --out */
    bool has_bootstrap;
    double join_timeout_s; /* 0: not said */
    int start_with;        /* 0: not said */
};

static void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

static void say_listening(const struct part *part)
{
    char line[128];

    snprintf(line, sizeof line, "{\"event\":\"listening\",\"address\":\"127.0.0.1:%d\"}",
             1000 + part->peer);
    say(line);
}

static void say_finished(void)
{
    say("{\"event\":\"report\",\"step\":5,\"samples\":50,\"loss\":1.5,\"accuracy\":0.5,"
        "\"bytes_sent\":100,\"round\":1,\"neighbours\":2,\"rss_bytes\":4096}");
    say("this line is not JSON");
    say("{\"event\":\"finished\",\"steps\":10,\"step\":12,\"samples\":100,\"loss\":0.5,"
        "\"accuracy\":0.75,"
        "\"bytes_sent\":200,\"rounds_ok\":3,\"rss_bytes\":8192,\"lineage\":\"abc\"}");
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_BYTES + 32];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) _exit(99);
    fputs(text, file);
    fclose(file);
}

/* Wake the other player, wherever it waits. One that was killed meanwhile ends by itself. 0: it has
 * not begun to play. */
static int wake_the_other(const struct part *part)
{
    char path[PATH_BYTES + 64];
    int pid = 0;

    snprintf(path, sizeof path, "%s/../peer-%03d/pid", part->out, 1 - part->peer);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%d", &pid) == 1 && pid > 0) kill(pid, SIGUSR1);
    fclose(file);
    return pid;
}

static void write_pid(const struct part *part)
{
    char pid[32];

    snprintf(pid, sizeof pid, "%d", (int)getpid());
    write_file(part->out, "pid", pid);
}

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

static int wait_for_signal(void)
{
    sigset_t set;
    int number = 0;

    signal_set(&set);
    sigwait(&set, &number);
    return number;
}

/* The signal that came within `ns`, or -1. */
static int wait_for(long ns)
{
    const struct timespec limit = {.tv_nsec = ns};
    sigset_t set;

    signal_set(&set);
    return sigtimedwait(&set, NULL, &limit);
}

static int play_victim(const struct part *part)
{
    write_pid(part);
    /* Heard before it listens, so before it can be killed. */
    say("{\"event\":\"report\",\"step\":1,\"bytes_sent\":100,\"rounds_ok\":2}");
    say_listening(part);
    if (!part->is_again && wait_for_signal() != SIGUSR1) return 130;
    say_finished();
    wake_the_other(part);
    return 0;
}

/* Who was killed comes back as the other ends, and cannot reach it: with an address to join it
 * fails, as a peer without a checkpoint does. */
static int play_late(const struct part *part)
{
    if (!part->is_again) {
        write_pid(part);
        say_listening(part);
        if (wait_for_signal() != SIGUSR1) return 130;
        say_finished();
        return 0;
    }
    if (part->has_bootstrap) {
        const int other = wake_the_other(part);
        while (kill(other, 0) == 0) { /* until the testnet has seen its end */
            wait_for(1000000);
        }
        say_listening(part); /* only now: of two that train one might be killed again */
        return part->join_timeout_s > 1 && part->join_timeout_s < 6 ? 1 : 4;
    }
    if (part->join_timeout_s != 1) return 5;
    say_listening(part);
    say_finished();
    return 0;
}

/* Long enough for several ticks of the testnet. */
static int play_while(const struct part *part)
{
    say_listening(part);
    if (wait_for(600000000) > 0) return 130;
    say_finished();
    return 0;
}

/* Nobody steps before all are there; who comes back to others that have begun waits for nobody. */
static int play_together(const struct part *part)
{
    if (part->start_with != (part->is_again ? 1 : 2)) return 6;
    write_pid(part);
    /* Heard before there are two of whom one may be killed, and after the first was started. */
    if (part->peer == 1) say("{\"event\":\"report\",\"step\":1}");
    say_listening(part);
    if (!part->is_again && wait_for_signal() != SIGUSR1) return 130;
    say_finished();
    wake_the_other(part);
    return 0;
}

static int play(const struct part *part)
{
    if (strcmp(part->act, "late") == 0) return play_late(part);
    if (strcmp(part->act, "while") == 0) return play_while(part);
    if (strcmp(part->act, "together") == 0) return play_together(part);
    if (strcmp(part->act, "finish") == 0) {
        if ((part->peer > 0) != part->has_bootstrap) return 3;
        say_listening(part);
        say_finished();
        return 0;
    }
    if (strcmp(part->act, "refuse") == 0) {
        fputs("first line\ngrapevine: no such data; buy some\n", stderr);
        return 2;
    }
    if (strcmp(part->act, "fail-late") == 0) {
        say_listening(part);
        if (part->peer == 1) return 1;
        say_finished();
        return 0;
    }
    if (strcmp(part->act, "never") == 0) {
        say_listening(part);
        return part->peer == 1 ? 1 : 128 + wait_for_signal();
    }
    if (strcmp(part->act, "wait") == 0) {
        say_listening(part);
        say("{\"event\":\"report\",\"step\":1}");
        return 128 + wait_for_signal();
    }
    return play_victim(part);
}

static int be_a_peer(int count, char **words)
{
    struct part part = {.act = "", .peer = -1};
    char marker[PATH_BYTES + 32];
    sigset_t set;

    signal_set(&set);
    sigprocmask(SIG_BLOCK, &set, NULL); /* waited for with sigwait, never lost */
    process_bind_to_parent();
    for (int i = 2; i < count; i++) {
        if (strncmp(words[i], "--out=", 6) == 0) {
            snprintf(part.out, sizeof part.out, "%s", words[i] + 6);
            part.peer = (int)strtol(words[i] + strlen(words[i]) - 3, NULL, 10);
        }
        if (strncmp(words[i], "--act=", 6) == 0) part.act = words[i] + 6;
        if (strncmp(words[i], "--join-timeout=", 15) == 0) {
            part.join_timeout_s = strtod(words[i] + 15, NULL);
        }
        if (strncmp(words[i], "--start-with=", 13) == 0) {
            part.start_with = (int)strtol(words[i] + 13, NULL, 10);
        }
        if (strncmp(words[i], "--bootstrap=127.0.0.1:1", 23) == 0) part.has_bootstrap = true;
    }
    snprintf(marker, sizeof marker, "%s/started", part.out);
    part.is_again = file_is_there(marker);
    write_file(part.out, "started", "");
    return play(&part);
}

/* ---- the tests ---- */

struct heard {
    uint32_t reports, notes, ticks;
    bool raises; /* SIGINT at the first report */
    char note[512];
};

static void on_report(void *context, uint32_t peer, const struct local_peer *state)
{
    struct heard *heard = context;

    (void)peer;
    assert_true(state->step > 0);
    if (heard->raises && heard->reports == 0) raise(SIGINT);
    heard->reports++;
}

static void on_note(void *context, bool is_error, const char *line)
{
    struct heard *heard = context;

    (void)is_error;
    heard->notes++;
    snprintf(heard->note, sizeof heard->note, "%s", line);
}

static void on_tick(void *context, const struct local_peer *peers, uint32_t count, double elapsed_s)
{
    struct heard *heard = context;

    assert_true(peers != NULL && count > 0 && elapsed_s >= 0);
    heard->ticks++;
}

static void run_with(struct scratch *scratch, const char *act, struct local_options options,
                     const char *chaos, struct heard *heard, struct local_result *result)
{
    const char *words[] = {act};
    struct fault why = {""};

    options.executable = "/proc/self/exe";
    options.words = words;
    options.words_count = 1;
    options.out = scratch->folder;
    options.seed = 1;
    options.context = heard;
    options.on_note = on_note;
    assert_int_equal(chaos_parse(chaos, &options.chaos, &why), RC_OK);
    assert_int_equal(local_run(&options, result, &why), RC_OK);
}

static void run(struct scratch *scratch, const char *act, uint32_t peers, const char *chaos,
                struct heard *heard, struct local_result *result)
{
    const struct local_options options = {
        .peers = peers,
        .gives_shards = true,
        .target_accuracy = 0.6,
        .on_report = on_report,
        .on_tick = on_tick,
    };

    run_with(scratch, act, options, chaos, heard, result);
    assert_true(result->count == peers);
}

static void peers_that_finish_are_done_and_their_last_words_count(void **state)
{
    /* Proves: the first starts alone, the others get an address to join; reports and the last line
     * end up in the result and in events.jsonl; junk lines are skipped; the target is noticed. */
    (void)state;
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;
    struct history history;

    scratch_init(&scratch);
    run(&scratch, "--act=finish", 3, NULL, &heard, &result);
    for (uint32_t i = 0; i < 3; i++) {
        const struct local_peer *peer = &result.peers[i];
        assert_int_equal(peer->state, LOCAL_DONE);
        assert_int_equal(peer->starts, 1);
        assert_int_equal(peer->step, 12);
        assert_int_equal(peer->own_steps, 10);
        assert_int_equal(peer->samples, 100);
        assert_int_equal(peer->bytes_sent, 200);
        assert_int_equal(peer->rounds_ok, 3);
        assert_int_equal(peer->peak_rss_bytes, 8192);
        assert_string_equal(peer->lineage, "abc");
        assert_true(peer->accuracy > 0.74 && peer->accuracy < 0.76);
    }
    assert_int_equal(heard.reports, 6); /* the last line counts as one */
    assert_int_equal(heard.notes, 0);
    assert_true(heard.ticks > 0 && result.signal == 0 && result.faults == 0);
    assert_true(result.time_to_target_s >= 0);
    assert_int_equal(history_load(scratch_path(&scratch, "events.jsonl"), &history, NULL), RC_OK);
    assert_int_equal(history.peers, 3);
    assert_int_equal(history.tracks[2].count, 1); /* a report's, not the last line's */
    history_deinit(&history);
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void what_the_first_cannot_start_with_stops_all(void **state)
{
    /* Proves: a peer that ends before it listens fails with the last line it wrote; the others are
     * not started. */
    (void)state;
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;

    scratch_init(&scratch);
    run(&scratch, "--act=refuse", 3, NULL, &heard, &result);
    assert_int_equal(result.peers[0].state, LOCAL_FAILED);
    assert_string_equal(result.peers[0].failure, "exit code 2: no such data; buy some");
    assert_int_equal(result.peers[0].exit_code, 2);
    assert_int_equal(result.peers[1].state, LOCAL_STOPPED);
    assert_int_equal(result.peers[1].starts, 0);
    assert_int_equal(heard.notes, 1);
    assert_non_null(strstr(heard.note, "buy some"));
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void one_that_fails_later_does_not_stop_the_others(void **state)
{
    /* Proves: exit code 1 after joining is that peer's failure alone. */
    (void)state;
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;

    scratch_init(&scratch);
    run(&scratch, "--act=fail-late", 3, NULL, &heard, &result);
    assert_int_equal(result.peers[0].state, LOCAL_DONE);
    assert_int_equal(result.peers[1].state, LOCAL_FAILED);
    assert_int_equal(result.peers[2].state, LOCAL_DONE);
    assert_string_equal(result.peers[1].failure, "exit code 1");
    assert_true(isnan(result.time_to_target_s));
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void a_killed_peer_comes_back_with_its_folder(void **state)
{
    /* Proves: chaos kills one that trains, never the last one; it is started again with the same
     * --out and the swarm ends well; the fault is counted and recorded, traffic adds up. */
    (void)state;
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;
    struct history history;

    scratch_init(&scratch);
    run(&scratch, "--act=victim", 2, "kill:mtbf=20ms,restart=10ms", &heard, &result);
    assert_int_equal(result.peers[0].state, LOCAL_DONE);
    assert_int_equal(result.peers[1].state, LOCAL_DONE);
    assert_true(result.faults > 0);
    assert_true(result.peers[0].starts + result.peers[1].starts == 2 + result.faults);
    for (uint32_t i = 0; i < 2; i++) {
        const struct local_peer *peer = &result.peers[i];
        assert_true(peer->bytes_sent >= 200 + 100 * (uint64_t)(peer->starts - 1));
        assert_true(peer->rounds_ok >= 3 + 2 * (uint64_t)(peer->starts - 1));
    }
    assert_non_null(strstr(heard.note, "killed"));
    assert_int_equal(history_load(scratch_path(&scratch, "events.jsonl"), &history, NULL), RC_OK);
    assert_int_equal(history.faults_count, result.faults);
    history_deinit(&history);
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void who_comes_back_to_nobody_goes_on_alone(void **state)
{
    /* Proves: a peer that was killed and comes back while the last of the others leaves is no
     * failure; it looks for them no longer than the run lasts, then it is started once more, and
     * knows that it is alone. */
    (void)state;
    const struct local_options options = {.peers = 2, .goal_ns = 5 * NS_PER_S};
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;
    uint32_t starts[2];

    scratch_init(&scratch);
    run_with(&scratch, "--act=late", options, "kill:mtbf=20ms,restart=10ms", &heard, &result);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(result.peers[i].failure, "");
        assert_int_equal(result.peers[i].state, LOCAL_DONE);
        starts[i] = result.peers[i].starts;
    }
    assert_true((starts[0] == 1 && starts[1] >= 3) || (starts[1] == 1 && starts[0] >= 3));
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void no_fault_outlasts_the_time_of_a_run(void **state)
{
    /* Proves: --time holds under chaos: whom a fault would keep beyond the end is spared. That none
     * struck is said, with the reason, and how many were due. */
    (void)state;
    const struct local_options options = {.peers = 2, .goal_ns = 2200 * NS_PER_MS};
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;

    scratch_init(&scratch);
    run_with(&scratch, "--act=while", options, "freeze:mtbf=1ms,for=300ms", &heard, &result);
    assert_int_equal(result.faults, 0);
    assert_true(result.faults_spared > 0);
    assert_non_null(strstr(heard.note, "chaos: no fault struck: whenever one was due"));
    local_result_deinit(&result);
    run_with(&scratch, "--act=while", options, "freeze:mtbf=1000h,for=300ms", &heard, &result);
    assert_int_equal(result.faults_spared, 0);
    assert_non_null(strstr(heard.note, "chaos: no fault struck, as none was due"));
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void peers_begin_together_and_who_comes_back_waits_for_nobody(void **state)
{
    (void)state;
    const struct local_options options = {.peers = 2, .start_with = 2};
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;

    scratch_init(&scratch);
    run_with(&scratch, "--act=together", options, "kill:mtbf=20ms,restart=10ms", &heard, &result);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(result.peers[i].failure, "");
        assert_int_equal(result.peers[i].state, LOCAL_DONE);
    }
    assert_true(result.faults > 0);
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void who_fails_before_the_beginning_is_not_waited_for(void **state)
{
    /* Proves: the others, who would not take a step without it, are stopped. */
    (void)state;
    const struct local_options options = {.peers = 3, .start_with = 3};
    struct scratch scratch;
    struct heard heard = {0};
    struct local_result result;

    scratch_init(&scratch);
    run_with(&scratch, "--act=never", options, NULL, &heard, &result);
    assert_int_equal(result.peers[0].state, LOCAL_STOPPED);
    assert_int_equal(result.peers[1].state, LOCAL_FAILED);
    assert_int_equal(result.peers[2].state, LOCAL_STOPPED);
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void a_signal_is_passed_on_and_waited_for(void **state)
{
    /* Proves: SIGINT to the testnet reaches the peers, which end by themselves; it says so. */
    (void)state;
    struct scratch scratch;
    struct heard heard = {.raises = true};
    struct local_result result;

    scratch_init(&scratch);
    run(&scratch, "--act=wait", 2, NULL, &heard, &result);
    assert_int_equal(result.signal, SIGINT);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(result.peers[i].state, LOCAL_STOPPED);
    }
    assert_int_equal(heard.notes, 0);
    local_result_deinit(&result);
    scratch_deinit(&scratch);
}

static void what_cannot_be_started_is_an_error_with_its_reason(void **state)
{
    /* Proves: a missing executable fails the run at once, with its name. */
    (void)state;
    struct scratch scratch;
    struct local_result result;
    struct fault why = {""};

    scratch_init(&scratch);
    const struct local_options options = {
        .peers = 2, .executable = "/no/such/program", .out = scratch.folder};
    assert_int_not_equal(local_run(&options, &result, &why), RC_OK);
    assert_non_null(strstr(why.text, "/no/such/program"));
    scratch_deinit(&scratch);
}

static void who_reports_seldom_may_be_silent_for_longer(void **state)
{
    (void)state;
    const struct local_options usual = {.report_every_ns = 5 * NS_PER_S};
    const struct local_options seldom = {.report_every_ns = 3600 * NS_PER_S};

    assert_true(local_silence_limit_ns(&usual) < 400 * NS_PER_S);
    assert_true(local_silence_limit_ns(&seldom) > 3600 * NS_PER_S);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_that_finish_are_done_and_their_last_words_count),
        cmocka_unit_test(what_the_first_cannot_start_with_stops_all),
        cmocka_unit_test(one_that_fails_later_does_not_stop_the_others),
        cmocka_unit_test(a_killed_peer_comes_back_with_its_folder),
        cmocka_unit_test(who_comes_back_to_nobody_goes_on_alone),
        cmocka_unit_test(no_fault_outlasts_the_time_of_a_run),
        cmocka_unit_test(peers_begin_together_and_who_comes_back_waits_for_nobody),
        cmocka_unit_test(who_fails_before_the_beginning_is_not_waited_for),
        cmocka_unit_test(a_signal_is_passed_on_and_waited_for),
        cmocka_unit_test(what_cannot_be_started_is_an_error_with_its_reason),
        cmocka_unit_test(who_reports_seldom_may_be_silent_for_longer),
    };
    if (count > 1 && strcmp(words[1], "peer") == 0) return be_a_peer(count, words);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
