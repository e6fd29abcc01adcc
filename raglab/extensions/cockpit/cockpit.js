/**
 * Cockpit, the front end: thresholds of a policy moved by hand, with what each step does to the counted cases.
 *
 * One ES module without imports, for anywidget and for the frozen page with its shim model. Nothing of the policy's
 * rules stands here: the kernel counts, this module looks its numbers up. A dragged slider finds its step in the axis
 * that the kernel sent beforehand, so that no frame waits for the kernel; the release asks it once.
 * Text of cases and documents goes in as text only, never as markup.
 */

const SVG = "http://www.w3.org/2000/svg";
const SILENCE = 3000; // ms without any answer after which the kernel counts as lost
const KEYS_REST = 300; // ms after the last key on a slider at which its step is kept
const HOVER_REST = 60; // ms that the pointer rests on a slider before its axis is asked for
const FROZEN = "needs the kernel: this page is frozen; run the notebook to use it";
const PREVIEW = "frozen page: intervals and cases are those of its own policy; reset goes back";
const STILL = "Frozen page: one threshold at a time moves the numbers. Run the notebook to search, certify or save.";
const LOST = "kernel does not answer; run the cell again";
const MARKS = { ok: "●", refuse: "■", ambiguous: "▲" };
const KINDS = { gained: "+ gained", lost: "− lost", other: "~ other" };
const VERDICTS = { met: "✓", shown: "✓", missed: "✕", open: "?", none: "" };

// --- elements and text ------------------------------------------------------------------------------------------

// What moves a cursor, turns a line, ends one or hides; line feeds, tabs and what joins or parts letters stay.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const STAYS = "\n\t\u00ad\u200c\u200d";
const READ = new Set(["title", "aria-label", "alt", "placeholder"]); // attributes that somebody reads

function escapeOf(one) {
  const code = one.codePointAt(0);
  const [sign, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${sign}${code.toString(16).padStart(digits, "0")}`;
}

/** Text as a page may show it: unseen characters as escapes, as Python's `visible` writes them. */
const visible = (text) => String(text).replace(UNSEEN, (one) => (STAYS.includes(one) ? one : escapeOf(one)));

/** Element with attributes; `text` becomes textContent, `on…` a listener, false and null leave an attribute out. */
function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value == null ? "" : visible(value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : READ.has(name) ? visible(value) : value);
  }
  node.append(...children.filter((child) => child != null).map((one) => (typeof one === "string" ? visible(one) : one)));
  return node;
}

const span = (name, text) => h("span", { class: name, text: text ?? "" });
const row = (...cells) => h("tr", {}, ...cells);
const head = (scope, ...children) => h("th", { scope }, ...children);

/** Writes a text only where it differs, so that a frame lays out no more than what moved. */
function put(node, text) {
  const wanted = text == null ? "" : visible(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

function attribute(node, name, value) {
  if (value === false || value == null) node.removeAttribute(name);
  else {
    const wanted = value === true ? "" : READ.has(name) ? visible(value) : String(value);
    if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
  }
}

/** Keeps as many children as there are items, made once and then updated, so that focus and scroll survive a page. */
function sync(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastChild.remove();
  items.forEach((item, i) => update(parent.children[i] ?? parent.appendChild(make(i)), item, i));
}

const known = (value) => value != null && Number.isFinite(value);
const minus = (text) => text.replace("-", "−");
const decimal = (value, digits = 3) => (known(value) ? minus(value.toFixed(digits)) : "–");
const plain = (name) => String(name).replaceAll("_", " ");

function signed(value, digits = 3) {
  if (!known(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? `±${text}` : (value > 0 ? "+" : "−") + text;
}

// A share is shown in percent, a difference of shares in points; a cost is one of a case.
const share = (value) => (known(value) ? `${minus((100 * value).toFixed(1))} %` : "–");
const points = (value) => (known(value) ? signed(100 * value, 1) : "–");
const range = (low, high, text = decimal, unit = "") => (known(low) ? `${text(low)} to ${text(high)}${unit}` : "");
const shares = (low, high) => range(low, high, (value) => (100 * value).toFixed(1), " %");
const cases = (size) => (size === 1 ? "1 case" : `${size} cases`);

const count = (value) => (value ? signed(value, 0) : "");

/** Ticks at 1, 2 or 5 times a power of ten. */
function ticks(low, high, most = 4) {
  const raw = (high - low) / most;
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const size = [1, 2, 5, 10].find((times) => times * power >= raw) * power;
  const marks = [];
  for (let i = Math.ceil(low / size - 1e-9); i * size <= high + size * 1e-9; i++) marks.push(i * size);
  return marks;
}

const tickText = (value) => minus(String(Number(value.toPrecision(6))));

// --- paint and measures -----------------------------------------------------------------------------------------

/** Runs after the frame that is being made was painted. */
function behindFrame(run) {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => {
    channel.port1.close();
    run();
  };
  channel.port2.postMessage(0);
}

/** Measures `raglab:<name>` for the browser test; the oldest are dropped, as a long session drags for hours. */
function measure(name, start) {
  const full = `raglab:${name}`;
  if (performance.getEntriesByName(full).length >= 2000) performance.clearMeasures(full);
  performance.measure(full, { start, end: performance.now() });
}

// --- axes -------------------------------------------------------------------------------------------------------

/** Steps of one threshold. Of step i: k[i·R + rate], total likewise, table[i·9 + 3·label + decision]. */
function readAxis(message, buffer) {
  const from = buffer.byteOffset ?? 0;
  const bytes = (buffer.buffer ?? buffer).slice(from, from + buffer.byteLength); // a view may begin off its alignment
  const { n, rates } = message;
  let at = 0;
  const take = (Kind, size) => {
    const array = new Kind(bytes, at, size);
    at += array.byteLength;
    return array;
  };
  const [low, high, value, cost] = [0, 0, 0, 0].map(() => take(Float64Array, n));
  const [k, total] = [0, 0].map(() => take(Int32Array, n * rates.length));
  return { ...message, low, high, value, cost, k, total, table: take(Int32Array, n * 9) };
}

/** Step that holds a value: (low, high] of a floor, [low, high) of a ceiling. */
function stepOf(axis, value) {
  const floor = axis.side === "floor";
  let [first, last] = [0, axis.n - 1];
  while (first < last) {
    const middle = (first + last) >> 1;
    if (floor ? axis.high[middle] >= value : axis.high[middle] > value) last = middle;
    else first = middle + 1;
  }
  return first;
}

const stepText = (axis, step) => axis.value_texts?.[step] ?? String(axis.value[step]);

/** Place of a value on its view, 0 to 1; one that is off stands at the end that lets everything pass. */
function place(value, view) {
  if (value == null) return view.side === "floor" ? 0 : 1;
  const width = view.view_high - view.view_low;
  return width > 0 ? Math.min(1, Math.max(0, (value - view.view_low) / width)) : 0.5;
}

const percent = (share) => `${(100 * share).toFixed(3)}%`;

// --- slider -----------------------------------------------------------------------------------------------------

/** Slider over the exact steps of a threshold. The horizontal place is the value; what is kept is the step. */
class Slider {
  constructor(cockpit, threshold, title) {
    this.cockpit = cockpit;
    this.path = threshold.path;
    this.step = null; // previewed
    this.drag = null; // {x, start, grip, moved, released}
    this.queued = null; // key that waits for the axis
    this.plateau = h("div", { class: "plateau" });
    this.tick = h("div", { class: "tick", title: "baseline" });
    this.handle = h("div", { class: "handle" });
    this.histogram = svg("svg", { class: "histogram", viewBox: "0 0 1000 100", preserveAspectRatio: "none" });
    this.histogram.setAttribute("aria-hidden", "true");
    const disabled = !cockpit.movable(this.path);
    this.el = h(
      "div",
      { class: "slider", role: "slider", tabindex: 0, "aria-label": title, "aria-orientation": "horizontal" },
      this.histogram, this.plateau, this.tick, this.handle,
    );
    if (!disabled) this.listen();
    this.disabled = disabled;
    this.update(threshold);
  }

  listen() {
    const on = (name, run) => this.el.addEventListener(name, run);
    on("pointerenter", () => (this.hover = setTimeout(() => this.cockpit.enter(this.path), HOVER_REST)));
    on("pointerleave", () => clearTimeout(this.hover));
    on("focus", () => this.cockpit.enter(this.path));
    on("blur", () => this.keep());
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", (event) => this.up(event));
    on("pointercancel", () => this.giveUp());
    on("keydown", (event) => this.key(event));
  }

  get axis() {
    return this.cockpit.axisOf(this.path);
  }

  update(threshold) {
    const t = (this.threshold = threshold);
    this.draw(t.value, t.text, t.plateau);
    this.tick.style.left = percent(place(t.baseline, t));
    attribute(this.el, "aria-valuemin", t.view_low);
    attribute(this.el, "aria-valuemax", t.view_high);
    const reach = `${t.path}, ${t.unit}: ${tickText(t.view_low)} to ${tickText(t.view_high)}`;
    attribute(this.el, "aria-disabled", this.disabled || t.idle ? "true" : null);
    attribute(this.el, "title", this.disabled ? FROZEN : t.idle || `${reach}${t.value == null ? ", off" : ""}`);
    const drawn = `${t.view_low} ${t.view_high}`;
    if (drawn !== this.drawn) drawHistogram(this.histogram, this.cockpit.setup.histograms?.[t.path], t);
    this.drawn = drawn;
  }

  draw(value, text, plateau) {
    const t = this.threshold;
    this.handle.style.left = percent(place(value, t));
    this.handle.classList.toggle("off", value == null);
    this.plateau.hidden = !plateau;
    if (plateau) {
      const [from, to] = plateau.map((edge) => place(edge, t));
      this.plateau.style.left = percent(from);
      this.plateau.style.width = percent(to - from);
    }
    const limited = value ?? (t.side === "floor" ? t.view_low : t.view_high);
    attribute(this.el, "aria-valuenow", Math.min(t.view_high, Math.max(t.view_low, limited)));
    attribute(this.el, "aria-valuetext", value == null ? "off" : text);
  }

  down(event) {
    if (event.button !== 0 || this.threshold.idle) return;
    this.el.setPointerCapture(event.pointerId);
    this.cockpit.putBack(this.path);
    this.box = this.el.getBoundingClientRect();
    const here = this.box.left + place(this.shown(), this.threshold) * this.box.width;
    const grip = Math.abs(event.clientX - here) <= 8 ? event.clientX - here : 0;
    // A press on the handle that does not move leaves the value as it is, to its last digit.
    this.drag = { x: event.clientX, start: event.clientX, grip, moved: grip === 0 && event.clientX !== here };
    this.cockpit.enter(this.path);
    if (this.drag.moved) this.schedule();
  }

  shown() {
    return this.step == null || !this.axis ? this.threshold.value : this.axis.value[this.step];
  }

  move(event) {
    if (!this.drag || this.drag.released) return;
    this.drag.x = event.clientX;
    this.drag.moved ||= Math.abs(event.clientX - this.drag.start) > 2;
    if (this.drag.moved) this.schedule();
  }

  /** One look-up a frame, whatever the number of moves. */
  schedule() {
    this.moved ??= performance.now();
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const start = this.moved;
      this.moved = null;
      if (this.follow()) behindFrame(() => measure("drag", start));
    });
  }

  /** Shows the step under the pointer; false while its axis has not come. */
  follow() {
    const { axis, drag } = this;
    if (!drag?.moved || !axis) return false;
    const share = (drag.x - drag.grip - this.box.left) / this.box.width;
    const value = axis.view_low + share * (axis.view_high - axis.view_low);
    this.show(share <= 0 ? 0 : share >= 1 ? axis.n - 1 : stepOf(axis, value));
    return true;
  }

  show(step) {
    const { axis } = this;
    if (this.step === step) return;
    this.step = step;
    this.draw(axis.value[step], stepText(axis, step), [axis.low[step], axis.high[step]]);
    this.cockpit.preview(axis, step);
  }

  up(event) {
    if (!this.drag) return;
    this.drag.x = event.clientX;
    if (this.drag.moved && !this.follow()) {
      this.drag.released = true; // the axis comes later and is dropped then
      return;
    }
    this.drag = null;
    this.keep();
  }

  /** The axis that was waited for came: the drag that was under way, or the key, begins now. */
  arrived() {
    if (this.drag?.moved) {
      this.follow();
      if (this.drag.released) {
        this.drag = null;
        this.keep();
      }
    } else if (this.queued) {
      this.turn(this.queued);
    }
  }

  get waiting() {
    return this.drag != null || this.queued != null;
  }

  keep() {
    clearTimeout(this.rest);
    if (this.step == null || this.drag) return;
    const { axis, step } = this;
    if (!axis || step === axis.at) this.giveUp();
    else this.cockpit.drop(this, axis, step);
  }

  giveUp() {
    const previewed = this.step != null;
    this.forget();
    if (previewed) this.cockpit.refresh();
  }

  forget() {
    [this.rest, this.hover].forEach(clearTimeout);
    this.drag = this.queued = this.step = null;
  }

  /** A page came: a preview goes on where its axis still holds, as the number of the page says. */
  resume() {
    const { axis, step } = this;
    if (step == null) return;
    this.step = null;
    if (axis) this.show(step);
  }

  key(event) {
    if (this.threshold.idle) return;
    if (event.key === "Escape" && (this.drag || this.step != null)) {
      event.stopPropagation();
      this.giveUp();
    } else if (event.key === "Enter") {
      this.keep();
    } else if (TURNS[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      this.turn(event.key);
    }
  }

  turn(key) {
    const { axis } = this;
    this.queued = axis ? null : key;
    if (!axis) return void this.cockpit.enter(this.path);
    this.cockpit.putBack(this.path);
    const from = this.step ?? (axis.at >= 0 && axis.at != null ? axis.at : axis.side === "floor" ? -1 : axis.n);
    this.show(Math.min(axis.n - 1, Math.max(0, TURNS[key](from, axis.n))));
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.keep(), KEYS_REST);
  }
}

const TURNS = {
  ArrowRight: (step) => step + 1,
  ArrowUp: (step) => step + 1,
  ArrowLeft: (step) => step - 1,
  ArrowDown: (step) => step - 1,
  PageUp: (step) => step + 10,
  PageDown: (step) => step - 10,
  Home: () => 0,
  End: (_, n) => n - 1,
};

/** Signal by label behind the slider: three stacked inks, one path each. */
function drawHistogram(node, histogram, view) {
  node.replaceChildren();
  if (!histogram) return;
  const labels = Object.keys(histogram.counts);
  const bins = histogram.counts[labels[0]]?.length ?? 0;
  const sums = Array.from({ length: bins }, (_, bin) => labels.reduce((sum, l) => sum + histogram.counts[l][bin], 0));
  const highest = Math.max(1, ...sums);
  const edge = (bin) => histogram.low + (bin / bins) * (histogram.high - histogram.low);
  const x = (bin) => (1000 * (edge(bin) - view.view_low)) / (view.view_high - view.view_low || 1);
  const base = new Float64Array(bins);
  for (const label of labels) {
    let path = "";
    histogram.counts[label].forEach((size, bin) => {
      if (!size) return;
      const [bottom, top] = [100 - base[bin], 100 - base[bin] - (92 * size) / highest];
      const [from, to] = [x(bin).toFixed(1), x(bin + 1).toFixed(1)];
      path += `M${from} ${bottom.toFixed(1)}H${to}V${top.toFixed(1)}H${from}Z`;
      base[bin] = 100 - top;
    });
    node.append(svg("path", { d: path, class: `ink-${label}` }));
  }
}

// --- left: gates ------------------------------------------------------------------------------------------------

/** Gates in their order. Rebuilt only where the policy has others. */
function gatesView(cockpit) {
  const list = h("div", { class: "gates" });
  const el = h("section", { class: "left", "aria-label": "gates" }, list);
  let gates = [];
  let built = "";
  return {
    el,
    update(page) {
      const wanted = JSON.stringify(page.gates.map((gate) => [gate.name, ...gate.thresholds.map((t) => t.path)]));
      if (wanted !== built) {
        cockpit.sliders.clear();
        gates = page.gates.map((gate) => gateView(cockpit, gate));
        list.replaceChildren(...gates.map((gate) => gate.el));
      }
      built = wanted;
      gates.forEach((gate, i) => gate.update(page.gates[i], page.filter));
    },
    here: (axis, step) => gates.forEach((gate) => gate.here(axis, step)),
  };
}

/** What the inks and marks mean, with the cases that are shown. */
function legend({ setup }) {
  const { labels } = setup;
  const key = (name, text) => h("span", {}, h("i", { class: name }), ` ${text}`);
  const entries = setup.statuses.map((status) => h("span", {}, mark(status), labels ? ` ${labels[status]}` : ""));
  const shown = `${cases(setup.cases)}${setup.split === "all" ? "" : ` of split ${setup.split}`}${labels ? ", by label:" : ":"}`;
  return h("div", { class: "legend" }, h("b", { text: shown }), ...entries,
    key("key-tick", "baseline"), key("key-plateau", "nothing changes"));
}

function gateView(cockpit, gate) {
  const set = (on) => cockpit.act({ do: "switch", path: gate.switch, on }, "switch");
  const box = gate.switch
    ? h("input", {
        type: "checkbox", role: "switch", "aria-label": `${gate.title}: on`,
        onchange: (event) => set(event.target.checked), ...cockpit.allow("switch", gate.switch),
      })
    : h("span", { class: "no-switch" });
  const [decided, size, difference] = [span("counts"), span("quiet"), span("difference")];
  const reason = h("div", { class: "reason" });
  const lock = gate.switch ? lockButton(cockpit, gate.switch, `${gate.title}, its switch`) : null;
  const thresholds = gate.thresholds.map((t) => thresholdView(cockpit, t, gate));
  const title = h("span", { class: "title", title: `${gate.name}, rule ${gate.rule}` });
  const firing = span("firing");
  let pressed = false;
  const what = h("button", {
    type: "button", class: "decided", "aria-label": `cases decided by ${gate.title}`,
    onclick: () => cockpit.filter({ decided_by: pressed ? null : gate.name }),
    ...cockpit.allow("filter", "cases decided here by decision, and how many more than the baseline's; show them; again: all"),
  }, firing, decided, size, difference);
  const bar = h("div", { class: "gate-head" }, box, title, what, lock?.el);
  const el = h("div", { class: "gate", "data-gate": gate.name }, bar, reason, ...thresholds.map((t) => t.el));
  return {
    el,
    update(now, filter) {
      put(title, now.title.replace(".", ": "));
      put(firing, sum(now.decided) ? "" : `${plain(now.firing ?? "")} `); // else the marks say it
      sync(decided, cockpit.setup.statuses, decidedCount, (node, name, i) => updateCount(node, name, now.decided[i]));
      put(size, sum(now.decided) ? (sum(now.decided) === 1 ? "case" : "cases") : "0 cases");
      put(difference, count(sum(now.decided) - sum(now.decided_before)));
      pressed = filter?.decided_by === gate.name;
      attribute(what, "aria-pressed", String(pressed));
      put(reason, now.off_reason ?? "");
      reason.hidden = !now.off_reason;
      el.classList.toggle("off", !now.on);
      if (gate.switch) box.checked = now.on;
      lock?.update(now.locked);
      thresholds.forEach((t, i) => t.update(now.thresholds[i]));
    },
    here: (axis, step) => thresholds.forEach((t) => t.here(axis, step)),
  };
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

function decidedCount() {
  return h("span", {}, h("i"), h("b"));
}

/** Cases that a gate decides in one way, with the mark of the decision; nothing where there is none. */
function updateCount(node, status, number) {
  const [icon, size] = node.children;
  icon.className = `mark-${status}`;
  put(icon, number ? MARKS[status] : "");
  put(size, number || "");
  attribute(node, "title", number ? `${number} ${status}` : null);
}

function lockButton(cockpit, path, name) {
  const shackle = svg("path", { d: "M5 7V5a3 3 0 0 1 6 0v2" });
  const body = svg("rect", { x: 3, y: 7, width: 10, height: 7, rx: 1 });
  const icon = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, body, shackle);
  let locked = false;
  const el = h("button", {
    class: "lock", type: "button", "aria-label": `lock ${name}`, ...cockpit.allow("lock"),
    onclick: () => cockpit.act({ do: "lock", path, on: !locked }),
  }, icon);
  return {
    el,
    update(now) {
      locked = now;
      attribute(el, "aria-pressed", String(now));
      attribute(shackle, "d", now ? "M5 7V5a3 3 0 0 1 6 0v2" : "M5 7V4a3 3 0 0 1 6 -1");
      const means = now ? "locked: tuning leaves it as it is" : "not locked: tuning may move it";
      attribute(el, "title", cockpit.allow("lock", means).title);
    },
  };
}

function thresholdView(cockpit, threshold, gate) {
  const { path, key, side, unit } = threshold;
  const slider = new Slider(cockpit, threshold, `${gate.title}: ${plain(key)}, ${unit}`);
  cockpit.sliders.set(path, slider);
  const set = (value) => cockpit.act({ do: "set", path, value });
  const box = numberBox(cockpit, `${gate.title}: ${plain(key)}, value`, set, "set");
  const lock = lockButton(cockpit, path, path);
  const name = h("span", { class: "key", title: `${path}: ${side}`, text: plain(key) });
  const sign = h("span", { class: "side", text: side === "floor" ? "≥" : "≤", title: side });
  const [base, low, high] = [span("baseline-value"), span("end"), span("end")];
  const before = h("span", { class: "before" }, h("i", { class: "key-tick" }), " ", base);
  const line = h("div", { class: "threshold-head" }, name, before, sign, box.el, lock.el);
  const scale = h("div", { class: "scale", "aria-hidden": "true" }, low, span("unit", unit), high);
  const el = h("div", { class: "threshold", "data-path": path }, line, slider.el, scale);
  return {
    el,
    update(now) {
      slider.update(now);
      box.update(now.value == null ? "" : now.text, now);
      lock.update(now.locked);
      name.classList.toggle("moved", now.value !== now.baseline);
      put(base, now.baseline == null ? "off" : tickText(now.baseline));
      attribute(before, "title", `baseline ${base.textContent}`);
      before.hidden = now.value === now.baseline;
      [[low, now.view_low], [high, now.view_high]].forEach(([end, at]) => put(end, tickText(Number(at.toPrecision(3)))));
    },
    here(axis, step) {
      if (axis.path === path) box.show(stepText(axis, step));
    },
  };
}

/** Box for an exact number; empty is null where that is allowed. What is not a number is marked and not sent. */
function numberBox(cockpit, label, send, action) {
  const el = h("input", {
    class: "number", type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": label,
    ...cockpit.allow(action),
  });
  let [kept, rule, editing] = ["", {}, false];
  const show = (text) => {
    if (el.value !== text) el.value = text;
  };
  const commit = () => {
    const text = el.value.trim().replace("−", "-");
    const value = text === "" || text === "off" ? null : Number(text);
    const fits = value == null ? rule.nullable : Number.isFinite(value) && (!rule.whole || Number.isInteger(value));
    editing = !fits;
    attribute(el, "aria-invalid", fits ? null : "true");
    const form = `${rule.whole ? "a whole number" : "a number"}${rule.nullable ? " or empty" : ""}`;
    if (!fits) cockpit.say("error", `${label} must be ${form}, got ${JSON.stringify(el.value)}.`);
    else if (text !== kept) send(value);
  };
  el.addEventListener("input", () => (editing = true));
  el.addEventListener("change", commit);
  el.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    editing = false;
    attribute(el, "aria-invalid", null);
    show(kept);
  });
  return {
    el,
    show,
    update(text, now = {}) {
      [kept, rule] = [text, now];
      if (!editing) show(text); // what is being typed is not taken away by a page that arrives
      attribute(el, "placeholder", now.nullable ? "off" : null);
      const reach = known(now.low) ? `${tickText(now.low)} to ${tickText(now.high)}` : null;
      attribute(el, "title", cockpit.allow(action, now.nullable ? `${reach}; empty is off` : reach).title);
    },
  };
}

// --- centre: rates, table, curve, plane -------------------------------------------------------------------------

/** Expected cost, then each rate: value, counts, interval and difference from the baseline in one table. */
function ratesView(cockpit) {
  const heads = ["", "value", "cases", "95 % interval", "vs baseline"].map((text) => span("", text));
  const cost = costRow(cockpit);
  const rows = new Map(cockpit.setup.rates.map((rate) => [rate.name, rateRow(rate)]));
  const list = h("div", { class: "rates" }, h("div", { class: "rate heads" }, ...heads), cost.el, ...[...rows.values()].map((line) => line.el));
  list.style.setProperty("--rc-count", `${2 * String(cockpit.setup.cases).length + 4}ch`);
  const none = h("p", { class: "quiet", text: "No labels, so no rates: only decisions are shown." });
  const el = h("section", { class: "card rates-card", "aria-label": "rates" }, list, none);
  return {
    el,
    update(page) {
      none.hidden = !!page.rates;
      list.hidden = !page.rates;
      if (page.cost) cost.update(page.cost);
      page.rates?.forEach((rate) => rows.get(rate.name)?.update(rate));
    },
    here(axis, step) {
      cost.here(axis.cost[step]);
      axis.rates.forEach((name, r) => {
        const at = step * axis.rates.length + r;
        rows.get(name)?.here(axis.k[at], axis.total[at]);
      });
    },
  };
}

function costRow(cockpit) {
  const [value, interval, before, change, around] = ["value", "interval at-release", "bar-text", "change at-release", "around at-release"].map((name) => span(name));
  const show = () => {
    const table = cockpit.el.querySelector(".costs");
    table.scrollIntoView({ block: "nearest" });
    table.querySelector("input").focus({ preventScroll: true });
  };
  const edit = h("button", { type: "button", class: "more", text: cockpit.can("cost") ? "edit costs" : "costs", onclick: show });
  const el = h("div", { class: "rate headline" }, span("label", "expected cost"), value, span("counts", "per case"),
    interval, change, edit, before, around);
  return {
    el,
    update(now) {
      put(value, decimal(now.value));
      put(interval, range(now.low, now.high));
      put(before, `baseline ${decimal(now.baseline)} per case`);
      put(change, known(now.difference) ? signed(now.difference) : "");
      put(around, range(now.difference_low, now.difference_high, signed));
    },
    here: (cost) => put(value, decimal(cost)),
  };
}

function rateRow(rate) {
  const [value, counts, interval, change, around] = ["value", "counts", "interval at-release", "change at-release", "around at-release"].map((name) => span(name));
  const [reach, dot, before] = ["range at-release", "dot", "before"].map((name) => h("i", { class: name }));
  const least = rate.better === "high";
  const stated = known(rate.target) ? `target ${least ? "≥" : "≤"} ${tickText(100 * rate.target)} %` : "";
  const target = stated ? h("i", { class: "target" }) : null;
  if (target) target.style.left = percent(rate.target);
  const [attained, verdict] = [span("attained"), span("verdict")];
  const line = stated ? h("div", { class: "target-line" }, h("b", { text: stated }), attained, verdict) : null;
  const bar = h("div", { class: "bar", "aria-hidden": "true", title: "0 to 100 %" }, reach, before, target, dot);
  const of = span("of", rate.share_of && `of ${rate.share_of} cases`);
  const title = [rate.better && `${rate.better} is better`, stated].filter(Boolean).join("; ");
  const el = h("div", { class: "rate", "data-rate": rate.name, title }, span("label", rate.label), value, counts,
    interval, change, of, bar, around, line);
  const draw = (k, n, part) => {
    put(value, share(part));
    put(counts, `${k} of ${n}`);
    put(attained, `, attained ${share(part)}: `);
    dot.hidden = !known(part);
    if (known(part)) dot.style.left = percent(part);
  };
  return {
    el,
    update(now) {
      draw(now.k, now.n, now.value);
      put(interval, shares(now.low, now.high));
      reach.style.left = percent(now.low ?? 0);
      reach.style.width = percent((now.high ?? 0) - (now.low ?? 0));
      before.hidden = !known(now.baseline);
      if (known(now.baseline)) before.style.left = percent(now.baseline);
      put(verdict, `${VERDICTS[now.verdict] ?? ""} ${now.text ?? ""}`.trim());
      verdict.className = `at-release verdict ${now.verdict}`;
      put(change, known(now.difference) ? `${points(now.difference)} points` : "");
      put(around, range(now.difference_low, now.difference_high, points));
    },
    here: (k, n) => draw(k, n, n > 0 ? k / n : null),
  };
}

/** Cases by label and decision; a cell filters the cases. Without labels it has one row, of all. */
function tableView(cockpit) {
  const { statuses, labelled } = cockpit.setup;
  const labels = labelled ? statuses : [null];
  const corner = h("td", { class: "corner", text: labelled ? "cases: label ↓, decision →" : "cases: decision →" });
  const top = row(corner, ...statuses.map((name) => head("col", mark(name))));
  const cells = labels.map((label) => statuses.map((decision) => tableCell(cockpit, label, decision)));
  const heads = labels.map((label) => head("row", label ? mark(label) : "all"));
  const rows = cells.map((line, i) => row(heads[i], ...line.map((cell) => cell.el)));
  const table = h("table", { class: "decisions" }, h("thead", {}, top), h("tbody", {}, ...rows));
  const el = h("section", { class: "card table", "aria-label": "cases by label and decision" }, table);
  const each = (run) => cells.forEach((line, i) => line.forEach((cell, j) => run(cell, i, j)));
  return {
    el,
    update(page) {
      el.hidden = !page.table;
      if (page.table) each((cell, i, j) => cell.update(page.table[i][j], page.table_before?.[i]?.[j], page.filter));
    },
    here(axis, step) {
      each((cell, i, j) => cell.here(countOf(axis, step, labelled ? [i] : [0, 1, 2], j)));
    },
  };
}

function countOf(axis, step, labels, decision) {
  return labels.reduce((sum, label) => sum + axis.table[step * 9 + 3 * label + decision], 0);
}

function mark(status) {
  return h("span", { class: "status" }, h("i", { class: `mark-${status}`, text: MARKS[status] ?? "" }), ` ${status}`);
}

function tableCell(cockpit, label, decision) {
  const [size, difference] = [h("b"), h("span", { class: "difference" })];
  let pressed = false;
  const button = h("button", {
    type: "button", "aria-label": `cases of label ${label ?? "any"} decided ${decision}`,
    onclick: () => cockpit.filter(pressed ? { label: null, decision: null } : { label, decision }),
    ...cockpit.allow("filter", "show these cases; again: all"),
  }, size, difference);
  let before = null;
  const draw = (now) => {
    put(size, now);
    put(difference, before == null ? "" : count(now - before));
  };
  return {
    el: h("td", { class: label === decision ? "same" : "" }, button),
    update(now, then, filter) {
      before = then ?? null;
      draw(now);
      pressed = (filter?.label ?? null) === label && filter?.decision === decision;
      attribute(button, "aria-pressed", String(pressed));
    },
    here: draw,
  };
}

/** Buttons that choose between numbers and cases; seen where both do not fit beside each other. */
function panesView(cockpit) {
  const names = ["numbers", "cases"];
  const size = span("difference");
  const buttons = names.map((name) => h("button", {
    type: "button", onclick: () => cockpit.show(name), "aria-pressed": String(name === "numbers"),
  }, name, name === "cases" ? size : ""));
  const el = h("div", { class: "panes", role: "group", "aria-label": "what is shown" }, ...buttons);
  return {
    el,
    update(page) {
      const { gained, lost, other } = page.cases;
      const changed = gained + lost + other;
      put(size, changed ? ` ${changed} changed` : "");
    },
    pane: (pane) => buttons.forEach((button, i) => attribute(button, "aria-pressed", String(names[i] === pane))),
  };
}

/** Exact steps of the threshold touched last: cost above, one rate below, over the same values. */
function curveView(cockpit) {
  const rates = cockpit.setup.rates.map((rate) => h("option", { value: rate.name, text: rate.label }));
  const choice = h("select", { "aria-label": "rate of the lower curve" }, ...rates);
  const [title, readout] = [h("b"), span("readout")];
  const drawing = svg("svg", { class: "drawing", role: "img", "aria-label": "step curve of the touched threshold" });
  const empty = h("p", { class: "quiet", text: "Point at a slider: its exact steps are drawn here." });
  const top = h("div", { class: "card-head" }, title, choice);
  const el = h("section", { class: "card curve" }, top, readout, drawing, empty);
  let here = null; // marker and dots of the drawing, moved while dragging
  let [drawn, shown] = [null, null];
  const show = (axis, step, value, text) => {
    if (!here || here.axis !== axis) return;
    const x = here.x(value);
    attribute(here.line, "visibility", "visible");
    attribute(here.line, "transform", `translate(${x} 0)`);
    const values = here.panels.map((panel, i) => {
      const value = panel.of(step);
      attribute(here.dots[i], "visibility", known(value) ? "visible" : "hidden");
      if (known(value)) attribute(here.dots[i], "transform", `translate(${x} ${panel.y(value)})`);
      return value;
    });
    const name = choice.selectedOptions[0].textContent;
    put(readout, `at ${minus(text)}: expected cost ${decimal(values[0])} per case, ${name} ${share(values[1])}`);
  };
  const draw = () => {
    const axis = (shown = cockpit.latest);
    el.hidden = !cockpit.setup.labelled;
    empty.hidden = !!axis;
    choice.hidden = readout.hidden = !axis;
    if (!axis || el.hidden) return;
    const box = drawing.getBoundingClientRect();
    if (!(box.width > 0)) return; // not laid out yet: the first measured size draws it
    const { value, text, baseline, key, unit } = cockpit.threshold(axis.path) ?? {};
    const wanted = [axis.number, axis.path, choice.value, baseline, box.width, box.height].join("|");
    if (wanted !== drawn) here = drawCurve(drawing, axis, choice.value, { baseline, unit }, box);
    drawn = wanted;
    put(title, plain(key ?? axis.path));
    attribute(title, "title", axis.path);
    if (cockpit.previewed) return;
    const stands = axis.number === cockpit.page.number && axis.at != null && axis.at >= 0;
    if (stands && value != null) return show(axis, axis.at, value, text);
    for (const node of [here.line, ...here.dots]) attribute(node, "visibility", "hidden");
    put(readout, value == null ? "off" : text);
  };
  choice.addEventListener("change", draw);
  return {
    el,
    update: draw,
    axis: draw,
    resize: draw,
    here(axis, step) {
      if (shown !== axis) draw();
      show(axis, step, axis.value[step], stepText(axis, step));
    },
  };
}

function drawCurve(node, axis, rate, { baseline, unit }, { width, height }) {
  const [left, right, top, bottom, gap] = [44, 8, 6, 32, 10];
  const r = Math.max(0, axis.rates.indexOf(rate));
  const half = (height - top - bottom - gap) / 2;
  const span = axis.view_high - axis.view_low || 1;
  const x = (value) => left + ((width - left - right) * Math.min(1, Math.max(0, (value - axis.view_low) / span)));
  const part = (step) => axis.k[step * axis.rates.length + r] / axis.total[step * axis.rates.length + r];
  const panels = [
    panel((step) => axis.cost[step], axis.n, top, half, "cost"),
    panel(part, axis.n, top + half + gap, half, "rate"),
  ];
  attribute(node, "viewBox", `0 0 ${width} ${height}`);
  const parts = ticks(axis.view_low, axis.view_high, 5).map((at) => label(tickText(at), x(at), height - 18, "middle"));
  parts.push(label(unit ?? "", (left + width - right) / 2, height - 4, "middle"));
  for (const one of panels) {
    parts.push(...one.marks.map((at) => svg("path", { class: "grid", d: `M${left} ${one.y(at)}H${width - right}` })));
    const mark = (at) => (one.name === "rate" ? `${tickText(100 * at)} %` : tickText(at));
    parts.push(...one.marks.map((at) => label(mark(at), left - 5, one.y(at) + 4, "end")));
    parts.push(svg("path", { class: `steps ${one.name}`, d: stepPath(axis, one.of, x, one.y) }));
    parts.push(svg("text", { class: "panel-name", x: left + 4, y: one.top + 11, text: one.name }));
  }
  if (known(baseline)) parts.push(svg("path", { class: "baseline", d: `M${x(baseline)} ${top}V${height - bottom}` }));
  const line = svg("path", { class: "here", d: `M0 ${top}V${height - bottom}` });
  const dots = panels.map((one) => svg("circle", { class: `dot ${one.name}`, r: 4 }));
  node.replaceChildren(...parts, line, ...dots);
  return { axis, x, line, dots, panels };
}

const label = (text, x, y, anchor) => svg("text", { x, y, "text-anchor": anchor, text });

function panel(of, n, top, height, name) {
  let [low, high] = [Infinity, -Infinity];
  for (let step = 0; step < n; step++) {
    const value = of(step);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!known(low)) [low, high] = [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [low - room, high + room];
  const y = (value) => top + height - (height * (value - low)) / (high - low);
  return { of, name, top, y, marks: ticks(low, high, Math.max(2, Math.floor(height / 24))) };
}

/** Step function as a path; steps narrower than a pixel are drawn as the range they cover, so that none is left out. */
function stepPath(axis, of, x, y) {
  let path = "";
  let column = null; // {x, low, high, last} of steps that end within one pixel
  const flush = () => {
    if (column) path += `V${column.low.toFixed(1)}V${column.high.toFixed(1)}V${column.last.toFixed(1)}`;
    column = null;
  };
  let open = false;
  for (let step = 0; step < axis.n; step++) {
    const value = of(step);
    const [from, to] = [x(axis.low[step]), x(axis.high[step])];
    if (!known(value)) {
      flush();
      open = false;
      continue;
    }
    const level = y(value);
    if (!open) path += `M${from.toFixed(1)} ${level.toFixed(1)}`;
    open = true;
    if (column && to - column.x >= 1) flush();
    if (to - from >= 1) path += `V${level.toFixed(1)}H${to.toFixed(1)}`;
    else if (column) {
      column.low = Math.min(column.low, level);
      column.high = Math.max(column.high, level);
      column.last = level;
    } else {
      path += `H${from.toFixed(1)}`;
      column = { x: from, low: level, high: level, last: level };
    }
  }
  flush();
  return path;
}

/** Cost over coverage: trials as points, free policies, baseline, and where the policy stands. */
function planeView(cockpit) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const drawing = svg("svg", { class: "drawing", role: "img", "aria-label": "cost and coverage of policies" });
  const state = span("readout");
  const top = h("div", { class: "card-head" }, h("b", { text: "expected cost of a case, by coverage" }), state);
  const el = h("section", { class: "card plane" }, top, h("div", { class: "stack" }, canvas, drawing));
  let [scale, plane, drawn] = [null, null, ""];
  const move = (coverage, cost) => {
    const node = drawing.querySelector(".point.here");
    if (scale && node) attribute(node, "transform", `translate(${scale.x(coverage)} ${scale.y(cost)})`);
  };
  const draw = () => {
    if (!plane) return;
    const box = drawing.getBoundingClientRect();
    if (!(box.width > 0)) return;
    const { trials } = cockpit;
    const wanted = JSON.stringify([plane, trials.n, box.width, box.height, cockpit.theme]);
    put(state, trials.n ? `${trials.n}${trials.total > trials.n ? ` of ${trials.total}` : ""} trials` : "");
    if (wanted === drawn) return;
    drawn = wanted;
    scale = planeScale(plane, trials, box);
    drawTrials(canvas, trials, scale, box);
    drawPlane(drawing, plane, scale, box);
  };
  return {
    el,
    update(page) {
      plane = page.plane;
      el.hidden = !plane;
      draw();
      if (plane) move(...plane.here); // a drag that was given up left it elsewhere
    },
    resize: draw,
    trials: draw,
    here(axis, step) {
      const at = axis.rates.indexOf("coverage"); // as the kernel counts it, where it is among the rates
      const shares = step * axis.rates.length + at;
      const answered = countOf(axis, step, [0, 1, 2], 0);
      const all = answered + countOf(axis, step, [0, 1, 2], 1) + countOf(axis, step, [0, 1, 2], 2);
      const coverage = at >= 0 ? axis.k[shares] / axis.total[shares] : answered / all;
      move(coverage, axis.cost[step]);
    },
  };
}

function planeScale(plane, trials, { width, height }) {
  let [low, high] = [Infinity, -Infinity];
  const see = (cost) => {
    if (cost < low) low = cost;
    if (cost > high) high = cost;
  };
  [plane.here, plane.baseline].forEach((point) => point && see(point[1]));
  plane.free.forEach((point) => see(point.cost));
  for (let i = 0; i < trials.n; i++) see(trials.data[2 * i + 1]);
  const room = (high - low || 1) * 0.08;
  [low, high] = [low - room, high + room];
  const [left, right, top, bottom] = [44, 12, 8, 30];
  return {
    low, high, left, right, top, bottom,
    x: (coverage) => left + (width - left - right) * coverage,
    y: (cost) => top + ((height - top - bottom) * (high - cost)) / (high - low),
  };
}

function drawTrials(canvas, trials, scale, { width, height }) {
  const dense = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * dense), Math.round(height * dense)];
  const pen = canvas.getContext("2d");
  pen.scale(dense, dense);
  pen.fillStyle = getComputedStyle(canvas).color;
  pen.globalAlpha = trials.n > 2000 ? 0.35 : 0.6;
  for (let i = 0; i < trials.n; i++) {
    const [coverage, cost] = [trials.data[2 * i], trials.data[2 * i + 1]];
    pen.fillRect(scale.x(coverage) - 1.25, scale.y(cost) - 1.25, 2.5, 2.5);
  }
}

const DIAMOND = "M0 -5L5 0L0 5L-5 0Z";
const DISC = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0";

function drawPlane(node, plane, scale, { width, height }) {
  attribute(node, "viewBox", `0 0 ${width} ${height}`);
  const { x, y, left, bottom } = scale;
  const parts = [];
  for (const at of ticks(scale.low, scale.high, Math.floor(height / 28))) {
    parts.push(svg("path", { class: "grid", d: `M${left} ${y(at)}H${width - scale.right}` }));
    parts.push(label(tickText(at), left - 5, y(at) + 4, "end"));
  }
  for (const at of [0, 0.25, 0.5, 0.75, 1]) parts.push(label(`${100 * at} %`, x(at), height - bottom + 14, "middle"));
  parts.push(label("coverage", x(0.5), height - 3, "middle"));
  const points = [plane.here, plane.baseline, ...plane.free.map((one) => [one.coverage, one.cost])].filter(Boolean);
  const taken = points.map((at) => ({ x: x(at[0]) - 6, y: y(at[1]) - 6, width: 12, height: 12 }));
  const names = [];
  const inside = { left, right: width - scale.right, bottom: height - bottom };
  const point = ([coverage, cost], shape, name) => {
    const [px, py] = [x(coverage), y(cost)];
    const title = svg("title", { text: `${name}: coverage ${share(coverage)}, cost ${decimal(cost)} per case` });
    const form = svg("path", { d: shape === "free" ? DIAMOND : DISC });
    parts.push(svg("g", { class: `point ${shape}`, transform: `translate(${px} ${py})` }, form, title));
    const free = shape !== "here" && freePlace(px, py, name.length * 6.8, taken, inside);
    if (free) names.push(svg("text", { class: "name", ...free, text: name }));
  };
  if (plane.baseline) point(plane.baseline, "baseline", "baseline");
  for (const one of plane.free) point([one.coverage, one.cost], "free", one.name);
  point(plane.here, "here", "here");
  node.replaceChildren(...parts.slice(0, -1), ...names, parts.at(-1)); // where the policy stands lies above the names
}

/** Place of a name beside its point where it covers nothing; null where there is none, the tooltip has it then. */
function freePlace(px, py, width, taken, inside) {
  const [right, left, middle] = [9, -9 - width, -width / 2];
  const places = [[right, 4], [left, 4], [middle, -9], [middle, 17], [right, -8], [left, -8], [right, 16], [left, 16]];
  const boxes = places.map(([dx, dy]) => ({ x: px + dx, y: py + dy - 10, width, height: 12 }));
  const across = (box) => box.x >= inside.left && box.x + width <= inside.right;
  const fits = boxes.filter((box) => across(box) && box.y >= 0 && box.y + 12 <= inside.bottom);
  const aside = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x;
  const apart = (a, b) => aside(a, b) || a.y + a.height <= b.y || b.y + b.height <= a.y;
  const best = fits.find((box) => taken.every((other) => apart(box, other)));
  if (!best) return null;
  taken.push(best);
  return { x: best.x, y: best.y + 10 };
}

// --- right: cases -----------------------------------------------------------------------------------------------

function casesView(cockpit) {
  const list = caseList(cockpit);
  const panel = h("div", { class: "case", hidden: true });
  const el = h("section", { class: "right", "aria-label": "cases" }, list.el, panel);
  const back = () => {
    cockpit.open = null;
    panel.hidden = true;
    list.el.hidden = false;
    cockpit.el.classList.remove("case-open");
    list.focus();
  };
  panel.addEventListener("keydown", (event) => event.key === "Escape" && back());
  return {
    el,
    update: (page) => list.update(page),
    case(message) {
      const again = !panel.hidden && panel.dataset.id === String(message.id);
      const { scrollTop } = panel;
      const held = again && panel.contains(document.activeElement);
      panel.replaceChildren(...caseParts(cockpit, message, back));
      panel.dataset.id = message.id;
      panel.hidden = false;
      list.el.hidden = true;
      cockpit.el.classList.add("case-open");
      panel.scrollTop = again ? scrollTop : 0;
      if (!again || held) panel.querySelector("button").focus({ preventScroll: true });
      foldLongTexts(panel);
    },
  };
}

function caseList(cockpit) {
  const filters = caseFilters(cockpit);
  const rows = h("div", { class: "rows", role: "listbox", "aria-label": "cases" });
  const shown = h("div", { class: "quiet shown" });
  const el = h("div", { class: "list" }, filters.el, shown, rows);
  let current = 0; // the row that Tab reaches; arrows move among them
  const go = (to) => {
    const size = rows.children.length;
    if (!size) return;
    rows.children[current]?.setAttribute("tabindex", -1);
    current = Math.min(size - 1, Math.max(0, to));
    rows.children[current].setAttribute("tabindex", 0);
    rows.children[current].focus();
  };
  const open = (line) => {
    current = [...rows.children].indexOf(line);
    cockpit.openCase(line.dataset.id);
  };
  rows.addEventListener("click", (event) => event.target.closest(".row") && open(event.target.closest(".row")));
  rows.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" || event.key === " ") open(event.target.closest(".row"));
    else if (steps[event.key]) go(current + steps[event.key]);
    else return;
    event.preventDefault();
  });
  return {
    el,
    focus: () => go(current),
    update(page) {
      filters.update(page);
      const { shown: some, total } = page.cases;
      put(shown, `${some} of ${total} cases${some < total && cockpit.can("filter") ? "; search or filter for others" : ""}`);
      current = Math.min(current, Math.max(0, page.cases.rows.length - 1));
      const can = cockpit.can("case");
      sync(rows, page.cases.rows, caseRow, (line, one, i) => updateRow(line, one, i === current, can));
    },
  };
}

function caseRow() {
  const sign = h("span", { class: "correct", "aria-hidden": "true" }); // the word follows in the line below
  return h("div", { class: "row", role: "option", "aria-selected": "false" }, sign, span("query"), span("change"));
}

function updateRow(line, one, reached, can) {
  const [sign, query, change] = line.children;
  const correct = correctness(one);
  put(sign, correct[0]);
  sign.className = `correct ${one.correct ? "yes" : "no"}`;
  put(query, one.query);
  const status = (name) => `${MARKS[name] ?? ""} ${name}`;
  const from = one.before != null && one.before !== one.after ? `${status(one.before)} → ` : "";
  const facts = [correct.slice(2), KINDS[one.kind], from + status(one.after), one.label && `label ${one.label}`, plain(one.decided_by)];
  put(change, facts.filter(Boolean).join(" · "));
  line.dataset.id = one.id;
  attribute(line, "tabindex", reached ? 0 : -1);
  attribute(line, "aria-disabled", can ? null : "true");
  attribute(line, "title", can ? `${one.id}: open` : FROZEN);
}

/** Whether a decision is right for the label, as a mark and a word; nothing where there is no label. */
const correctness = ({ correct }) => (correct == null ? "" : correct ? "✓ correct" : "✕ wrong");

function caseFilters(cockpit) {
  const chips = ["gained", "lost", "other"].map((kind) => {
    const size = h("b");
    const toggle = () => cockpit.filter({ kind: cockpit.page.filter.kind === kind ? null : kind });
    const chip = h("button", { type: "button", class: `chip ${kind}`, onclick: toggle, ...cockpit.allow("filter") });
    chip.append(`${KINDS[kind]} `, size);
    return { kind, chip, size };
  });
  const search = h("input", {
    type: "search", class: "search", placeholder: "search questions", "aria-label": "search cases",
    ...cockpit.allow("filter"),
  });
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => cockpit.filter({ search: search.value }), 150);
  });
  const { setup } = cockpit;
  const statuses = setup.statuses.map((name) => [name, name]);
  const pairs = Object.entries(setup.slices ?? {}).flatMap(([name, values]) => values.map((value) => [name, value]));
  const slices = pairs.map(([name, value]) => [JSON.stringify([name, value]), `${plain(name)}: ${value}`]);
  const choices = [
    setup.labelled ? choice(cockpit, "label", statuses) : null,
    choice(cockpit, "decision", statuses),
    choice(cockpit, "decided_by", setup.deciders.map((name) => [name, plain(name)])),
    slices.length ? choice(cockpit, "slice", slices, (text) => JSON.parse(text)) : null,
  ].filter(Boolean);
  const buttons = h("div", { class: "chips" }, span("quiet", "changed:"), ...chips.map((one) => one.chip));
  const selects = h("div", { class: "choices" }, ...choices.map((one) => one.el));
  return {
    el: h("div", { class: "filters" }, buttons, search, selects),
    update(page) {
      for (const { kind, chip, size } of chips) {
        put(size, page.cases[kind]);
        attribute(chip, "aria-pressed", String(page.filter.kind === kind));
      }
      if (document.activeElement !== search) search.value = page.filter.search ?? "";
      choices.forEach((one) => one.update(page.filter));
    },
  };
}

function choice(cockpit, name, options, read = (text) => text) {
  const el = h("select", { "aria-label": `filter by ${plain(name)}`, ...cockpit.allow("filter") });
  el.append(...[["", name === "decided_by" ? "any gate" : `any ${name}`], ...options].map(([value, text]) => h("option", { value, text })));
  el.addEventListener("change", () => cockpit.filter({ [name]: el.value === "" ? null : read(el.value) }));
  return {
    el,
    update(filter) {
      const now = filter[name] ?? "";
      el.value = typeof now === "string" ? now : JSON.stringify(now);
    },
  };
}

function caseParts(cockpit, one, back) {
  const facts = [["label", one.label], ["decision", one.decision], ["decided by", plain(one.decided_by)]].filter(([, value]) => value);
  const shown = (value) => (MARKS[value] ? mark(value) : h("b", { text: value }));
  const line = facts.map(([name, value]) => h("span", {}, span("quiet", `${name} `), shown(value)));
  const close = h("button", { type: "button", text: "← back", onclick: back });
  const part = (title, ...nodes) => (nodes.length ? [h("h4", { text: title }), ...nodes] : []);
  return [
    h("div", { class: "case-head" }, close, span("quiet", one.id)),
    h("h3", { text: one.query }),
    h("p", { class: "facts" }, h("b", { class: `correct ${one.correct ? "yes" : "no"}`, text: correctness(one) }), ...line),
    one.reason ? h("p", { text: one.reason }) : null,
    ...(one.notes ? [].concat(one.notes).map((text) => h("p", { class: "quiet", text })) : []),
    ...part("Margins of the gates, each in the unit of its threshold", ...(one.checks ?? []).map(waterfallRow)),
    ...part("Smallest changes that decide otherwise", ...(one.flips?.map((flip) => flipRow(cockpit, flip)) ?? [h("p", { class: "quiet", text: "…" })])),
    ...part("Hits", ...(one.hits ?? []).map(hitPart)),
  ].filter(Boolean);
}

function waterfallRow(check) {
  const bar = h("i", { class: check.passes ? "" : "fails" });
  const share = known(check.share) ? check.share : 0;
  const size = Math.min(1, Math.abs(share)) / 2;
  const signedShare = known(check.margin) && check.margin < 0 ? -1 : 1;
  bar.style.left = percent(signedShare < 0 ? 0.5 - size : 0.5);
  bar.style.width = percent(size);
  bar.hidden = !known(check.margin);
  const margin = known(check.margin) ? signed(check.margin, Number.isInteger(check.margin) ? 0 : 4) : "not measured";
  return h("div", { class: `check${check.passes ? "" : " fails"}`, title: check.rule ? `rule ${check.rule}` : null },
    span("name", `${check.passes ? "" : "✕ "}${plain(check.gate)}`),
    h("span", { class: "waterfall", "aria-hidden": "true" }, bar), span("margin", margin), span("quiet text", check.text));
}

function flipRow(cockpit, flip) {
  const set = h("button", {
    type: "button", text: "set it", "aria-label": `set ${flip.path} to ${flip.at}`,
    onclick: () => cockpit.act({ do: "set", path: flip.path, value: flip.at }),
    ...cockpit.allow("set", `${flip.path} = ${flip.at}`),
  });
  const becomes = flip.becomes ? h("span", {}, "→ ", mark(flip.becomes)) : null;
  return h("div", { class: "flip" }, span("", flip.text), becomes, set);
}

function hitPart(hit) {
  const scores = Object.entries(hit.scores ?? {}).map(([name, value]) => `${name} ${decimal(value)}`).join(" · ");
  const text = h("p", { class: "hit-text folded", text: hit.text });
  const turn = () => {
    const folded = text.classList.toggle("folded");
    put(more, folded ? "more" : "less");
    attribute(more, "aria-expanded", String(!folded));
  };
  const more = h("button", { type: "button", class: "more", text: "more", "aria-expanded": "false", onclick: turn });
  const name = `${hit.rank}. ${hit.source}${hit.page != null ? `, page ${hit.page}` : ""}`;
  const top = h("div", { class: "hit-head" }, h("b", { text: name }), hit.chosen ? span("chosen", "✓ chosen") : null);
  const section = hit.section ? span("quiet", hit.section) : null;
  return h("article", { class: `hit${hit.chosen ? " chosen" : ""}` }, top, span("quiet", scores), section, text, more);
}

/** Leaves out the buttons of texts that fit their three lines. Reads all before it writes, so that it lays out once. */
function foldLongTexts(panel) {
  const texts = [...panel.querySelectorAll(".hit-text")];
  const long = texts.map((text) => text.scrollHeight > text.clientHeight + 1);
  texts.forEach((text, i) => (text.nextSibling.hidden = !long[i]));
}

// --- header and footer ------------------------------------------------------------------------------------------

function headerView(cockpit) {
  const { setup } = cockpit;
  const button = (text, title, action, run) =>
    h("button", { type: "button", text, onclick: run, "data-do": action, ...cockpit.allow(action, title) });
  const undo = button("undo", "ctrl+z", "undo", () => cockpit.act({ do: "undo" }));
  const redo = button("redo", "ctrl+shift+z", "redo", () => cockpit.act({ do: "redo" }));
  const back = () => (setup.frozen ? cockpit.putBack(null) : cockpit.act({ do: "reset" }));
  const reset = button("reset", `back to the ${setup.frozen ? "policy of this page" : "baseline"}`, "reset", back);
  const copy = button("copy code", "Python that makes this policy", "copy", () => copyText(cockpit));
  const label = "file to save the policy as";
  const name = h("input", { type: "text", class: "file", "aria-label": label, ...cockpit.allow("save", label) });
  name.value = "policy.yaml";
  const keep = () => cockpit.act({ do: "save", file: name.value.trim() });
  const save = button("save YAML", "writes the policy to this file", "save", keep);
  name.addEventListener("keydown", (event) => event.key === "Enter" && save.click());
  const [id, changed, changes] = [h("code"), h("summary"), h("ul")];
  const details = h("details", { class: "changes" }, changed, changes);
  const facts = h("div", { class: "facts" }, h("span", {}, "policy ", id), details);
  const notes = (setup.notes ?? []).map((text) => h("p", { class: "note", text }));
  const el = h("header", {}, facts, h("div", { class: "buttons" }, undo, redo, reset, copy, name, save), legend(cockpit), ...notes);
  return {
    el,
    update(page) {
      put(id, page.policy_id);
      const n = page.changes.length;
      put(changed, `${n === 0 ? "no change" : n === 1 ? "1 change" : `${n} changes`} from ${setup.baseline_name}`);
      const told = (one) => `${one.path}: ${one.from ?? "off"} → ${one.to ?? "off"}`;
      sync(changes, page.changes, () => h("li"), (item, one) => put(item, told(one)));
      undo.disabled = !page.undo || !cockpit.can("undo");
      redo.disabled = !page.redo || !cockpit.can("redo");
    },
  };
}

async function copyText(cockpit) {
  const text = cockpit.page.code;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure context, or where the page may not write: the old way, by a selected box.
    const box = h("textarea", { class: "copied", "aria-hidden": "true" });
    box.value = text;
    cockpit.el.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    if (!done) return cockpit.say("error", "The browser does not let this page copy; take the text of .code() instead.");
  }
  cockpit.say("info", "code copied");
}

function footerView(cockpit) {
  const button = (action, text = action) => {
    const run = () => cockpit.act({ do: action });
    return h("button", { type: "button", text, "data-do": action, onclick: run, ...cockpit.allow(action) });
  };
  const [tune, stop, certify] = [button("tune", "tune what is not locked"), button("stop"), button("certify")];
  const report = button("report", "look at report");
  const bar = h("progress", { "aria-label": "tuning" });
  const [certificate, looks] = [h("p", { class: "certificate" }), h("ul", { class: "looks" })];
  const notice = h("p", { class: "notice", role: "status", "aria-live": "polite" });
  const said = h("div", { class: "said" }, certificate, looks);
  const buttons = h("div", { class: "buttons" }, tune, stop, bar, certify, report);
  const el = h("footer", {}, buttons, notice, said);
  return {
    el,
    say(kind, text) {
      put(notice, text);
      notice.className = `notice ${kind}`;
    },
    update(page) {
      const { tuning } = page;
      const moved = (tuning ? tune : stop) === document.activeElement;
      tune.hidden = !!tuning;
      stop.hidden = bar.hidden = !tuning;
      if (tuning) {
        put(stop, `stop (${tuning.done} of ${tuning.total})`);
        [bar.max, bar.value] = [tuning.total || 1, tuning.done];
      }
      if (moved) (tuning ? stop : tune).focus(); // the button in its place takes the focus over
      const n = page.report_views.length;
      put(report, `look at report (${n} ${n === 1 ? "look" : "looks"} so far)`);
      certificate.className = `certificate ${page.certificate?.ok ? "met" : "missed"}`;
      put(certificate, page.certificate ? `${page.certificate.ok ? "✓" : "✕"} ${page.certificate.text}` : "");
      const told = (look) => `look ${look.number}, policy ${look.policy_id}: ${look.text}`;
      sync(looks, [...page.report_views].reverse(), () => h("li"), (item, look) => put(item, told(look)));
    },
  };
}

function costsView(cockpit) {
  const { statuses, outcomes } = cockpit.setup;
  const box = (label, outcome) => {
    const set = (value) => cockpit.act({ do: "cost", label, outcome, value });
    return numberBox(cockpit, `cost of ${label}, ${plain(outcome)}`, set, "cost");
  };
  const boxes = statuses.map((label) => outcomes.map((outcome) => box(label, outcome)));
  const top = row(head("col", "label"), ...outcomes.map((outcome) => head("col", plain(outcome))));
  const rows = boxes.map((line, i) => row(head("row", mark(statuses[i])), ...line.map((one) => h("td", {}, one.el))));
  const table = h("table", {}, h("thead", {}, top), h("tbody", {}, ...rows));
  const title = h("div", { class: "card-head" }, h("b", { text: "cost of a case, by label and outcome" }));
  const el = h("section", { class: "card costs", "aria-label": "costs" }, title, table);
  return {
    el,
    update(page) {
      el.hidden = !page.costs;
      if (page.costs) boxes.forEach((line, i) => line.forEach((one, j) => one.update(String(page.costs[i][j]))));
    },
  };
}

// --- the whole --------------------------------------------------------------------------------------------------

/** What is shown and what is under way; the only part that speaks with the kernel. */
class Cockpit {
  constructor(model, parent) {
    [this.model, this.parent] = [model, parent];
    [this.setup, this.page] = [model.get("setup"), model.get("page")];
    this.axes = new Map(); // path → axis of the page's number
    this.asked = new Map(); // path → number it was asked for at
    this.sliders = new Map();
    this.trials = { n: 0, total: 0, data: new Float32Array(2048) };
    this.touched = this.latest = this.open = this.shownCase = this.pending = null;
    this.previewed = this.acting = false;
    this.ends = new AbortController();
    this.build();
  }

  build() {
    // The attribute keeps JupyterLab's shortcuts away: it listens before any handler of ours.
    this.el = h("div", { class: "raglab-cockpit", role: "region", "aria-label": "cockpit" });
    this.el.setAttribute("data-lm-suppress-shortcuts", "true");
    this.el.dataset.pane = "numbers";
    this.footer = footerView(this);
    const centre = [ratesView(this), tableView(this), curveView(this), planeView(this), costsView(this)];
    const [header, gates, cases] = [headerView(this), gatesView(this), casesView(this)];
    [this.cases, this.left] = [cases, gates.el];
    this.views = [header, gates, ...centre, cases, this.footer];
    const middle = h("section", { class: "centre", "aria-label": "numbers" }, ...centre.map((view) => view.el));
    const panes = panesView(this);
    this.views.push(panes);
    this.el.append(header.el, h("div", { class: "body" }, gates.el, panes.el, middle, cases.el), this.footer.el);
    this.parent.append(this.el);
    this.listen();
    this.refresh();
    this.tell(this.page);
    if (!this.setup.frozen) this.model.send({ do: "ready" }); // no answer is waited for
  }

  listen() {
    const { signal } = this.ends;
    this.el.addEventListener("keydown", (event) => this.key(event), { signal });
    this.onPage = () => this.turnPage(this.model.get("page"));
    this.onMessage = (message, buffers) => this.receive(message, buffers ?? []);
    this.model.on("change:page", this.onPage);
    this.model.on("msg:custom", this.onMessage);
    this.sizes = new ResizeObserver(() => {
      this.each("resize");
      this.bringIntoView();
    });
    [this.el, this.left].forEach((node) => this.sizes.observe(node));
    // The canvas keeps the ink it was drawn with: it is drawn again where the theme changes.
    const again = () => this.each("resize");
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again, { signal });
    this.themes = new MutationObserver(again);
    const marks = ["data-jp-theme-light", "class", "data-vscode-theme-kind"];
    this.themes.observe(document.body, { attributes: true, attributeFilter: marks });
  }

  close() {
    this.ends.abort();
    this.sizes.disconnect();
    this.themes.disconnect();
    this.model.off("change:page", this.onPage);
    this.model.off("msg:custom", this.onMessage);
    [this.silence, this.again].forEach(clearTimeout);
    this.sliders.forEach((slider) => slider.forget());
    this.el.remove();
  }

  each(name, ...values) {
    for (const view of this.views) view[name]?.(...values);
  }

  get theme() {
    return getComputedStyle(this.el).color;
  }

  /** Whether an action has somebody to answer it: of a frozen page only what its shim says. */
  can(action) {
    const answers = this.setup.answers ?? ["enter"];
    return !this.setup.frozen || ["copy", "reset", ...answers].includes(action);
  }

  /** Attributes of a control: one whose action nobody answers is off and says why. */
  allow(action, title = null) {
    return this.can(action) ? { title } : { disabled: true, title: FROZEN };
  }

  movable(path) {
    return this.can("enter") && (!this.setup.frozen || (this.setup.axes?.includes(path) ?? true));
  }

  threshold(path) {
    return this.page.gates.flatMap((gate) => gate.thresholds).find((threshold) => threshold.path === path);
  }

  // What goes to the kernel

  send(message) {
    if (!this.can(message.do)) return;
    clearTimeout(this.silence);
    if (!this.setup.frozen) this.silence = setTimeout(() => this.lost(), SILENCE);
    try {
      this.model.send(message);
    } catch {
      this.lost();
    }
  }

  /** An action that a new page answers; `name` is what the wait for it is measured as. */
  act(message, name = null) {
    if (!this.can(message.do)) return;
    this.acting = true;
    this.pending = name && { name, start: performance.now() };
    this.axes.clear();
    this.send(message);
  }

  lost() {
    clearTimeout(this.silence);
    this.acting = false;
    this.pending = null;
    this.asked.clear();
    this.sliders.forEach((slider) => slider.drag?.released && slider.forget());
    this.say("error", LOST);
  }

  /** Asks for the axis of a threshold, unless that of this page is at hand or on its way. */
  enter(path) {
    this.touched = path;
    const axis = this.axisOf(path);
    if (axis && this.latest !== axis) {
      this.latest = axis;
      this.each("axis");
    }
    if (axis || this.acting || this.asked.get(path) === this.page.number) return;
    this.asked.set(path, this.page.number);
    this.send({ do: "enter", path });
  }

  axisOf(path) {
    const axis = this.axes.get(path);
    return axis?.number === this.page.number ? axis : null;
  }

  drop(slider, axis, step) {
    if (!this.can("drop")) return void this.say("info", PREVIEW);
    slider.step = null;
    this.act({ do: "drop", path: axis.path, number: axis.number, step }, "release");
  }

  /** Pane beside the gates where there is room for one of the two: "numbers" or "cases". */
  show(pane) {
    this.el.dataset.pane = pane;
    this.each("pane", pane);
  }

  filter(change) {
    if ("decision" in change || "decided_by" in change) this.show("cases");
    this.act({ do: "filter", filter: { ...this.page.filter, ...change } });
  }

  openCase(id) {
    if (!this.can("case")) return;
    this.show("cases");
    this.open = id;
    this.casing = performance.now();
    this.send({ do: "case", id });
  }

  // What comes from the kernel

  answered() {
    clearTimeout(this.silence);
    if (this.said === LOST) this.say("info", "");
  }

  receive(message, buffers) {
    this.answered();
    if (message.kind === "axis") this.receiveAxis(readAxis(message, buffers[0]));
    else if (message.kind === "trials") this.receiveTrials(message, buffers[0]);
    else if (message.kind === "case") this.receiveCase(message);
    else if (message.kind === "flips") this.receiveFlips(message);
    else if (message.kind === "saved") this.say("info", `saved ${message.file}`);
    else if (message.kind === "notice") this.tell(message);
    if (message.kind === "saved" || message.kind === "notice") this.acting = false;
  }

  receiveAxis(axis) {
    this.axes.set(axis.path, axis);
    if (axis.path === this.touched) {
      this.latest = axis;
      this.each("axis");
    }
    if (axis.number === this.page.number) this.sliders.get(axis.path)?.arrived();
  }

  receiveTrials(message, buffer) {
    const { trials } = this;
    const from = buffer.byteOffset ?? 0;
    const points = new Float32Array((buffer.buffer ?? buffer).slice(from, from + buffer.byteLength));
    const n = message.from + points.length / 2;
    if (2 * n > trials.data.length) {
      const larger = new Float32Array(4 * n);
      larger.set(trials.data);
      trials.data = larger;
    }
    trials.data.set(points, 2 * message.from);
    [trials.n, trials.total] = [n, message.total];
    requestAnimationFrame(() => this.each("trials"));
  }

  receiveCase(message) {
    if (String(message.id) !== String(this.open)) return; // another view of this cockpit asked for it
    this.shownCase = message;
    this.cases.case(message);
    const start = this.casing;
    this.casing = null;
    requestAnimationFrame(() => behindFrame(() => {
      if (start) measure("case", start);
      if (this.shownCase === message) this.send({ do: "flips", id: message.id }); // they take longer
    }));
  }

  receiveFlips({ id, flips }) {
    if (String(id) !== String(this.open) || String(id) !== String(this.shownCase?.id)) return;
    this.cases.case({ ...this.shownCase, flips });
  }

  /** Shows a page. One of the same number tells of progress: axes, drags and actions under way stay as they are. */
  turnPage(page) {
    this.answered();
    const turned = page.number !== this.page.number;
    this.page = page;
    if (turned) {
      this.acting = false;
      this.asked.clear();
    }
    this.refresh(turned);
    this.sliders.forEach((slider) => slider.resume());
    this.tell(page);
    if (!turned) return;
    const { pending } = this;
    this.pending = null;
    if (pending) requestAnimationFrame(() => behindFrame(() => measure(pending.name, pending.start)));
    clearTimeout(this.again);
    // What waits asks at once, the rest behind the picture of this page.
    if ([...this.sliders.values()].some((slider) => slider.waiting)) this.askAgain();
    else this.again = setTimeout(() => this.askAgain(), 120);
  }

  /** What hangs on the policy and is open: the axis touched last, and the case. */
  askAgain() {
    const waiting = [...this.sliders.values()].find((slider) => slider.waiting);
    const path = waiting?.path ?? this.touched;
    if (path && this.can("enter")) this.enter(path);
    if (this.open != null && !waiting) this.send({ do: "case", id: this.open });
  }

  // What is shown

  /** Shows the page; of a new one the numbers come first, and the list of cases behind their picture. */
  refresh(turned = false) {
    this.previewed = false;
    this.el.classList.remove("previewed");
    this.el.classList.toggle("frozen", !!this.setup.frozen);
    const top = () => this.sliders.get(this.touched)?.el.getBoundingClientRect().top;
    const before = top();
    for (const view of this.views) if (view !== this.cases || !turned) view.update?.(this.page);
    if (known(before)) this.left.scrollTop += (top() ?? before) - before; // the moved slider stays under the hand
    if (turned) requestAnimationFrame(() => behindFrame(() => this.cases.update(this.page)));
  }

  /** Scrolls the gates, where they got another size, to the slider that was touched last. */
  bringIntoView() {
    const slider = this.sliders.get(this.touched)?.el.parentElement;
    if (!slider) return;
    const [inner, outer] = [slider, this.left].map((node) => node.getBoundingClientRect());
    this.left.scrollTop += Math.max(0, inner.bottom + 4 - outer.bottom) - Math.max(0, outer.top - inner.top);
  }

  preview(axis, step) {
    if (!this.previewed) this.el.classList.add("previewed");
    this.previewed = true;
    this.each("here", axis, step);
  }

  /** Takes back what another slider of a frozen page shows: its axes hold around its own policy only. */
  putBack(path) {
    for (const slider of this.sliders.values()) if (slider.path !== path && slider.step != null) slider.giveUp();
    if (this.setup.frozen) this.tell(this.page);
  }

  tell({ notice }) {
    if (notice) this.say(notice.kind, notice.text);
    else if (this.setup.frozen) this.say("info", STILL);
    else if (this.said && this.said !== LOST) this.say("info", "");
  }

  say(kind, text) {
    this.said = text;
    this.footer.say(kind, text);
  }

  /** Keys inside stay inside: JupyterLab would take them for its commands. */
  key(event) {
    event.stopPropagation();
    const typing = event.target.matches?.("input:not([type=checkbox]), textarea");
    if (typing || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
    event.preventDefault();
    const action = event.shiftKey ? "redo" : "undo";
    if (this.page[action]) this.act({ do: action });
  }
}

export default {
  render({ model, el }) {
    let cockpit = new Cockpit(model, el);
    const again = () => {
      cockpit.close();
      cockpit = new Cockpit(model, el);
    };
    model.on("change:setup", again);
    return () => {
      model.off("change:setup", again);
      cockpit.close();
    };
  },
};
