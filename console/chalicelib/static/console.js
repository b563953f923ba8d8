// The console's one script: it only makes pages pleasanter; each works without it.
"use strict";

(() => {
  const EVERY = 5000; // milliseconds between two looks
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

  function tellTimes(root = document) {
    each("time[data-ago]", (time) => {
      const then = Date.parse(time.dateTime);
      const text = relative(then);
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
      note.textContent = ticked ? `With the ${ticked} ticked:` : "With the ticked:";
    });
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("input[data-all]")) {
      each("td.tick input", (box) => { box.checked = event.target.checked; });
    }
    if (event.target.closest(".tick")) countTicked();
  });

  // ---- Live parts: the same address asked again for one part; never under someone's hands.

  const tools = document.querySelector("[data-live-tools]");
  const onOff = document.querySelector("[data-live-switch]");
  const note = document.querySelector("[data-live-note]");
  const KEY = "headrace-live";
  const LATEST = 60000; // milliseconds between two looks, where there is no answer
  const PAUSE = 200; // milliseconds between two looks for what is rare
  let failed = 0; // looks in a row
  let drawn = Date.now();

  function busy() {
    if (document.querySelector("[data-look-on]")) return "while it looks on";
    if (document.querySelector("td.tick input:checked")) return "while tasks are ticked";
    const active = document.activeElement;
    if (active && active.matches("input:not([data-live-switch]), select, textarea")) {
      if (active.closest("form") || active.closest(".tick")) return "while you type";
    }
    if (document.querySelector("details.drop[open]")) return "while a form is open";
    if (String(document.getSelection())) return "while text is selected";
    return "";
  }

  async function refresh(parts) {
    const answer = await fetch(location.href, {
      headers: { "X-Part": parts.map((part) => part.dataset.live).join(" ") },
      credentials: "same-origin",
      redirect: "error",
    });
    if (!answer.ok) throw new Error(answer.status);
    const text = await answer.text();
    const date = Date.parse(answer.headers.get("Date") || "");
    if (date) ahead = Math.abs(Date.now() - date) > 5000 ? Date.now() - date : 0;
    if (busy()) return;
    const fresh = new DOMParser().parseFromString(`<body>${text}</body>`, "text/html").body;
    for (const part of parts) {
      const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
      if (!other) continue;
      keepState(part, other);
      part.replaceChildren(...other.childNodes);
      dress(part);
    }
  }

  // What was unfolded stays so, and whoever stood on a link stands there still.
  function keepState(part, fresh) {
    const folds = fresh.querySelectorAll("details");
    part.querySelectorAll("details").forEach((fold, place) => {
      if (fold.open && folds[place]) folds[place].open = true;
    });
    const href = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
    if (href) {
      queueMicrotask(() => {
        const again = [...part.querySelectorAll("a")].find((a) => a.getAttribute("href") === href);
        if (again) again.focus({ preventScroll: true });
      });
    }
  }

  // After a failure it tries again, each time later, and says how old the page is by now.
  async function look() {
    const parts = [...document.querySelectorAll("[data-live]")];
    const why = document.hidden ? "while hidden" : busy();
    if (!onOff.checked || why) {
      note.textContent = onOff.checked ? `paused ${why}` : "";
    } else {
      try {
        await refresh(parts);
        failed = 0;
        drawn = Date.now();
        note.textContent = "";
      } catch {
        failed += 1;
        note.textContent = `no answer: as of ${new Date(drawn).toLocaleTimeString()}, tries again`;
      }
    }
    setTimeout(look, Math.min(EVERY * 2 ** failed, LATEST));
  }

  // ---- Looking on: what no index knows is looked for bit by bit, until something is found.

  async function lookOn() {
    const on = document.querySelector("[data-look-on]");
    if (!on) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(on.href, {
          headers: { "X-Part": "live_tasks" }, credentials: "same-origin", redirect: "error",
        });
        if (!answer.ok) return;
        const fresh = new DOMParser().parseFromString(`<body>${await answer.text()}</body>`, "text/html");
        if (!fresh.querySelector("[data-look-on]")) {
          location.replace(on.href);
          return;
        }
        on.closest(".empty").replaceWith(fresh.querySelector(".empty"));
      } catch { return; }
    }
    setTimeout(lookOn, PAUSE);
  }

  // What is current stands in sight where a narrow window shows but a part of a row.
  function showCurrent() {
    each(".places [aria-current], .diagram .node-current", (one) => {
      const room = one.closest(".places, .scroll");
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
  if (tools && document.querySelector("[data-live]")) {
    tools.hidden = false;
    try { onOff.checked = localStorage.getItem(KEY) !== "off"; } catch { /* no storage */ }
    onOff.addEventListener("change", () => {
      try { localStorage.setItem(KEY, onOff.checked ? "on" : "off"); } catch { /* no storage */ }
      note.textContent = "";
    });
    setTimeout(look, EVERY);
  }
})();
