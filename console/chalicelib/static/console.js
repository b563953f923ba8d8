// The console's one script: it only makes pages pleasanter; each works without it.
"use strict";

(() => {
  const LONGEST = 5000; // milliseconds between two refreshes, also while the service is away
  const each = (selector, act, root = document) => root.querySelectorAll(selector).forEach(act);

  // ---- Times: relative text kept right, the viewer's own clock on hover.

  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let ahead = 0; // how far this clock is ahead of the service's, in milliseconds

  function relative(then) {
    const seconds = (Date.now() - ahead - then) / 1000;
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const [length, unit] = units.find(([least]) => size >= least);
    const about = `${Math.floor(size / length)} ${unit}`;
    return seconds > 0 ? `${about} ago` : `in ${about}`;
  }

  // How long ago it was, in up to two units: 45 s, 1 min 20 s, 2 h 5 min.
  function since(then) {
    let left = Math.max(0, Math.floor((Date.now() - ahead - then) / 1000));
    if (left < 1) return "0 s";
    const parts = [];
    for (const [length, unit] of units) {
      if (left >= length || parts.length) parts.push([Math.floor(left / length), unit]);
      left %= length;
    }
    return parts.slice(0, 2).filter(([count]) => count).map((part) => part.join(" ")).join(" ");
  }

  function tellTimes(root = document) {
    each("time[data-ago], time[data-since]", (time) => {
      const then = Date.parse(time.dateTime);
      const text = (time.dataset.since === undefined ? relative : since)(then);
      if (time.textContent !== text) time.textContent = text;
      if (!time.dataset.told) {
        time.dataset.told = "yes";
        time.title += `\n${new Date(then).toLocaleString()} here`;
      }
    }, root);
  }

  // ---- Copying.

  function showCopies(root = document) {
    if (!navigator.clipboard) return;
    each("button[data-copy]", (button) => { button.hidden = false; }, root);
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {
      button.textContent = "not copied";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });

  // ---- Ticking rows.

  function showAll(root = document) {
    each("[data-all-label]", (all) => { all.hidden = false; }, root);
  }

  function countTicked() {
    const ticked = document.querySelectorAll('td.tick input:checked').length;
    each("[data-ticked]", (note) => {
      note.textContent = `${ticked} selected:`;
    });
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("input[data-all]")) {
      each("td.tick input", (box) => { box.checked = event.target.checked; });
    }
    if (event.target.closest(".tick")) countTicked();
  });

  // ---- Live: the same address asked again, the whole page at one moment; never under someone's
  // hands.

  const tools = document.querySelector("[data-live-tools]");
  const onOff = document.querySelector("[data-live-switch]");
  const note = document.querySelector("[data-live-note]");
  const KEY = "headrace-live";
  const PATIENCE = 10000; // milliseconds until a refresh without an answer has failed
  const PAUSE = 200; // milliseconds between two steps of a search
  const every = tools ? Number(tools.dataset.every) * 1000 : LONGEST;
  const stale = document.querySelector("[data-stale]");
  let failed = 0; // refreshes in a row
  let drawn = Date.now();
  let tag = ""; // of the page as it is shown
  let next; // the timer of the next refresh

  function busy() {
    if (document.querySelector("[data-look-on]")) return "during the search";
    if (drag) return "while you drag";
    if (document.querySelector("td.tick input:checked")) return "while tasks are ticked";
    const active = document.activeElement;
    if (active && active.matches("input:not([data-live-switch]), select, textarea")) {
      if (active.closest("form") || active.closest(".tick")) return "while you type";
    }
    if (document.querySelector("details.drop[open]")) return "while a form is open";
    // Of what is selected in a field that was left, only its text is told.
    if (!document.getSelection().isCollapsed) return "while text is selected";
    return "";
  }

  function ask(url, headers) {
    return fetch(url, {
      headers: { "X-Refresh": "1", ...headers },
      credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(PATIENCE),
    });
  }

  async function refresh() {
    const answer = await ask(location.href, tag ? { "If-None-Match": tag } : {});
    const date = Date.parse(answer.headers.get("Date") || "");
    if (date) ahead = Math.abs(Date.now() - date) > 5000 ? Date.now() - date : 0;
    if (answer.status === 304) {
      each("[data-as-of]", (time) => {
        time.dateTime = new Date(Date.now() - ahead).toISOString();
        time.removeAttribute("title");
      });
      return;
    }
    if (!answer.ok) throw answer;
    const text = await answer.text();
    if (busy()) return;
    tag = answer.headers.get("ETag") || "";
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    const main = document.querySelector("main"), active = document.activeElement;
    become(main, fresh);
    if (active !== document.activeElement && active.isConnected) active.focus({ preventScroll: true });
    dress(main);
  }

  // Makes an element like a fresh one, and keeps whatever is still there: who stands on it, has
  // unfolded or scrolled it, notices nothing but the numbers.

  const SHOWN = "[data-copy], [data-all-label], [data-live-tools]"; // by this script

  function nameOf(node) {
    if (node.nodeType !== Node.ELEMENT_NODE) return `#${node.nodeType}`;
    const link = node.matches("tr, li") && node.querySelector("a[href]");
    return `${node.tagName} ${node.id || node.dataset.live || (link && link.getAttribute("href")) || ""}`;
  }

  function become(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data === fresh.data) return;
      old.data = fresh.data;
      if (old.data.trim()) flash(old.parentElement);
      return;
    }
    if (!old.matches("input:not([type=hidden]), select, textarea")) takeAttributes(old, fresh);
    const left = new Map();
    for (const child of old.childNodes) {
      const name = nameOf(child);
      left.set(name, [...(left.get(name) || []), child]);
    }
    const children = [...fresh.childNodes].map((one) => {
      const same = (left.get(nameOf(one)) || []).shift();
      if (same) become(same, one);
      return same || one;
    });
    for (const child of [...left.values()].flat()) {
      if (!(child.matches && child.matches(".flash"))) child.remove();
    }
    let at = old.firstChild;
    for (const child of children) {
      if (child === at) {
        at = at.nextSibling;
      } else {
        const isNew = !old.contains(child);
        old.insertBefore(child, at);
        if (isNew && child.matches && child.matches("tr, .trouble")) flash(child);
      }
    }
  }

  function takeAttributes(old, fresh) {
    for (const { name, value } of [...fresh.attributes]) {
      if (name === "open" || (name === "hidden" && old.matches(SHOWN))) continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  }

  function flash(element) {
    if (!element.closest("td, tbody tr, .tabs, .figures, .trouble")) return;
    if (element.closest("time, .age")) return; // they change by themselves
    element.classList.add("changed");
    setTimeout(() => element.classList.remove("changed"), 2000);
  }

  // Says why the page is no longer live and how old it is, and offers the way on.
  function tellStale(status) {
    const at = new Date(drawn).toLocaleTimeString();
    const why = {
      401: "You are signed out.", 403: "This key can no longer see this page.",
      404: "This page no longer exists.", 410: "This page no longer exists.",
    }[status] || "The service does not answer.";
    stale.querySelector("[data-why]").textContent = `${why} The page shows ${at}.`;
    stale.querySelector("a").hidden = status !== 401;
    stale.querySelector("button").hidden = status === 401;
    stale.hidden = false;
  }

  async function look() {
    clearTimeout(next);
    const why = document.hidden ? "while hidden" : busy();
    if (!onOff.checked || why) {
      note.textContent = onOff.checked ? `paused ${why}` : "";
    } else {
      try {
        await refresh();
        failed = 0;
        drawn = Date.now();
        note.textContent = "";
        stale.hidden = true;
      } catch (fault) {
        failed += 1;
        tellStale(fault.status);
      }
    }
    clearTimeout(next);
    next = setTimeout(look, Math.min(every * 2 ** failed, LONGEST));
  }

  // ---- A search without an index continues step by step: in a list of one queue until it finds
  // something, over all queues until the end; what a step finds is added to the table.

  async function lookOn() {
    const on = document.querySelector("[data-look-on]");
    if (!on) return;
    if (!document.hidden) {
      try {
        const answer = await ask(on.href);
        if (!answer.ok) return;
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        const room = document.querySelector("[data-found]");
        const left = fresh.querySelector("[data-looking]");
        if (!room && !(left && left.querySelector("[data-look-on]"))) {
          location.replace(on.href);
          return;
        }
        if (room) addFound(room, fresh.querySelector("[data-found]"));
        const rest = left || fresh.querySelector("[data-found] ~ *");
        on.closest("[data-looking]").replaceWith(...(rest ? [rest] : []));
        dress(document.querySelector("main"));
      } catch { return; }
    }
    setTimeout(lookOn, PAUSE);
  }

  function addFound(room, fresh) {
    const rows = room.querySelector("tbody"), more = fresh.querySelector("tbody");
    if (rows && more) rows.append(...more.children);
    else if (more) room.replaceChildren(...fresh.children);
  }

  // ---- Charts: a time is dragged over, and shown closer.

  let drag = null;

  function along(plot, event) {
    const box = plot.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  }

  document.addEventListener("pointerdown", (event) => {
    const plot = event.target.closest(".charts[data-since] .plot");
    if (!plot || event.button !== 0 || event.pointerType === "touch") return;
    event.preventDefault();
    drag = { plot, from: along(plot, event), band: document.createElementNS(plot.namespaceURI, "rect") };
    drag.band.setAttribute("class", "zoom-band");
    drag.band.setAttribute("height", plot.viewBox.baseVal.height);
    plot.append(drag.band);
  });

  document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const to = along(drag.plot, event), wide = drag.plot.viewBox.baseVal.width;
    drag.band.setAttribute("x", Math.min(drag.from, to) * wide);
    drag.band.setAttribute("width", Math.abs(to - drag.from) * wide);
  });

  document.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { plot, from, band } = drag;
    drag = null;
    band.remove();
    const to = along(plot, event);
    if (Math.abs(to - from) < 0.02) return;
    const { since, until } = plot.closest(".charts").dataset;
    const begin = Date.parse(since), length = Date.parse(until) - begin;
    const at = (part) => new Date(begin + part * length).toISOString().slice(0, 16);
    const url = new URL(location.href);
    url.searchParams.delete("span");
    url.searchParams.set("from", at(Math.min(from, to)));
    url.searchParams.set("to", at(Math.max(from, to)));
    location.assign(url);
  });

  // ---- Charts: the numbers of an instant, of all charts, beside the pointer.

  const instant = document.createElement("p");
  instant.className = "instant";
  instant.setAttribute("aria-hidden", "true"); // the tables have the numbers

  function hideInstant() {
    instant.remove();
    each(".crosshair", (line) => line.remove());
  }

  document.addEventListener("pointermove", (event) => {
    const plot = event.target.closest(".charts .plot");
    if (!plot || drag) { hideInstant(); return; }
    const charts = plot.closest(".charts"), lines = [];
    const tables = [...charts.querySelectorAll(".numbers table")];
    const last = tables[0].tBodies[0].rows.length - 1;
    const at = Math.round(along(plot, event) * last);
    each(".crosshair", (line) => line.remove());
    each(".chart", (chart) => {
      const table = chart.querySelector(".numbers table"), row = table.tBodies[0].rows[at];
      const heads = table.tHead.rows[0].cells, room = chart.querySelector(".plot");
      if (!row) return;
      if (!lines.length) lines.push(`${row.cells[0].textContent} UTC`);
      lines.push(chart.querySelector("strong").textContent);
      for (let n = 1; n < row.cells.length; n += 1) lines.push(`  ${heads[n].textContent}  ${row.cells[n].textContent}`);
      const line = document.createElementNS(room.namespaceURI, "path");
      line.setAttribute("class", "crosshair");
      line.setAttribute("d", `M${room.viewBox.baseVal.width * at / Math.max(1, last)} 0V${room.viewBox.baseVal.height}`);
      room.append(line);
    }, charts);
    instant.textContent = lines.join("\n");
    document.body.append(instant);
    const wide = document.documentElement.clientWidth, { width, height } = instant.getBoundingClientRect();
    const x = event.clientX + 16 + width > wide ? event.clientX - 16 - width : event.clientX + 16;
    const y = Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 4));
    instant.style.left = `${x + scrollX}px`;
    instant.style.top = `${y + scrollY}px`;
  });

  // Whether charts are large is kept in this browser.
  const LARGE = "headrace-charts";
  const large = document.querySelector("[data-large]");
  if (large) {
    try { large.checked ||= localStorage.getItem(LARGE) === "large"; } catch { /* no storage */ }
    large.addEventListener("change", () => {
      try { localStorage.setItem(LARGE, large.checked ? "large" : ""); } catch { /* no storage */ }
    });
  }

  // What is current stands in sight where a narrow window shows but a part of a row.
  function showCurrent() {
    each(".places [aria-current]", (one) => {
      const room = one.closest(".places");
      const at = one.getBoundingClientRect(), around = room.getBoundingClientRect();
      room.scrollLeft += at.left + at.width / 2 - around.left - around.width / 2;
    });
  }

  function dress(root) {
    tellTimes(root);
    showCopies(root);
    showAll(root);
  }

  dress(document);
  showCurrent();
  setInterval(tellTimes, 1000, document);
  setTimeout(lookOn, PAUSE);
  if (tools) {
    tools.hidden = false;
    try { onOff.checked = localStorage.getItem(KEY) !== "off"; } catch { /* no storage */ }
    onOff.addEventListener("change", () => {
      try { localStorage.setItem(KEY, onOff.checked ? "on" : "off"); } catch { /* no storage */ }
      note.textContent = "";
    });
    stale.querySelector("button").addEventListener("click", look);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
    window.addEventListener("online", look);
    next = setTimeout(look, every);
  }
})();
