// The page: asks four questions again and again and draws the answers. All text from answers goes through textContent.
const at = (id) => document.getElementById(id);
const SIGNS = { unhealthy: "×", suspect: "!", testing: "?", away: "–", used: "", free: "" };
const KINDS = {
  free: "free, or held by what you may not see", used: "held by a job", suspect: "suspect", testing: "being tested",
  unhealthy: "degraded, unhealthy or quarantined", away: "not ready",
};
const STRETCHES = {
  queued: "waiting for nodes", starting: "starting", training: "training", lostWork: "work lost", undetected: "failed, not yet seen", held: "failure held",
  recovering: "recovering", suspended: "suspended", stalled: "stalled",
};
const BUCKETS = {
  compute: "training", communication: "training", inputWait: "suspended", checkpointStall: "starting", lostWork: "lostWork",
  undetected: "undetected", held: "held", queued: "queued", requeued: "recovering", burnIn: "starting", starting: "starting", reclaim: "recovering",
  restarting: "recovering", suspended: "suspended", finishing: "starting", unknown: "queued",
};
const REPAIRS = { R0: "in place", R0b: "by a new pod", R2: "by a new node", R4: "by a new gang" };
const GOOD = new Set(["Running", "Saving"]), BAD = new Set(["Stalled", "Failed", "Unreadable"]), DONE = new Set(["Succeeded"]);
const COLUMNS = [["job"], ["now"], ["since", "for"], ["n", "nodes"], ["n", "step"], ["n", "speed"], ["n", "ETTR"], ["saved", "saved"], ["reason"]];
const POINT = "Point at a node, or move with the arrow keys.";
const EVERY = { jobs: 3000, queue: 10000, fleet: 5000, one: 3000, report: 60000 }, LONGEST = 60000, WAITS = 20000;

let token = sessionStorage.getItem("token") || "";
let round = 0; // grows with each sign-in: what was asked before it is not drawn after it
const cells = new Map(), rows = new Map();
let order = [], current = null, shape = "", shown = "", mates = "";

// ---- words
function el(kind, options = {}, ...inside) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...inside);
  return made;
}
function put(node, text) { if (node.textContent !== text) node.textContent = text; }
const number = (value, digits) => Number(value).toLocaleString("en", digits == null ? {} : { minimumFractionDigits: digits, maximumFractionDigits: digits });
const percent = (value) => value == null ? "" : `${(Math.floor(value * 1000 + 0.5) / 10).toFixed(1)}%`;
function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const rest = Math.max(0, Math.floor(seconds));
  const first = units.findIndex(([, size]) => rest >= size);
  if (first < 0) return "0s";
  const [unit, size] = units[first], next = units[first + 1];
  const more = next ? Math.floor((rest % size) / next[1]) : 0;
  return `${Math.floor(rest / size)}${unit}${more ? `${more}${next[0]}` : ""}`;
}
const ago = (time, now) => time ? duration((now - new Date(time)) / 1000) : "";
function speed(rate) {
  if (rate == null) return "";
  for (const [times, unit] of [[1, "s"], [60, "min"], [3600, "h"]])
    if (rate * times >= 1 || unit === "h") return `${(rate * times).toFixed(rate * times < 100 ? 1 : 0)}/${unit}`;
}
const moment = (time) => new Date(time).toISOString().slice(0, 19).replace("T", " ") + " UTC";

// ---- questions
async function ask(path) {
  const answer = await fetch(path, {
    headers: { Authorization: `Bearer ${token}` }, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(WAITS),
  });
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  throw Object.assign(new Error(body.error || `the page answers ${answer.status}`), { status: answer.status });
}
const questions = {};
function again(name, look) {
  let failures = 0, timer = 0, mine = 0;
  async function turn() {
    clearTimeout(timer);
    const ours = ++mine, of = round;
    if (!token) return;
    let pause = EVERY[name];
    if (!document.hidden) {
      try {
        const draw = await look();
        if (ours !== mine || of !== round) return;
        draw?.();
        failures = 0;
        told(name, "");
      } catch (error) {
        if (ours !== mine || of !== round) return;
        if (error.status === 401) { leave(error.message); return; }
        failures += 1;
        pause = Math.min(pause * 2 ** failures, LONGEST);
        told(name, error.status ? error.message : "the page cannot be reached; what is shown is old");
      }
    }
    timer = setTimeout(turn, pause);
  }
  questions[name] = turn;
}
const troubles = new Map();
function told(name, words) {
  words ? troubles.set(name, words) : troubles.delete(name);
  const all = [...new Set(troubles.values())].join("; ");
  put(at("trouble"), all);
  at("trouble").hidden = !all;
}
function stale(body) {
  told("age", body.ageSeconds > 150 ? `the API server has said nothing for ${duration(body.ageSeconds)}: what is shown is old` : "");
}

// ---- the fleet
const kindOf = (node) =>
  node.ready === false ? "away" : node.state === "Suspect" ? "suspect" : node.state === "Validating" ? "testing"
    : node.state ? "unhealthy" : node.job ? "used" : "free";
function build(body) {
  cells.clear();
  order = [];
  const total = body.groups.reduce((sum, group) => sum + group.nodes.length, 0);
  const blocks = new Map();
  for (const group of body.groups) {
    const outer = group.path.slice(0, -1).map((part) => part || "–").join(" / ");
    if (!blocks.has(outer)) blocks.set(outer, []);
    blocks.get(outer).push(group);
  }
  const made = [];
  for (const [outer, groups] of blocks) {
    const racks = el("div", { class: "racks" });
    for (const group of groups) {
      const inner = group.path.at(-1) || (group.path.length ? "–" : "");
      const where = [...group.path].map((part, index) => `${body.levels[index]} ${part || "without a name"}`).join(", ");
      const grid = el("div", { class: `nodes${total > 600 ? " small" : ""}${group.nodes.length > 64 ? " many" : ""}`, role: "group", "aria-label": where || "all nodes" });
      for (const node of group.nodes) {
        const cell = el("div", { class: "node", role: "img", tabindex: "-1" });
        cells.set(node.name, { cell, node: null, place: order.length, group: grid, where });
        cell.dataset.node = node.name;
        order.push(node.name);
        grid.append(cell);
      }
      racks.append(el("div", { class: group.nodes.length > 64 ? "rack whole" : "rack" }, ...(inner ? [el("span", { text: inner, title: inner })] : []), grid));
    }
    made.push(el("div", { class: blocks.size === 1 ? "block alone" : "block" }, ...(outer ? [el("h3", { text: `${body.levels.at(-2)} ${outer}` })] : []), racks));
  }
  at("map").replaceChildren(...made);
  if (!cells.has(current)) current = order[0] ?? null;
  if (current) cells.get(current).cell.tabIndex = 0;
}
function sentence(node, where) {
  const held = node.job ? `held by ${node.job}` : "";
  return [`${node.name} (${where})`, held || KINDS[kindOf(node)], node.cordoned ? "cordoned" : "", node.message || ""].filter(Boolean).join("; ");
}
function drawFleet(body) {
  stale(body);
  const start = performance.now();
  const now = body.groups.map((group) => JSON.stringify([group.path, group.nodes.map((node) => node.name)])).join();
  if (now !== shape) { build(body); shape = now; }
  for (const group of body.groups) {
    for (const node of group.nodes) {
      const known = cells.get(node.name), old = known.node;
      known.node = node;
      if (old && old.state === node.state && old.ready === node.ready && old.job === node.job && old.cordoned === node.cordoned && old.message === node.message) continue;
      const kind = kindOf(node);
      known.cell.className = `node ${kind}${node.cordoned ? " cordoned" : ""}`;
      put(known.cell, SIGNS[kind]);
      known.cell.setAttribute("aria-label", sentence(node, known.where));
    }
  }
  const counts = {};
  for (const { node } of cells.values()) counts[kindOf(node)] = (counts[kindOf(node)] || 0) + 1;
  at("legend").replaceChildren(...Object.keys(KINDS).filter((kind) => counts[kind]).map((kind) =>
    el("li", {}, el("i", { class: `${kind}`, text: SIGNS[kind], "aria-hidden": "true" }), `${number(counts[kind])} ${KINDS[kind]}`)));
  mates = "";
  highlight(shown);
  at("fleet").hidden = at("report").hidden = false;
  at("map").dataset.drawnMilliseconds = (performance.now() - start).toFixed(1);
}
function highlight(job) {
  if (mates === job) return;
  mates = job;
  let some = false;
  for (const { cell, node } of cells.values()) {
    const is = Boolean(job) && node?.job === job;
    some ||= is;
    if (cell.classList.contains("mate") !== is) cell.classList.toggle("mate", is);
  }
  at("map").classList.toggle("job-mates", some);
}
function tell(name) {
  const known = cells.get(name);
  if (known?.node) put(at("cell"), sentence(known.node, known.where));
}
function move(event) {
  const known = cells.get(current);
  if (!known || event.altKey || event.ctrlKey || event.metaKey) return;
  const here = known.cell.getBoundingClientRect();
  let to = null;
  if (event.key === "ArrowRight") to = order[known.place + 1];
  else if (event.key === "ArrowLeft") to = order[known.place - 1];
  else if (event.key === "Home") to = order[0];
  else if (event.key === "End") to = order.at(-1);
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") to = beside(here, event.key === "ArrowDown" ? 1 : -1);
  else if ((event.key === "Enter" || event.key === " ") && known.node?.job) { event.preventDefault(); open(known.node.job); return; }
  else return;
  event.preventDefault();
  if (to == null) return;
  known.cell.tabIndex = -1;
  current = to;
  const next = cells.get(to).cell;
  next.tabIndex = 0;
  next.focus();
}
// The nearest node below or above: as far as the eye goes, whatever group it is in.
function beside(here, way) {
  const middle = here.x + here.width / 2;
  let best = null, least = Infinity;
  for (const [name, { cell }] of cells) {
    const box = cell.getBoundingClientRect();
    const away = (box.y - here.y) * way;
    if (away < here.height / 2) continue;
    const aside = Math.abs(box.x + box.width / 2 - middle);
    const far = away + 3 * aside;
    if (far < least) { least = far; best = name; }
  }
  return best;
}

// ---- jobs
function drawJobs(body) {
  stale(body);
  const start = performance.now();
  const now = new Date(body.time);
  const states = Object.entries(body.states || {}).map(([state, count]) => `${number(count)} ${state}`).join(", ");
  put(at("summary"), [states || body.notes?.[0] || "no jobs that you may see", body.nodes ? `${number(body.nodes)} nodes train` : "", body.goodput != null ? `goodput ${percent(body.goodput)}` : ""].filter(Boolean).join("; "));
  put(at("who"), body.user);
  const wanted = new Set();
  let before = null;
  for (const job of body.jobs) {
    const key = `${job.namespace}/${job.name}`;
    wanted.add(key);
    let row = rows.get(key);
    if (!row) {
      const link = el("a", { href: href(key), text: key });
      row = el("tr", { role: "row" }, ...COLUMNS.map(([kind, name]) => el("td", { class: kind, role: "cell", ...(name ? { "data-name": name } : {}) })));
      row.children[0].append(link);
      row.children[1].append(el("span"));
      rows.set(key, row);
    }
    const [, state, since, nodes, step, rate, ettr, saved, why] = row.children;
    put(state.firstChild, job.state || "New");
    state.firstChild.className = `state ${looks(job.state)}`;
    put(since, ago(job.since, now));
    put(nodes, job.nodes ? number(job.nodes) : "");
    put(step, job.step == null ? "" : number(job.step));
    put(rate, speed(job.stepsPerSecond));
    put(ettr, percent(job.ettr));
    put(saved, job.checkpointTime ? `${ago(job.checkpointTime, now)} ago` : "");
    say(why, [job.position ? `#${job.position} in the queue` : "", job.openIncident != null ? `incident ${job.openIncident}` : "", job.warnings?.length ? `! ${job.warnings[0]}` : "", job.message || ""].filter(Boolean).join(": "));
    row.classList.toggle("chosen", key === shown);
    row.hidden = !matches(row);
    // Rows move only where the order has changed: the one that has the focus keeps it.
    const place = before ? before.nextSibling : at("rows").firstChild;
    if (place !== row) at("rows").insertBefore(row, place);
    before = row;
  }
  for (const [key, row] of rows) if (!wanted.has(key)) { row.remove(); rows.delete(key); }
  tellFound();
  at("jobs").hidden = at("queue").hidden = false;
  at("rows").dataset.drawnMilliseconds = (performance.now() - start).toFixed(1);
}
// What may be long is cut after three lines; all of it is behind the name of the job.
function say(cell, words) {
  if (words && !cell.firstChild) cell.append(el("span", { class: "why" }));
  if (!words) cell.replaceChildren();
  else put(cell.firstChild, words);
}
function matches(row) {
  const [job, state, , , , , , , why] = row.children, text = `${job.textContent} ${state.textContent} ${why.textContent}`.toLowerCase();
  return at("find").value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
function tellFound() {
  const seen = [...rows.values()].filter((row) => !row.hidden).length;
  put(at("found"), at("find").value.trim() ? `${number(seen)} of ${number(rows.size)}` : "");
}
const looks = (state) => GOOD.has(state) ? "good" : BAD.has(state) ? "bad" : DONE.has(state) ? "done" : "wait";
const href = (key) => `#/${key.split("/").map(encodeURIComponent).join("/")}`;
function open(key) { location.hash = href(key); }

// ---- one job
// Of "11.1 h (4 failures)" the reader looks for the first half.
function fact(name, value) {
  if (value === "" || value == null) return [];
  const [, figure, remark] = /^(.*?)((?:: | \().*)?$/s.exec(value);
  return [el("div", {}, el("dt", { text: name }), el("dd", {}, el("span", { text: figure }), el("small", { text: remark || "" })))];
}
// The figures of kubectl muster report: those that are known, and a list of the others with the reason.
function facts(figures) {
  const known = [], unknown = [];
  // A name that is indented belongs to the one above it, which here may stand on another line.
  let above = "";
  for (const { name, value } of figures) {
    if (!name.startsWith(" ")) above = name;
    const whole = name.startsWith(" ") ? `${above}: ${name.trim()}` : name;
    if (value.startsWith("unknown")) unknown.push(el("li", { text: `${whole}: ${value}`.replace(/: unknown(: |$)/, "$1") }));
    else known.push(...fact(whole, value));
  }
  return [known, unknown.length ? [el("h3", { text: "Not known" }), el("ul", { class: "plain" }, ...unknown)] : []];
}
function strip(life) {
  const begin = +new Date(life.begin), whole = Math.max(+new Date(life.end) - begin, 1);
  const share = (time) => `${((new Date(time) - begin) / whole * 100).toFixed(3)}%`;
  const kinds = [...new Set(life.stretches.map((each) => each.kind))];
  const spoken = life.stretches.slice(0, 60).map((each) => `${STRETCHES[each.kind] || each.kind} for ${duration((new Date(each.end) - new Date(each.begin)) / 1000)}`).join(", then ");
  const made = el("div", { class: "strip", role: "img", "aria-label": `Life of the job: ${spoken}` });
  for (const each of life.stretches) {
    const part = el("i", { class: each.kind, title: `${STRETCHES[each.kind] || each.kind}, ${moment(each.begin)}, ${duration((new Date(each.end) - new Date(each.begin)) / 1000)}` });
    part.style.left = share(each.begin);
    part.style.width = `${((new Date(each.end) - new Date(each.begin)) / whole * 100).toFixed(3)}%`;
    made.append(part);
  }
  for (const mark of life.marks) {
    const sign = el("b", { class: mark.kind, title: `${mark.text}, ${moment(mark.time)}`, text: { checkpoint: "▴", failure: "▼", planned: "◇" }[mark.kind] || "•" });
    sign.style.left = share(mark.time);
    made.append(sign);
  }
  const legend = kinds.map((kind) => el("li", {}, el("i", { class: kind }), STRETCHES[kind] || kind));
  const signs = { failure: "▼ failure", planned: "◇ planned evacuation", checkpoint: "▴ checkpoint" };
  legend.push(...Object.keys(signs).filter((kind) => life.marks.some((mark) => mark.kind === kind)).map((kind) => el("li", { text: signs[kind] })));
  return [made, el("div", { class: "ends" }, el("span", { text: moment(life.begin) }), el("ul", { class: "legend" }, ...legend), el("span", { text: moment(life.end) }))];
}
function table(heads, lines, numeric = []) {
  return el("div", { class: "wide" }, el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((text, at) => el("th", { scope: "col", text, ...(numeric.includes(at) ? { class: "n" } : {}) })))),
    el("tbody", {}, ...lines.map((line) => el("tr", {}, ...line.map((text, at) => el("td", { text, ...(numeric.includes(at) ? { class: "n" } : {}) })))))));
}
let drawn = "", last = "", opens = false;
function drawOne(key, body) {
  stale(body);
  const { job, life, report, waiting } = body;
  const { ageSeconds, ...rest } = body;
  const same = JSON.stringify(rest);
  if (drawn === same) return;
  drawn = same;
  const close = el("a", { href: "#/", text: "close", "aria-label": "Close this job" });
  const parts = [el("div", { class: "head" },
    el("h2", { id: "one-head", tabindex: "-1" }, `${key} `, el("span", { class: `state ${looks(job.state)}`, text: job.state || "New" })), close)];
  const [known, unknown] = facts(body.figures || []);
  parts.push(el("dl", { class: "numbers" }, ...fact("step", job.step == null ? "" : number(job.step)), ...fact("speed", speed(job.stepsPerSecond)),
    ...fact("nodes", job.nodes ? number(job.nodes) : ""), ...fact("restarts", job.restarts ? number(job.restarts) : ""), ...known));
  if (job.message) parts.push(el("p", { class: "message", text: job.message }));
  if (body.warnings?.length) parts.push(el("h3", { text: "Warnings" }), el("ul", { class: "plain" },
    ...body.warnings.map((each) => el("li", { text: `${each.reason}: ${each.message}` }))));
  if (life) parts.push(el("h3", { text: "Life" }), ...strip(life));
  if (waiting) {
    parts.push(el("h3", { text: "What it waits for" }), el("p", { class: "message", text: `${waiting.needs} nodes${waiting.level ? ` in one ${waiting.level}` : ""}${waiting.fleet ? `; ${waiting.free} free, ${waiting.suitable} suitable of ${waiting.fleet}` : ""}` }));
    if (body.starts) parts.push(el("p", { class: "message", text: body.starts }));
    const why = [...(waiting.blockers || []).map((each) => `${number(each.nodes)} nodes: ${each.reason}`), ...(waiting.remedies || []).map((text) => `it starts when: ${text}`)];
    parts.push(el("ul", { class: "plain" }, ...why.map((text) => el("li", { text }))));
  }
  if (report) {
    const left = el("div", {}, el("h3", { text: "Where the time went" }), bar(report.buckets), table(["", "time", "share", "GPU-hours"],
      report.buckets.map((each) => [each.bucket, duration(each.seconds), percent(each.share), number(each.gpuHours, 1)]), [1, 2, 3]));
    const right = el("div");
    if (body.incidents?.length) right.append(el("h3", { text: "Incidents" }), table(["seen", "class", "reason", "node", "repaired", "waited", "training after", "lost"],
      body.incidents.toReversed().map((each) => [moment(each.time), each.faultClass, each.reason, each.node || "", REPAIRS[each.level] || each.level,
        each.askedTime ? duration((new Date(each.time) - new Date(each.askedTime)) / 1000) : "", each.resumedTime ? duration((new Date(each.resumedTime) - new Date(each.faultTime || each.time)) / 1000) : "", each.lostSeconds != null ? duration(each.lostSeconds) : ""])));
    if (report.advice?.length) right.append(el("h3", { text: "Advice" }), el("ul", { class: "plain" }, ...report.advice.map((text) => el("li", { text }))));
    right.append(...unknown);
    parts.push(el("div", { class: "two" }, left, right));
  }
  const had = document.activeElement?.closest?.("#one") ? document.activeElement.tagName : "";
  at("one").replaceChildren(...parts);
  at("one").hidden = false;
  if (had === "A") close.focus();
  // A reader that opens a job by the keyboard continues there, and not at the link far below.
  else if (had || opens) at("one-head").focus();
  opens = false;
}
function closeOne() {
  const inside = at("one").contains(document.activeElement), was = rows.get(last);
  at("one").hidden = true;
  at("one").replaceChildren();
  if (inside) was && !was.hidden ? was.querySelector("a").focus() : at("main").focus();
}
function route() {
  let parts = [];
  try { parts = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent); } catch { /* a hash that is none */ }
  shown = parts.length === 2 && parts[0] && parts[1] ? parts.join("/") : "";
  drawn = "";
  told("one", "");
  if (!shown) closeOne();
  opens = Boolean(shown);
  last = shown;
  for (const [key, row] of rows) row.classList.toggle("chosen", key === shown);
  highlight(shown);
  questions.one();
}

// ---- the fleet's report
function bar(buckets) {
  const made = el("div", { class: "bar", "aria-hidden": "true" });
  for (const each of buckets) {
    const part = el("i", { class: BUCKETS[each.bucket] || "queued", title: `${each.bucket} ${percent(each.share)}` });
    part.style.width = percent(each.share);
    made.append(part);
  }
  return made;
}
function tablesOf(body, isNumber) {
  return body.tables.flatMap(({ title, heads, rows }) => [el("h3", { text: title }),
    table(heads.map((head) => head.toLowerCase().replace("gpu", "GPU")), rows, heads.map((_, at) => at).filter((at) => isNumber(heads[at], at)))]);
}
function drawQueue(body) {
  at("waiting").replaceChildren(...(body.tables.length ? [] : [el("p", { class: "quiet", text: "no job that you may see waits or holds nodes" })]),
    ...tablesOf(body, (head) => ["PLACE", "NODES", "RESERVED"].includes(head)), ...body.remarks.map((text) => el("p", { class: "quiet", text })));
}
let reported = "";
function drawReport(body) {
  const { ageSeconds, ...rest } = body;
  const same = JSON.stringify(rest);
  if (reported === same) return;
  reported = same;
  const tables = tablesOf(body, (head, at) => at && !["CLASS", "STATE"].includes(head));
  const [known, unknown] = facts(body.figures);
  at("told").replaceChildren(el("p", { class: "quiet", text: `${body.period}${body.tables.length ? "" : ": no job has had nodes in this time"}` }),
    el("dl", { class: "numbers" }, ...known), bar(body.buckets), ...tables, ...unknown,
    ...body.remarks.map((text) => el("p", { class: "quiet", text })));
}

// ---- who is asking
function leave(words = "") {
  token = "";
  round += 1;
  sessionStorage.removeItem("token");
  for (const id of ["fleet", "queue", "report", "one", "jobs", "leave"]) at(id).hidden = true;
  at("rows").replaceChildren(); at("map").replaceChildren(); at("one").replaceChildren(); at("legend").replaceChildren(); at("told").replaceChildren(); at("waiting").replaceChildren();
  rows.clear(); cells.clear(); shape = ""; order = []; current = null; drawn = reported = "";
  put(at("summary"), ""); put(at("who"), ""); put(at("cell"), POINT); at("find").value = "";
  troubles.clear();
  told("door", words);
  at("door").hidden = false;
  at("token").focus();
}
function enter() {
  round += 1;
  at("door").hidden = true;
  at("leave").hidden = false;
  told("door", "");
  for (const turn of Object.values(questions)) turn();
}

again("jobs", async () => { const body = await ask(`api/jobs${at("ended").checked ? "?ended=1" : ""}`); return () => drawJobs(body); });
again("fleet", async () => {
  try { const body = await ask("api/fleet"); return () => drawFleet(body); } catch (error) {
    if (error.status !== 403) throw error;
    return () => { at("fleet").hidden = at("report").hidden = true; }; // a tenant: the rest of the page is its own
  }
});
again("one", async () => {
  const key = shown;
  if (!key) return null;
  try {
    const body = await ask(`api/jobs/${key.split("/").map(encodeURIComponent).join("/")}`);
    return () => { if (key === shown) drawOne(key, body); };
  } catch (error) {
    // It is gone, or no longer visible to this user: remove what was drawn of it.
    if (key === shown && (error.status === 403 || error.status === 404)) { at("one").hidden = true; at("one").replaceChildren(); drawn = ""; }
    throw Object.assign(new Error(`${key}: ${error.message}`), { status: error.status });
  }
});
again("queue", async () => {
  if (!at("queue").open) return null;
  const body = await ask("api/queue");
  return () => drawQueue(body);
});
at("queue").addEventListener("toggle", () => questions.queue());
again("report", async () => {
  if (!at("report").open) return null;
  const days = at("days").value;
  if (!reported) put(at("told"), "reading the history …");
  const body = await ask(`api/report?days=${days}`);
  return () => { if (days === at("days").value) drawReport(body); };
});
at("report").addEventListener("toggle", () => questions.report());
at("days").addEventListener("change", () => { reported = ""; questions.report(); });
at("door").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim().replace(/^bearer\s+/i, "");
  at("token").value = "";
  sessionStorage.setItem("token", token);
  enter();
});
at("leave").addEventListener("click", () => leave());
at("ended").addEventListener("change", () => questions.jobs());
at("find").addEventListener("input", () => { for (const row of rows.values()) row.hidden = !matches(row); tellFound(); });
at("map").addEventListener("keydown", move);
at("map").addEventListener("focusin", (event) => tell(event.target.dataset.node));
at("map").addEventListener("pointerover", (event) => {
  const name = event.target.dataset?.node;
  if (name) { tell(name); highlight(cells.get(name)?.node?.job || shown); }
});
at("map").addEventListener("pointerleave", () => highlight(shown));
at("map").addEventListener("click", (event) => {
  const job = cells.get(event.target.dataset?.node)?.node?.job;
  if (job) open(job);
});
addEventListener("hashchange", route);
addEventListener("keydown", (event) => { if (event.key === "Escape" && shown && event.target !== at("find")) location.hash = "#/"; });
document.addEventListener("visibilitychange", () => { if (!document.hidden) for (const turn of Object.values(questions)) turn(); });
route();
token ? enter() : leave();
