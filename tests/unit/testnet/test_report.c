/* Tests of testnet/summary, history, export and report: what a run leaves for people. */
#include "tests/scratch.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "testnet/export.h"
#include "testnet/history.h"
#include "testnet/report.h"
#include "testnet/report_topology.h"
#include "testnet/summary.h"

#include <math.h>

static const char events[] =
    "{\"t\":0.1,\"event\":\"started\",\"peer\":0}\n"
    "{\"t\":1,\"event\":\"report\",\"peer\":0,\"loss\":2.1,\"accuracy\":0.3,\"bytes_sent\":10}\n"
    "{\"t\":2,\"event\":\"report\",\"peer\":1,\"loss\":2,\"accuracy\":null}\n"
    "{\"t\":2.5,\"event\":\"fault\",\"peer\":1,\"kind\":\"kill\"}\n"
    "not json\n"
    "{\"t\":3,\"event\":\"report\",\"peer\":99999}\n"
    "{\"t\":3,\"event\":\"report\",\"peer\":0,\"loss\":1.5,\"accuracy\":0.5,\"bytes_sent\":20}\n"
    "{\"t\":4,\"event\":\"report\",\"peer\":0,\"loss\":9,\"accuracy\":0.9}\n"
    "{\"t\":4,\"event\":\"finished\",\"peer\":0}\n"
    "{\"t\":4,\"event\":\"finished\",\"peer\":1}\n"
    "{\"t\":4,\"event\":\"rep";

static struct local_peer done_peer(uint64_t samples)
{
    return (struct local_peer){.state = LOCAL_DONE,
                               .starts = 1,
                               .step = 10,
                               .own_steps = 8,
                               .samples = samples,
                               .bytes_sent = 1000,
                               .rounds_ok = 5,
                               .peak_rss_bytes = 7,
                               .lineage = "abc"};
}

/* Two peers, the second of which left no model. */
static struct json *summary_of(struct local_peer peers[2], bool has_models)
{
    struct score score = {.count = 10, .correct = 9, .loss_sum = 3};
    uint64_t parameters = 42;
    const uint32_t peer_of = 0;
    const struct local_result run = {.peers = peers,
                                     .count = 2,
                                     .wall_s = 4,
                                     .time_to_target_s = NAN,
                                     .faults = 1,
                                     .faults_spared = 5};
    const struct comparison comparison = {
        .count = 1,
        .models = &score,
        .parameters = &parameters,
        .has_average = true,
        .average = score,
        .distance = 0.5,
        .votes = {[VOTE_MEAN] = score},
        .card = {.spec = "<linear:classes>\x1b[2J\xc2\x9b"},
    };
    const struct summary summary = {.model = "mlp",
                                    .data = "digits",
                                    .averaging = "local-sgd:H=16",
                                    .exchange = "group",
                                    .codec = "f32",
                                    .topology = "complete",
                                    .seed = 3,
                                    .run = &run,
                                    .models = has_models ? &comparison : NULL,
                                    .peer_of = &peer_of};
    return summary_json(&summary);
}

static void the_summary_adds_up(void **state)
{
    /* Proves: totals are sums over peers, goodput counts what a kill threw away, a peer without a
     * model is null among the accuracies, and all invariants hold. */
    (void)state;
    struct local_peer peers[2] = {done_peer(300), done_peer(500)};
    const char *broken = NULL;
    uint64_t count;
    double value;

    peers[1].samples_lost = 200;
    struct json *json = summary_of(peers, true);
    assert_true(json_get_count(json, "steps_total", &count) && count == 16);
    assert_true(json_get_count(json, "samples_total", &count) && count == 800);
    assert_true(json_get_count(json, "bytes_sent_total", &count) && count == 2000);
    assert_true(json_get_count(json, "rounds_ok", &count) && count == 10);
    assert_true(json_get_count(json, "faults_injected", &count) && count == 1);
    assert_true(json_get_count(json, "faults_spared", &count) && count == 5);
    assert_true(json_get_real(json, "goodput", &value) && fabs(value - 0.8) < 1e-12);
    assert_true(json_get_real(json, "samples_per_s", &value) && fabs(value - 200) < 1e-9);
    const struct json *accuracy = json_get(json, "accuracy");
    assert_int_equal(json_count(json_get(accuracy, "peers")), 2);
    assert_true(json_real_of(json_at(json_get(accuracy, "peers"), 0), &value) && value > 0.89);
    assert_false(json_real_of(json_at(json_get(accuracy, "peers"), 1), &value));
    assert_false(json_get_real(json, "time_to_target_s", &value));
    assert_true(summary_holds(json, &broken));
    json_destroy(json);
}

static void baselines_stand_beside_the_swarm(void **state)
{
    /* Proves: the table has the mean of the peers alone with the least and the most, their
     * ensemble, and the peer with all the data; nothing of it without baselines; one of them that
     * left no model makes the mean unknown, not better. */
    (void)state;
    static const char baselines[] =
        "{\"alone\":{\"wall_s\":7.5,\"accuracy\":{\"peers\":[0.5,0.75],\"ensemble\":0.8}},"
        "\"all_data\":{\"wall_s\":9,\"accuracy\":{\"peers\":[0.97],\"ensemble\":0.97}}}";
    static const char unknown[] = "{\"alone\":{\"accuracy\":{\"peers\":[0.5,null]}}}";
    struct local_peer peers[2] = {done_peer(300), done_peer(500)};
    struct json *json = summary_of(peers, true), *added = NULL;
    struct text table = TEXT_EMPTY, page = TEXT_EMPTY;
    struct spread spread;

    summary_add_table(&table, json, NULL);
    assert_null(strstr(table.bytes, "alone"));
    assert_false(summary_baseline(json, "alone", &spread));
    assert_int_equal(json_parse(baselines, strlen(baselines), &added, NULL), RC_OK);
    json_set(json, "baselines", added);
    text_clear(&table);
    summary_add_table(&table, json, NULL);
    assert_non_null(strstr(table.bytes, "each alone: 50.0 to 75.0 %, mean     62.50 %"));
    assert_non_null(strstr(table.bytes, "ensemble of those alone              80.00 %"));
    assert_non_null(strstr(table.bytes, "one peer with all the data           97.00 %"));
    report_add_page(&page, &(struct report_sources){.summary = json});
    assert_non_null(strstr(page.bytes, "each alone: mean</td><td></td><td>62.50&nbsp;%"));
    assert_non_null(strstr(page.bytes, "the best of them</td><td></td><td>75.00&nbsp;%"));
    assert_int_equal(json_parse(unknown, strlen(unknown), &added, NULL), RC_OK);
    json_set(json, "baselines", added);
    assert_true(summary_baseline(json, "alone", &spread) && isnan(spread.mean));
    text_deinit(&page);
    text_deinit(&table);
    json_destroy(json);
}

static void texts_and_real_values_are_told_apart_by_loss(void **state)
{
    /* Proves: the summary says what its models predict; of texts and real values the table and the
     * page's cards show losses, and real values have null for an accuracy and no curve of one. */
    (void)state;
    static const char *const names[] = {"class", "token", "reals"};
    struct history history = {.peers = 0};

    for (int k = 0; k < 3; k++) {
        struct local_peer peers[2] = {done_peer(1), done_peer(1)};
        struct score score = {.count = 10, .correct = 9, .loss_sum = 3, .is_real = k == 2};
        uint64_t parameters = 42;
        const uint32_t peer_of[2] = {0, 1};
        const struct local_result run = {.peers = peers, .count = 2, .wall_s = 4};
        const struct comparison comparison = {
            .count = 1,
            .models = &score,
            .parameters = &parameters,
            .has_average = true,
            .average = score,
            .votes = {[VOTE_MEAN] = score},
            .card = {.spec = "linear:classes", .is_regression = k == 2},
            .is_text = k == 1,
        };
        const struct summary summary = {.run = &run, .models = &comparison, .peer_of = peer_of};
        struct json *json = summary_json(&summary);
        const struct report_sources sources = {.summary = json, .history = &history};
        struct text table = TEXT_EMPTY, page = TEXT_EMPTY;
        double value;

        assert_string_equal(json_get_text(json, "predicts"), names[k]);
        assert_true(summary_is_by_loss(json) == (k > 0));
        assert_true(json_get_real(json_get(json, "accuracy"), "ensemble", &value) == (k < 2));
        assert_true(json_get_real(json_get(json, "loss"), "ensemble", &value) && value < 0.4);
        summary_add_table(&table, json, NULL);
        assert_true((strstr(table.bytes, "90.00 %") != NULL) == (k == 0));
        assert_true((strstr(table.bytes, "0.3000") != NULL) == (k > 0));
        report_add_page(&page, &sources);
        assert_true((strstr(page.bytes, "loss, ensemble") != NULL) == (k > 0));
        assert_null(strstr(page.bytes, ">nan"));
        text_deinit(&table);
        text_deinit(&page);
        json_destroy(json);
    }
}

static void each_broken_invariant_is_named(void **state)
{
    /* Proves: an unfinished peer, unequal lineages and unreadable models are found, by name. */
    (void)state;
    struct local_peer peers[2] = {done_peer(1), done_peer(1)};
    const char *broken = NULL;

    peers[1].state = LOCAL_FAILED;
    struct json *json = summary_of(peers, true);
    assert_false(summary_holds(json, &broken));
    assert_string_equal(broken, "peers_finished");
    json_destroy(json);
    peers[1].state = LOCAL_DONE;
    strcpy(peers[1].lineage, "abd");
    json = summary_of(peers, true);
    assert_false(summary_holds(json, &broken));
    assert_string_equal(broken, "lineages_equal");
    json_destroy(json);
    peers[1].lineage[0] = '\0';
    json = summary_of(peers, false);
    assert_false(summary_holds(json, &broken));
    assert_string_equal(broken, "models_finite");
    json_destroy(json);
}

static void the_history_is_read_past_broken_lines(void **state)
{
    /* Proves: reports and faults are found; junk, a cut last line and absurd peers are skipped; a
     * last report is a point of its curve like the others. */
    (void)state;
    struct scratch scratch;
    struct history history;

    scratch_init(&scratch);
    scratch_write(&scratch, "events.jsonl", events, strlen(events));
    assert_int_equal(history_load(scratch_path(&scratch, "events.jsonl"), &history, NULL), RC_OK);
    assert_int_equal(history.peers, 2);
    assert_int_equal(history.tracks[0].count, 3);
    assert_int_equal(history.tracks[1].count, 1);
    assert_true(history.tracks[0].values[HISTORY_accuracy][2] >
                0.89); /* the last before it finished, too */
    assert_true(history.tracks[0].values[HISTORY_t][1] > 2.9 &&
                history.tracks[0].values[HISTORY_bytes_sent][1] > 19);
    assert_true(isnan(history.tracks[1].values[HISTORY_accuracy][0]));
    assert_int_equal(history.faults_count, 1);
    history_deinit(&history);
    assert_int_equal(history_load("/no/such/file", &history, NULL), RC_NOT_FOUND);
    assert_int_equal(history.peers, 0);
    scratch_deinit(&scratch);
}

static void a_peers_folder_is_read_over_its_starts(void **state)
{
    /* Proves: time and counters go on where a peer was started again, what was not said is NaN, and
     * names that are no names of folders, or taken, are replaced. */
    (void)state;
    static const char metrics[] =
        "{\"t\":1,\"own_steps\":5,\"loss\":2,\"bytes_sent\":10,\"rounds_ok\":1}\n"
        "{\"t\":2,\"own_steps\":9,\"loss\":null,\"bytes_sent\":30,\"rounds_ok\":3}\n"
        "{\"t\":0.5,\"own_steps\":11,\"loss\":1,\"bytes_sent\":4,\"rounds_ok\":1}\n{\"t\":";
    struct history history = {.peers = 0};
    struct scratch scratch;
    const double *const *v;

    scratch_init(&scratch);
    scratch_write(&scratch, "metrics.jsonl", metrics, strlen(metrics));
    assert_int_equal(history_add_peer(&history, scratch.folder, NULL), RC_OK);
    assert_int_equal(history_add_peer(&history, scratch_path(&scratch, "."), NULL), RC_OK);
    assert_int_equal(history_add_peer(&history, scratch.folder, NULL), RC_OK);
    assert_int_equal(history_add_peer(&history, "/no/such/folder", NULL), RC_NOT_FOUND);
    assert_int_equal(history.peers, 3);
    v = (const double *const *)history.tracks[0].values;
    assert_int_equal(history.tracks[0].count, 3);
    assert_true(v[HISTORY_t][2] > 2.4 && v[HISTORY_t][2] < 2.6);
    assert_true(v[HISTORY_bytes_sent][2] > 33.5 && v[HISTORY_rounds_ok][2] > 3.5);
    assert_true(v[HISTORY_own_steps][2] < 11.5); /* counted over restarts already */
    assert_true(isnan(v[HISTORY_loss][1]) && isnan(v[HISTORY_accuracy][2]));
    assert_true(history_last(&history.tracks[0], HISTORY_loss) < 1.5);
    assert_string_equal(history.tracks[1].name, "peer 1");
    assert_string_equal(history.tracks[2].name, "peer 2");
    history_deinit(&history);
    scratch_deinit(&scratch);
}

static void a_name_cannot_end_the_script(void **state)
{
    /* Proves: what a file says is data inside the page's script, whatever it is. */
    (void)state;
    double t[1] = {1}, loss[1] = {2}, nan[1] = {NAN};
    struct track track = {.name = "</script><b>", .count = 1};
    struct history history = {.tracks = &track, .peers = 1};
    struct text text = TEXT_EMPTY;

    for (int c = 0; c < HISTORY_COLUMNS_COUNT; c++)
        track.values[c] = nan;
    track.values[HISTORY_t] = t;
    track.values[HISTORY_loss] = loss;
    report_add_peers(&text, &history);
    assert_true(text_is_whole(&text));
    assert_non_null(strstr(text.bytes, "\\u003c/script>\\u003cb>"));
    assert_null(strstr(text.bytes, "</script><b>"));
    assert_non_null(strstr(text.bytes, "Training loss"));
    assert_null(strstr(text.bytes, "Test accuracy\",")); /* nobody has one */
    text_deinit(&text);
}

static void exports_say_what_was_reported(void **state)
{
    /* Proves: the CSV has a line a report, with nothing where nothing is known; an event file has
     * records whose masked CRC-32C is that of the format (the known values of its first record). */
    (void)state;
    double t[1] = {1.5}, loss[1] = {0.25}, nan[1] = {NAN}, absurd[1] = {1e300};
    struct text page = TEXT_EMPTY;
    struct track track = {.name = "a\"b", .count = 1, .wall_s = 1000};
    struct history history = {.tracks = &track, .peers = 1};
    static const uint8_t head[] = {24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22};
    struct scratch scratch;
    void *bytes = NULL;
    size_t count;

    for (int c = 0; c < HISTORY_COLUMNS_COUNT; c++)
        track.values[c] = nan;
    track.values[HISTORY_t] = t;
    track.values[HISTORY_loss] = loss;
    scratch_init(&scratch);
    assert_int_equal(export_csv(scratch_path(&scratch, "x.csv"), &history, NULL), RC_OK);
    assert_int_equal(file_read(scratch_path(&scratch, "x.csv"), 4096, &bytes, &count, NULL), RC_OK);
    assert_non_null(strstr(bytes, "peer,t,step,own_steps,"));
    assert_non_null(strstr(bytes, "\n\"a\"\"b\",1.5,,,,,0.25,,,,,,,,,\n"));
    mem_free(bytes);
    assert_int_not_equal(export_csv("/no/such/folder/x.csv", &history, NULL), RC_OK);
    track.values[HISTORY_own_steps] = track.values[HISTORY_bytes_sent] = absurd;
    report_add_peers(&page, &history);
    assert_non_null(strstr(page.bytes, "<td>&ndash;</td>"));
    text_deinit(&page);
    assert_int_equal(export_tensorboard(scratch_path(&scratch, "board"), &history, NULL), RC_OK);
    assert_int_equal(file_read(scratch_path(&scratch, "board/a\"b/events.out.tfevents.grapevine"),
                               4096, &bytes, &count, NULL),
                     RC_OK);
    /* The first: 9 bytes of wall time, 15 of its version. */
    assert_memory_equal(bytes, head, sizeof head);
    assert_memory_equal((const char *)bytes + 12 + 9 + 2, "brain.Event:2", 13);
    mem_free(bytes);
    scratch_deinit(&scratch);
}

static void the_page_stands_alone_and_escapes_what_it_quotes(void **state)
{
    /* Proves: report.html is written from the folder's files, loads nothing from elsewhere, and a
     * layer list cannot become markup; the table has the student's line. */
    (void)state;
    static const char distilled[] =
        "{\"student_accuracy\":0.875,\"labels_only_accuracy\":0.86,\"student_parameters\":7,"
        "\"compression\":6,\"wall_s\":3,\"student\":\"linear\",\"models\":[{\"name\":\"teacher "
        "<b>\","
        "\"accuracy\":0.625,\"latency_us\":12.5,\"command\":\"grapevine '<i>'\"},7,{}]}";
    struct local_peer peers[2] = {done_peer(1), done_peer(1)};
    struct json *json = summary_of(peers, true);
    char *summary = json_format_pretty(json);
    struct scratch scratch;
    struct report_sources sources;
    struct text table = TEXT_EMPTY;
    void *page = NULL;
    size_t count;

    scratch_init(&scratch);
    assert_int_equal(report_load(scratch.folder, &sources, NULL), RC_NOT_FOUND);
    scratch_write(&scratch, "summary.json", summary, strlen(summary));
    assert_int_equal(report_load(scratch.folder, &sources, NULL), RC_OK);
    assert_null(sources.distilled);
    assert_int_equal(report_write(scratch.folder, &sources, NULL), RC_OK);
    report_sources_deinit(&sources);
    scratch_write(&scratch, "events.jsonl", events, strlen(events));
    scratch_write(&scratch, "distill.json", distilled, strlen(distilled));
    assert_int_equal(report_load(scratch.folder, &sources, NULL), RC_OK);
    assert_int_equal(report_write(scratch.folder, &sources, NULL), RC_OK);
    summary_add_table(&table, sources.summary, sources.distilled);
    assert_non_null(strstr(table.bytes, "87.50 %"));
    assert_non_null(strstr(table.bytes, "labels alone"));
    assert_int_equal(file_read(scratch_path(&scratch, "report.html"), 1 << 21, &page, &count, NULL),
                     RC_OK);
    assert_non_null(strstr(page, "87.50"));
    assert_non_null(strstr(page, "teacher &lt;b&gt;</td><td>62.50&nbsp;%"));
    assert_non_null(strstr(page, "&lt;i&gt;"));
    assert_non_null(strstr(page, "&lt;linear:classes&gt;"));
    assert_null(strstr(page, "<linear"));
    assert_non_null(strstr(page, "linear:classes&gt;\\x1b[2J\\xc2\\x9b"));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href="));
    assert_null(strstr(page, "@import"));
    mem_free(page);
    text_deinit(&table);
    report_sources_deinit(&sources);
    scratch_write(&scratch, "summary.json", "{", 1);
    assert_int_not_equal(report_load(scratch.folder, &sources, NULL), RC_OK);
    scratch_deinit(&scratch);
    mem_free(summary);
    json_destroy(json);
}

static size_t lines_of(const char *topology, uint64_t peers)
{
    struct text text = TEXT_EMPTY;
    size_t lines = 0;

    report_add_topology(&text, topology, peers);
    assert_true(text_is_whole(&text));
    for (const char *at = text.bytes; (at = strstr(at, "class=\"edge\"")) != NULL; at++) {
        lines++;
    }
    text_deinit(&text);
    return lines;
}

static bool caption_has(const char *topology, uint64_t peers, const char *words)
{
    struct text text = TEXT_EMPTY;

    report_add_topology(&text, topology, peers);
    const bool has = strstr(text.bytes, words) != NULL;
    text_deinit(&text);
    return has;
}

static void a_topology_is_drawn_as_it_is(void **state)
{
    /* Each edge of a graph once, at awkward sizes too; everyone with everyone where partners change
     * or nothing is known. */
    (void)state;
    assert_int_equal(lines_of("ring", 5), 5);
    assert_int_equal(lines_of("ring", 2), 1);
    assert_int_equal(lines_of("ring", 1), 0);
    assert_int_equal(lines_of("torus", 9), 18);
    assert_int_equal(lines_of("hypercube", 8), 12);
    assert_int_equal(lines_of("one-peer-exponential", 8), 8 + 8 + 4);
    assert_int_equal(lines_of("dissemination", 8), 28);
    assert_int_equal(lines_of("random:4", 16), 32);
    assert_int_equal(lines_of("complete", 5), 10);
    assert_int_equal(lines_of("groups:4", 8), 28);
    assert_int_equal(lines_of("<none>", 3), 3);
    assert_int_equal(lines_of(NULL, 3), 3);
    assert_int_equal(lines_of("ring", 0), 0);
    assert_int_equal(lines_of("ring", 4096), 64);
    assert_true(caption_has("ring", 4096, ": ring, drawn for 64 peers<"));
    assert_true(caption_has("ring", 64, ": ring<"));
    assert_true(caption_has("random:4", 16, ": random:4, a graph like this one<"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_summary_adds_up),
        cmocka_unit_test(baselines_stand_beside_the_swarm),
        cmocka_unit_test(texts_and_real_values_are_told_apart_by_loss),
        cmocka_unit_test(each_broken_invariant_is_named),
        cmocka_unit_test(the_history_is_read_past_broken_lines),
        cmocka_unit_test(a_peers_folder_is_read_over_its_starts),
        cmocka_unit_test(a_name_cannot_end_the_script),
        cmocka_unit_test(exports_say_what_was_reported),
        cmocka_unit_test(the_page_stands_alone_and_escapes_what_it_quotes),
        cmocka_unit_test(a_topology_is_drawn_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
