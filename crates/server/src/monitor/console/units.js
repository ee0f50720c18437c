// Units: numbers as people read them.

const NONE = "–";

function scaled(value, base, units, digits) {
  let unit = 0;
  let rest = Math.abs(value);
  while (rest >= base && unit < units.length - 1) {
    rest /= base;
    unit += 1;
  }
  const shown = rest >= 100 || (unit === 0 && Number.isInteger(rest)) ? rest.toFixed(0)
    : rest >= 10 ? rest.toFixed(Math.min(digits, 1)) : rest.toFixed(digits);
  return `${value < 0 ? "-" : ""}${shown}${units[unit]}`;
}

// Returns a number, of thousands from 10,000 on.
export function count(value) {
  if (value === undefined) return NONE;
  return value < 10000 && Number.isInteger(value) ? String(value)
    : scaled(value, 1000, ["", " k", " M", " G"], value < 1000 ? 1 : 2);
}

export function rate(value) {
  return value === undefined ? NONE : `${count(value)}/s`;
}

export function bytes(value) {
  return value === undefined ? NONE
    : scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"], 1);
}

export function byteRate(value) {
  return value === undefined ? NONE : `${bytes(value)}/s`;
}

// Returns a share of 1 as a percentage.
export function share(value) {
  if (value === undefined) return NONE;
  const percent = value * 100;
  return `${percent > 99 && percent < 100 ? percent.toFixed(2) : percent.toFixed(1)}%`;
}

// Returns a short time, given in seconds.
export function duration(value) {
  if (value === undefined) return NONE;
  if (value >= 1) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value >= 1e-3) return `${(value * 1e3).toFixed(value < 1e-2 ? 2 : 1)} ms`;
  return `${(value * 1e6).toFixed(value < 1e-5 ? 1 : 0)} us`;
}

// Returns a long time, given in seconds.
export function age(value) {
  if (value === undefined) return NONE;
  for (const [seconds, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (value >= 2 * seconds) return `${Math.floor(value / seconds)} ${unit}`;
  }
  return `${Math.floor(value)} s`;
}
