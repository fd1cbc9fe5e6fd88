/* trace: the file is the JSON that viewers read, bounded, and whole whatever ends it. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "peer/env/env.h"
#include "peer/env/sim/env.h"
#include "tests/scratch.h"

struct scene {
    struct scratch scratch;
    char path[320];
    char said[512];
    unsigned lines;
    struct log log;
    struct tracer tracer;
};

static void on_line(void *context, enum log_level level, const char *line)
{
    struct scene *scene = context;

    (void)level;
    scene->lines++;
    snprintf(scene->said, sizeof scene->said, "%s", line);
}

static struct scene *scene_open(struct trace_options options)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct fault why;

    assert_non_null(scene);
    scratch_init(&scene->scratch);
    snprintf(scene->path, sizeof scene->path, "%s", scratch_path(&scene->scratch, "t.json"));
    scene->log = (struct log){LOG_DEBUG, on_line, scene};
    options.path = scene->path;
    options.log = &scene->log;
    scene->tracer.process = 7;
    assert_int_equal(trace_create(&options, &scene->tracer.trace, &why), RC_OK);
    return scene;
}

static void scene_close(struct scene *scene)
{
    scratch_deinit(&scene->scratch);
    free(scene);
}

/* What is in the file, with `tail` behind it. */
static struct json *scene_read(struct scene *scene, const char *tail, size_t *bytes)
{
    struct fault why;
    struct json *json;
    void *text;
    char *whole;
    size_t count;

    assert_int_equal(file_read(scene->path, 1 << 26, &text, &count, &why), RC_OK);
    whole = malloc(count + strlen(tail) + 1);
    assert_non_null(whole);
    memcpy(whole, text, count);
    memcpy(whole + count, tail, strlen(tail) + 1);
    if (json_parse_large(whole, count + strlen(tail), &json, &why) != RC_OK) {
        fail_msg("%s in: %.400s", why.text, whole);
    }
    if (bytes != NULL) *bytes = count;
    mem_free(text);
    free(whole);
    return json;
}

/* The n-th event of that name, or NULL. */
static const struct json *event_of(const struct json *array, const char *name, size_t n)
{
    for (size_t i = 0; i < json_count(array); i++) {
        const struct json *event = json_at(array, i);

        if (strcmp(json_get_text(event, "name"), name) == 0 && n-- == 0) return event;
    }
    return NULL;
}

static double real_of(const struct json *event, const char *key)
{
    double value = -1;

    assert_true(json_get_real(event, key, &value));
    return value;
}

static void add_spans(struct scene *scene, unsigned by, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        trace_span(&scene->tracer, by, TRACE_LANES,
                   &(struct trace_span){.name = "steps", .begin_ns = i, .end_ns = i + 1});
    }
}

static void events_are_written_as_viewers_read_them(void **state)
{
    /* Proves: microseconds, process and track of each, its particulars, and texts that are JSON. */
    (void)state;
    struct scene *scene = scene_open((struct trace_options){.is_one_thread = true});
    struct peer_id id = {{0xff, 0x00, 0x12}};
    char text[PEER_ID_TEXT];
    const struct json *event, *args;
    struct json *array;
    uint64_t count;

    peer_id_format(id, text);
    text[8] = '\0';
    trace_name(&scene->tracer, "peer \"x\"");
    trace_span(&scene->tracer, TRACE_LOOP, TRACE_LANES + LANE_EXCHANGE,
               &(struct trace_span){.name = "decode",
                                    .detail = "a \\ and a \"",
                                    .begin_ns = 1234567,
                                    .end_ns = 1235568,
                                    .round = 1,
                                    .partner = trace_partner(id),
                                    .bytes = 99});
    trace_instant(&scene->tracer, TRACE_LOOP,
                  &(struct trace_span){.name = "round begins", .begin_ns = 5000});
    trace_apart(&scene->tracer, TRACE_LOOP, 3,
                &(struct trace_span){.name = "round", .begin_ns = 1000, .end_ns = 9000});
    trace_link(&scene->tracer, 2, trace_partner(id));
    trace_destroy(scene->tracer.trace);
    array = scene_read(scene, "", NULL);

    event = event_of(array, "process_name", 0);
    assert_string_equal(json_get_text(json_get(event, "args"), "name"), "peer \"x\"");
    event = event_of(array, "decode", 0);
    assert_string_equal(json_get_text(event, "ph"), "X");
    assert_float_equal(real_of(event, "ts"), 1234.567, 1e-9);
    assert_float_equal(real_of(event, "dur"), 1.001, 1e-9);
    assert_true(json_get_count(event, "pid", &count) && count == 7);
    assert_true(json_get_count(event, "tid", &count) && count == TRACE_LANES + LANE_EXCHANGE);
    args = json_get(event, "args");
    assert_true(json_get_count(args, "round", &count) && count == 0);
    assert_true(json_get_count(args, "bytes", &count) && count == 99);
    assert_string_equal(json_get_text(args, "partner"), text);
    assert_string_equal(json_get_text(args, "detail"), "a \\ and a \"");
    event = event_of(array, "round begins", 0);
    assert_string_equal(json_get_text(event, "ph"), "i");
    assert_null(json_get(json_get(event, "args"), "round"));
    for (size_t i = 0; i < 2; i++) {
        event = event_of(array, "round", i);
        assert_string_equal(json_get_text(event, "ph"), i == 0 ? "b" : "e");
        assert_string_equal(json_get_text(event, "id"), "7-3");
        assert_float_equal(real_of(event, "ts"), i == 0 ? 1.0 : 9.0, 1e-9);
    }
    event = event_of(array, "thread_name", 1 + LANE_COUNT);
    assert_true(json_get_count(event, "tid", &count) && count == TRACE_LINKS + 2);
    event = event_of(array, "trace_end", 0);
    assert_true(json_get_count(json_get(event, "args"), "events_lost", &count) && count == 0);
    json_destroy(array);
    scene_close(scene);
}

static void a_trace_that_is_not_wanted_does_nothing(void **state)
{
    (void)state;
    const struct trace_span span = {.name = "steps", .begin_ns = 2, .end_ns = 1};

    trace_span(NULL, TRACE_LOOP, 0, &span);
    trace_instant(NULL, TRACE_LOOP, &span);
    trace_apart(NULL, TRACE_LOOP, 0, &span);
    trace_link(NULL, 0, 0);
    trace_name(NULL, "");
    trace_destroy(NULL);
}

static void a_file_ends_at_its_bound_and_says_so_once(void **state)
{
    /* Proves: it holds as many events as fit and is whole JSON; what comes later costs nothing. */
    (void)state;
    const uint64_t most = 64 * 1024;
    struct scene *scene = scene_open(
        (struct trace_options){.is_one_thread = true, .bytes_max = most, .events_max = 16});
    struct json *array;
    size_t bytes;

    add_spans(scene, TRACE_LOOP, 10000);
    assert_int_equal(scene->lines, 1);
    assert_non_null(strstr(scene->said, "ends here"));
    trace_destroy(scene->tracer.trace);
    assert_int_equal(scene->lines, 1);
    array = scene_read(scene, "", &bytes);
    assert_in_range(bytes, most - 4096, most);
    assert_in_range(json_count(array), 100, 9999);
    assert_non_null(event_of(array, "trace_end", 0));
    json_destroy(array);
    scene_close(scene);
}

static void what_does_not_fit_a_ring_is_lost_and_counted(void **state)
{
    (void)state;
    struct scene *scene = scene_open((struct trace_options){.events_max = 8});
    struct json *array;
    uint64_t lost;

    add_spans(scene, TRACE_LANES, 20);
    add_spans(scene, TRACE_LOOP, 3); /* another thread's ring */
    trace_destroy(scene->tracer.trace);
    array = scene_read(scene, "", NULL);
    assert_non_null(event_of(array, "steps", 10));
    assert_null(event_of(array, "steps", 11));
    assert_true(
        json_get_count(json_get(event_of(array, "trace_end", 0), "args"), "events_lost", &lost));
    assert_int_equal(lost, 12);
    json_destroy(array);
    scene_close(scene);
}

static void a_killed_process_leaves_all_but_the_end(void **state)
{
    /* Proves: at any time the file is an array but for its closing bracket. */
    (void)state;
    struct scene *scene =
        scene_open((struct trace_options){.is_one_thread = true, .events_max = 16});
    struct json *array;

    array = scene_read(scene, "{}]", NULL);
    assert_int_equal(json_count(array), 1);
    json_destroy(array);
    add_spans(scene, TRACE_LOOP, 100);
    array = scene_read(scene, "{}]", NULL);
    assert_in_range(json_count(array), 100 - 16, 101);
    json_destroy(array);
    trace_destroy(scene->tracer.trace);
    scene_close(scene);
}

static void a_disk_that_fails_is_told_once(void **state)
{
    (void)state;
    struct scene *scene =
        scene_open((struct trace_options){.is_one_thread = true, .events_max = 16});
    struct trace_options options = {.path = "/nowhere/at/all.json"};
    struct trace *none;
    struct fault why;

    assert_int_not_equal(trace_create(&options, &none, &why), RC_OK);
    assert_non_null(strstr(why.text, "/nowhere/at"));
    options.path = "/dev/full";
    assert_int_equal(trace_create(&options, &none, &why), RC_DISK_FULL);
    assert_int_equal(unlink(scene->path), 0);
    assert_int_equal(mkdir(scene->path, 0700), 0); /* nothing can be appended to it */
    add_spans(scene, TRACE_LOOP, 1000);
    trace_destroy(scene->tracer.trace);
    assert_int_equal(scene->lines, 1);
    assert_non_null(strstr(scene->said, "training goes on without a trace"));
    assert_int_equal(rmdir(scene->path), 0);
    scene_close(scene);
}

static void memory_that_is_short_is_told(void **state)
{
    (void)state;
    struct scratch scratch;
    struct trace_options options = {.events_max = 8};
    struct trace *trace = NULL;
    struct fault why;
    enum rc rc = RC_NOMEM;

    scratch_init(&scratch);
    options.path = scratch_path(&scratch, "t.json");
    for (uint64_t n = 0; rc == RC_NOMEM; n++) {
        why.text[0] = '\0';
        mem_fail_after(n);
        rc = trace_create(&options, &trace, &why);
        mem_fail_after(UINT64_MAX);
        if (rc == RC_NOMEM) assert_non_null(strstr(why.text, "out of memory"));
    }
    assert_int_equal(rc, RC_OK);
    trace_destroy(trace);
    scratch_deinit(&scratch);
}

/* ---- jobs of both worlds ---- */

enum { JOBS = 300 };

struct world {
    struct env *env;
    unsigned done;
};

struct counted {
    struct job job;
    struct world *world;
};

static void job_run(struct job *job)
{
    (void)job;
}

static void job_done(struct job *job)
{
    ((struct counted *)job)->world->done++;
}

static struct counted *submit_all(struct world *world)
{
    struct counted *jobs = calloc(2 * JOBS, sizeof *jobs);

    assert_non_null(jobs);
    for (unsigned i = 0; i < 2 * JOBS; i++) {
        jobs[i] = (struct counted){{.run = job_run,
                                    .done = job_done,
                                    .cost_ns = 1000,
                                    .name = i % 3 == 0 ? NULL : "work",
                                    .partner = 1},
                                   world};
        world->env->ops->submit(world->env, i % 2 == 0 ? LANE_TRAINING : LANE_SEALING,
                                &jobs[i].job);
    }
    return jobs;
}

/* All named jobs are there, in the row of their lane, of the round, and none before the other. */
static void check_jobs(struct scene *scene)
{
    struct json *array = scene_read(scene, "", NULL);
    double ends[64] = {0};
    unsigned found = 0;

    for (size_t i = 0; i < json_count(array); i++) {
        const struct json *event = json_at(array, i);
        uint64_t track, round;

        if (strcmp(json_get_text(event, "name"), "work") != 0) continue;
        found++;
        assert_true(json_get_count(event, "tid", &track));
        assert_true(track == TRACE_LANES + LANE_TRAINING || track == TRACE_LANES + LANE_SEALING);
        assert_true(real_of(event, "dur") >= 0 && real_of(event, "ts") >= ends[track] - 2e-3);
        ends[track] = real_of(event, "ts") + real_of(event, "dur");
        assert_true(json_get_count(json_get(event, "args"), "round", &round));
        assert_int_equal(round, 4);
    }
    assert_int_equal(found, 2 * JOBS / 3 * 2);
    json_destroy(array);
}

static void jobs_of_threads_are_traced(void **state)
{
    /* Proves: each lane's thread writes to its own ring while the store lane reads them all. */
    (void)state;
    struct scene *scene = scene_open((struct trace_options){.events_max = 1024});
    struct uv_env_options options = {.tracer = &scene->tracer};
    struct world world = {NULL};
    struct counted *jobs;
    struct fault why;

    scene->tracer.round = 5;
    assert_int_equal(uv_env_create(&options, &world.env, &why), RC_OK);
    jobs = submit_all(&world);
    for (unsigned turns = 0; world.done < 2 * JOBS && turns < 20000; turns++) {
        uv_env_poll(world.env, 10 * NS_PER_MS);
    }
    assert_int_equal(world.done, 2 * JOBS);
    uv_env_destroy(world.env);
    trace_destroy(scene->tracer.trace);
    check_jobs(scene);
    free(jobs);
    scene_close(scene);
}

static void jobs_of_a_simulated_host_are_traced(void **state)
{
    (void)state;
    struct scene *scene =
        scene_open((struct trace_options){.is_one_thread = true, .events_max = 16});
    struct sim_options options = {.seed = 1, .hosts_max = 1, .trace = scene->tracer.trace};
    struct sim_world *sim = sim_world_create(&options);
    struct world world = {NULL};
    struct counted *jobs;
    uint32_t host;

    world.env = sim_host_create(sim, &host);
    world.env->tracer->round = 5;
    jobs = submit_all(&world);
    while (sim_step(sim)) {
        continue;
    }
    assert_int_equal(world.done, 2 * JOBS);
    sim_world_destroy(sim);
    trace_destroy(scene->tracer.trace);
    check_jobs(scene);
    free(jobs);
    scene_close(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_written_as_viewers_read_them),
        cmocka_unit_test(a_trace_that_is_not_wanted_does_nothing),
        cmocka_unit_test(a_file_ends_at_its_bound_and_says_so_once),
        cmocka_unit_test(what_does_not_fit_a_ring_is_lost_and_counted),
        cmocka_unit_test(a_killed_process_leaves_all_but_the_end),
        cmocka_unit_test(a_disk_that_fails_is_told_once),
        cmocka_unit_test(memory_that_is_short_is_told),
        cmocka_unit_test(jobs_of_threads_are_traced),
        cmocka_unit_test(jobs_of_a_simulated_host_are_traced),
    };

    only_threads_for_their_sanitizer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
