// Cards: how the page shows the figures of the server.

import { age, byteRate, bytes, count, duration, rate, share } from "./view.js";

const percentile = (kind, name) => [
  ["p50", `${kind}50`, duration], ["p99", `${kind}99`, duration], ["p99.9", `${kind}999`, duration],
];

// Parts of the memory: a name and a figure, whose limit is another one.
const PARTS = [["index", "index"], ["cache of pages", "cache"], ["buffers", "buffers"]];

const bar = ([label, part]) => [label, (f) => (f[`${part}Max`] > 0 ? f[part] / f[`${part}Max`] : undefined)];

const used = ([label, part]) => [label, (f) => f[`${part}Max`] > 0
  && `${bytes(f[part])} of ${bytes(f[`${part}Max`])}`];

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
    bars: PARTS.map(bar), facts: PARTS.map(used),
  },
  {
    title: "Disk", needs: "size",
    figure: ["size", bytes],
    note: (f) => (f.sizeMax > 0 ? `of at most ${bytes(f.sizeMax)}` : ""),
    lines: [["size", "size", bytes]],
    bars: [["disk of the database", (f) => f.disks[0]?.[2]]],
    facts: (f) => f.disks.map(([files, free]) => [`free for ${files}`, bytes(free)]),
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
    facts: (f) => f.replicas.map(([replica, lag]) => [replica, `${age(lag)} behind`]),
  },
  {
    title: "Master", needs: "masterLag",
    figure: ["masterLag", age], note: "behind",
    lines: [["seconds behind", "masterLag", age]],
    facts: (f) => f.masters.map(([master, lag]) => [master, `${age(lag)} behind`]),
  },
  {
    title: "Logins and certificates",
    figure: (f) => (f.certificateEnd === undefined ? "no TLS" : age(f.certificateEnd - f.time)),
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
    bars: [bar(["memory of scripts", "scriptMemory"])],
  },
  {
    title: "Nodes of the cluster", needs: "nodes",
    figure: (f) => count(f.nodes[0][1]), note: "connected",
    facts: (f) => f.nodes.map(([state, nodes]) => [state, count(nodes)]),
  },
];
