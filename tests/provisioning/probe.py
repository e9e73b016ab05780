"""Run on a host, as one of its users, by test_doors.py: which doors of the cluster open to him.

    python3 - '{"keys": [...], "targets": [["w1a", "10.77.0.13", 8008, "patroni"], ...]}'

Tries each service with each certificate whose key he can read, and without one, in the service's own
protocol; writes a line of JSON for each: host, port, certificate, what came of it.  "open" is an
answer that only somebody who was let in gets.
"""

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

PKI = "/etc/strata/pki"
TIMEOUT = 3
FILES = (("cert", "crt"), ("key", "key"))
STANZAS = ("strata-coordinator", "strata-worker-1", "strata-worker-2")


def http(request):
    def speak(stream):
        stream.sendall(request.encode())
        answer = stream.recv(65536)
        return "open" if b" 200 " in answer.split(b"\r\n")[0] else "refused"

    return speak


def get(path):
    return http(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


def send(method, path, body):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    return http(
        f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )


def login(user):
    """PostgreSQL: AuthenticationOk is a door that is open; a question for a password is none."""
    words = f"user\0{user}\0database\0app\0\0".encode()

    def speak(stream):
        stream.sendall(struct.pack("!ii", 8 + len(words), 196608) + words)
        answer = stream.recv(9)
        return "open" if answer == b"R" + struct.pack("!ii", 8, 0) else "refused"

    return speak


def greeting(stream):
    """pgBackRest greets everybody, and asks who he is when he wants something."""
    stream.sendall(b'{"cmd":"noop"}\n')
    return "greeted" if stream.recv(4096) else "refused"


def stanzas(host, port, certificate):
    """Those whose files pgBackRest's server there shows, asked by pgBackRest itself."""
    command = ["pgbackrest", "--config=/dev/null", "--log-level-file=off", "--io-timeout=3"]
    command += [f"--repo1-host={host}", f"--repo1-host-port={port}", "--repo1-host-type=tls"]
    command += [
        f"--repo1-host-ca-file={PKI}/backups.crt",
        "--repo1-host-config=/etc/pgbackrest.conf",
    ]
    command += [f"--repo1-host-{kind}-file={PKI}/{certificate}.{end}" for kind, end in FILES]
    for name in STANZAS:
        done = subprocess.run([*command, f"--stanza={name}", "repo-ls"], capture_output=True)
        if done.returncode == 0:
            yield name


# everything below a prefix, as etcd's API takes it: from "/" to "0", in base64
EVERYTHING = '{"key":"Lw==","range_end":"MA=="}'
WORDS = {
    "postgresql": [login("postgres"), login("app"), login("replicator")],
    "patroni": [get("/config"), get("/metrics"), send("PATCH", "/config", '{"ttl": 20}')],
    "etcd": [
        send("POST", "/v3/kv/range", EVERYTHING),
        send("POST", "/v3/kv/put", '{"key":"L3g=","value":"eA=="}'),
        send("POST", "/v3/auth/user/list", "{}"),
        send("POST", "/v3/maintenance/snapshot", "{}"),
    ],
    "etcd-peer": [get("/members"), get("/raft/probing")],
    "pgbackrest": [greeting],
    "exporter": [get("/metrics")],
}


def connect(address, port, service, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # an adversary does not care whom he talks to
    if certificate:
        context.load_cert_chain(f"{PKI}/{certificate}.crt", f"{PKI}/{certificate}.key")
    stream = socket.create_connection((address, port), timeout=TIMEOUT)
    if service == "postgresql":
        stream.sendall(struct.pack("!ii", 8, 80877103))
        if stream.recv(1) != b"S":
            raise ConnectionError("no TLS")
    return context.wrap_socket(stream)


def knock(address, port, service, certificate, speak):
    try:
        with connect(address, port, service, certificate) as stream:
            return speak(stream)
    except TimeoutError:
        return "dropped"
    except OSError:
        return "refused"


def is_dropped(target):
    """Does the firewall let nothing through, whatever is said?"""
    try:
        socket.create_connection(target[1:3], timeout=TIMEOUT).close()
    except TimeoutError:
        return True
    except OSError:
        return False
    return False


def attempt(target, certificate, dropped):
    host, address, port, service = target
    answer = {"host": host, "port": port, "certificate": certificate, "stanzas": []}
    if dropped:
        return answer | {"result": "dropped"}
    results = {knock(address, port, service, certificate, speak) for speak in WORDS[service]}
    if "greeted" in results:
        answer["stanzas"] = list(stanzas(host, port, certificate)) if certificate else []
        results = {"open" if answer["stanzas"] else "refused"}
    return answer | {"result": "open" if "open" in results else "/".join(sorted(results))}


def main():
    wanted = json.loads(sys.argv[1])
    readable = [key for key in wanted["keys"] if os.access(f"{PKI}/{key}.key", os.R_OK)]
    keys = ["", *readable]
    with ThreadPoolExecutor(32) as pool:
        dropped = pool.map(is_dropped, wanted["targets"])
        pairs = [
            (target, key, drop)
            for target, drop in zip(wanted["targets"], dropped, strict=True)
            for key in keys
        ]
        for line in pool.map(lambda pair: attempt(*pair), pairs):
            print(json.dumps(line))


main()
