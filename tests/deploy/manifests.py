#!/usr/bin/python3
"""manifests: what no schema says of deploy/kubernetes: that its names belong together.

manifests.py FILE...            checks them, and prints how many facts were looked at
manifests.py --args FILE INDEX  the peer's arguments in the pod of that index, one a line, as the kubelet would give them
"""
import sys

import yaml

checked = 0


def check(is_true, text):
    global checked
    checked += 1
    if not is_true:
        sys.exit(f"WRONG: {text}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return [item for item in yaml.safe_load_all(file) if item]


def of_kind(objects, *kinds):
    return [item for item in objects if item["kind"] in kinds]


def arguments(pod, index):
    container = pod["containers"][0]
    return [word.replace("$(POD_INDEX)", str(index)) for word in container["args"]]


def check_workload(name, workload, objects):
    spec, is_job = workload["spec"], workload["kind"] == "Job"
    template = spec["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    container = pod["containers"][0]
    count = spec["completions"] if is_job else spec["replicas"]
    service = of_kind(objects, "Service")[0]
    flags = dict(word[2:].split("=", 1) for word in arguments(pod, 0)[1:])
    volumes = {volume["name"] for volume in pod["volumes"]}

    volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    check((pod["subdomain"] if is_job else spec["serviceName"]) == service["metadata"]["name"], f"{name}: not the Service's name")
    if is_job:
        check(spec["parallelism"] == count and spec["completionMode"] == "Indexed", f"{name}: peers must be there together")
        check(pod["restartPolicy"] == "Never", f"{name}: backoffLimitPerIndex and podFailurePolicy ask for restartPolicy Never")
    else:
        check(spec["podManagementPolicy"] == "Parallel", f"{name}: peers must be there together")
        check(spec["selector"]["matchLabels"] == labels, f"{name}: it does not select its own pods")
    for item in of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        selector = item["spec"].get("podSelector", item["spec"]["selector"] if "selector" in item["spec"] else None)
        check(selector.get("matchLabels", selector) == labels, f"{name}: {item['kind']} selects other pods")
    for address in flags["bootstrap"].split(","):
        host, port = address.rsplit(":", 1)
        host, subdomain = host.split(".")
        stem, index = host.rsplit("-", 1)
        check(stem == workload["metadata"]["name"] and int(index) < count, f"{name}: --bootstrap {address} is no pod of it")
        check(subdomain == service["metadata"]["name"] and port == flags["listen"].rsplit(":", 1)[1], f"{name}: --bootstrap {address}")
    check(service["spec"]["publishNotReadyAddresses"] and service["spec"]["clusterIP"] == "None", "no names of pods that are not ready")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    check({port["name"]: port["port"] for port in service["spec"]["ports"]} == ports, f"{name}: ports are not the Service's")
    for flag, port in (("listen", "peer"), ("http", "http")):
        check(flags[flag] == f"0.0.0.0:{ports[port]}", f"{name}: --{flag} is not reached at port {port}")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        check(container[probe]["httpGet"] == {"path": "/status.json", "port": "http"}, f"{name}: {probe}")
    check(flags["shard-of"] == f"0/{count}", f"{name}: --shard-of is not of {count}")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    check(set(mounts) == volumes, f"{name}: volumes {volumes}, mounted {set(mounts)}")
    check(flags["swarm-key"] == mounts["swarm-key"] + "/swarm.key", f"{name}: the key is mounted elsewhere")
    check((flags["out"] + "/").startswith(mounts["data"] + "/"), f"{name}: --out is on no volume")
    check(container["resources"]["requests"]["cpu"] == flags["threads"], f"{name}: more or fewer threads than CPUs")
    check(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0, f"{name}: root")
    check(container["securityContext"]["readOnlyRootFilesystem"], f"{name}: its root can be written")


def main():
    words = sys.argv[1:]
    if words[0] == "--args":
        workload = of_kind(read(words[1]), "Job", "StatefulSet")[0]
        print("\n".join(arguments(workload["spec"]["template"]["spec"], words[2])))
        return
    shared = [item for path in words for item in read(path) if item["kind"] in ("Service", "NetworkPolicy")]
    for path in words:
        objects = read(path)
        for workload in of_kind(objects, "Job", "StatefulSet"):
            check_workload(path.rsplit("/", 1)[-1], workload, shared + objects)
    check(checked > 30, "too little was looked at")
    print(f"{checked} facts hold")


main()
