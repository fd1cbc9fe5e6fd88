/*
 * options_table: every command and every setting, once. What is not here is not accepted, and what
 * is here does something: a flag enters this table together with the code that obeys it.
 */
#include "peer/cli/options_table.h"

#include "base/check.h"

#define ON(command) (1u << COMMAND_##command)
#define PEERS       (ON(PEER) | ON(JOIN))
#define RUNS        (PEERS | ON(TESTNET))
#define LEARNS      (RUNS | ON(DISTILL) | ON(COMPACT))
#define JUDGES      (ON(AVERAGE) | ON(EVAL))
#define ASKS        (ON(PREDICT) | ON(GENERATE))
#define ASKS_PEERS  (ON(STATUS) | ON(TOP))
#define EVERYWHERE  (~0u)

const struct command_row command_rows[COMMAND_COUNT] = {
    [COMMAND_NONE] = {.name = ""},
    [COMMAND_PEER] =
        {"peer", "", 0, 0, "run one peer until it reaches its goal or is stopped",
         "grapevine peer --data fashion-mnist --model cnn --out a\n"
         "grapevine peer --data fashion-mnist --model cnn --bootstrap 192.0.2.7:7077 --out b\n"
         "grapevine peer --data text:book.txt --tokenizer gpt2 --init gpt2/model.safetensors "
         "--steps 500 --out c\n"
         "grapevine peer --out a",
         "Without --bootstrap the peer starts a swarm of its own, which others join through its "
         "address. A peer that is stopped and started again with the same --out, and no other "
         "flag, "
         "goes on where it was."},
    [COMMAND_JOIN] =
        {"join", "HOST:PORT", 0, 1, "run a peer of a swarm that is there, by that swarm's settings",
         "grapevine join 192.0.2.7:7077 --swarm-key swarm.key --data csv:ward.csv,label=outcome "
         "--out b\n"
         "grapevine join 127.0.0.1:7077 --out c\n"
         "grapevine join --discover ward --swarm-key swarm.key --out d",
         "The peer at HOST:PORT says what the swarm trains and how: model, averaging, codec, "
         "optimizer, schedule, batch, shard, seed and goal. A flag that is given here is stronger. "
         "All of it is kept in --out, so a later 'grapevine peer --out b' goes on where it was. "
         "With --discover NAME it is the first one of that name that is heard."},
    [COMMAND_TESTNET] =
        {"testnet", "", 0, 0, "start many real peers on this machine and show them live",
         "grapevine testnet --peers 4 --data fashion-mnist --model cnn --epochs 2\n"
         "grapevine testnet --peers 4 --chaos kill:mtbf=15s,restart=5s --time 1m --fresh",
         "Every flag of 'grapevine peer' listed here is handed on to the peers. The exit code is 3 "
         "if something that must always hold was broken."},
    [COMMAND_DISTILL] =
        {"distill", "", 0, 0, "train one small student on the predictions of several models",
         "grapevine distill --teachers grapevine-run --student mlp --data fashion-mnist", NULL},
    [COMMAND_COMPACT] =
        {"compact", "FILE", 1, 1, "a model file in less room: int8 weights, pruned ones left out",
         "grapevine compact student.safetensors --out small.safetensors\n"
         "grapevine compact student.safetensors --prune 0.8 --data fashion-mnist --out "
         "small.safetensors",
         "Everything that reads model files reads it. 'grapevine export --to onnx' of an int8 file "
         "writes int8 weights, --to safetensors float32."},
    [COMMAND_AVERAGE] =
        {"average", "FILE FILE...", 2, 1024, "write the parameter average of several models",
         "grapevine average a/model.safetensors b/model.safetensors --out average.safetensors",
         NULL},
    [COMMAND_EVAL] =
        {"eval", "FILE [FILE...]", 1, 1024, "accuracy and loss of models on the test samples",
         "grapevine eval a/model.safetensors b/model.safetensors --data fashion-mnist",
         "Several files are judged one by one, as their parameter average and as an ensemble."},
    [COMMAND_REPORT] =
        {"report", "DIR...", 1, 1024, "table and page of a testnet's folder, or of peers' folders",
         "grapevine report a b c --csv run.csv",
         "Of a testnet it is made from summary.json, events.jsonl and distill.json; of any peers "
         "from the metrics.jsonl of their --out folders. It can be made again at any time."},
    [COMMAND_INSPECT] =
        {"inspect", "[FILE]", 0, 1, "what a model or checkpoint file holds: layers, sizes, memory",
         "grapevine inspect a/model.safetensors",
         "Without a file: what --model would be for --data, before anything is trained."},
    [COMMAND_PREDICT] =
        {"predict", "FILE", 1, 1, "run inference on images or tables",
         "grapevine predict a/model.safetensors --input digit.png --top 3",
         "Images are PNG, PGM or PPM of the size that the model reads; .csv and .npy files hold "
         "a "
         "sample a row, without labels; other files are IDX images. Probabilities add up to 1 over "
         "all classes."},
    [COMMAND_GENERATE] =
        {"generate", "FILE", 1, 1, "continue a prompt with a language model",
         "grapevine generate a/model.safetensors --prompt 'In the beginning' --tokens 300",
         "The same seed gives the same text. A token costs one position, until the text is longer "
         "than what the model sees; from then on a pass over all of that."},
    [COMMAND_TOKENIZE] =
        {"tokenize", "TEXT...", 1, 4096, "texts as a file of tokens, for --data tokens:FILE",
         "grapevine tokenize --tokenizer gpt2/tokenizer.json book.txt --out book.bin\n"
         "grapevine peer --data tokens:book.bin --model gpt-nano --out a",
         "Texts may be gzipped. Each ends with the tokenizer's end-of-text token, if it has one. "
         "The "
         "file has llm.c's form; it is written beside the old one and replaces it at the end."},
    [COMMAND_EXPORT] =
        {"export", "FILE", 1, 1, "a model file for other programs",
         "grapevine export a/model.safetensors --to onnx --out model.onnx\n"
         "grapevine export student.safetensors --to page --out page",
         "ONNX: opset 17, any batch, with the normalisation of the input inside. safetensors: "
         "tensors without what only training needs; models of GPT-2's form in Hugging Face's "
         "names. page: a folder with a page that classifies images in a browser, from any server "
         "or from none. gguf: for llama.cpp, models of GPT-2's form with their tokenizer."},
    [COMMAND_KEYGEN] = {"keygen", "", 0, 0,
                        "make an identity, a key that closes a swarm, or a certificate",
                        "grapevine keygen --swarm-key --out swarm.key\n"
                        "grapevine keygen --out identity.key",
                        "The file is made with mode 0600; an existing one is never overwritten. "
                        "docs/admission.md says how to run a swarm with certificates."},
    [COMMAND_STATUS] = {"status", "HOST:PORT", 1, 1, "ask a running peer how it is doing",
                        "grapevine status 127.0.0.1:7077 --json", NULL},
    [COMMAND_TOP] = {"top", "HOST:PORT", 1, 1, "watch a running peer and its swarm",
                     "grapevine top 127.0.0.1:7077",
                     "Redrawn every second on a terminal, line below line elsewhere. Ctrl-C "
                     "ends it."},
    [COMMAND_DOCTOR] = {"doctor", "", 0, 0, "check this machine and its way to the swarm",
                        "grapevine doctor --bootstrap 192.0.2.7:7077 --swarm-key swarm.key",
                        "Within 5 s: each finding is fine, a note or broken, with what to do. The "
                        "peers of --bootstrap are asked to dial back to --listen. The exit code is "
                        "1 if anything is broken."},
    [COMMAND_BENCH] = {"bench", "train|kernels|codecs|network|averaging", 1, 1,
                       "measure one part of the program",
                       "grapevine bench train --model cnn --batch 64 --seconds 5 --json", NULL},
    [COMMAND_SIMULATE] =
        {"simulate", "", 0, 0, "run a whole swarm in virtual time, with faults, by seed",
         "grapevine simulate --peers 100 --averaging ad-psgd --link delay=50ms,loss=1% --rounds 50",
         "The peers are complete (rounds, links, membership, cryptography), the network, the clock "
         "and the model are simulated: a quadratic with a known optimum. Equal flags and seed give "
         "equal results. The exit code is 3 if something that must always hold was broken."},
    [COMMAND_HELP] = {"help", "[COMMAND]", 0, 1, "what a command does, and its flags",
                      "grapevine help peer", NULL},
    [COMMAND_VERSION] = {"version", "", 0, 0, "print version and revision", "grapevine version",
                         NULL},
    [COMMAND_COMPLETION] =
        {"completion", "bash|zsh|fish", 1, 1, "print a script that completes commands and flags",
         "grapevine completion bash >~/.local/share/bash-completion/completions/grapevine",
         "For zsh: grapevine completion zsh >_grapevine in a folder of $fpath; for fish: grapevine "
         "completion fish >~/.config/fish/completions/grapevine.fish."},
};

const struct option_row option_rows[] = {
    /* swarm */
    {"bootstrap", OPTION_TEXT, GROUP_SWARM, ON(PEER) | ON(DOCTOR), "HOST:PORT[,HOST:PORT...]", NULL,
     0, 0,
     "peers to join through, tried until one answers; @FILE reads them from a file, "
     "again on SIGHUP",
     CHANGES},
    {"discover", OPTION_TEXT, GROUP_SWARM, PEERS, "NAME", NULL, 0, 0,
     "find peers of this name on the local network, and be found by them (multicast)", CHANGES},
    {"proxy", OPTION_TEXT, GROUP_SWARM, PEERS | ASKS_PEERS | ON(DOCTOR) | ON(DISTILL), "URL", NULL,
     0, 0,
     "dial through this proxy, which looks up names, too: socks5://HOST:PORT or http://HOST:PORT, "
     "with USER:PASSWORD@ before the host where it wants that",
     CHANGES},
    {"dial-command", OPTION_TEXT, GROUP_SWARM, PEERS | ASKS_PEERS | ON(DOCTOR) | ON(DISTILL),
     "COMMAND", NULL, 0, 0,
     "dial by running this, whose standard input and output are the connection to host %h, port "
     "%p: 'ssh -W %h:%p login'",
     CHANGES},
    {"listen", OPTION_TEXT, GROUP_SWARM, PEERS | ON(DOCTOR), "ADDR:PORT", NULL, 0, 0,
     "address to be reached at; port 0 picks one (default 127.0.0.1:7077, with --swarm-key "
     "0.0.0.0:7077; who joins others takes a free port where 7077 is taken)",
     CHANGES},
    {"public", OPTION_SWITCH, GROUP_SWARM, PEERS, NULL, NULL, 0, 0,
     "listen beyond this machine although anybody may join (no --swarm-key)", CHANGES},
    {"swarm-name", OPTION_TEXT, GROUP_SWARM, RUNS | ASKS_PEERS | ON(DOCTOR) | ON(DISTILL), "NAME",
     "default", 0, 0, "peers of another name do not talk to this one", OF_RUN},
    {"advertise", OPTION_TEXT, GROUP_SWARM, PEERS | ON(DOCTOR), "HOST:PORT", NULL, 0, 0,
     "address to tell others, where it differs from --listen", CHANGES},
    {"identity", OPTION_TEXT, GROUP_SWARM, PEERS | ON(DOCTOR), "FILE", NULL, 0, 0,
     "key file of this peer, made on first use (default identity.key in --out)", CHANGES},
    {"swarm-key", OPTION_TEXT, GROUP_SWARM, RUNS | ASKS_PEERS | ON(DOCTOR) | ON(DISTILL), "FILE",
     NULL, 0, 0, "only holders of this key may join", CHANGES},
    {"allow", OPTION_TEXT, GROUP_SWARM, PEERS | ON(DOCTOR), "FILE", NULL, 0, 0,
     "only peers whose public keys stand in it, one a line, are linked with; read again on SIGHUP",
     CHANGES},
    {"authority", OPTION_TEXT, GROUP_SWARM, PEERS | ON(DOCTOR), "KEY", NULL, 0, 0,
     "public key of the swarm's owner, who signs certificates and deny lists", CHANGES},
    {"certificate", OPTION_TEXT, GROUP_SWARM, PEERS | ON(DOCTOR), "FILE", NULL, 0, 0,
     "this peer's, from the owner; with --authority every other member must show one too", CHANGES},
    {"deny", OPTION_TEXT, GROUP_SWARM, PEERS | ON(DOCTOR), "FILE", NULL, 0, 0,
     "keys that --authority has shut out, in a signed list; read again on SIGHUP", CHANGES},
    {"join-timeout", OPTION_DURATION, GROUP_SWARM, PEERS | ASKS_PEERS | ON(DISTILL), "T", "30s",
     0.001, 86400, "give up if nobody has answered by then", CHANGES},
    {"http", OPTION_TEXT, GROUP_OUTPUT, PEERS, "ADDR:PORT", NULL, 0, 0,
     "status page, /status.json and /metrics for anyone who can reach this address; a port alone: "
     "for this machine only (default: none)",
     CHANGES},
    {"site", OPTION_TEXT, GROUP_SWARM, PEERS, "NAME", NULL, 0, 0,
     "where this peer is, as others at the same site say: most rounds are among them, one in four "
     "among all; another share: --topology NAME,sites:EVERY",
     CHANGES},
    {"relay", OPTION_RATE, GROUP_SWARM, RUNS, "RATE", "20mbit", 0, 1e11,
     "bandwidth offered for relaying to peers that cannot be dialled, at most a tenth of "
     "--rate-limit; 0: none",
     CHANGES},
    {"identity", OPTION_TEXT, GROUP_SWARM, ASKS_PEERS | ON(DISTILL), "FILE", NULL, 0, 0,
     "key file to ask with, where only listed keys may (default: a passing one)", OF_RUN},
    {"certificate", OPTION_TEXT, GROUP_SWARM, ASKS_PEERS | ON(DISTILL), "FILE", NULL, 0, 0,
     "of the key of --identity, where only members with certificates may ask", OF_RUN},
    {"serve-predictions", OPTION_CHOICE, GROUP_SWARM, PEERS, "yes|no", "yes", 0, 0,
     "answer what the model says of samples to who holds the swarm's key and the same data "
     "('grapevine distill --swarm'), in 5 % of the training time at most",
     CHANGES},
    {"serve-models", OPTION_CHOICE, GROUP_SWARM, PEERS, "yes|no", "yes", 0, 0,
     "give this peer's model to who could as well join and have it, without being a member "
     "('grapevine distill --swarm --models')",
     CHANGES},
    {"check", OPTION_SWITCH, GROUP_OUTPUT, ON(STATUS), NULL, NULL, 0, 0,
     "print only what is wrong, and exit with 4 if anything is: for supervisors", OF_RUN},
    {"every", OPTION_DURATION, GROUP_OUTPUT, ON(TOP), "T", "1s", 0.3, 86400, "how often to ask",
     OF_RUN},
    {"times", OPTION_COUNT, GROUP_OUTPUT, ON(TOP), "N", NULL, 1, 1e15,
     "leave after N answers (default: stay)", OF_RUN},
    {"rate-limit", OPTION_RATE, GROUP_SWARM, RUNS, "RATE", NULL, 64000, 1e11,
     "never send, nor receive, more than this of all links together: 10mbit, 1gbit", CHANGES},

    /* testnet */
    {"peers", OPTION_COUNT, GROUP_TESTNET, ON(TESTNET), "N", "4", 1, 1024, "how many to start",
     OF_RUN},
    {"chaos", OPTION_TEXT, GROUP_TESTNET, ON(TESTNET), "SPEC", NULL, 0, 0,
     "faults to cause: kill:mtbf=15s,restart=5s;freeze:mtbf=20s,for=3s; also partition and slow, "
     "with mtbf and for",
     OF_RUN},
    {"link", OPTION_TEXT, GROUP_TESTNET, ON(TESTNET), "SPEC", NULL, 0, 0,
     "the lines between peers: rate=100mbit,delay=50ms,jitter=5ms,loss=0.1% (default: as they are)",
     OF_RUN},
    {"peers", OPTION_COUNT, GROUP_TESTNET, ON(SIMULATE), "N", "16", 1, 4096, "how many", OF_RUN},
    {"chaos", OPTION_TEXT, GROUP_TESTNET, ON(SIMULATE), "SPEC", NULL, 0, 0,
     "faults to cause: kill:mtbf=15s,restart=5s;freeze:mtbf=20s,for=3s; also partition and slow, "
     "with mtbf and for",
     OF_RUN},
    {"sites", OPTION_COUNT, GROUP_TESTNET, ON(SIMULATE), "N", "1", 1, 64,
     "peers are spread over so many sites, in turns", OF_RUN},
    {"link-across", OPTION_TEXT, GROUP_TESTNET, ON(SIMULATE), "SPEC", NULL, 0, 0,
     "like --link, of the lines between sites (default: as --link)", OF_RUN},
    {"link", OPTION_TEXT, GROUP_TESTNET, ON(SIMULATE), "SPEC", "delay=1ms", 0, 0,
     "the network: rate=100mbit,delay=50ms,jitter=5ms,loss=0.1%", OF_RUN},
    {"hetero", OPTION_TEXT, GROUP_TESTNET, ON(SIMULATE) | ON(TESTNET), "SPEC", "uniform", 0, 0,
     "how fast peers are beside each other: lognormal:0.5, or list:1,1,0.1 (the rest 1); each step "
     "then takes --step-time over its peer's speed",
     OF_RUN},
    {"spread", OPTION_REAL, GROUP_TESTNET, ON(SIMULATE), "X", "1", 0, 1000,
     "how unlike the peers' data are: deviation of where each alone would end; 0: the same",
     OF_RUN},
    {"values", OPTION_COUNT, GROUP_TESTNET, ON(SIMULATE), "N", "1000", 1, 10000000,
     "numbers in the model", OF_RUN},
    {"step-time", OPTION_DURATION, GROUP_TRAINING, RUNS, "T", NULL, 0.000001, 3600,
     "a step takes at least so long: makes a fast machine a slower one", CHANGES},
    {"still", OPTION_SWITCH, GROUP_TESTNET, ON(SIMULATE), NULL, NULL, 0, 0,
     "no training: peers start with unlike models and only average; by how much a round "
     "lowers their consensus distance",
     OF_RUN},
    {"step-time", OPTION_DURATION, GROUP_TESTNET, ON(SIMULATE), "T", "10ms", 0.000001, 3600,
     "virtual time of an optimizer step", OF_RUN},
    {"resume", OPTION_SWITCH, GROUP_TESTNET, ON(TESTNET), NULL, NULL, 0, 0,
     "go on with what --out holds", OF_RUN},
    {"fresh", OPTION_SWITCH, GROUP_TESTNET, ON(TESTNET), NULL, NULL, 0, 0,
     "remove what an earlier testnet left in --out", OF_RUN},
    {"baselines", OPTION_SWITCH, GROUP_TESTNET, ON(TESTNET), NULL, NULL, 0, 0,
     "then the same peers each alone, and one peer with all the data, for as many steps in all, "
     "to compare",
     OF_RUN},

    /* training */
    {"data", OPTION_TEXT, GROUP_TRAINING, RUNS | ON(DOCTOR), "SPEC", "digits", 0, 0,
     "digits, fashion-mnist, idx:DIR, cifar10:DIR, csv:FILE,label=COLUMN or "
     "csv:FILE,target=COLUMN, npy:X.npy,Y.npy, text:FILE, tokens:FILE, or synthetic:least-squares, "
     "synthetic:spirals and synthetic:parity; their settings: docs/training.md",
     OF_RUN},
    {"data", OPTION_TEXT, GROUP_TRAINING, JUDGES | ON(DISTILL), "SPEC", NULL, 0, 0,
     "digits, fashion-mnist, idx:DIR, cifar10:DIR, ... (default: what the first file was trained "
     "on)",
     OF_RUN},
    {"data", OPTION_TEXT, GROUP_TRAINING, ON(COMPACT), "SPEC", NULL, 0, 0,
     "to judge the model by before and after, and to fine-tune it on (default with --prune: what "
     "the file was trained on)",
     OF_RUN},
    {"data", OPTION_TEXT, GROUP_TRAINING, ON(INSPECT), "SPEC", "digits", 0, 0,
     "with --model: the data it is to learn from", OF_RUN},
    {"tokenizer", OPTION_TEXT, GROUP_TRAINING, RUNS | ON(INSPECT) | ON(DOCTOR), "FILE", NULL, 0, 0,
     "of --data text:FILE: a tokenizer.json, vocab.bpe or merges.txt of byte-level BPE, or a "
     "folder "
     "with one; without it a text's bytes are its tokens",
     OF_RUN},
    {"tokenizer", OPTION_TEXT, GROUP_TRAINING, JUDGES | ON(DISTILL) | ON(COMPACT) | ON(GENERATE),
     "FILE", NULL, 0, 0, "of a model of text (default: the file that it states, or one beside it)",
     OF_RUN},
    {"tokenizer", OPTION_TEXT, GROUP_USING, ON(EXPORT), "FILE", NULL, 0, 0,
     "of gguf: the model's tokenizer (default: the file that it states, or one beside it)", OF_RUN},
    {"tokenizer", OPTION_TEXT, GROUP_USING, ON(TOKENIZE), "FILE", NULL, 0, 0,
     "a tokenizer.json, vocab.bpe or merges.txt of byte-level BPE, or a folder with one", OF_RUN},
    {"data", OPTION_TEXT, GROUP_USING, ON(PREDICT), "SPEC", NULL, 0, 0,
     "in place of --input: the samples for testing of digits, fashion-mnist, idx:DIR, ...", OF_RUN},
    {"model", OPTION_TEXT, GROUP_TRAINING, ON(INSPECT), "SPEC", NULL, 0, 0,
     "in place of a file: a model as 'grapevine peer' takes it", OF_RUN},
    {"model", OPTION_TEXT, GROUP_TRAINING, ON(DOCTOR), "SPEC", NULL, 0, 0,
     "compare it, with --data, to what the swarm trains", OF_RUN},
    {"model", OPTION_TEXT, GROUP_TRAINING, RUNS | ON(BENCH), "SPEC", "mlp", 0, 0,
     "for images and rows of numbers mlp, cnn, treenet, resnet14, resnet20 or resnet18; for text "
     "lstm, gpt-nano, gpt-micro or gpt2-small; with a factor of the width, as in 'cnn*0.5'; or "
     "layers, as in 'conv3x3:32 bn relu maxpool2 linear:classes': docs/training.md lists them",
     OF_RUN},
    {"labels", OPTION_TEXT, GROUP_TRAINING, PEERS, "A,B,...", NULL, 0, 0,
     "the classes of a csv in their order, where not every peer's file has all of them; who joins "
     "takes the swarm's (default: those of the file, sorted)",
     OF_RUN},
    {"init", OPTION_TEXT, GROUP_TRAINING, RUNS, "FILE", NULL, 0, 0,
     "begin from the values in a model file, ours or GPT-2's; without --model its layers are the "
     "model. Peers that begin from equal files average with each other",
     OF_RUN},
    {"no-train", OPTION_SWITCH, GROUP_TRAINING, PEERS, NULL, NULL, 0, 0,
     "keep the swarm's model, follow it and give it to who joins, and take no step and part in no "
     "round: for a machine that is always there",
     CHANGES},
    {"optimizer", OPTION_TEXT, GROUP_TRAINING, LEARNS, "SPEC", NULL, 0, 0,
     "sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw, lars, lamb, muon or lbfgs, with "
     "settings as in adamw:lr=1e-3,wd=0.1 (default by model: momentum, for text adam or adamw)",
     OF_RUN},
    {"lr", OPTION_REAL, GROUP_TRAINING, LEARNS, "X", NULL, 1e-12, 1e6,
     "learning rate, in place of the optimizer's lr= (default: the model's, which follows the "
     "samples of a step; see docs/training.md)",
     OF_RUN},
    {"lr-scaling", OPTION_CHOICE, GROUP_AVERAGING, RUNS, "none|sqrt|linear", "none", 0, 0,
     "multiply the learning rate by (the root of) how many average, within 200 steps", OF_RUN},
    {"schedule", OPTION_TEXT, GROUP_TRAINING, RUNS, "SPEC", "constant", 0, 0,
     "constant, step:every=30%,gamma=0.1, linear:min=0, cosine:min=0 or "
     "grow:every=30%,factor=2,max=16, each with warmup=5% or warmup=STEPS",
     OF_RUN},
    {"schedule", OPTION_TEXT, GROUP_TRAINING, ON(DISTILL) | ON(COMPACT), "SPEC", "cosine", 0, 0,
     "constant, step:every=30%,gamma=0.1, linear:min=0 or cosine:min=0, each with warmup=5% or "
     "warmup=STEPS",
     OF_RUN},
    {"batch", OPTION_COUNT, GROUP_TRAINING, LEARNS | ON(BENCH) | ON(INSPECT), "N", NULL, 1, 65536,
     "samples a step (default by model: 64; for text 32, gpt2-small 4). A learning rate that "
     "nobody "
     "gave follows it",
     OF_RUN},
    {"heads-loss", OPTION_CHOICE, GROUP_TRAINING, RUNS, "mean|ensemble|oracle", "mean", 0, 0,
     "what the heads of a model that ends in ]heads learn: each for itself, the answer they give "
     "together, or only the best of each sample",
     OF_RUN},
    {"clip", OPTION_REAL, GROUP_TRAINING, RUNS | ON(DISTILL), "NORM", NULL, 1e-12, 1e12,
     "shorten gradients whose norm is above this (default: never)", OF_RUN},
    {"ema", OPTION_REAL, GROUP_TRAINING, RUNS, "BETA", NULL, 0, 0.9999999,
     "also keep an exponential mean of the parameters over the steps, as 0.999: ema.safetensors in "
     "--out (default: none)",
     OF_RUN},
    {"accumulate", OPTION_COUNT, GROUP_TRAINING, RUNS | ON(DISTILL), "N", "1", 1, 4096,
     "batches whose mean gradient makes one step, as a batch N times as large would", OF_RUN},
    {"augment", OPTION_TEXT, GROUP_TRAINING, RUNS | ON(DISTILL), "SPEC", NULL, 0, 0,
     "change training images at random: crop:PIXELS, flip or both (default: as they are)", OF_RUN},
    {"prefetch", OPTION_CHOICE, GROUP_TRAINING, RUNS, "auto|on|off", "auto", 0, 0,
     "make batches ahead of time on a thread of their own; auto: where it pays", CHANGES},
    {"shard", OPTION_TEXT, GROUP_TRAINING, RUNS, "SPEC", "iid", 0, 0,
     "this peer's shard of the data: iid, dirichlet:ALPHA or all", OF_RUN},
    {"shard-of", OPTION_TEXT, GROUP_TRAINING, PEERS, "I/N", NULL, 0, 0,
     "shard I of N, from 0 (default: by who is there); in this and other texts {rank}, {ranks} and "
     "{local-rank} are numbers from srun or mpirun, as in --shard-of {rank}/{ranks} --out "
     "run/{rank}",
     OF_RUN},
    {"threads", OPTION_COUNT, GROUP_TRAINING, LEARNS | JUDGES | ASKS | ON(BENCH), "N", NULL, 1,
     1024,
     "CPU threads for arithmetic (default: all cores this process may use; a testnet divides them "
     "among its peers; for peers that you start on one machine, divide them yourself)",
     CHANGES},
    {"hogwild", OPTION_COUNT, GROUP_TRAINING, RUNS, "THREADS", NULL, 1, 64,
     "threads that take steps of sgd on the same parameters without locks, each with its own batch",
     OF_RUN},
    {"device", OPTION_DEVICE, GROUP_TRAINING, LEARNS | JUDGES | ASKS | ON(BENCH),
     "auto|cpu|cuda|cuda:N|cuda:0,1", "auto", 0, 0,
     "where to compute; auto: a GPU if there is one; several GPUs share each batch", CHANGES},
    {"precision", OPTION_CHOICE, GROUP_TRAINING, LEARNS | ON(EVAL) | ON(BENCH), "f32|bf16", "f32",
     0, 0, "bf16: products and convolutions of bfloat16, on a CPU where it is faster at them",
     OF_RUN},
    {"seed", OPTION_COUNT, GROUP_TRAINING, LEARNS | ON(GENERATE) | ON(SIMULATE), "N", "1", 0, 0,
     "the same seed gives the same run where that is possible", OF_RUN},

    /* averaging */
    {"averaging", OPTION_TEXT, GROUP_AVERAGING, RUNS | ON(SIMULATE), "SPEC", "local-sgd", 0, 0,
     "none, one-shot, local-sgd, des-loc, allreduce, post-local, adacomm, ad-psgd, swarmsgd, ssp, "
     "moshpit, bmuf, "
     "slowmo, "
     "diloco, muloco, streaming-diloco, decoupled-diloco, sparseloco, sparta, loscar, easgd, "
     "dpsgd, matcha, "
     "choco, push-sum, osgp, gossipgrad, gosgd, aeasgd, eamsgd, d2, gradient-tracking, qg-dsgdm, "
     "noloco, "
     "async-diloco, gasloc, pbt, codistill "
     "or ec-dnn, with settings as in local-sgd:H=16; docs/choosing.md says which when, "
     "docs/methods.md tells them apart; each flag below replaces one part of it",
     OF_RUN},
    {"topology", OPTION_TEXT, GROUP_AVERAGING, RUNS | ON(SIMULATE), "SPEC", NULL, 0, 0,
     "with whom: complete, groups:SIZE, grid:SIZE, pairs (those on faster lines more often; "
     "pairs,uniform: all alike), or a graph: ring, torus, hypercube, "
     "exponential, one-peer-exponential, dissemination, random:DEGREE (default by method)",
     OF_RUN},
    {"share", OPTION_TEXT, GROUP_AVERAGING, RUNS, "SPEC", "all", 0, 0,
     "what of the model is averaged: all, or trunk:K, the first K layers with weights; what lies "
     "behind them stays each peer's own",
     OF_RUN},
    {"exchange", OPTION_TEXT, GROUP_AVERAGING, RUNS | ON(BENCH) | ON(SIMULATE), "NAME", NULL, 0, 0,
     "how chunks travel: group, pair, edges, mirror or push (default by method); group:direct, "
     "group:ring, group:halving or group:tree: by that schedule, group:auto (the default): by the "
     "cheapest for what was measured",
     OF_RUN},
    {"codec", OPTION_TEXT, GROUP_AVERAGING, RUNS | ON(BENCH) | ON(SIMULATE), "NAME", NULL, 0, 0,
     "what is sent for a number: f32, f16, bf16, int8; of differences also int4, int2, "
     "qsgd:LEVELS, ternary, sign, the values that topk:SHARE, topk:K/4096, randk:SHARE or "
     "threshold:T keep, the factors of lowrank:RANK, and A|B: what A of these leaves, by B; "
     "CODEC+ef or CODEC+ef:DECAY: groups send differences, and what the codec leaves out comes "
     "later (default by method)",
     OF_RUN},
    {"rule", OPTION_TEXT, GROUP_AVERAGING, RUNS | ON(SIMULATE), "NAME", NULL, 0, 0,
     "how received parameters are combined: mean, nesterov, slow-momentum, block, elastic, sparse, "
     "heavy-ball, delayed-nesterov, accelerated, push-sum or exact-diffusion (default by method)",
     OF_RUN},
    {"robust", OPTION_TEXT, GROUP_AVERAGING, RUNS | ON(SIMULATE), "RULE", "auto", 0, 0,
     "what guards against peers that lie. clip: the farther away a peer's values are, beyond what "
     "is usual, the less they count; auto: rfa for codistill and ec-dnn, else clip where the "
     "method can (all but one-shot, "
     "group:ring, "
     "group:halving and group:tree). Of groups and neighbours, in place of the mean: trim:K "
     "(without the K largest and K smallest of each value), median, krum or multi-krum (:K lie; "
     "those with the others nearest), centered-clip, rfa (geometric median); docs/security.md says "
     "which when. none: no guard; NaN and absurd values are refused in any case",
     OF_RUN},
    {"verify", OPTION_REAL, GROUP_AVERAGING, PEERS, "P", "0", 0, 1,
     "spend about this share of the training time on taking others' steps again, as 0.02, to find "
     "who does not train: local-sgd and allreduce in groups of all, lossless codecs, equal "
     "machines; docs/security.md says what is found, and how fast (0: neither that, nor can others "
     "check this peer)",
     OF_RUN},
    {"moments", OPTION_CHOICE, GROUP_AVERAGING, RUNS, "keep|reset|average|mask", NULL, 0, 0,
     "the optimizer's own buffers after a round: each peer keeps its own, they are reset, they "
     "travel with the model and are averaged, or momentum is reset where a value was sent "
     "(allreduce --codec topk:SHARE+ef) (default by method: keep, but for des-loc)",
     OF_RUN},
    {"probe", OPTION_TEXT, GROUP_AVERAGING, RUNS, "SPEC", NULL, 0, 0,
     "codistill and ec-dnn: the data whose samples all peers answer, as --data (default: the "
     "training data, the same for all)",
     OF_RUN},
    {"pace", OPTION_TEXT, GROUP_AVERAGING, RUNS | ON(SIMULATE), "SPEC", NULL, 0, 0,
     "when: every=16 steps or time=5s (default by method)", OF_RUN},

    /* goal */
    {"start-with", OPTION_COUNT, GROUP_GOAL, RUNS, "N", "1", 1, 100000,
     "begin training once so many linked peers hold one model, this one included", CHANGES},
    {"steps", OPTION_COUNT, GROUP_GOAL, RUNS, "N", NULL, 1, 1e15,
     "stop after N steps of this peer and one last round, see --time (default by model: 1000 for "
     "text, "
     "gpt2-small 100)",
     OF_GOAL},
    {"epochs", OPTION_REAL, GROUP_GOAL, RUNS, "X", NULL, 1e-6, 1e9,
     "stop after X passes over the shard (default by model: mlp 5, resnets 10, others 3)", OF_GOAL},
    {"time", OPTION_DURATION, GROUP_GOAL, RUNS, "T", NULL, 0.001, 31536000,
     "stop after T; a last round follows, within a quarter of T (6s at least, 10m at most)",
     OF_GOAL},
    {"time", OPTION_DURATION, GROUP_GOAL, ON(SIMULATE), "T", NULL, 0.001, 31536000, "stop after T",
     OF_RUN},
    {"target-accuracy", OPTION_REAL, GROUP_GOAL, RUNS, "A", NULL, 1e-9, 1,
     "stop at this test accuracy", OF_GOAL},
    {"target-loss", OPTION_REAL, GROUP_GOAL, RUNS, "L", NULL, 1e-12, 1e9, "stop at this test loss",
     OF_GOAL},
    {"target-loss", OPTION_REAL, GROUP_GOAL, ON(SIMULATE), "L", NULL, 1e-12, 1e9,
     "end when the peers' mean loss is no more than this", OF_RUN},

    /* distilling */
    {"teachers", OPTION_TEXT, GROUP_DISTILLING, ON(DISTILL), "DIR|FILE,FILE...", NULL, 0, 0,
     "a testnet's folder, or model files", OF_RUN},
    {"swarm", OPTION_TEXT, GROUP_DISTILLING, ON(DISTILL), "HOST:PORT", NULL, 0, 0,
     "instead of --teachers: ask the members of a running swarm what their models say", OF_RUN},
    {"models", OPTION_SWITCH, GROUP_DISTILLING, ON(DISTILL), NULL, NULL, 0, 0,
     "of --swarm: fetch the members' models, where they give them, and distil these", OF_RUN},
    {"trim", OPTION_COUNT, GROUP_DISTILLING, ON(DISTILL), "N", NULL, 0, 31,
     "for each value leave out the N largest and smallest answers, so that N members that lie "
     "decide "
     "nothing; 0: the plain mean (default: of --swarm 1, else 0)",
     OF_RUN},
    {"student", OPTION_TEXT, GROUP_DISTILLING, ON(DISTILL), "SPEC", NULL, 0, 0,
     "the student, as for --model", OF_RUN},
    {"teachers-vote", OPTION_CHOICE, GROUP_DISTILLING, ON(DISTILL), "mean|logits|vote", "mean", 0,
     0, "how the teachers' answers become one", OF_RUN},
    {"weights", OPTION_CHOICE, GROUP_DISTILLING, ON(EVAL) | ON(DISTILL), "equal|score|confidence",
     "equal", 0, 0,
     "what members of an ensemble weigh (mean and logits): by accuracy above chance on a part of "
     "the training data, or in each answer by how sure they are",
     OF_RUN},
    {"targets", OPTION_CHOICE, GROUP_DISTILLING, ON(DISTILL), "soft|hard", "soft", 0, 0,
     "the teachers' probabilities, or the class that they decide for", OF_RUN},
    {"transfer", OPTION_TEXT, GROUP_DISTILLING, ON(DISTILL), "SPEC", NULL, 0, 0,
     "learn from the samples of these data, without their labels (--alpha is then 1); --data still "
     "judge",
     OF_RUN},
    {"teachers-view", OPTION_CHOICE, GROUP_DISTILLING, ON(DISTILL), "same|plain", "same", 0, 0,
     "with --augment: teachers are asked about each image as the student sees it, which costs "
     "their passes at every step, or once about each as it is",
     OF_RUN},
    {"answers", OPTION_TEXT, GROUP_DISTILLING, ON(DISTILL), "FILE", NULL, 0, 0,
     "keep the teachers' answers there, and use what is there if teachers and samples are the same "
     "(default: beside --out until it is done)",
     OF_RUN},
    {"answers-top", OPTION_COUNT, GROUP_DISTILLING, ON(DISTILL), "N", NULL, 1, 1024,
     "keep the N likeliest answers of each row; the rest is spread evenly (default: all, of more "
     "than 256 symbols 64)",
     OF_RUN},
    {"compare", OPTION_TEXT, GROUP_DISTILLING, ON(DISTILL), "NAME=FILE,...", NULL, 0, 0,
     "further models for the table: a quantised student, a peer alone", OF_RUN},
    {"temperature", OPTION_REAL, GROUP_DISTILLING, ON(DISTILL), "X", "3", 0.01, 1000,
     "softens the teachers' probabilities", OF_RUN},
    {"alpha", OPTION_REAL, GROUP_DISTILLING, ON(DISTILL), "X", "0.7", 0, 1,
     "weight of the teachers against the labels", OF_RUN},
    {"epochs", OPTION_REAL, GROUP_DISTILLING, ON(DISTILL), "X", "3", 1e-6, 1e9,
     "passes over the training samples", OF_RUN},
    {"samples", OPTION_COUNT, GROUP_DISTILLING, ON(DISTILL), "N", NULL, 1, 1e15,
     "learn from so many training samples (default: all)", OF_RUN},
    {"generations", OPTION_COUNT, GROUP_DISTILLING, ON(DISTILL), "N", "1", 1, 32,
     "train so many students one after another, each on what the one before says", OF_RUN},
    {"baseline", OPTION_SWITCH, GROUP_DISTILLING, ON(DISTILL), NULL, NULL, 0, 0,
     "also train the same student on the labels alone, all of them, in as many steps, to compare",
     OF_RUN},
    {"report", OPTION_TEXT, GROUP_DISTILLING, ON(DISTILL), "DIR", NULL, 0, 0,
     "leave the result in a testnet's folder, for 'grapevine report'", OF_RUN},

    /* measuring */
    {"seconds", OPTION_REAL, GROUP_MEASURING, ON(BENCH), "X", "5", 0.01, 3600,
     "how long to measure (train, kernels, network)", OF_RUN},
    {"forward", OPTION_SWITCH, GROUP_MEASURING, ON(BENCH), NULL, NULL, 0, 0,
     "forward passes alone, as eval, predict and a student's teachers make them (train)", OF_RUN},
    {"values", OPTION_COUNT, GROUP_MEASURING, ON(BENCH), "N", NULL, 1, 2147483648.0,
     "values in the parameter vector (codecs, averaging)", OF_RUN},
    {"peers", OPTION_COUNT, GROUP_MEASURING, ON(BENCH), "N", "16", 2, 1024,
     "how many peers (averaging)", OF_RUN},
    {"group", OPTION_COUNT, GROUP_MEASURING, ON(BENCH), "N", "4", 2, 64,
     "peers of a group "
     "(averaging)",
     OF_RUN},
    {"grid", OPTION_SWITCH, GROUP_MEASURING, ON(BENCH), NULL, NULL, 0, 0,
     "groups are the lines of a grid, --group a side, another dimension each round (averaging)",
     OF_RUN},
    {"insecure-loopback", OPTION_SWITCH, GROUP_MEASURING, ON(BENCH), NULL, NULL, 0, 0,
     "do not encrypt what is averaged, to see what that costs; on this machine only (averaging)",
     OF_RUN},
    {"rounds", OPTION_COUNT, GROUP_GOAL, ON(SIMULATE), "N", NULL, 1, 1000000,
     "stop when a peer has had so many rounds on average (20, without --time)", OF_RUN},
    {"rounds", OPTION_COUNT, GROUP_MEASURING, ON(BENCH), "N", "5", 1, 1000000,
     "how many rounds (averaging)", OF_RUN},

    /* using a model */
    {"input", OPTION_TEXT, GROUP_USING, ON(PREDICT), "FILE", NULL, 0, 0,
     "an image (.png, .pgm, .ppm), rows of .csv or .npy, or an IDX file", OF_RUN},
    {"soup", OPTION_CHOICE, GROUP_USING, JUDGES, "uniform|greedy", "uniform", 0, 0,
     "average all models, or those that make the average better on a part of the training data",
     OF_RUN},
    {"align", OPTION_SWITCH, GROUP_USING, JUDGES, NULL, NULL, 0, 0,
     "first bring the models' hidden channels into one order, for models that did not start "
     "together",
     OF_RUN},
    {"top", OPTION_COUNT, GROUP_USING, ON(PREDICT), "K", NULL, 1, 1048576,
     "how many classes to name, the likeliest first (default: up to 5)", OF_RUN},
    {"prompt", OPTION_TEXT, GROUP_USING, ON(GENERATE), "TEXT", NULL, 0, 0,
     "what the text begins with", OF_RUN},
    {"prompt-file", OPTION_TEXT, GROUP_USING, ON(GENERATE), "FILE", NULL, 0, 0,
     "the same from a file, to its last byte", OF_RUN},
    {"prompt-tokens", OPTION_TEXT, GROUP_USING, ON(GENERATE), "N,N,...", NULL, 0, 0,
     "the same as numbers of tokens, for models whose tokens are not bytes; numbers are printed",
     OF_RUN},
    {"tokens", OPTION_COUNT, GROUP_USING, ON(GENERATE), "N", "200", 1, 1000000, "how many to add",
     OF_RUN},
    {"temperature", OPTION_REAL, GROUP_USING, ON(GENERATE), "X", "1", 0, 1000,
     "lower: more predictable, higher: more random; 0: always the likeliest token", OF_RUN},
    {"top-k", OPTION_COUNT, GROUP_USING, ON(GENERATE), "K", NULL, 1, 1048576,
     "choose among the K likeliest tokens only (default: all)", OF_RUN},
    {"top-p", OPTION_REAL, GROUP_USING, ON(GENERATE), "P", NULL, 1e-6, 1,
     "choose among the likeliest tokens that have this probability together (default: all)",
     OF_RUN},
    {"to", OPTION_CHOICE, GROUP_USING, ON(COMPACT), "int8|f32", "int8", 0, 0,
     "how weights are written; f32 for pruned ones as they are", OF_RUN},
    {"prune", OPTION_REAL, GROUP_USING, ON(COMPACT), "SHARE", NULL, 0, 0.99,
     "set this share of the weights to 0, those of least magnitude", OF_RUN},
    {"epochs", OPTION_REAL, GROUP_TRAINING, ON(COMPACT), "X", "1", 0, 1e9,
     "with --prune: passes over the training samples to fine-tune in; 0: none", OF_RUN},
    {"to", OPTION_CHOICE, GROUP_USING, ON(EXPORT), "onnx|safetensors|page|gguf", NULL, 0, 0,
     "the form to write", OF_RUN},
    {"data", OPTION_TEXT, GROUP_USING, ON(EXPORT), "SPEC", NULL, 0, 0,
     "of a page: show samples for testing of these data (default: those of digits and "
     "fashion-mnist, none of others)",
     OF_RUN},
    {"labels", OPTION_TEXT, GROUP_USING, ON(EXPORT), "A,B,...", NULL, 0, 0,
     "of a page: the names of the classes in their order (default: those that the model has)",
     OF_RUN},
    {"runtime", OPTION_TEXT, GROUP_USING, ON(EXPORT), "FILE", NULL, 0, 0,
     "of a page: runtime.js as peer/watch/page/runtime.sh makes it (default: where that puts it)",
     OF_RUN},

    /* output */
    {"out", OPTION_TEXT, GROUP_OUTPUT, PEERS, "DIR", NULL, 0, 0,
     "keep model, metrics and log here; a folder that has them is resumed (default: nothing is "
     "kept, and a line says so)",
     OF_START},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(DOCTOR), "DIR", NULL, 0, 0,
     "the folder that the peer is to keep its model in: is there room, may it write?", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(TESTNET), "DIR", "grapevine-run", 0, 0,
     "a folder for everything; not empty: say --resume or --fresh", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(DISTILL), "FILE", "student.safetensors", 0, 0,
     "where the student goes (default with --report DIR: in that folder)", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(COMPACT), "FILE", "compact.safetensors", 0, 0,
     "where the smaller model goes", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(AVERAGE), "FILE", "average.safetensors", 0, 0,
     "where the average goes", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(REPORT), "FILE", NULL, 0, 0,
     "the page of peers' folders (default: report.html, in the folder if there is one alone)",
     OF_RUN},
    {"csv", OPTION_TEXT, GROUP_OUTPUT, ON(REPORT), "FILE", NULL, 0, 0,
     "all reports of all peers as a table too", OF_RUN},
    {"tensorboard", OPTION_TEXT, GROUP_OUTPUT, ON(REPORT), "DIR", NULL, 0, 0,
     "the same as event files for TensorBoard, a folder a peer", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(TOKENIZE), "FILE", NULL, 0, 0, "the new file", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(EXPORT), "FILE", NULL, 0, 0,
     "the new file; of a page the folder", OF_RUN},
    {"out", OPTION_TEXT, GROUP_OUTPUT, ON(KEYGEN), "FILE", NULL, 0, 0,
     "the new file (default identity.key, swarm.key, member.cert or deny.list)", OF_RUN},
    {"swarm-key", OPTION_SWITCH, GROUP_OUTPUT, ON(KEYGEN), NULL, NULL, 0, 0,
     "make a swarm key instead of an identity", WORD_ONLY},
    {"show", OPTION_TEXT, GROUP_OUTPUT, ON(KEYGEN), "FILE", NULL, 0, 0,
     "make nothing; print peer id and public key of this identity", WORD_ONLY},
    {"certificate", OPTION_TEXT, GROUP_OUTPUT, ON(KEYGEN), "KEY", NULL, 0, 0,
     "make a certificate for this public key, signed --sign-with", WORD_ONLY},
    {"deny", OPTION_TEXT, GROUP_OUTPUT, ON(KEYGEN), "FILE", NULL, 0, 0,
     "make a deny list of the public keys in this file, one a line, signed --sign-with", WORD_ONLY},
    {"sign-with", OPTION_TEXT, GROUP_OUTPUT, ON(KEYGEN), "FILE", NULL, 0, 0,
     "the owner's identity, whose public key members give as --authority", OF_RUN},
    {"swarm-name", OPTION_TEXT, GROUP_OUTPUT, ON(KEYGEN), "NAME", "default", 0, 0,
     "the swarm that a certificate or deny list is for", OF_RUN},
    {"role", OPTION_CHOICE, GROUP_OUTPUT, ON(KEYGEN), "peer|observer", "peer", 0, 0,
     "what the certificate's holder may be", OF_RUN},
    {"days", OPTION_COUNT, GROUP_OUTPUT, ON(KEYGEN), "N", "365", 1, 36500,
     "how long the certificate is good", OF_RUN},
    {"serial", OPTION_COUNT, GROUP_OUTPUT, ON(KEYGEN), "N", NULL, 1, 9007199254740992.0,
     "number of the certificate or deny list; of deny lists the highest counts (default: seconds "
     "since 1970)",
     OF_RUN},
    {"checkpoint-every", OPTION_DURATION, GROUP_OUTPUT, RUNS, "T", "30s", 0.01, 31536000,
     "how often the model is saved to --out", CHANGES},
    {"audit", OPTION_TEXT, GROUP_OUTPUT, PEERS, "FILE", NULL, 0, 0,
     "for tests: append what each round did to the model, by its hashes", WORD_ONLY},
    {"report-every", OPTION_DURATION, GROUP_OUTPUT, RUNS, "T", "5s", 0.01, 86400,
     "how often progress is measured and told", CHANGES},
    {"evaluate-samples", OPTION_COUNT, GROUP_OUTPUT, RUNS, "N", "1000", 0, 1000000000,
     "on how many test samples a report's accuracy is measured, at the end on all; 0: not at all",
     CHANGES},
    {"report-every", OPTION_DURATION, GROUP_OUTPUT, ON(SIMULATE), "T", "1s", 0.001, 86400,
     "how often, in virtual time, progress is measured and told", OF_RUN},
    {"trace", OPTION_TEXT, GROUP_OUTPUT, PEERS, "FILE", NULL, 0, 0,
     "write what took how long, by thread, in Chrome's trace event form: for ui.perfetto.dev; at "
     "most 256 MiB",
     OF_START},
    {"trace", OPTION_TEXT, GROUP_OUTPUT, ON(SIMULATE), "FILE", NULL, 0, 0,
     "write what took how long in virtual time, each peer a process: for ui.perfetto.dev; at most "
     "256 MiB",
     OF_START},
    {"profile", OPTION_SWITCH, GROUP_OUTPUT, PEERS | ON(BENCH), NULL, NULL, 0, 0,
     "at the end, tell where the time of training went, layer by layer (bench: train)", OF_START},
    {"json", OPTION_SWITCH, GROUP_OUTPUT, EVERYWHERE, NULL, NULL, 0, 0,
     "results as JSON on standard output", OF_START},
    {"quiet", OPTION_SWITCH, GROUP_OUTPUT, EVERYWHERE, NULL, NULL, 0, 0, "errors only", OF_START},
    {"verbose", OPTION_SWITCH, GROUP_OUTPUT, EVERYWHERE, NULL, NULL, 0, 0, "more detail", OF_START},

    /* settings */
    {"config", OPTION_TEXT, GROUP_SETTINGS, EVERYWHERE, "FILE", NULL, 0, 0,
     "read settings from an ini file: lines 'flag-name = value', [COMMAND] starts those of one "
     "command",
     WORD_ONLY},
    {"print-config", OPTION_SWITCH, GROUP_SETTINGS, EVERYWHERE, NULL, NULL, 0, 0,
     "print all that is in force as such a file, and stop", WORD_ONLY},
    {"help", OPTION_SWITCH, GROUP_SETTINGS, EVERYWHERE, NULL, NULL, 0, 0, "print this, and stop",
     WORD_ONLY},
    {"version", OPTION_SWITCH, GROUP_SETTINGS, EVERYWHERE, NULL, NULL, 0, 0,
     "print version and revision, and stop", WORD_ONLY},
    {"man", OPTION_SWITCH, GROUP_SETTINGS, ON(NONE), NULL, NULL, 0, 0,
     "print the manual page in roff, and stop", WORD_ONLY},
};

const size_t option_rows_count = ARRAY_COUNT(option_rows);

const char *option_group_title(enum option_group group)
{
    static const char *const titles[GROUP_COUNT] = {
        [GROUP_SWARM] = "The swarm",     [GROUP_TESTNET] = "The testnet",
        [GROUP_TRAINING] = "Training",   [GROUP_AVERAGING] = "Averaging",
        [GROUP_GOAL] = "When to stop",   [GROUP_DISTILLING] = "Distilling",
        [GROUP_MEASURING] = "Measuring", [GROUP_USING] = "Using a model",
        [GROUP_OUTPUT] = "Output",       [GROUP_SETTINGS] = "Settings",
    };

    CHECK((unsigned)group < GROUP_COUNT);
    return titles[group];
}
