// Cards: which figures the page shows, and from which metrics they come.

import { age, byteRate, bytes, count, duration, rate, share } from "./units.js";

const DURATION = "tyrant_request_duration_seconds";

// Share of a disk, or of a memory limit, from which it is shown as full.
export const NEARLY_FULL = 0.95;

// Returns the figures of a database. `last` spans the last two samples, `wide` the last ten
// seconds or more, which quantiles and ratios need.
export function figures(last, wide, database) {
  const now = last.now;
  const of = (labels) => ({ database, ...labels });
  const value = (name, labels) => now.sum(`tyrant_${name}`, of(labels));
  const perSecond = (name, labels) => last.rate(`tyrant_${name}`, of(labels));
  const requests = (kind) => last.rate(`${DURATION}_count`, of({ class: kind })) ?? 0;
  const latency = (kind) => wide.quantiles(DURATION, of({ class: kind }), [0.5, 0.99, 0.999]);
  const rows = (name) => now.rows(`tyrant_${name}`, of());
  const most = (name) => now.extreme(Math.max, `tyrant_${name}`, of());
  const least = (name) => now.extreme(Math.min, `tyrant_${name}`, of());
  const ratio = (name, other, labels) => (
    wide.ratio([`tyrant_${name}`, of(labels)], [`tyrant_${other}`, of()])
  );
  const part = (name, whole) => (value(whole) > 0 ? value(name) / value(whole) : undefined);
  const [read50, read99, read999] = latency("read");
  const [write50, write99, write999] = latency("write");
  const [wait99] = wide.quantiles("tyrant_acknowledgement_wait_seconds", of(), [0.99]);
  const disks = rows("disk_free_bytes").map(({ labels, value: free }) => {
    const size = now.sum("tyrant_disk_bytes", labels);
    return { files: labels.files.replace("_", " "), free, used: size > 0 ? 1 - free / size : 0 };
  });
  return {
    reads: requests("read"), writes: requests("write"), others: requests("other"),
    refused: perSecond("requests_refused_total"),
    read50, read99, read999, write50, write99, write999,
    hits: ratio("lookups_total", "lookups_total", { result: "hit" }),
    connections: value("connections"), connectionsMax: value("connections_max"),
    accepted: perSecond("connections_accepted_total"),
    rejected: value("connections_rejected_total"),
    busy: most("loop_busy_ratio"),
    received: perSecond("received_bytes_total"), sent: perSecond("sent_bytes_total"),
    cpu: last.rate("process_cpu_seconds_total", {}),
    resident: now.sum("process_resident_memory_bytes", {}),
    index: value("memory_bytes", { owner: "index" }),
    indexMax: value("memory_max_bytes", { owner: "index" }),
    buffers: value("memory_bytes", { owner: "buffers" }),
    buffersMax: value("memory_max_bytes", { owner: "buffers" }),
    records: value("records"),
    evicted: perSecond("evictions_total"), expired: perSecond("expirations_total"),
    size: value("database_bytes"), sizeMax: value("database_max_bytes"), disks,
    dead: part("log_dead_bytes", "log_bytes"), segments: value("log_segments"),
    compacted: perSecond("compacted_bytes_total"), cold: perSecond("cold_reads_total"),
    syncs: perSecond("syncs_total"),
    sync: ratio("sync_seconds_total", "syncs_total"),
    wait99,
    damages: (value("damages") ?? 0) + (value("scrub_damages") ?? 0),
    replicas: rows("replica_lag_seconds"),
    replicaLag: most("replica_lag_seconds"),
    masters: rows("replication_lag_seconds"),
    masterLag: most("replication_lag_seconds"),
    following: least("replication_following"),
    certificateEnd: least("certificate_end_seconds"),
    handshakes: perSecond("tls_handshakes_total", { result: "success" }),
    loginsFailed: value("logins_total", { result: "failure" }),
    loginsRefused: value("logins_total", { result: "refused" }),
    loginFailures: wide.growth("tyrant_logins_total", of({ result: "failure" })),
    writable: value("writable"),
    calls: perSecond("script_calls_total"), callFailures: value("script_failures_total"),
    call: ratio("script_seconds_total", "script_calls_total"),
    scriptMemory: value("script_memory_bytes"), scriptMemoryMax: value("script_limit_bytes"),
    nodes: rows("store_nodes"),
  };
}

// Returns what of the figures needs attention, beside the server's own warnings.
export function problems(figures) {
  const found = [];
  if (figures.writable === 0) found.push("Clients cannot write to this database.");
  if (figures.damages > 0) found.push(`${figures.damages} damaged places: run tyrant check.`);
  if (figures.loginFailures > 0) {
    found.push(`${figures.loginFailures} logins failed in the last seconds.`);
  }
  if (figures.following === 0) found.push("The server is not following its master now.");
  return found;
}

const percentile = (kind, name) => [
  ["p50", `${kind}50`, duration], ["p99", `${kind}99`, duration], ["p99.9", `${kind}999`, duration],
];

const memory = (label, part, whole) => [label, (f) => (f[whole] > 0 ? f[part] / f[whole] : undefined)];

// The cards. `figure` is the large text; `lines` are drawn, each with its name, figure and unit;
// `bars` have a share from 0 to 1; `facts` are further lines. A card whose `needs` is
// missing in the figures is hidden.
export const CARDS = [
  {
    title: "Requests",
    figure: (f) => rate(f.reads + f.writes + f.others),
    lines: [["reads", "reads", rate], ["writes", "writes", rate], ["others", "others", rate]],
    facts: [["refused", "refused", rate], ["processor", (f) => `${(f.cpu ?? 0).toFixed(2)} cores`]],
  },
  { title: "Time of reads", figure: ["read99", duration], note: "p99", lines: percentile("read") },
  { title: "Time of writes", figure: ["write99", duration], note: "p99", lines: percentile("write") },
  {
    title: "Reads that found a record",
    figure: ["hits", share], lines: [["hit ratio", "hits", share]], max: 1,
    facts: [["read from the disk", "cold", rate]],
  },
  {
    title: "Records",
    figure: ["records", count], lines: [["records", "records", count]],
    facts: [["evicted", "evicted", rate], ["expired", "expired", rate]],
  },
  {
    title: "Connections",
    figure: ["connections", count], note: (f) => `of ${count(f.connectionsMax)}`,
    lines: [["open", "connections", count]],
    facts: [
      ["new", "accepted", rate], ["rejected since the start", "rejected", count],
      ["busiest event loop", "busy", share],
    ],
  },
  {
    title: "Network",
    figure: (f) => byteRate((f.received ?? 0) + (f.sent ?? 0)),
    lines: [["received", "received", byteRate], ["sent", "sent", byteRate]],
  },
  {
    title: "Memory of the process",
    figure: ["resident", bytes], lines: [["resident", "resident", bytes]],
    bars: [memory("index", "index", "indexMax"), memory("buffers", "buffers", "buffersMax")],
    facts: [
      ["index", (f) => `${bytes(f.index)} of ${bytes(f.indexMax)}`],
      ["buffers", (f) => `${bytes(f.buffers)} of ${bytes(f.buffersMax)}`],
    ],
  },
  {
    title: "Disk", needs: "size",
    figure: ["size", bytes],
    note: (f) => (f.sizeMax > 0 ? `of at most ${bytes(f.sizeMax)}` : ""),
    lines: [["size", "size", bytes]],
    bars: [["disk of the database", (f) => f.disks[0]?.used]],
    facts: (f) => f.disks.map((disk) => [`free for ${disk.files}`, bytes(disk.free)]),
  },
  {
    title: "Log on the disk", needs: "segments",
    figure: ["dead", share], note: "can be given back",
    lines: [["can be given back", "dead", share]], max: 1,
    facts: [["segments", "segments", count], ["compacted", "compacted", byteRate]],
  },
  {
    title: "Durability", needs: "syncs",
    figure: ["syncs", rate], note: "syncs",
    lines: [["syncs", "syncs", rate]],
    facts: [["time of a sync", "sync", duration], ["wait of writes, p99", "wait99", duration]],
  },
  {
    title: "Replicas", needs: "replicaLag",
    figure: ["replicaLag", age], note: "behind",
    lines: [["seconds behind", "replicaLag", age]],
    facts: (f) => f.replicas.map((row) => [row.labels.replica, `${age(row.value)} behind`]),
  },
  {
    title: "Master", needs: "masterLag",
    figure: ["masterLag", age], note: "behind",
    lines: [["seconds behind", "masterLag", age]],
    facts: (f) => f.masters.map((row) => [row.labels.master, `${age(row.value)} behind`]),
  },
  {
    title: "Logins and certificates",
    figure: (f) => (f.certificateEnd === undefined ? "no TLS" : age(f.certificateEnd - Date.now() / 1000)),
    note: (f) => (f.certificateEnd === undefined ? "" : "until the certificate ends"),
    facts: [
      ["failed logins since the start", "loginsFailed", count],
      ["refused as too soon", "loginsRefused", count],
      ["new TLS sessions", "handshakes", rate],
    ],
  },
  {
    title: "Scripts", needs: "calls",
    figure: ["calls", rate], note: "calls", lines: [["calls", "calls", rate]],
    facts: [["time of a call", "call", duration], ["failed since the start", "callFailures", count]],
    bars: [memory("memory of scripts", "scriptMemory", "scriptMemoryMax")],
  },
  {
    title: "Nodes of the cluster", needs: "nodes",
    figure: (f) => count(f.nodes.find((row) => row.labels.state === "connected")?.value),
    facts: (f) => f.nodes.map((row) => [row.labels.state, count(row.value)]),
  },
];
