/*
 * command_generate: text that a language model goes on with, token by token, each drawn from the
 * softmax of the last step's logits (temperature, the k likeliest, those of probability p
 * together: Holtzman et al. 2020, arXiv:1904.09751), until there are enough or the text ends. The
 * model sees the last tokens of the text, as many as it was trained on at a time (its window).
 * Until the window is full it goes through the text once, remembering what later tokens need (a
 * stepwise model): a token costs one position. Behind it each token moves the window, and with it
 * every position in it, so that all of it is computed anew. Where a model cannot be stepwise (on a
 * GPU) it is made for as many steps as there are tokens, in doubling sizes, as a pass costs by the
 * steps it is made for.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "peer/env/env.h"
#include "replica/formats/model_file.h"
#include "replica/plane/store_safetensors.h"
#include "replica/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RNG_PURPOSE_TEXT = 0x74657874,
    STEPS_LEAST = 32,
    PASS_MAX = 64, /* positions that a stepwise model takes at once: the prompt */
    TOKEN_DIGITS_MAX = 8,
    PROMPT_BYTES_MAX = 1 << 24
};

struct generator {
    const struct options *options;
    const char *path;
    struct tensor_file *file;
    struct backend *backend;
    struct model *model;
    struct model_card card;
    uint32_t steps;              /* of the model as it is made now */
    bool is_stepwise;            /* it goes through the text once */
    size_t passed;               /* tokens that it has gone through */
    struct tokenizer *tokenizer; /* NULL: a token is a byte, or nobody knows what it is */
    bool has_bytes;              /* tokens stand for bytes, and the prompt was text */
    bool is_terminal;            /* it is told to one */
    struct plain_stream said;
    unsigned missing; /* bytes of a character that was begun */
    uint32_t *tokens; /* prompt and text */
    size_t count, prompt_count;
    float *input;  /* of a pass: [steps], or [PASS_MAX] */
    float *logits; /* [steps, or PASS_MAX][symbols] */
    float *sorted; /* [symbols] */
    double temperature;
    uint32_t top;
    double top_p;
    struct rng rng;
    struct fault *why;
};

/* ---- the prompt ---- */

static enum rc take_tokens(struct generator *g, size_t prompt_count)
{
    size_t tokens = (size_t)options_count(g->options, "tokens");

    g->tokens = mem_array(prompt_count + tokens, sizeof *g->tokens);
    if (g->tokens != NULL) return RC_OK;
    return fault_set(g->why, RC_NOMEM, "cannot generate: out of memory");
}

/* The tokenizer that the model was trained with. */
static enum rc open_tokenizer(struct generator *g)
{
    const char *given = options_text(g->options, "tokenizer");
    enum rc rc = command_model_tokenizer(&g->card, g->path, given, &g->tokenizer, g->why);

    if (rc != RC_OK || g->tokenizer != NULL || g->card.has_symbol_bytes) return rc;
    return fault_set(g->why, RC_USAGE,
                     "%s does not say which bytes its tokens stand for; pass --tokenizer FILE, or "
                     "--prompt-tokens with their numbers",
                     g->path);
}

static enum rc encode_text(struct generator *g, const char *text, size_t bytes)
{
    struct token_list list = {NULL, 0, 0};
    enum rc rc = tokenizer_encode(g->tokenizer, text, bytes, &list);

    if (rc != RC_OK) fault_set(g->why, rc, "cannot make tokens of the prompt: %s", rc_text(rc));
    if (rc == RC_OK) rc = take_tokens(g, list.count);
    if (rc == RC_OK) memcpy(g->tokens, list.tokens, list.count * sizeof *g->tokens);
    if (rc == RC_OK) g->count = list.count;
    g->has_bytes = true;
    token_list_deinit(&list);
    return rc;
}

/* `flag` is what gave the text. */
static enum rc read_text(struct generator *g, const char *flag, const char *text, size_t bytes)
{
    enum rc rc = open_tokenizer(g);

    if (rc != RC_OK) return rc;
    if (g->tokenizer != NULL) return encode_text(g, text, bytes);
    rc = take_tokens(g, bytes);
    for (size_t i = 0; rc == RC_OK && i < bytes; i++) {
        uint8_t byte = (uint8_t)text[i];
        const uint8_t *found = memchr(g->card.symbol_bytes, byte, g->card.symbols);
        if (found == NULL) {
            bool is_plain = byte > ' ' && byte < 0x7F;
            return fault_set(g->why, RC_USAGE,
                             "--%s, byte %zu: the model has never seen %s%c%s (0x%02x)", flag,
                             i + 1, is_plain ? "'" : "such a", is_plain ? byte : ' ',
                             is_plain ? "'" : "byte", byte);
        }
        g->tokens[g->count++] = (uint32_t)(found - g->card.symbol_bytes);
    }
    g->has_bytes = true;
    return rc;
}

static enum rc read_numbers(struct generator *g, const char *text)
{
    enum rc rc = take_tokens(g, strlen(text));
    const char *at = text;

    while (rc == RC_OK) {
        size_t digits = strspn(at, "0123456789");
        unsigned long token = strtoul(at, NULL, 10);
        if (digits == 0 || digits > TOKEN_DIGITS_MAX || token >= g->card.symbols) {
            return fault_set(g->why, RC_USAGE,
                             "--prompt-tokens, column %zu: expected a number below %u",
                             (size_t)(at - text) + 1, g->card.symbols);
        }
        g->tokens[g->count++] = (uint32_t)token;
        at += digits;
        if (*at == '\0') break;
        if (*at != ',') {
            return fault_set(g->why, RC_USAGE, "--prompt-tokens, column %zu: expected a comma",
                             (size_t)(at - text) + 1);
        }
        at++;
    }
    return rc;
}

static enum rc read_file(struct generator *g, const char *path)
{
    void *bytes;
    size_t count;
    enum rc rc = file_read(path, PROMPT_BYTES_MAX, &bytes, &count, g->why);

    if (rc != RC_OK) return rc;
    if (count == 0) rc = fault_set(g->why, RC_USAGE, "--prompt-file: %s is empty", path);
    if (rc == RC_OK) rc = read_text(g, "prompt-file", bytes, count);
    mem_free(bytes);
    return rc;
}

static enum rc read_prompt(struct generator *g)
{
    const char *text = options_text(g->options, "prompt");
    const char *file = options_text(g->options, "prompt-file");
    const char *numbers = options_text(g->options, "prompt-tokens");
    enum rc rc;

    if ((text != NULL) + (file != NULL) + (numbers != NULL) > 1) {
        return fault_set(g->why, RC_USAGE,
                         "--prompt, --prompt-file and --prompt-tokens exclude each other; say one "
                         "of them");
    }
    if (text == NULL && file == NULL && numbers == NULL) {
        return fault_set(g->why, RC_USAGE,
                         "generate needs something to begin with: --prompt TEXT, --prompt-file "
                         "FILE or --prompt-tokens N,N,...");
    }
    if (text != NULL)
        rc = read_text(g, "prompt", text, strlen(text));
    else
        rc = file != NULL ? read_file(g, file) : read_numbers(g, numbers);
    g->prompt_count = g->count;
    return rc;
}

/* ---- the model ---- */

static enum rc check_card(const struct generator *g)
{
    const struct model_card *card = &g->card;

    if (card->input != MODEL_INPUT_TOKENS || card->is_regression ||
        card->classes != card->symbols) {
        return fault_set(g->why, RC_USAGE, "%s is no language model; use 'grapevine predict'",
                         g->path);
    }
    if (strstr(card->spec, "causal=0") != NULL) {
        return fault_set(
            g->why, RC_USAGE,
            "%s cannot go on with a text: its attention sees the steps behind (causal=0)", g->path);
    }
    return RC_OK;
}

static void drop_model(struct generator *g)
{
    model_destroy(g->model);
    g->model = NULL;
    mem_free(g->input);
    mem_free(g->logits);
    g->input = g->logits = NULL;
    g->is_stepwise = false;
}

static enum rc take_room(struct generator *g, uint32_t steps)
{
    g->input = mem_array(steps, sizeof *g->input);
    g->logits = mem_array((size_t)steps * g->card.symbols, sizeof *g->logits);
    if (g->input != NULL && g->logits != NULL) return RC_OK;
    return fault_set(g->why, RC_NOMEM, "cannot generate: out of memory");
}

/* A stepwise model; none where that cannot be, of which need_steps() says what is wrong. */
static enum rc try_stepwise(struct generator *g)
{
    const struct model_load_options load = {.batch_max = PASS_MAX, .is_stepwise = true};
    struct model_card card;
    struct fault ignored = {""};

    if (g->count > g->card.width || !g->backend->is_host) return RC_OK;
    if (model_load_with(g->backend, g->file, g->path, &load, &g->model, &card, &ignored) != RC_OK) {
        return RC_OK;
    }
    g->is_stepwise = true;
    return take_room(g, PASS_MAX);
}

/* A model for at least `wanted` steps, or as many as it can see. */
static enum rc need_steps(struct generator *g, size_t wanted)
{
    struct model_load_options load = {.batch_max = 1};
    struct model_card card;
    uint32_t steps = STEPS_LEAST;
    enum rc rc;

    while (steps < wanted && steps < g->card.width) {
        steps *= 2;
    }
    if (steps > g->card.width) steps = g->card.width;
    if (g->model != NULL && !g->is_stepwise && g->steps >= steps) return RC_OK;
    drop_model(g);
    load.steps = steps;
    rc = model_load_with(g->backend, g->file, g->path, &load, &g->model, &card, g->why);
    if (rc != RC_OK) return rc;
    if (model_rows(g->model) != steps) {
        return fault_set(g->why, RC_USAGE,
                         "%s gives one answer a sequence and no next tokens; use 'grapevine "
                         "predict'",
                         g->path);
    }
    g->steps = steps;
    return take_room(g, steps);
}

/* The tokens that the model has not gone through yet. */
static enum rc pass_steps(struct generator *g, const float **logits)
{
    enum rc rc = RC_OK;

    while (rc == RC_OK && g->passed < g->count) {
        size_t left = g->count - g->passed, take = left < PASS_MAX ? left : PASS_MAX;
        for (size_t i = 0; i < take; i++) {
            g->input[i] = (float)g->tokens[g->passed + i];
        }
        rc = model_forward(g->model, g->input, (uint32_t)take, false, g->logits);
        *logits = g->logits + (take - 1) * g->card.symbols;
        g->passed += take;
    }
    return rc;
}

/* All of the window. What stands behind the tokens in the input cannot be seen. */
static enum rc pass_window(struct generator *g, const float **logits)
{
    size_t seen, first;
    enum rc rc = need_steps(g, g->count);

    if (rc != RC_OK) return rc;
    seen = g->count < g->steps ? g->count : g->steps;
    first = g->count - seen;
    for (size_t i = 0; i < seen; i++) {
        g->input[i] = (float)g->tokens[first + i];
    }
    *logits = g->logits + (seen - 1) * g->card.symbols;
    return model_forward(g->model, g->input, 1, false, g->logits);
}

/* Logits of what follows the tokens so far. */
static enum rc next_logits(struct generator *g, const float **logits)
{
    bool is_stepwise = g->is_stepwise && g->count <= g->card.width;
    enum rc rc = is_stepwise ? pass_steps(g, logits) : pass_window(g, logits);

    if (rc != RC_OK) return fault_set(g->why, rc, "cannot generate: %s", rc_text(rc));
    for (uint32_t s = 0; s < g->card.symbols; s++) {
        if (isfinite((*logits)[s])) continue;
        return fault_set(g->why, RC_NONFINITE, "%s answers with a NaN or an infinity", g->path);
    }
    return RC_OK;
}

/* ---- choosing ---- */

static int compare_falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

static uint32_t likeliest(const float *logits, uint32_t symbols)
{
    uint32_t best = 0;

    for (uint32_t s = 1; s < symbols; s++) {
        if (logits[s] > logits[best]) best = s;
    }
    return best;
}

/* The logit below which no token is drawn: that of the k-th, or of the last of the likeliest that
 * have the probability p together, of those k. */
static float least_likely(struct generator *g, const float *logits)
{
    const uint32_t symbols = g->card.symbols;
    double sum = 0.0, reached = 0.0;
    uint32_t count = g->top;

    if (g->top >= symbols && g->top_p >= 1.0) return -INFINITY;
    memcpy(g->sorted, logits, symbols * sizeof *logits);
    qsort(g->sorted, symbols, sizeof *g->sorted, compare_falling);
    if (g->top_p >= 1.0) return g->sorted[count - 1];
    for (uint32_t i = 0; i < count; i++) {
        sum += exp(((double)g->sorted[i] - g->sorted[0]) / g->temperature);
    }
    for (uint32_t i = 0; i < count; i++) {
        reached += exp(((double)g->sorted[i] - g->sorted[0]) / g->temperature);
        if (reached >= g->top_p * sum) return g->sorted[i];
    }
    return g->sorted[count - 1];
}

/* The weight of each symbol before they are divided by their sum; where several are as likely as
 * the k-th, all of them stay. */
static uint32_t draw(struct generator *g, const float *logits)
{
    uint32_t symbols = g->card.symbols, best = likeliest(logits, symbols);
    double sum = 0.0, at;
    float least;

    if (!(g->temperature > 0.0)) return best;
    least = least_likely(g, logits);
    for (uint32_t s = 0; s < symbols; s++) {
        if (logits[s] < least) continue;
        sum += exp(((double)logits[s] - logits[best]) / g->temperature);
    }
    at = rng_unit(&g->rng) * sum;
    for (uint32_t s = 0; s < symbols; s++) {
        if (logits[s] < least) continue;
        at -= exp(((double)logits[s] - logits[best]) / g->temperature);
        if (at < 0.0) return s;
    }
    return best; /* rounding ate the rest */
}

static enum rc check_top(struct generator *g)
{
    uint64_t top =
        options_is_set(g->options, "top-k") ? options_count(g->options, "top-k") : g->card.symbols;

    g->temperature = options_real(g->options, "temperature");
    g->sorted = mem_array(g->card.symbols, sizeof *g->sorted);
    if (g->sorted == NULL) return fault_set(g->why, RC_NOMEM, "cannot generate: out of memory");
    g->top = top < g->card.symbols ? (uint32_t)top : g->card.symbols;
    g->top_p = options_is_set(g->options, "top-p") ? options_real(g->options, "top-p") : 1.0;
    if (top <= g->card.symbols) return RC_OK;
    return fault_set(g->why, RC_USAGE, "--top-k %" PRIu64 ": %s knows %u tokens", top, g->path,
                     g->card.symbols);
}

/* ---- telling ---- */

/* What a token stands for. */
static const uint8_t *bytes_of(const struct generator *g, uint32_t token, size_t *count)
{
    if (g->tokenizer != NULL) return tokenizer_bytes(g->tokenizer, token, count);
    *count = 1;
    return &g->card.symbol_bytes[token];
}

/* How many more bytes the character takes that `byte` begins or goes on with. */
static unsigned still_missing(unsigned missing, uint8_t byte)
{
    if (byte >= 0xF0) return 3;
    if (byte >= 0xC0) return byte >= 0xE0 ? 2 : 1;
    return byte >= 0x80 && missing > 0 ? missing - 1 : 0;
}

/* A terminal would obey what a model happens to say; a file or a pipe gets the bytes as they are.
 * They leave as they come, but no half of a character alone. */
static void print_token(struct generator *g, size_t i)
{
    char text[PLAIN_STEP_BYTES];
    size_t count = 0;
    const uint8_t *bytes = g->has_bytes ? bytes_of(g, g->tokens[i], &count) : NULL;

    if (!g->has_bytes) printf("%s%u", i > 0 ? "," : "", g->tokens[i]);
    for (size_t b = 0; b < count; b++) {
        g->missing = still_missing(g->missing, bytes[b]);
        if (g->is_terminal) {
            plain_stream_take(&g->said, bytes[b], text);
            fputs(text, stdout);
        } else {
            putchar(bytes[b]);
        }
    }
    if (i >= g->prompt_count && g->missing == 0) fflush(stdout);
}

static void print_end(struct generator *g)
{
    char text[PLAIN_STEP_BYTES];

    plain_stream_end(&g->said, text);
    fputs(text, stdout);
    putchar('\n');
}

/* Tokens [from, to) as text that JSON can hold: U+FFFD stands for what is no character. */
static char *text_of(const struct generator *g, size_t from, size_t to)
{
    uint8_t *bytes;
    char *text;
    size_t all = 0, at = 0, count;

    for (size_t i = from; i < to; i++) {
        (void)bytes_of(g, g->tokens[i], &count);
        all += count;
    }
    bytes = mem_array(all + 1, 1);
    text = mem_array(3 * all + 1, 1);
    CHECK(bytes != NULL && text != NULL); /* a few kilobytes at the end */
    all = 0;
    for (size_t i = from; i < to; i++) {
        const uint8_t *token = bytes_of(g, g->tokens[i], &count);
        if (count > 0) memcpy(bytes + all, token, count);
        all += count;
    }
    for (size_t i = 0; i < all; i += count) {
        count = bytes[i] == 0 ? 0 : utf8_character(bytes + i, all - i); /* 0 would end the text */
        memcpy(text + at, count > 0 ? (const char *)bytes + i : "\xEF\xBF\xBD",
               count > 0 ? count : 3);
        at += count > 0 ? count : 3;
        if (count == 0) count = 1;
    }
    mem_free(bytes);
    return text;
}

static void set_part(const struct generator *g, struct json *json, const char *key,
                     const char *key_of_numbers, size_t from, size_t to)
{
    struct json *list;
    char *text;

    if (g->has_bytes) {
        text = text_of(g, from, to);
        json_set_text(json, key, text);
        mem_free(text);
        return;
    }
    list = json_array_create();
    for (size_t i = from; i < to; i++) {
        json_append_count(list, g->tokens[i]);
    }
    json_set(json, key_of_numbers, list);
}

static void print_json(const struct generator *g, uint64_t spent_ns)
{
    struct json *json = json_object_create();
    size_t made = g->count - g->prompt_count;

    set_part(g, json, "prompt", "prompt_tokens", 0, g->prompt_count);
    set_part(g, json, "text", "text_tokens", g->prompt_count, g->count);
    json_set_count(json, "tokens", made);
    json_set_real(json, "tokens_per_s", (double)made * 1e9 / (double)(spent_ns + 1));
    command_print_json(json);
}

/* ---- the command ---- */

static enum rc go_on(struct generator *g)
{
    size_t wanted = g->count + (size_t)options_count(g->options, "tokens");
    bool is_json = options_flag(g->options, "json"), has_ended = false;
    const struct log log = command_log(g->options);
    const size_t prompt_count = g->count;
    uint64_t start_ns = uv_clock_ns();
    enum rc rc = RC_OK;

    g->is_terminal = isatty(STDOUT_FILENO) == 1;
    for (size_t i = 0; !is_json && i < g->count; i++) {
        print_token(g, i);
    }
    while (rc == RC_OK && g->count < wanted && ferror(stdout) == 0) {
        const float *logits = NULL;
        rc = next_logits(g, &logits);
        if (rc != RC_OK) break;
        g->tokens[g->count] = draw(g, logits);
        has_ended = g->tokenizer != NULL && g->tokens[g->count] == tokenizer_end(g->tokenizer);
        if (has_ended) break;
        g->count++;
        if (!is_json) print_token(g, g->count - 1);
    }
    if (is_json && rc == RC_OK)
        print_json(g, uv_clock_ns() - start_ns);
    else if (!is_json)
        print_end(g);
    if (has_ended) {
        fflush(stdout);
        log_info(&log, "the model ended the text after %zu tokens", g->count - prompt_count);
    }
    return rc;
}

static enum rc generate(struct generator *g)
{
    enum rc rc = tensor_file_load(g->path, &g->file, g->why);

    if (rc == RC_OK) rc = command_backend(g->options, &g->backend, g->why);
    if (rc == RC_OK) rc = model_card_read(g->file, g->path, &g->card, g->why);
    if (rc == RC_OK) rc = check_card(g);
    if (rc == RC_OK) rc = read_prompt(g);
    if (rc == RC_OK) rc = check_top(g);
    if (rc == RC_OK) rc = try_stepwise(g);
    if (rc == RC_OK && !g->is_stepwise) rc = need_steps(g, g->count);
    return rc == RC_OK ? go_on(g) : rc;
}

int command_generate(struct options *options)
{
    struct fault why = {""};
    size_t count;
    struct generator g = {.options = options, .why = &why};
    enum rc rc;

    g.path = options_arguments(options, &count)[0];
    rng_init(&g.rng, options_count(options, "seed"), RNG_PURPOSE_TEXT);
    rc = generate(&g);
    drop_model(&g);
    backend_destroy(g.backend);
    tokenizer_close(g.tokenizer);
    tensor_file_destroy(g.file);
    mem_free(g.tokens);
    mem_free(g.sorted);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}
