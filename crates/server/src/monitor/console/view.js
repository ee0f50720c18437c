// View: elements of the page, and numbers as people read them. No text is set as HTML.

export const byId = (id) => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";

// Returns an element with a class and children, which are elements or texts.
export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function button(text, className, act) {
  const made = element("button", className, text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

// Returns a labelled field of a form.
export function field(label, input, attributes = {}) {
  Object.assign(input, attributes);
  return element("label", "field", element("span", "", label), input);
}

// Shows why the view shows nothing, or that it does.
export function fail(text) {
  byId("failure").hidden = !text;
  byId("failure").textContent = text ?? "";
}

// Opens a dialog, which stays until `act` succeeds once its form is sent.
export function dialog(title, content, label, act) {
  const heading = element("h2", "", title);
  heading.id = "dialog-title";
  const failure = element("p", "failure");
  failure.role = "alert";
  const send = element("button", "main", label);
  const form = element("form", "", heading, ...content, failure);
  const box = element("dialog", "", form);
  form.append(element("div", "buttons", send, button("Cancel", "", () => box.close())));
  box.setAttribute("aria-labelledby", heading.id);
  box.addEventListener("close", () => box.remove());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    failure.textContent = "";
    try {
      await act();
      box.close();
    } catch (error) {
      failure.textContent = error.message;
    }
    send.disabled = false;
  });
  document.body.append(box);
  box.showModal();
}

function drawn(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

export class Chart {
  constructor(label, lines) {
    this.node = drawn("svg", {
      class: "chart", viewBox: "0 0 300 44", preserveAspectRatio: "none", role: "img",
      "aria-label": `${label}, the past hour`,
    });
    this.node.append(drawn("path", { class: "base", d: "M0 43.5h300" }));
    this.lines = Array.from({ length: lines }, (_, line) => (
      this.node.appendChild(drawn("path", { class: `k${line}` }))
    ));
  }

  // Draws lines of values from 0 to 1 of `max`, or of the largest one. A missing one or null is a
  // gap. `moments` is how many values fill the width.
  draw(lines, moments, max) {
    const largest = max ?? Math.max(...lines.flat().filter((value) => value != null), 0);
    lines.forEach((values, line) => {
      let isGap = true;
      const steps = values.map((value, index) => {
        const wasGap = isGap;
        isGap = value == null;
        if (isGap) return "";
        const x = 300 * (1 - (values.length - 1 - index) / Math.max(moments - 1, 1));
        const y = 42 - (largest > 0 ? 39 * Math.min(value / largest, 1) : 0);
        // A value between two gaps is a dot.
        return `${wasGap ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}${wasGap ? "h0" : ""}`;
      });
      this.lines[line].setAttribute("d", steps.join(""));
    });
  }
}

// Returns the elements of a list of names and texts, without those that have none.
export function terms(facts) {
  return facts.filter(([, text]) => text)
    .flatMap(([name, text]) => [element("dt", "", name), element("dd", "", text)]);
}

// Replaces the rows of a table. A cell is a text, or a text and a class.
export function fill(body, rows, none) {
  const made = rows.map((cells) => element("tr", "", ...cells.map((cell) => {
    const [text, className] = Array.isArray(cell) ? cell : [cell];
    return element("td", className, text);
  })));
  if (made.length === 0) {
    const cell = element("td", "", none);
    cell.colSpan = body.parentElement.querySelectorAll("th").length;
    made.push(element("tr", "", cell));
  }
  body.replaceChildren(...made);
}

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
  return value < 10000 && Number.isInteger(value) ? String(value)
    : scaled(value, 1000, ["", " k", " M", " G"], value < 1000 ? 1 : 2);
}

export function rate(value) {
  return `${count(value)}/s`;
}

export function bytes(value) {
  return scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"], 1);
}

export function byteRate(value) {
  return `${bytes(value)}/s`;
}

// Returns a share of 1 as a percentage.
export function share(value) {
  const percent = value * 100;
  return `${percent > 99 && percent < 100 ? percent.toFixed(2) : percent.toFixed(1)}%`;
}

// Returns a short time, given in seconds.
export function duration(value) {
  if (value >= 1) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value >= 1e-3) return `${(value * 1e3).toFixed(value < 1e-2 ? 2 : 1)} ms`;
  return `${(value * 1e6).toFixed(value < 1e-5 ? 1 : 0)} us`;
}

// Returns a long time, given in seconds.
export function age(value) {
  for (const [seconds, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (value >= 2 * seconds) return `${Math.floor(value / seconds)} ${unit}`;
  }
  return `${Math.floor(value)} s`;
}
