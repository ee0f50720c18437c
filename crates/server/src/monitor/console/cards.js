// Cards: which figures the page shows, and from which metrics they come.

import { age, byteRate, bytes, count, duration, rate, share } from "./units.js";

const DURATION = "tyrant_request_duration_seconds";

/** Share of a disk, or of a memory limit, from which it is shown as full. */
export const NEARLY_FULL = 0.95;

/**
 * Returns the figures of a database. `last` spans the last two samples, `wide` the last ten
 * seconds or more, which quantiles and ratios need.
 */
export function figures(last, wide, database) {
  const now = last.now;
  const of = (labels) => ({ database, ...labels });
  const value = (name, labels) => now.sum(`tyrant_${name}`, of(labels));
  const perSecond = (name, labels) => last.rate(`tyrant_${name}`, of(labels));
  const requests = (kind) => last.rate(`${DURATION}_count`, of({ class: kind })) ?? 0;
  const latency = (kind) => wide.quantiles(DURATION, of({ class: kind }), [0.5, 0.99, 0.999]);
  const part = (name, whole) => (value(whole) > 0 ? value(name) / value(whole) : undefined);
  const [read50, read99, read999] = latency("read");
  const [write50, write99, write999] = latency("write");
  const [wait99] = wide.quantiles("tyrant_acknowledgement_wait_seconds", of(), [0.99]);
  const disks = now.rows("tyrant_disk_free_bytes", of()).map(({ labels, value: free }) => {
    const size = now.sum("tyrant_disk_bytes", labels);
    return { files: labels.files.replace("_", " "), free, used: size > 0 ? 1 - free / size : 0 };
  });
  return {
    reads: requests("read"), writes: requests("write"), others: requests("other"),
    refused: perSecond("requests_refused_total"),
    read50, read99, read999, write50, write99, write999,
    hits: wide.ratio(
      ["tyrant_lookups_total", of({ result: "hit" })], ["tyrant_lookups_total", of()],
    ),
    connections: value("connections"), connectionsMax: value("connections_max"),
    accepted: perSecond("connections_accepted_total"),
    rejected: value("connections_rejected_total"),
    busy: now.extreme(Math.max, "tyrant_loop_busy_ratio", of()),
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
    sync: wide.ratio(["tyrant_sync_seconds_total", of()], ["tyrant_syncs_total", of()]),
    wait99,
    damages: (value("damages") ?? 0) + (value("scrub_damages") ?? 0),
    replicas: now.rows("tyrant_replica_lag_seconds", of()),
    replicaLag: now.extreme(Math.max, "tyrant_replica_lag_seconds", of()),
    masters: now.rows("tyrant_replication_lag_seconds", of()),
    masterLag: now.extreme(Math.max, "tyrant_replication_lag_seconds", of()),
    following: now.extreme(Math.min, "tyrant_replication_following", of()),
    certificateEnd: now.extreme(Math.min, "tyrant_certificate_end_seconds", of()),
    handshakes: perSecond("tls_handshakes_total", { result: "success" }),
    loginsFailed: value("logins_total", { result: "failure" }),
    loginsRefused: value("logins_total", { result: "refused" }),
    loginFailures: wide.growth("tyrant_logins_total", of({ result: "failure" })),
    writable: value("writable"),
    calls: perSecond("script_calls_total"), callFailures: value("script_failures_total"),
    call: wide.ratio(["tyrant_script_seconds_total", of()], ["tyrant_script_calls_total", of()]),
    scriptMemory: value("script_memory_bytes"), scriptMemoryMax: value("script_limit_bytes"),
    nodes: now.rows("tyrant_store_nodes", of()),
  };
}

/** Returns what of the figures needs attention, beside the server's own warnings. */
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

/**
 * The cards. `figure` is the large text; `lines` are drawn, each with its name, figure and unit;
 * `bars` have a share from 0 to 1; `facts` are further lines of text. A card whose `needs` is
 * missing in the figures is hidden.
 */
export const CARDS = [
  {
    title: "Requests",
    figure: (f) => rate(f.reads + f.writes + f.others),
    lines: [["reads", "reads", rate], ["writes", "writes", rate], ["others", "others", rate]],
    facts: [["refused", (f) => rate(f.refused)], ["processor", (f) => `${(f.cpu ?? 0).toFixed(2)} cores`]],
  },
  { title: "Time of reads", figure: (f) => duration(f.read99), note: "p99", lines: percentile("read") },
  { title: "Time of writes", figure: (f) => duration(f.write99), note: "p99", lines: percentile("write") },
  {
    title: "Reads that found a record",
    figure: (f) => share(f.hits), lines: [["hit ratio", "hits", share]], max: 1,
    facts: [["read from the disk", (f) => rate(f.cold)]],
  },
  {
    title: "Records",
    figure: (f) => count(f.records), lines: [["records", "records", count]],
    facts: [["evicted", (f) => rate(f.evicted)], ["expired", (f) => rate(f.expired)]],
  },
  {
    title: "Connections",
    figure: (f) => count(f.connections), note: (f) => `of ${count(f.connectionsMax)}`,
    lines: [["open", "connections", count]],
    facts: [
      ["new", (f) => rate(f.accepted)], ["rejected since the start", (f) => count(f.rejected)],
      ["busiest event loop", (f) => share(f.busy)],
    ],
  },
  {
    title: "Network",
    figure: (f) => byteRate((f.received ?? 0) + (f.sent ?? 0)),
    lines: [["received", "received", byteRate], ["sent", "sent", byteRate]],
  },
  {
    title: "Memory of the process",
    figure: (f) => bytes(f.resident), lines: [["resident", "resident", bytes]],
    bars: [memory("index", "index", "indexMax"), memory("buffers", "buffers", "buffersMax")],
    facts: [
      ["index", (f) => `${bytes(f.index)} of ${bytes(f.indexMax)}`],
      ["buffers", (f) => `${bytes(f.buffers)} of ${bytes(f.buffersMax)}`],
    ],
  },
  {
    title: "Disk", needs: "size",
    figure: (f) => bytes(f.size),
    note: (f) => (f.sizeMax > 0 ? `of at most ${bytes(f.sizeMax)}` : ""),
    lines: [["size", "size", bytes]],
    bars: [["disk of the database", (f) => f.disks[0]?.used]],
    facts: (f) => f.disks.map((disk) => [`free for ${disk.files}`, bytes(disk.free)]),
  },
  {
    title: "Log on the disk", needs: "segments",
    figure: (f) => share(f.dead), note: "can be given back",
    lines: [["can be given back", "dead", share]], max: 1,
    facts: [["segments", (f) => count(f.segments)], ["compacted", (f) => byteRate(f.compacted)]],
  },
  {
    title: "Durability", needs: "syncs",
    figure: (f) => rate(f.syncs), note: "syncs",
    lines: [["syncs", "syncs", rate]],
    facts: [["time of a sync", (f) => duration(f.sync)], ["wait of writes, p99", (f) => duration(f.wait99)]],
  },
  {
    title: "Replicas", needs: "replicaLag",
    figure: (f) => age(f.replicaLag), note: "behind",
    lines: [["seconds behind", "replicaLag", age]],
    facts: (f) => f.replicas.map((row) => [row.labels.replica, `${age(row.value)} behind`]),
  },
  {
    title: "Master", needs: "masterLag",
    figure: (f) => age(f.masterLag), note: "behind",
    lines: [["seconds behind", "masterLag", age]],
    facts: (f) => f.masters.map((row) => [row.labels.master, `${age(row.value)} behind`]),
  },
  {
    title: "Logins and certificates",
    figure: (f) => (f.certificateEnd === undefined ? "no TLS" : age(f.certificateEnd - Date.now() / 1000)),
    note: (f) => (f.certificateEnd === undefined ? "" : "until the certificate ends"),
    facts: [
      ["failed logins since the start", (f) => count(f.loginsFailed)],
      ["refused as too soon", (f) => count(f.loginsRefused)],
      ["new TLS sessions", (f) => rate(f.handshakes)],
    ],
  },
  {
    title: "Scripts", needs: "calls",
    figure: (f) => rate(f.calls), note: "calls", lines: [["calls", "calls", rate]],
    facts: [["time of a call", (f) => duration(f.call)], ["failed since the start", (f) => count(f.callFailures)]],
    bars: [memory("memory of scripts", "scriptMemory", "scriptMemoryMax")],
  },
  {
    title: "Nodes of the cluster", needs: "nodes",
    figure: (f) => count(f.nodes.find((row) => row.labels.state === "connected")?.value),
    facts: (f) => f.nodes.map((row) => [row.labels.state, count(row.value)]),
  },
];
