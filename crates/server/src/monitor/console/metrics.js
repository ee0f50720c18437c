// Metrics: reads Prometheus's text format, and derives rates and quantiles from several samples.

const LABEL = /([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { "\\n": "\n", "\\\\": "\\", '\\"': '"' };

// All metrics of the server at one moment.
export class Sample {
  // Reads the response to `/metrics`. `at` is the time of the page, in seconds.
  constructor(text, at) {
    this.at = at;
    this.families = new Map();
    for (const line of text.split("\n")) {
      if (line === "" || line.startsWith("#")) continue;
      const end = line.lastIndexOf(" ");
      const open = line.indexOf("{");
      const name = line.slice(0, open < 0 ? end : open);
      const labels = {};
      if (open >= 0) {
        for (const [, label, value] of line.slice(open, end).matchAll(LABEL)) {
          labels[label] = value.replace(/\\["n\\]/g, (escaped) => ESCAPED[escaped]);
        }
      }
      if (!this.families.has(name)) this.families.set(name, []);
      this.families.get(name).push({ labels, value: Number(line.slice(end + 1)) });
    }
  }

  // Returns the rows of a metric that have these labels.
  rows(name, wanted) {
    const has = ({ labels }) => Object.keys(wanted).every((label) => labels[label] === wanted[label]);
    return (this.families.get(name) ?? []).filter(has);
  }

  // Returns the sum over the rows that have these labels, or nothing without any.
  sum(name, wanted) {
    return this.extreme((...values) => values.reduce((sum, one) => sum + one), name, wanted);
  }

  // Returns the smallest or largest of the values, by `Math.min` or `Math.max`.
  extreme(select, name, wanted) {
    const rows = this.rows(name, wanted);
    return rows.length === 0 ? undefined : select(...rows.map((row) => row.value));
  }
}

// Two samples, and what happened between them.
export class Span {
  constructor(before, now) {
    this.before = before;
    this.now = now;
    this.seconds = now.at - before.at;
  }

  // Returns the growth of a counter. A server that was started again counts from 0.
  growth(name, wanted) {
    const now = this.now.sum(name, wanted);
    if (now === undefined) return undefined;
    const before = this.before.sum(name, wanted) ?? 0;
    return now >= before ? now - before : now;
  }

  // Returns the growth of a counter per second.
  rate(name, wanted) {
    const growth = this.growth(name, wanted);
    return growth === undefined || this.seconds <= 0 ? undefined : growth / this.seconds;
  }

  // Returns the ratio of the growth of two counters, or nothing if the second did not grow.
  ratio(one, other) {
    const part = this.growth(...one);
    const whole = this.growth(...other);
    return part === undefined || !whole ? undefined : part / whole;
  }

  // Returns quantiles (0 to 1) of the values that were added to a histogram, each interpolated
  // within its bucket; nothing if none was added.
  quantiles(name, wanted, quantiles) {
    const buckets = new Map();
    for (const [sample, sign] of [[this.now, 1], [this.before, -1]]) {
      for (const row of sample.rows(`${name}_bucket`, wanted)) {
        const end = row.labels.le === "+Inf" ? Infinity : Number(row.labels.le);
        buckets.set(end, (buckets.get(end) ?? 0) + sign * row.value);
      }
    }
    const ends = [...buckets.keys()].sort((one, other) => one - other);
    const all = buckets.get(ends.at(-1)) ?? 0;
    return quantiles.map((quantile) => {
      if (!(all > 0)) return undefined;
      const wantedCount = quantile * all;
      let [from, count] = [0, 0];
      for (const end of ends) {
        const next = buckets.get(end);
        if (next >= wantedCount) {
          if (end === Infinity || next === count) return from;
          return from + ((end - from) * (wantedCount - count)) / (next - count);
        }
        [from, count] = [end, next];
      }
      return from;
    });
  }
}
