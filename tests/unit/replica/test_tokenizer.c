/* Byte-level BPE: a text's tokens are those of GPT-2's own rules, its bytes come back, wherever the
 * pieces of a text end; forms that are not read are refused by name. */
#include "tests/scratch.h"

#include "base/mem.h"
#include "base/rng.h"
#include "replica/formats/model_file.h"
#include "replica/tokenizer/merger.h"
#include "replica/tokenizer/pattern.h"
#include "replica/tokenizer/tokenizer.h"

/* " \xc4\xa0" in the alphabet of such files is a space. */
static const char merges[] =
    "#version: 0.2\nh e\nl l\nhe ll\nhell o\n\xc4\xa0 w\no r\n\xc4\xa0w or\n"
    "a a\naa aa\nb c\na b\n\xc3\x83 \xc2\xa4\n";

enum {
    BYTES = 256,
    H_E = BYTES,
    HELLO = BYTES + 3,
    SPACE_WOR = BYTES + 6,
    A_A,
    A_4,
    B_C,
    A_B,
    A_UMLAUT,
    END
};

static struct tokenizer *opened(struct scratch *scratch, const char *name)
{
    struct tokenizer *tokenizer = NULL;
    struct fault why = {""};

    if (tokenizer_open(scratch_path(scratch, name), &tokenizer, &why) != RC_OK) {
        fail_msg("%s", why.text);
    }
    return tokenizer;
}

static struct tokenizer *small(struct scratch *scratch)
{
    scratch_write(scratch, "vocab.bpe", merges, sizeof merges - 1);
    return opened(scratch, "vocab.bpe");
}

static void becomes(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                    const uint32_t *want, size_t count)
{
    struct token_list list = {0};

    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, &list), RC_OK);
    assert_int_equal(list.count, count);
    assert_memory_equal(list.tokens, want, count * sizeof *want);
    token_list_deinit(&list);
}

/* Without encoder.json, tokens have the numbers of GPT-2: bytes that can be seen, the others, what
 * merges make, the end of a text. Merges are taken by rank, not from the left. */
static void merges_alone_number_tokens_as_gpt2_does(void **state)
{
    struct scratch scratch;
    struct tokenizer *t;

    (void)state;
    scratch_init(&scratch);
    t = small(&scratch);
    assert_int_equal(tokenizer_symbols(t), END + 1);
    assert_int_equal(tokenizer_end(t), END);
    /* '!' is 0, and the space is the 33rd byte that cannot be seen. */
    becomes(t, "!", 1, (const uint32_t[]){0}, 1);
    becomes(t, " ", 1, (const uint32_t[]){188 + 32}, 1);
    becomes(t, "hello world", 11, (const uint32_t[]){HELLO, SPACE_WOR, 'l' - '!', 'd' - '!'}, 4);
    becomes(t, "abc", 3, (const uint32_t[]){'a' - '!', B_C}, 2);
    becomes(t, "aaaaaaa", 7, (const uint32_t[]){A_4, A_A, 'a' - '!'}, 3);
    becomes(t, "he<|endoftext|>he", 17, (const uint32_t[]){H_E, END, H_E}, 3);
    becomes(t, "\xc3\xa4", 2, (const uint32_t[]){A_UMLAUT}, 1);
    becomes(t, "", 0, NULL, 0);
    tokenizer_close(t);
    scratch_deinit(&scratch);
}

static void check_round_trip(const struct tokenizer *t, const uint8_t *text, size_t bytes,
                             const struct token_list *list)
{
    size_t at = 0, count;

    for (size_t i = 0; i < list->count; i++) {
        const uint8_t *token = tokenizer_bytes(t, list->tokens[i], &count);
        assert_true(count > 0 && at + count <= bytes);
        assert_memory_equal(token, text + at, count);
        at += count;
    }
    assert_int_equal(at, bytes);
}

/* Any bytes come back as they were, and tokens are the same however the text is cut. */
static void pieces_make_no_difference(void **state)
{
    static const char *const parts[] = {"hello",        " wor",
                                        "  ",           "\n",
                                        "<|end",        "<|endoftext|>",
                                        "'s",           "\xff",
                                        "\xc3\xa4",     "\xf0\x9f\x99\x82",
                                        "\xe2\x82",     "12",
                                        "aaaa",         "|>",
                                        "\xed\xa0\x80", " "};
    struct scratch scratch;
    struct tokenizer *t;

    (void)state;
    scratch_init(&scratch);
    t = small(&scratch);
    FOR_EACH_SEED (seed, 200) {
        struct token_list whole = {0}, cut = {0};
        struct encoder *encoder = encoder_create(t);
        uint8_t text[2048];
        size_t bytes = 0;
        struct rng rng;

        rng_init(&rng, seed, 1);
        while (bytes < sizeof text - 32) {
            const char *part = parts[rng_below(&rng, sizeof parts / sizeof parts[0])];
            memcpy(text + bytes, part, strlen(part));
            bytes += strlen(part);
        }
        assert_int_equal(tokenizer_encode(t, text, bytes, &whole), RC_OK);
        check_round_trip(t, text, bytes, &whole);
        for (size_t at = 0; at < bytes;) {
            size_t take = 1 + (size_t)rng_below(&rng, 40);
            if (take > bytes - at) take = bytes - at;
            assert_int_equal(encoder_add(encoder, text + at, take, false, &cut), RC_OK);
            at += take;
        }
        assert_int_equal(encoder_add(encoder, NULL, 0, true, &cut), RC_OK);
        assert_int_equal(cut.count, whole.count);
        assert_memory_equal(cut.tokens, whole.tokens, cut.count * sizeof *cut.tokens);
        token_list_deinit(&whole);
        token_list_deinit(&cut);
        encoder_destroy(encoder);
    }
    tokenizer_close(t);
    scratch_deinit(&scratch);
}

static void encode_in_pieces(const struct tokenizer *t, const uint8_t *text, size_t bytes,
                             size_t piece, struct token_list *list)
{
    struct encoder *encoder = encoder_create(t);

    for (size_t at = 0; at < bytes; at += piece) {
        const size_t take = bytes - at < piece ? bytes - at : piece;
        assert_int_equal(encoder_add(encoder, text + at, take, at + take == bytes, list), RC_OK);
    }
    encoder_destroy(encoder);
}

/* A word of two million bytes is cut at the same places whatever its pieces, takes a second at
 * most, and comes back; so are signs of several bytes, and spaces, of which the last goes with
 * what follows. */
static void an_endless_word_is_bounded(void **state)
{
    enum { LONG = 2000000 };
    static const char *const units[] = {"a", "b\xc3\xa4", "\xe4\xb8\x80", "\xf0\x9f\x99\x82", " "};
    static const size_t pieces[] = {65536, 300001, 1000000};
    struct scratch scratch;
    struct tokenizer *t;
    uint8_t *text = malloc(LONG);

    (void)state;
    assert_non_null(text);
    scratch_init(&scratch);
    t = small(&scratch);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        struct token_list whole = {0};
        for (size_t i = 0; i < LONG; i++) {
            text[i] = (uint8_t)units[u][i % strlen(units[u])];
        }
        text[LONG / 2] = u == 4 ? 'x' : text[LONG / 2];
        encode_in_pieces(t, text, LONG, LONG, &whole);
        check_round_trip(t, text, LONG, &whole);
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            struct token_list cut = {0};
            encode_in_pieces(t, text, LONG, pieces[p], &cut);
            assert_int_equal(cut.count, whole.count);
            assert_memory_equal(cut.tokens, whole.tokens, cut.count * sizeof *cut.tokens);
            token_list_deinit(&cut);
        }
        token_list_deinit(&whole);
    }
    tokenizer_close(t);
    scratch_deinit(&scratch);
    free(text);
}

/* ---- patterns ---- */

static void check_words(const struct pattern *made, const struct pattern *interpreted,
                        const uint8_t *text, size_t bytes)
{
    struct matcher *a = matcher_create(made), *b = matcher_create(interpreted);
    size_t at = 0;

    while (at < bytes) {
        size_t words[4] = {0};
        for (int is_whole = 0; is_whole < 2; is_whole++) {
            assert_int_equal(matcher_word(a, text + at, bytes - at, is_whole, &words[is_whole]),
                             RC_OK);
            assert_int_equal(matcher_word(b, text + at, bytes - at, is_whole, &words[2 + is_whole]),
                             RC_OK);
        }
        assert_true(words[0] == words[2] && words[1] == words[3] && words[1] > 0);
        assert_true(words[0] == 0 || words[0] == words[1]);
        at += words[1];
    }
    assert_int_equal(at, bytes);
    matcher_destroy(a);
    matcher_destroy(b);
}

/* Every known pattern covers any text, and its words are the same as machine code and without it,
 * in words as long as there are, too. */
static void words_do_not_depend_on_machine_code(void **state)
{
    static const char *const parts[] = {
        "a", "A", "\xc7\x85", "\xe4\xb8\x80", "\xcc\x81", "1", " ", "\n", "!", "/", "'s", "\t",
    };
    enum { PARTS = sizeof parts / sizeof parts[0] };
    uint8_t *text = malloc(MERGER_WORD_BYTES);
    const char *known;

    (void)state;
    assert_non_null(text);
    for (size_t k = 0; (known = pattern_known(k)) != NULL; k++) {
        struct pattern *made = NULL, *interpreted = NULL;
        struct fault why = {""};
        assert_int_equal(pattern_create(known, true, &made, &why), RC_OK);
        assert_int_equal(pattern_create(known, false, &interpreted, &why), RC_OK);
        for (size_t p = 0; p < PARTS * 3; p++) { /* one part again and again, another at its end */
            const char *part = parts[p / 3], *last = parts[(p / 3 + 1 + p % 3) % PARTS];
            size_t bytes = 0;
            for (; bytes + 8 < MERGER_WORD_BYTES; bytes += strlen(part)) {
                memcpy(text + bytes, part, strlen(part));
            }
            memcpy(text + bytes, last, strlen(last));
            check_words(made, interpreted, text, bytes + strlen(last));
        }
        FOR_EACH_SEED (seed, 50) {
            size_t bytes = 0;
            struct rng rng;
            rng_init(&rng, seed, 2);
            while (bytes < 1000) {
                const char *part = parts[rng_below(&rng, PARTS)];
                memcpy(text + bytes, part, strlen(part));
                bytes += strlen(part);
            }
            check_words(made, interpreted, text, bytes);
        }
        pattern_destroy(made);
        pattern_destroy(interpreted);
    }
    free(text);
}

/* Patterns come from files: one that might take for ever, or that depends on where a piece begins,
 * is none of those known. */
static void other_patterns_are_refused(void **state)
{
    static const char *const others[] = {"(?:a|aa)+[bc]", "(?:a|b)+",     "[a-c]+\\d", "^x",
                                         "\\Gx",          "(?<=a)b|\\s+", "(",         ""};
    const uint64_t blocks = mem_blocks();

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct pattern *pattern = NULL;
        struct fault why = {""};
        assert_int_equal(pattern_create(others[i], true, &pattern, &why), RC_UNSUPPORTED);
        assert_non_null(strstr(why.text, "only those of GPT-2"));
        assert_non_null(strstr(why.text, others[i]));
        assert_int_equal(mem_blocks(), blocks);
    }
}

/* ---- tokenizer.json ---- */

/* A tokenizer.json of all bytes and one merge, with `model`, `pre` and `rest` put in. */
static void write_json(struct scratch *scratch, const char *model, const char *pre,
                       const char *rest)
{
    FILE *file = fopen(scratch_path(scratch, "tokenizer.json"), "wb");

    assert_non_null(file);
    fprintf(file, "{\"pre_tokenizer\":%s,%s\"model\":{%s\"vocab\":{", pre, rest, model);
    for (int b = 0, next = 0x100; b < 256; b++) {
        int is_seen = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        fprintf(file, "\"\\u%04x\":%d,", is_seen ? b : next, b);
        next += !is_seen;
    }
    fprintf(file, "\"he\":256},\"merges\":[[\"h\",\"e\"]]}}");
    assert_int_equal(fclose(file), 0);
}

static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}";

static void json_is_refused(struct scratch *scratch, const char *model, const char *pre,
                            const char *rest, enum rc rc, const char *words)
{
    struct tokenizer *t = NULL;
    struct fault why = {""};
    uint64_t blocks = mem_blocks();

    write_json(scratch, model, pre, rest);
    assert_int_equal(tokenizer_open(scratch_path(scratch, "tokenizer.json"), &t, &why), rc);
    if (strstr(why.text, words) == NULL) fail_msg("'%s' does not say '%s'", why.text, words);
    assert_null(strchr(why.text, '\n'));
    assert_int_equal(mem_blocks(), blocks);
}

/* The same with a Split by `pattern`. */
static void write_split(struct scratch *scratch, const char *pattern, const char *behavior)
{
    char pre[2048], escaped[1024];
    size_t at = 0;

    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '\\') escaped[at++] = '\\';
        escaped[at++] = *pattern;
    }
    escaped[at] = '\0';
    snprintf(pre, sizeof pre,
             "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":%s,"
             "\"pattern\":{\"Regex\":\"%s\"}},{\"type\":\"ByteLevel\",\"use_regex\":false}]}",
             behavior, escaped);
    write_json(scratch, "", pre, "");
}

static void a_tokenizer_json_is_read(void **state)
{
    struct scratch scratch;
    struct tokenizer *t;

    (void)state;
    scratch_init(&scratch);
    write_json(&scratch, "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,", byte_level,
               "\"added_tokens\":[{\"id\":300,\"content\":\"</s>\"}],");
    t = opened(&scratch, "tokenizer.json");
    assert_int_equal(tokenizer_symbols(t), 301);
    assert_int_equal(tokenizer_end(t), 300);
    becomes(t, "the</s>\n", 8, (const uint32_t[]){'t', 256, 300, '\n'}, 4);
    tokenizer_close(t);
    for (size_t i = 0; pattern_known(i) != NULL; i++) {
        write_split(&scratch, pattern_known(i), "\"Removed\",\"invert\":true");
        t = opened(&scratch, "tokenizer.json");
        becomes(t, "xhe he", 6, (const uint32_t[]){'x', 256, ' ', 256}, 4);
        tokenizer_close(t);
        write_split(&scratch, pattern_known(i), "\"Isolated\",\"invert\":false");
        t = opened(&scratch, "tokenizer.json");
        becomes(t, "x1he", 4, (const uint32_t[]){'x', '1', 256}, 3);
        tokenizer_close(t);
    }
    scratch_deinit(&scratch);
}

static void other_forms_are_refused_by_name(void **state)
{
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    json_is_refused(&scratch, "\"type\":\"WordPiece\",", byte_level, "", RC_UNSUPPORTED,
                    "its model is WordPiece; only byte-level BPE is read");
    json_is_refused(&scratch, "\"type\":\"Unigram\",", byte_level, "", RC_UNSUPPORTED, "Unigram");
    json_is_refused(&scratch, "\"byte_fallback\":true,", byte_level, "", RC_UNSUPPORTED,
                    "byte_fallback");
    json_is_refused(&scratch, "\"dropout\":0.1,", byte_level, "", RC_UNSUPPORTED, "dropout");
    json_is_refused(&scratch, "\"end_of_word_suffix\":\"</w>\",", byte_level, "", RC_UNSUPPORTED,
                    "end_of_word_suffix");
    json_is_refused(&scratch, "", byte_level, "\"normalizer\":{\"type\":\"NFC\"},", RC_UNSUPPORTED,
                    "normalizer NFC");
    json_is_refused(&scratch, "", "{\"type\":\"Metaspace\"}", "", RC_UNSUPPORTED, "'Metaspace'");
    json_is_refused(&scratch, "", "null", "", RC_UNSUPPORTED, "pre-tokenizer");
    json_is_refused(&scratch, "", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "",
                    RC_UNSUPPORTED, "add_prefix_space");
    json_is_refused(&scratch, "", "{\"type\":\"ByteLevel\",\"use_regex\":false}", "",
                    RC_UNSUPPORTED, "one pattern");
    json_is_refused(&scratch, "", byte_level,
                    "\"added_tokens\":[{\"id\":300,\"content\":\"x\",\"lstrip\":true}],",
                    RC_UNSUPPORTED, "lstrip");
    json_is_refused(&scratch, "", byte_level,
                    "\"added_tokens\":[{\"id\":9999999999,\"content\":\"x\"}],", RC_FORMAT,
                    "added token 1");
    json_is_refused(&scratch, "", byte_level, "\"added_tokens\":[{\"id\":7,\"content\":\"x\"}],",
                    RC_FORMAT, "has no number of its own");
    json_is_refused(
        &scratch, "", byte_level,
        "\"added_tokens\":[{\"id\":300,\"content\":\"x\"},{\"id\":301,\"content\":\"x\"}],",
        RC_FORMAT, "'x' has two numbers, 300 and 301");
    scratch_deinit(&scratch);
}

static void file_is_refused(struct scratch *scratch, const char *text, enum rc rc,
                            const char *words)
{
    struct tokenizer *t = NULL;
    struct fault why = {""};
    uint64_t blocks = mem_blocks();

    scratch_write(scratch, "f", text, strlen(text));
    assert_int_equal(tokenizer_open(scratch_path(scratch, "f"), &t, &why), rc);
    if (strstr(why.text, words) == NULL) fail_msg("'%s' does not say '%s'", why.text, words);
    assert_int_equal(mem_blocks(), blocks);
}

static void bad_files_are_refused(void **state)
{
    struct scratch scratch;
    struct tokenizer *t = NULL;
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    file_is_refused(&scratch, "{", RC_PARSE, "not valid JSON");
    file_is_refused(&scratch, "{\"a\":1}", RC_FORMAT, "no 'model'");
    file_is_refused(&scratch, "{\"model\":{\"vocab\":{},\"merges\":[]}}", RC_UNSUPPORTED,
                    "pre-tokenizer");
    file_is_refused(&scratch, "h e\nhx\n", RC_FORMAT, "line 2");
    file_is_refused(&scratch, "h e\nth e\n", RC_FORMAT, "line 2");
    file_is_refused(&scratch, "h e\nh e\n", RC_FORMAT, "line 2");
    assert_int_equal(tokenizer_open(scratch_path(&scratch, "none"), &t, &why), RC_NOT_FOUND);
    assert_int_equal(tokenizer_open(scratch.folder, &t, &why), RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "has no tokenizer.json"));
    scratch_deinit(&scratch);
}

/* What a reader would wait for: a pipe is no tokenizer, nor one that a model file names. */
static void pipes_are_not_waited_for(void **state)
{
    struct model_card card = {.input = MODEL_INPUT_TOKENS};
    struct scratch scratch;
    struct tokenizer *t = NULL;
    struct fault why = {""};
    char found[MODEL_PATH_BYTES], beside[400];

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(mkfifo(scratch_path(&scratch, "tokenizer.json"), 0600), 0);
    assert_int_equal(tokenizer_open(scratch_path(&scratch, "tokenizer.json"), &t, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "no regular file"));
    assert_int_equal(tokenizer_open(scratch.folder, &t, &why), RC_NOT_FOUND);
    snprintf(card.tokenizer, sizeof card.tokenizer, "%s", scratch_path(&scratch, "tokenizer.json"));
    snprintf(beside, sizeof beside, "%s", scratch_path(&scratch, "model.safetensors"));
    assert_false(model_tokenizer_find(&card, beside, NULL, found));
    scratch_write(&scratch, "merges.txt", merges, sizeof merges - 1);
    assert_true(model_tokenizer_find(&card, beside, NULL, found));
    assert_string_equal(found, scratch_path(&scratch, "merges.txt"));
    snprintf(card.tokenizer, sizeof card.tokenizer, "%s", scratch.folder);
    assert_true(model_tokenizer_find(&card, beside, NULL, found));
    assert_string_equal(found, scratch.folder);
    tokenizer_close(opened(&scratch, "merges.txt"));
    scratch_deinit(&scratch);
}

/* Opening and encoding with the n-th allocation failing, for every n: an error or what was asked
 * for, and nothing is lost. */
static void running_out_of_memory_is_survived(void **state)
{
    struct scratch scratch;
    bool has_failed = true;

    (void)state;
    scratch_init(&scratch);
    scratch_write(&scratch, "vocab.bpe", merges, sizeof merges - 1);
    for (uint64_t n = 0; has_failed; n++) {
        uint64_t blocks = mem_blocks();
        struct tokenizer *t = NULL;
        struct token_list list = {0};
        struct fault why = {""};
        enum rc rc;

        mem_fail_after(n);
        rc = tokenizer_open(scratch_path(&scratch, "vocab.bpe"), &t, &why);
        if (rc == RC_OK) rc = tokenizer_encode(t, "hello world", 11, &list);
        has_failed = rc != RC_OK;
        mem_fail_after(UINT64_MAX);
        if (has_failed) assert_int_equal(rc, RC_NOMEM);
        token_list_deinit(&list);
        tokenizer_close(t);
        assert_int_equal(mem_blocks(), blocks);
    }
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_alone_number_tokens_as_gpt2_does),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(an_endless_word_is_bounded),
        cmocka_unit_test(a_tokenizer_json_is_read),
        cmocka_unit_test(other_forms_are_refused_by_name),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(words_do_not_depend_on_machine_code),
        cmocka_unit_test(other_patterns_are_refused),
        cmocka_unit_test(pipes_are_not_waited_for),
        cmocka_unit_test(running_out_of_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
