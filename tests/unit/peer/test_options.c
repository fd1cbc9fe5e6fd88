/* Tests of options: the command line, the environment, files, help, and every way to be wrong. */
#include "tests/check.h"

#include "base/mem.h"
#include "peer/cli/options_table.h"
#include "replica/model/layers.h"

#include <unistd.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *const no_environment[] = {NULL};

static int count_of(const char *const *words)
{
    int count = 0;

    while (words[count] != NULL)
        count++;
    return count;
}

static enum rc parse_in(const char *const *words, const char *const *environment,
                        struct options **options, struct fault *why)
{
    return options_parse(count_of(words), words, environment, options, why);
}

static struct options *parsed(const char *const *words)
{
    struct options *options = NULL;
    struct fault why = {""};
    enum rc rc = parse_in(words, no_environment, &options, &why);

    if (rc != RC_OK) fail_msg("%s", why.text);
    return options;
}

/** These words are refused, in one line that contains `text`. */
static void check_refused_in(const char *const *words, const char *const *environment,
                             const char *text)
{
    struct options *options = NULL;
    struct fault why = {""};

    assert_int_equal(parse_in(words, environment, &options, &why), RC_USAGE);
    assert_null(options);
    if (strstr(why.text, text) == NULL) fail_msg("'%s' is not in: %s", text, why.text);
    assert_null(strchr(why.text, '\n'));
}

static void check_refused(const char *const *words, const char *text)
{
    check_refused_in(words, no_environment, text);
}

/** A file in a fresh folder; both are removed by drop_file(). */
struct written_file {
    char folder[64], path[96];
};

static struct written_file write_file(const char *text, size_t bytes)
{
    struct written_file file = {.folder = "/tmp/grapevine-options-XXXXXX"};
    FILE *out;

    assert_non_null(mkdtemp(file.folder));
    snprintf(file.path, sizeof(file.path), "%s/run.ini", file.folder);
    out = fopen(file.path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
    return file;
}

static void drop_file(const struct written_file *file)
{
    unlink(file->path);
    rmdir(file->folder);
}

static void check_file_refused(const char *file_text, const char *text)
{
    struct written_file file = write_file(file_text, strlen(file_text));

    check_refused(WORDS("peer", "--config", file.path), text);
    drop_file(&file);
}

/* --- the table -------------------------------------------------------------------------------- */

/* No name stands for two things in one command, and every row is taken by some command. */
static void each_command_takes_a_name_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < option_rows_count; i++) {
        assert_int_not_equal(option_rows[i].commands & ((1u << COMMAND_COUNT) - 1), 0);
        assert_true(option_rows[i].type == OPTION_SWITCH || option_rows[i].shape != NULL);
        for (size_t j = i + 1; j < option_rows_count; j++) {
            if (strcmp(option_rows[i].name, option_rows[j].name) != 0) continue;
            assert_int_equal(option_rows[i].commands & option_rows[j].commands, 0);
        }
    }
}

/* Every default of the table passes the test of its own row. */
static void every_default_is_valid(void **state)
{
    (void)state;
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++) {
        const struct command_row *row = &command_rows[i];
        const char *words[8] = {row->name};
        struct options *options = NULL;
        struct fault why = {""};
        int count = 1;

        for (size_t j = 0; j < row->arguments_min; j++)
            words[count++] = "word";
        assert_int_equal(options_parse(count, words, no_environment, &options, &why), RC_OK);
        assert_int_equal(options_command(options), i);
        options_destroy(options);
    }
}

/* --- the command line ------------------------------------------------------------------------- */

/* A value can follow its flag as a word or behind an equals sign, and each type is read. */
static void flags_are_read_in_both_forms(void **state)
{
    struct options *options =
        parsed(WORDS("peer", "--steps", "1200", "--lr=5%", "--time=2m", "--model",
                     "conv3x3:32 relu linear:classes", "--json", "--public=no", "--device", "cpu"));

    (void)state;
    assert_int_equal(options_count(options, "steps"), 1200);
    assert_true(options_real(options, "lr") == 0.05);
    assert_int_equal(options_ns(options, "time"), UINT64_C(120000000000));
    assert_string_equal(options_text(options, "model"), "conv3x3:32 relu linear:classes");
    assert_true(options_flag(options, "json"));
    assert_false(options_flag(options, "public"));
    assert_true(options_is_set(options, "public"));
    assert_string_equal(options_text(options, "device"), "cpu");
    options_destroy(options);
}

/* What was not given has its default, or is empty, and says that it was not given. */
static void what_is_left_out_has_its_default(void **state)
{
    struct options *options = parsed(WORDS("peer"));

    (void)state;
    assert_int_equal(options_count(options, "seed"), 1);
    assert_false(options_is_set(options, "seed"));
    assert_null(options_text(options, "bootstrap"));
    assert_int_equal(options_count(options, "steps"), 0);
    assert_false(options_flag(options, "json"));
    assert_true(options_has(options, "listen"));
    assert_false(options_has(options, "peers"));
    options_destroy(options);
}

/* Words that are no flags are kept in order, and after "--" everything is such a word. */
static void words_without_dashes_are_arguments(void **state)
{
    struct options *options = parsed(WORDS("eval", "a", "--json", "b", "--", "--data", "-"));
    size_t count;
    const char *const *arguments = options_arguments(options, &count);

    (void)state;
    assert_int_equal(count, 4);
    assert_string_equal(arguments[0], "a");
    assert_string_equal(arguments[1], "b");
    assert_string_equal(arguments[2], "--data");
    assert_string_equal(arguments[3], "-");
    options_destroy(options);
}

/* Every misuse of the command line is refused in one line that says what to do. */
static void misuse_is_refused_with_what_to_do(void **state)
{
    char long_value[OPTION_VALUE_MAX + 2];

    (void)state;
    memset(long_value, 'x', sizeof(long_value) - 1);
    long_value[sizeof(long_value) - 1] = '\0';
    check_refused((const char *const[]){NULL}, "no command");
    check_refused(WORDS("pear"), "did you mean peer");
    check_refused(WORDS("Zyxwvu"), "unknown command Zyxwvu; 'grapevine help'");
    check_refused(WORDS("ddp"), "write grapevine peer --averaging allreduce");
    check_refused(WORDS("train"), "write grapevine peer;");
    check_refused(WORDS("peer", "--batch-size", "3"), "did you mean --batch;");
    check_refused(WORDS("peer", "--nproc", "3"), "unknown flag --nproc; see");
    check_refused(WORDS("--steps", "3"), "grapevine COMMAND --steps");
    check_refused(WORDS("--", "peer"), "no command");
    check_refused(WORDS("peer", "--bootstap", "x"), "did you mean --bootstrap");
    check_refused(WORDS("peer", "--stpes=3"), "did you mean --steps");
    check_refused(WORDS("peer", "--peers", "3"), "not a flag of 'peer'");
    check_refused(WORDS("peer", "-x"), "two dashes");
    check_refused(WORDS("peer", "--steps"), "no value");
    check_refused(WORDS("peer", "--steps", "--json"), "no value");
    check_refused(WORDS("peer", "--steps", "3", "--steps", "3"), "given twice");
    check_refused(WORDS("peer", "--json", "--json"), "given twice");
    check_refused(WORDS("peer", "--steps", "ten"), "not a count");
    check_refused(WORDS("peer", "--steps", "-1"), "not a count");
    check_refused(WORDS("peer", "--lr", "nan"), "not a number");
    check_refused(WORDS("peer", "--lr", "-0.1"), "out of range");
    check_refused(WORDS("distill", "--alpha=-0.1"), "between 0 and 1");
    check_refused(WORDS("distill", "--alpha=--1"), "not a number");
    check_refused(WORDS("peer", "--time", "5 parsecs"), "not a duration");
    check_refused(WORDS("peer", "--json=maybe"), "not a switch");
    check_refused(WORDS("peer", "--device", "abacus"), "auto|cpu");
    check_refused(WORDS("peer", "--device", "aut"), "auto|cpu");
    check_refused(WORDS("peer", "--batch", "0"), "out of range");
    check_refused(WORDS("peer", "--batch", "65537"), "out of range");
    check_refused(WORDS("peer", "--target-accuracy", "1.5"), "out of range");
    check_refused(WORDS("peer", "--time", "0"), "out of range");
    check_refused(WORDS("peer", "--out="), "empty");
    check_refused(WORDS("peer", "--out", "a\nb"), "control character at column 2");
    check_refused(WORDS("peer", "--out", "a ;b"), "comment");
    check_refused(WORDS("peer", "--out", long_value), "longer than");
    check_refused(WORDS("peer", "--quiet", "--verbose"), "contradicts");
    check_refused(WORDS("peer", "stray"), "unexpected word 'stray'");
    check_refused(WORDS("export"), "FILE is missing");
    check_refused(WORDS("inspect", "a", "b"), "unexpected word 'b'");
    check_refused(WORDS("average", "a"), "is missing");
}

/* --help, --version and --man work whatever else is missing. */
static void help_needs_nothing_else(void **state)
{
    struct options *options = parsed(WORDS("--help"));

    (void)state;
    assert_int_equal(options_command(options), COMMAND_NONE);
    assert_true(options_flag(options, "help"));
    options_destroy(options);
    options = parsed(WORDS("inspect", "-h"));
    assert_int_equal(options_command(options), COMMAND_INSPECT);
    assert_true(options_flag(options, "help"));
    options_destroy(options);
    options = parsed(WORDS("--man"));
    assert_true(options_flag(options, "man"));
    options_destroy(options);
}

/* --- environment and precedence --------------------------------------------------------------- */

/* A flag is stronger than the environment, that than a file, and that than the default. */
static void the_strongest_source_wins(void **state)
{
    const char text[] = "steps = 1\nbatch = 2\nthreads = 3\n";
    struct written_file file = write_file(text, strlen(text));
    struct options *options = NULL;
    struct fault why = {""};

    (void)state;
    assert_int_equal(parse_in(WORDS("peer", "--steps", "7", "--config", file.path),
                              WORDS("GRAPEVINE_STEPS=5", "GRAPEVINE_BATCH=6", "HOME=/"), &options,
                              &why),
                     RC_OK);
    assert_int_equal(options_count(options, "steps"), 7);
    assert_int_equal(options_count(options, "batch"), 6);
    assert_int_equal(options_count(options, "threads"), 3);
    assert_int_equal(options_count(options, "seed"), 1);
    assert_true(options_is_set(options, "threads"));
    options_destroy(options);
    drop_file(&file);
}

/* Variables are named after flags; another command's, empty and foreign ones are no trouble. */
static void the_environment_is_read_by_flag_names(void **state)
{
    struct options *options = NULL;
    struct fault why = {""};

    (void)state;
    assert_int_equal(parse_in(WORDS("peer"),
                              WORDS("GRAPEVINE_SWARM_NAME=blue", "GRAPEVINE_PEERS=9",
                                    "GRAPEVINE_OUT=", "PATH=/bin", "GRAPEVINE", "="),
                              &options, &why),
                     RC_OK);
    assert_string_equal(options_text(options, "swarm-name"), "blue");
    assert_null(options_text(options, "out"));
    options_destroy(options);
    check_refused_in(WORDS("peer"), WORDS("GRAPEVINE_LISTN=x"), "did you mean GRAPEVINE_LISTEN");
    check_refused_in(WORDS("peer"), WORDS("GRAPEVINE_STEPS=ten"), "GRAPEVINE_STEPS ten: not a");
    check_refused_in(WORDS("peer"), WORDS("GRAPEVINE_CONFIG=x"), "only as the flag --config");
}

/* --- files ------------------------------------------------------------------------------------ */

/* A file may hold sections for several commands, comments, and values over several lines. */
/* Whatever mpirun starts in a job of Slurm has numbers of both, and mpirun's are its own. */
static void a_launcher_numbers_its_peers(void **state)
{
    const char *const *slurm = WORDS("SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=0");
    const char *const *both = WORDS("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1",
                                    "OMPI_COMM_WORLD_RANK=7", "OMPI_COMM_WORLD_SIZE=8");
    const char *const *words =
        WORDS("peer", "--shard-of", "{rank}/{ranks}", "--out={rank}-{local-rank}{rank}{x}");
    struct options *options = NULL;
    struct fault why = {""};

    (void)state;
    assert_int_equal(parse_in(words, slurm, &options, &why), RC_OK);
    assert_string_equal(options_text(options, "shard-of"), "2/4");
    assert_string_equal(options_text(options, "out"), "2-02{x}");
    options_destroy(options);
    assert_int_equal(
        parse_in(WORDS("join", "h:1", "--out", "{rank}/{ranks}"), both, &options, &why), RC_OK);
    assert_string_equal(options_text(options, "out"), "7/8");
    options_destroy(options);
    assert_int_equal(parse_in(WORDS("peer", "--out", "o{rank}"), WORDS("JOB_COMPLETION_INDEX=3"),
                              &options, &why),
                     RC_OK);
    assert_string_equal(options_text(options, "out"), "o3");
    options_destroy(options);
    assert_int_equal(parse_in(WORDS("generate", "m", "--prompt", "{rank}"), slurm, &options, &why),
                     RC_OK);
    assert_string_equal(options_text(options, "prompt"), "{rank}");
    options_destroy(options);

    check_refused(words, "--shard-of {rank}/{ranks}: nobody told this process what {rank} is");
    check_refused_in(WORDS("peer", "--shard-of={rank}/{ranks}"), WORDS("JOB_COMPLETION_INDEX=3"),
                     "what {ranks} is");
    /* a batch script is rank 0 of no step; and numbers that are none */
    check_refused_in(words, WORDS("SLURM_PROCID=0", "SLURM_NTASKS=4"), "what {rank} is");
    check_refused_in(words, WORDS("SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=4"), "what {rank} is");
    check_refused_in(words, WORDS("RANK=-1", "WORLD_SIZE=4"), "what {rank} is");
    check_refused_in(words, WORDS("RANK=../x", "WORLD_SIZE=4"), "what {rank} is");
}

static void a_file_serves_several_commands(void **state)
{
    const char text[] = "# all\nseed = 4 ; four\nmodel = conv3x3:32 relu\n  linear:classes\n"
                        "[testnet]\npeers = 7\n[peer]\nseed = 5\nbootstrap = a:1,\n   b:2\n"
                        "swarm-name =\n  blue\n";
    struct written_file file = write_file(text, strlen(text));
    struct options *options = parsed(WORDS("peer", "--config", file.path));

    (void)state;
    assert_int_equal(options_count(options, "seed"), 5);
    assert_string_equal(options_text(options, "model"), "conv3x3:32 relu linear:classes");
    assert_string_equal(options_text(options, "bootstrap"), "a:1,b:2");
    assert_string_equal(options_text(options, "swarm-name"), "blue");
    options_destroy(options);
    options = parsed(WORDS("testnet", "--config", file.path));
    assert_int_equal(options_count(options, "seed"), 4);
    assert_int_equal(options_count(options, "peers"), 7);
    options_destroy(options);
    drop_file(&file);
}

/* What is written into one as a comment, a method in words, is as long as it is. */
static void a_comment_may_be_long(void **state)
{
    char text[700] = "seed = 4\n; ";
    struct written_file file;
    struct options *options;

    (void)state;
    memset(text + strlen(text), 'x', 600);
    strcat(text, "\nlr = 0.5\nsedes = 1\n");
    check_file_refused(text, "run.ini:4: unknown setting sedes");
    *strstr(text, "sedes") = '\0';
    file = write_file(text, strlen(text));
    options = parsed(WORDS("peer", "--config", file.path));
    assert_int_equal(options_count(options, "seed"), 4);
    options_destroy(options);
    drop_file(&file);
}

/* Whatever is wrong with a file is refused with its name and line. */
static void a_wrong_file_is_refused_with_its_line(void **state)
{
    struct written_file file = write_file("seed = 1\nlr\0= 2\n", 16);
    char line[400] = "seed = 1\nmodel = ";

    (void)state;
    check_refused(WORDS("peer", "--config", file.path), "run.ini:2: not text");
    drop_file(&file);
    check_refused(WORDS("peer", "--config", "/nonexistent/run.ini"), "no such file");
    memset(line + strlen(line), 'x', 250);
    check_file_refused(line, "run.ini:2: longer than");
    check_file_refused("sede = 1\n", "run.ini:1: unknown setting sede; did you mean seed");
    check_file_refused("\n\npeers = 3\n", "run.ini:3: peers: not a setting of 'peer'");
    check_file_refused("seed = 1\nseed = 2\n", "run.ini:2: seed: set twice");
    check_file_refused("seed = x\n", "run.ini:1: seed x: not a count");
    check_file_refused("seed = 1\nno value\n", "run.ini:2: not a setting");
    check_file_refused("no value\nsede = 1\n", "run.ini:1: not a setting");
    check_file_refused("[pear]\nseed = 1\n", "[pear]");
    check_file_refused("help = yes\n", "only as the flag");
    check_file_refused("config = other.ini\n", "only as the flag");
    check_file_refused("out =\n", "empty");
}

/* What --print-config prints is read back as the same settings, long values included. */
static void a_printed_configuration_is_read_back(void **state)
{
    char layers[2048] = "conv3x3:32 relu", peers[1024] = "192.0.2.1:7077";
    struct options *first, *second;
    struct written_file file;
    char *text, *again;

    (void)state;
    for (int i = 0; i < 60; i++) {
        strcat(layers, " conv3x3:32 relu");
        if (i < 40) strcat(peers, ",192.0.2.1:7077");
    }
    first =
        parsed(WORDS("peer", "--model", layers, "--bootstrap", peers, "--lr", "0.05", "--json"));
    text = options_config_text(first);
    assert_non_null(text);
    file = write_file(text, strlen(text));
    second = parsed(WORDS("peer", "--config", file.path));
    again = options_config_text(second);
    assert_string_equal(text, again);
    assert_string_equal(options_text(second, "model"), layers);
    assert_string_equal(options_text(second, "bootstrap"), peers);
    assert_true(options_flag(second, "json"));
    mem_free(text);
    mem_free(again);
    options_destroy(first);
    options_destroy(second);
    drop_file(&file);
}

/* --- handing on and resuming ------------------------------------------------------------------ */

/* A testnet hands on what a peer takes, but not its defaults nor what it sets itself. */
static void settings_are_handed_on_to_a_child(void **state)
{
    struct options *options = parsed(
        WORDS("testnet", "--peers", "3", "--steps", "9", "--out", "x", "--model", "a b", "--json"));
    char *words[8];
    size_t count = options_forward(options, COMMAND_PEER, WORDS("out", "json"), words, 8);

    (void)state;
    assert_int_equal(count, 2);
    assert_string_equal(words[0], "--model=a b");
    assert_string_equal(words[1], "--steps=9");
    mem_free(words[0]);
    mem_free(words[1]);
    mem_fail_after(1);
    assert_int_equal(options_forward(options, COMMAND_PEER, WORDS("out"), words, 8), SIZE_MAX);
    mem_fail_after(UINT64_MAX);
    options_destroy(options);
}

/* What `options` make of an earlier run's config.ini. */
static enum rc adopt(struct options *options, const char *text, struct fault *why)
{
    return options_adopt(options, "a/config.ini", text, strlen(text), why);
}

/* A folder gives back every flag of its run that is not given now: all of the table but those of
 * one start, whatever they are called. */
static void a_folder_gives_all_flags_back(void **state)
{
    static const char *const values[] = {
        [OPTION_TEXT] = "x:1",     [OPTION_COUNT] = "3",   [OPTION_REAL] = "0.25",
        [OPTION_DURATION] = "70s", [OPTION_RATE] = NULL,   [OPTION_SWITCH] = "yes",
        [OPTION_CHOICE] = NULL,    [OPTION_DEVICE] = "cpu"};
    struct fault why = {""};

    (void)state;
    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];
        const char *value = row->type == OPTION_RATE ? "3mbit" : values[row->type];
        struct options *options = parsed(WORDS("peer"));
        char text[128], last[32];

        if (value == NULL) { /* the last choice is never the default */
            snprintf(last, sizeof last, "%s", strrchr(row->shape, '|') + 1);
            value = last;
        }
        snprintf(text, sizeof text, "%s = %s\n", row->name, value);
        if ((row->commands >> COMMAND_PEER & 1u) != 0 && row->kept != WORD_ONLY) {
            if (adopt(options, text, &why) != RC_OK) fail_msg("%s", why.text);
            if (row->kept == OF_START) {
                assert_false(options_is_set(options, row->name));
            } else {
                assert_true(options_is_set(options, row->name));
                assert_string_equal(options_text(options, row->name), value);
            }
        }
        options_destroy(options);
    }
}

/* What is given again may say the same in other words; what says something else is refused with
 * each such flag and both values, also where it was left to its default before. */
static void other_flags_are_refused_by_name(void **state)
{
    const char text[] = "model = cnn\nseed = 7\nlr = 0.05\nschedule = cosine\n";
    struct options *options =
        parsed(WORDS("peer", "--seed", "7", "--lr", "5e-2", "--shard", "iid", "--codec", "f16"));
    struct fault why = {""};

    (void)state;
    assert_int_equal(adopt(options, text, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "a/config.ini has other flags (1): --codec (the default), "
                                     "not f16;"));
    options_destroy(options);

    options = parsed(WORDS("peer", "--seed", "8", "--lr", "0.5", "--schedule", "linear"));
    assert_int_equal(adopt(options, text, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "(3): --lr 0.05, not 0.5; --schedule cosine, not linear; "
                                     "--seed 7, not 8;"));
    assert_string_equal(options_text(options, "model"), "mlp");
    assert_int_equal(adopt(options, "x", &why), RC_USAGE);
    options_destroy(options);

    options = parsed(WORDS("peer", "--shard", "all"));
    assert_int_equal(adopt(options, text, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "(1): --shard iid, not all;"));
    options_destroy(options);

    options = parsed(WORDS("peer", "--seed=7", "--lr=5e-2", "--shard=iid"));
    assert_int_equal(adopt(options, text, &why), RC_OK);
    assert_string_equal(options_text(options, "model"), "cnn");
    assert_string_equal(options_text(options, "schedule"), "cosine");
    options_destroy(options);
}

/* Where it listens and how often it tells may change; a key stays where none is given; a new goal
 * replaces all earlier ones. */
static void some_flags_may_change(void **state)
{
    const char text[] = "listen = 127.0.0.1:1\nswarm-key = old.key\nepochs = 40\nthreads = 2\n"
                        "target-loss = 0.1\n";
    struct options *options =
        parsed(WORDS("peer", "--listen", "127.0.0.1:2", "--threads", "3", "--steps", "9"));
    struct fault why = {""};

    (void)state;
    assert_int_equal(adopt(options, text, &why), RC_OK);
    assert_string_equal(options_text(options, "listen"), "127.0.0.1:2");
    assert_int_equal(options_count(options, "threads"), 3);
    assert_string_equal(options_text(options, "swarm-key"), "old.key");
    assert_false(options_is_set(options, "epochs"));
    assert_false(options_is_set(options, "target-loss"));
    options_destroy(options);

    options = parsed(WORDS("peer", "--swarm-key", "new.key"));
    assert_int_equal(adopt(options, text, &why), RC_OK);
    assert_string_equal(options_text(options, "swarm-key"), "new.key");
    assert_true(options_real(options, "epochs") == 40);
    assert_true(options_real(options, "target-loss") == 0.1);
    options_destroy(options);
}

/* --- help ------------------------------------------------------------------------------------- */

/* --help of a command names each of its flags and no others, in lines that fit a terminal. */
static void help_names_each_flag(void **state)
{
    (void)state;
    for (int command = COMMAND_NONE; command < COMMAND_COUNT; command++) {
        char *text = NULL, *line, *rest;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);

        assert_non_null(out);
        options_print_help(out, (enum command_id)command);
        assert_int_equal(fclose(out), 0);
        for (size_t i = 0; i < option_rows_count; i++) {
            char flag[64];
            bool is_there, is_taken = (option_rows[i].commands >> command & 1u) != 0;

            if (command == COMMAND_NONE && option_rows[i].group != GROUP_SETTINGS) continue;
            snprintf(flag, sizeof(flag), "\n  --%s ", option_rows[i].name);
            is_there = strstr(text, flag) != NULL;
            if (is_taken) assert_true(is_there);
            if (option_find((enum command_id)command, option_rows[i].name,
                            strlen(option_rows[i].name)) == SIZE_MAX)
                assert_false(is_there);
        }
        for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
            assert_true(strlen(line) <= 110);
        free(text);
    }
}

/* Whoever asks how to write --model reads the name of every preset. */
static void help_names_each_preset(void **state)
{
    size_t row = option_find(COMMAND_PEER, "model", strlen("model"));

    (void)state;
    assert_true(row < option_rows_count);
    for (size_t i = 0; layers_preset_name(i) != NULL; i++) {
        assert_non_null(strstr(option_rows[row].help, layers_preset_name(i)));
    }
}

/* The manual page names every command and keeps roff's own signs out of its text. */
static void the_manual_page_names_every_command(void **state)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    options_print_man(out);
    assert_int_equal(fclose(out), 0);
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++) {
        char heading[64];

        snprintf(heading, sizeof(heading), ".SS grapevine %s", command_rows[i].name);
        assert_non_null(strstr(text, heading));
    }
    assert_non_null(strstr(text, "\\fB\\-\\-bootstrap\\fR"));
    free(text);
}

/* Whichever allocation fails, parsing says so and leaks nothing. */
static void short_memory_is_reported_and_nothing_leaks(void **state)
{
    const char text[] = "threads = 4\n";
    struct written_file file = write_file(text, strlen(text));
    enum rc rc = RC_NOMEM;

    (void)state;
    for (uint64_t n = 0; rc != RC_OK; n++) {
        uint64_t blocks = mem_blocks();
        struct options *options = NULL;
        struct fault why = {""};

        assert_true(n < 500);
        mem_fail_after(n);
        rc = parse_in(WORDS("eval", "a", "b", "--data", "digits", "--config", file.path),
                      no_environment, &options, &why);
        mem_fail_after(UINT64_MAX);
        if (rc == RC_OK)
            options_destroy(options);
        else if (rc != RC_NOMEM)
            fail_msg("allocation %llu: %s", (unsigned long long)n, why.text);
        assert_int_equal(mem_blocks(), blocks);
    }
    drop_file(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_command_takes_a_name_once),
        cmocka_unit_test(every_default_is_valid),
        cmocka_unit_test(flags_are_read_in_both_forms),
        cmocka_unit_test(what_is_left_out_has_its_default),
        cmocka_unit_test(words_without_dashes_are_arguments),
        cmocka_unit_test(misuse_is_refused_with_what_to_do),
        cmocka_unit_test(help_needs_nothing_else),
        cmocka_unit_test(the_strongest_source_wins),
        cmocka_unit_test(the_environment_is_read_by_flag_names),
        cmocka_unit_test(a_launcher_numbers_its_peers),
        cmocka_unit_test(a_file_serves_several_commands),
        cmocka_unit_test(a_comment_may_be_long),
        cmocka_unit_test(a_wrong_file_is_refused_with_its_line),
        cmocka_unit_test(a_printed_configuration_is_read_back),
        cmocka_unit_test(settings_are_handed_on_to_a_child),
        cmocka_unit_test(a_folder_gives_all_flags_back),
        cmocka_unit_test(other_flags_are_refused_by_name),
        cmocka_unit_test(some_flags_may_change),
        cmocka_unit_test(help_names_each_flag),
        cmocka_unit_test(help_names_each_preset),
        cmocka_unit_test(the_manual_page_names_every_command),
        cmocka_unit_test(short_memory_is_reported_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
