#!/bin/bash
# Tables of three hospitals that are not alike, for docs/own_data.md: each has mostly patients of one
# kind, and instruments that read on scales of their own. north.csv, east.csv and south.csv have 400,
# 300 and 200 patients; test.csv has 600 more, as many of each kind and of each hospital, and all.csv
# is the three together. All of it follows from the seed. Usage: tests/bench/hospitals.sh [SEED]
set -eu
awk -v seed="${1:-1}" '
function uniform() { state = (state * 16807) % 2147483647; return state / 2147483647 }
function normal() { return sqrt(-2 * log(uniform())) * cos(6.283185307 * uniform()) }
function kind_of(first, second, u) { return u < first ? 1 : u < first + second ? 2 : 3 }
# What a patient of this kind has, as the instruments of this hospital (1 to 3) read it.
function patient(site, k,    fever, iron, marker) {
    fever = 37.0 + (k == 2 ? 1.6 : 0) + 0.6 * normal()
    iron = 90 - (k == 3 ? 38 : 0) + 16 * normal()
    marker = 2.0 + (k == 1 ? 0 : k == 2 ? 1.2 : -0.8) + 1.0 * normal()
    return sprintf("%.2f,%.1f,%.2f,%.1f,%s", fever + 0.3 * (site - 2), iron * (1 + 0.15 * (site - 2)), marker + 0.4 * site,
        45 + 12 * (site - 2) + 15 * normal(), name[k])
}
BEGIN {
    split("healthy flu anaemia", name, " ")
    split("north east south", file, " ")
    split("400 300 200", size, " ")
    split("0.90 0.03 0.05", first, " ")
    split("0.07 0.96 0.05", second, " ")
    state = 1 + seed * 7919
    for (i = 0; i < 20; i++) uniform()
    head = "fever,iron,marker,age,diagnosis"
    print head >"all.csv"
    for (site = 1; site <= 3; site++) {
        print head >(file[site] ".csv")
        for (i = 0; i < size[site]; i++) {
            row = patient(site, kind_of(first[site], second[site], uniform()))
            print row >(file[site] ".csv")
            print row >"all.csv"
        }
    }
    print head >"test.csv"
    for (i = 0; i < 600; i++) print patient(1 + i % 3, 1 + int(i / 3) % 3) >"test.csv"
}'
